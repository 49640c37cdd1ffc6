"""What `stowplan simulate` does: read the cluster, run it by each seed, print what came of it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import click

from stowplan.cli.runs.cluster_source import ClusterSource, is_live, read_cluster_source
from stowplan.cli.runs.input_reading import strict_exit_code
from stowplan.cli.runs.pod_argument import DEFAULT_NAMESPACE, find_pod_argument
from stowplan.cli.runs.simulate_sessions import (
    has_unplaced_pods,
    is_for_sessions,
    refuse_beside_sessions,
    run_sessions,
)
from stowplan.cli.simulate_options import N_NODES, N_PODS
from stowplan.cli.tables.configuration_warnings import warn_of_ineffective_settings
from stowplan.cli.tables.progress import progress
from stowplan.cli.tables.simulation_output import OutputRequest, print_simulation
from stowplan.inputs.cluster_reader import Cluster
from stowplan.inputs.generated_workload import generate_workload
from stowplan.simulation.replay import ReplayOptions
from stowplan.simulation.results.result_files import check_directory, write_files
from stowplan.simulation.results.seed_comparison import files_of
from stowplan.simulation.scheduler_configuration import read_deciders
from stowplan.simulation.simulate import Simulation, simulate


class SimulateRequest(NamedTuple):
    """What the command line says, by the names of its parameters, but for a replay."""

    files: tuple[str, ...]
    clusters: tuple[str, ...]
    orphans: str
    validate: str | None
    kubeconfig: str | None
    context: str
    config_files: tuple[str, ...]
    profile: str | None
    plugin_files: tuple[str, ...]
    extender_files: tuple[str, ...]
    compat: str | None
    node_count: int | None
    pod_count: int | None
    seed: tuple[int, ...]
    n_seeds: int | None
    explain: str
    namespace: str | None
    all_namespaces: bool
    out: str | None
    output: str
    strict: bool

    @property
    def source(self) -> ClusterSource:
        """Where the cluster comes from."""
        paths = (*self.clusters, *self.files)
        return ClusterSource(paths, self.kubeconfig, self.context, self.orphans, self.validate)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the runs; raises a usage error."""
        if self.n_seeds is None:
            return tuple(dict.fromkeys(self.seed))
        if len(self.seed) > 1:
            raise click.UsageError("--seeds counts from one --seed; several were given.")
        return tuple(range(self.seed[0], self.seed[0] + self.n_seeds))


def run_simulate(request: SimulateRequest, replay: ReplayOptions | None) -> int:
    """Run, write and print; the exit code."""
    namespace = None if request.all_namespaces else request.namespace
    wanted = OutputRequest(request.out, request.output, namespace)
    given = _check(request, wanted)
    deciders = warn_of_ineffective_settings(
        read_deciders(request.config_files, request.plugin_files, request.compat or "")
    )
    cluster = read_cluster_source(request.source, deciders) if given else None
    if is_for_sessions(deciders, cluster) and replay is None:
        _refuse_beside_sessions(request)
        seed, strict = request.seeds[0], request.strict
        code = run_sessions(cluster, deciders, seed, wanted.out, wanted.output, strict=strict)
        return strict_exit_code(code, cluster, strict=strict)
    how = {
        "config": request.config_files,
        "plugins": request.plugin_files,
        "extenders": request.extender_files,
        "profile": request.profile,
        "node_count": request.node_count if given else None,
        "replay": replay,
        "compat": request.compat or "",
    }
    n_nodes = request.node_count or N_NODES
    n_pods = N_PODS if request.pod_count is None else request.pod_count
    runs: dict[int, Simulation] = {}
    for seed in request.seeds:
        world = cluster or generate_workload(n_nodes, n_pods, seed)
        explain = _explained(request.explain, namespace, world)
        runs[seed] = _run(world, seed, {**how, "explain": explain})
    if wanted.out is not None:
        write_files(wanted.out, files_of(runs))
    print_simulation(runs, wanted)
    short = any(has_unplaced_pods(run.summary) for run in runs.values())
    return strict_exit_code(1 if request.strict and short else 0, cluster, strict=request.strict)


def _check(request: SimulateRequest, wanted: OutputRequest) -> bool:
    """Refuse what cannot be used before anything is read; True where a cluster is given."""
    given = is_live(request.source) or bool(request.source.paths)
    if given and request.pod_count is not None:
        raise click.UsageError("--pod-count sizes the generated workload only.")
    if request.explain and len(request.seeds) > 1:
        raise click.UsageError("--explain explains one run; several seeds were given.")
    if request.explain and wanted.output == "csv":
        raise click.UsageError("--explain cannot be printed with -o csv.")
    if wanted.out is not None:
        check_directory(wanted.out)
    return given


def _explained(text: str, namespace: str | None, cluster: Cluster) -> str:
    """The key of the pod that is to be explained, "" for none."""
    return find_pod_argument(text, namespace or DEFAULT_NAMESPACE, cluster).key if text else ""


def _refuse_beside_sessions(request: SimulateRequest) -> None:
    """Raise a usage error for what has no meaning for sessions."""
    if request.extender_files:
        raise click.UsageError("--extender cannot stand beside actions and tiers.")
    if request.explain:
        raise click.UsageError("--explain: sessions decide here; `stowplan explain` explains them.")
    refuse_beside_sessions(request.seeds, request.node_count, request.profile)


@contextmanager
def infrequent_gc() -> Iterator[None]:
    """Run the collector of reference cycles less often: a run makes many objects, few of them in
    cycles."""
    usual = gc.get_threshold()
    gc.set_threshold(100_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*usual)


def _run(cluster: Cluster, seed: int, how: dict[str, Any]) -> Simulation:
    what = "placing" if how["replay"] is None else "replaying"
    with infrequent_gc(), progress(what, len(cluster.pending())) as shown:
        return simulate(cluster, seed=seed, on_progress=shown.show, on_tick=shown.tick, **how)
