"""What `stowplan simulate` does: read the cluster, run it by each seed, print what came of it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import click

from stowplan.cli.configuration_warnings import warned
from stowplan.cli.input_notes import strict_code
from stowplan.cli.pod_argument import DEFAULT_NAMESPACE, pod_named
from stowplan.cli.progress import progress
from stowplan.cli.reading import Source, cluster_of, is_live
from stowplan.cli.simulate_jobs import (
    hold_sessions,
    is_for_sessions,
    is_short,
    refuse_beside_sessions,
)
from stowplan.cli.simulate_options import N_NODES, N_PODS
from stowplan.cli.simulate_print import Wanted, show
from stowplan.sim.cluster import Cluster
from stowplan.sim.deciders import read_deciders
from stowplan.sim.outputs import check_directory, write_files
from stowplan.sim.over_seeds import files_of
from stowplan.sim.replay import ReplayOptions
from stowplan.sim.simulate import Simulation, simulate
from stowplan.sim.workload import generate


class Asked(NamedTuple):
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
    def source(self) -> Source:
        """Where the cluster comes from."""
        paths = (*self.clusters, *self.files)
        return Source(paths, self.kubeconfig, self.context, self.orphans, self.validate)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the runs; raises a usage error."""
        if self.n_seeds is None:
            return tuple(dict.fromkeys(self.seed))
        if len(self.seed) > 1:
            raise click.UsageError("--seeds counts from one --seed; several were given.")
        return tuple(range(self.seed[0], self.seed[0] + self.n_seeds))


def simulated(asked: Asked, replay: ReplayOptions | None) -> int:
    """Run, write and print; the exit code."""
    namespace = None if asked.all_namespaces else asked.namespace
    wanted = Wanted(asked.out, asked.output, namespace)
    given = _check(asked, wanted)
    deciders = warned(read_deciders(asked.config_files, asked.plugin_files, asked.compat or ""))
    cluster = cluster_of(asked.source, deciders) if given else None
    if is_for_sessions(deciders, cluster) and replay is None:
        _refuse_beside_sessions(asked)
        seed, strict = asked.seeds[0], asked.strict
        code = hold_sessions(cluster, deciders, seed, wanted.out, wanted.output, strict=strict)
        return strict_code(code, cluster, strict=strict)
    how = {
        "config": asked.config_files,
        "plugins": asked.plugin_files,
        "extenders": asked.extender_files,
        "profile": asked.profile,
        "node_count": asked.node_count if given else None,
        "replay": replay,
        "compat": asked.compat or "",
    }
    n_nodes = asked.node_count or N_NODES
    n_pods = N_PODS if asked.pod_count is None else asked.pod_count
    runs: dict[int, Simulation] = {}
    for seed in asked.seeds:
        world = cluster or generate(n_nodes, n_pods, seed)
        explain = _explained(asked.explain, namespace, world)
        runs[seed] = _run(world, seed, {**how, "explain": explain})
    if wanted.out is not None:
        write_files(wanted.out, files_of(runs))
    show(runs, wanted)
    short = any(is_short(run.summary) for run in runs.values())
    return strict_code(1 if asked.strict and short else 0, cluster, strict=asked.strict)


def _check(asked: Asked, wanted: Wanted) -> bool:
    """Refuse what cannot be used before anything is read; True where a cluster is given."""
    given = is_live(asked.source) or bool(asked.source.paths)
    if given and asked.pod_count is not None:
        raise click.UsageError("--pod-count sizes the generated workload only.")
    if asked.explain and len(asked.seeds) > 1:
        raise click.UsageError("--explain explains one run; several seeds were given.")
    if asked.explain and wanted.output == "csv":
        raise click.UsageError("--explain cannot be printed with -o csv.")
    if wanted.out is not None:
        check_directory(wanted.out)
    return given


def _explained(text: str, namespace: str | None, cluster: Cluster) -> str:
    """The key of the pod that is to be explained, "" for none."""
    return pod_named(text, namespace or DEFAULT_NAMESPACE, cluster).key if text else ""


def _refuse_beside_sessions(asked: Asked) -> None:
    """Raise a usage error for what has no meaning for sessions."""
    if asked.extender_files:
        raise click.UsageError("--extender cannot stand beside actions and tiers.")
    if asked.explain:
        raise click.UsageError("--explain: sessions decide here; `stowplan explain` explains them.")
    refuse_beside_sessions(asked.seeds, asked.node_count, asked.profile)


@contextmanager
def collected_rarely() -> Iterator[None]:
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
    with collected_rarely(), progress(what, len(cluster.pending())) as shown:
        return simulate(cluster, seed=seed, on_progress=shown.show, on_tick=shown.tick, **how)
