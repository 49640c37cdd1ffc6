"""What `stowplan simulate` does: read the cluster, run it for each seed, print the results."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click

from stowplan.cli.record_options import RecordRequest
from stowplan.cli.runs.cluster_source import ClusterSource, read_cluster_source, strict_exit_code
from stowplan.cli.runs.pages.simulation_page import check_simulation_address, serve_result
from stowplan.cli.runs.pod_argument import find_pod_argument
from stowplan.cli.runs.recordings.record_and_open import recording
from stowplan.cli.runs.scheduler_config import read_command_deciders
from stowplan.cli.runs.simulate_sessions import (
    check_session_options,
    has_unplaced_pods,
    run_sessions,
)
from stowplan.cli.simulate_options import N_NODES, N_PODS
from stowplan.cli.tables.progress import progress
from stowplan.cli.tables.simulation_output import OutputRequest, print_simulation
from stowplan.framework.feature_gates import FeatureGates
from stowplan.inputs.cluster_reader import Cluster
from stowplan.inputs.generated_workload import generate_workload
from stowplan.inputs.workloads.arrivals import parse_arrivals, with_arrivals
from stowplan.recording.recording_header import SchedulerRecorder
from stowplan.simulation.api_cluster.workload_documents import has_workloads
from stowplan.simulation.replay import ReplayOptions
from stowplan.simulation.results.result_files import check_directory, write_files
from stowplan.simulation.results.seed_comparison import files_of
from stowplan.simulation.scheduler_configuration import counting_cards
from stowplan.simulation.simulate import Simulation, simulate
from stowplan.simulation.simulate_jobs import is_for_sessions


class SimulateRequest(NamedTuple):
    """The options of the command, by their names, without those of a replay."""

    source: ClusterSource
    config_files: tuple[str, ...]
    profile: str | None
    plugin_files: tuple[str, ...]
    extender_files: tuple[str, ...]
    compat: tuple[str, ...]
    feature_gates: FeatureGates | None
    node_count: int | None
    pod_count: int | None
    seed: tuple[int, ...]
    n_seeds: int | None
    explain: str
    namespace: str | None
    all_namespaces: bool
    out: str | None
    report: str | None
    command_line: str
    output: str
    strict: bool
    record: RecordRequest | None
    arrivals: str | None = None
    web: str | None = None

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the runs; raises a usage error."""
        if self.n_seeds is None:
            return tuple(dict.fromkeys(self.seed))
        if len(self.seed) > 1:
            raise click.UsageError("--seeds cannot be used with several --seed: it counts from one")
        return tuple(range(self.seed[0], self.seed[0] + self.n_seeds))


def run_simulate(request: SimulateRequest, replay: ReplayOptions | None) -> int:
    """Run, write and print; the exit code."""
    if request.record is None:
        return _run_simulate(request, replay, None)
    if len(request.seeds) > 1:
        raise click.UsageError("--record cannot be used with several seeds")
    with recording(request.record, "simulate", waits=True) as recorder:
        return _run_simulate(request, replay, recorder)


def _run_simulate(
    request: SimulateRequest, replay: ReplayOptions | None, recorder: SchedulerRecorder | None
) -> int:
    namespace = None if request.all_namespaces else request.namespace
    results = OutputRequest(request.out, request.output, namespace)
    given = _check(request, results)
    deciders = read_command_deciders(
        request.config_files,
        request.plugin_files,
        request.compat,
        request.feature_gates,
        admits=True,
    )
    keeps = replay is not None
    cluster = read_cluster_source(request.source, deciders, keep_manifests=keeps) if given else None
    if is_for_sessions(deciders, cluster) and replay is None:
        _check_for_sessions(request)
        if request.web is not None:
            raise click.UsageError("--web needs --replay where actions and tiers are configured")
        seed, strict = request.seeds[0], request.strict
        code = run_sessions(
            cluster,
            deciders,
            seed,
            results.out,
            results.output,
            strict=strict,
            recording=(recorder, request.plugin_files),
            on_files=partial(_write_report, request),
        )
        return strict_exit_code(code, cluster, strict=strict)
    how = {
        "config": request.config_files,
        "plugins": request.plugin_files,
        "extenders": request.extender_files,
        "profile": request.profile,
        "node_count": request.node_count if given else None,
        "replay": replay,
        "compat": request.compat,
        "feature_gates": request.feature_gates,
        "recorder": recorder,
    }
    n_nodes = request.node_count or N_NODES
    n_pods = N_PODS if request.pod_count is None else request.pod_count
    arrivals = None if request.arrivals is None else parse_arrivals(request.arrivals)
    runs: dict[int, Simulation] = {}
    for seed in request.seeds:
        used = cluster or generate_workload(n_nodes, n_pods, seed)
        used = used if arrivals is None else with_arrivals(used, arrivals, seed)
        explain = _explained_key(request, namespace, used, keeps_names=replay is None)
        runs[seed] = _run(used, seed, {**how, "explain": explain})
    if results.out is not None:
        write_files(results.out, files_of(runs))
    if request.report is not None:
        _write_report(request, next(iter(runs.values())).files())
    print_simulation(runs, results)
    if request.web is not None:
        counting = deciders if cluster is None else counting_cards(deciders, cluster)
        serve_result(request.web, next(iter(runs.values())), counting)
    is_short = any(has_unplaced_pods(run.summary) for run in runs.values())
    return strict_exit_code(1 if request.strict and is_short else 0, cluster, strict=request.strict)


def _check(request: SimulateRequest, results: OutputRequest) -> bool:
    """Raise usage errors before anything is read; True where a cluster is given."""
    given = request.source.is_given
    if given and request.pod_count is not None:
        raise click.UsageError("--pod-count can be used with the generated workload only")
    if request.explain and len(request.seeds) > 1:
        raise click.UsageError("--explain cannot be used with several seeds")
    if request.explain and results.output in ("csv", "name"):
        raise click.UsageError(f"--explain cannot be used with -o {results.output}")
    if request.report is not None and len(request.seeds) > 1:
        raise click.UsageError(
            "--report cannot be used with several seeds; use --out and `stowplan report`"
        )
    if request.web is not None:
        if len(request.seeds) > 1:
            raise click.UsageError("--web cannot be used with several seeds")
        check_simulation_address(request.web)
    if results.out is not None:
        check_directory(results.out)
    if request.report is not None:
        check_directory(Path(request.report).parent)
    return given


def _write_report(request: SimulateRequest, files: dict[str, bytes]) -> None:
    """Write the report of the only run, if one is asked for."""
    if request.report is not None:
        from stowplan.web.report import write_run_report

        write_run_report(files, request.report, request.command_line)
        if request.output in ("table", "wide"):
            click.echo(f"Report: {request.report}", err=True)


def _explained_key(
    request: SimulateRequest, namespace: str | None, cluster: Cluster, *, keeps_names: bool
) -> str:
    """The key of the pod that --explain names, "" for none. keeps_names: False for a replay, where
    the controllers of an owner give its pods other names."""
    if not request.explain:
        return ""
    place = namespace or request.source.namespace
    keeps_names = keeps_names or not has_workloads(cluster.manifests)
    return find_pod_argument(request.explain, place, cluster, reports_choice=keeps_names).key


def _check_for_sessions(request: SimulateRequest) -> None:
    """Raise a usage error for options that sessions do not support."""
    if request.extender_files:
        raise click.UsageError("--extender cannot be used with actions and tiers")
    if request.explain:
        raise click.UsageError(
            "--explain cannot be used with actions and tiers; use `stowplan explain`"
        )
    check_session_options(request.seeds, request.node_count, request.profile)


def _run(cluster: Cluster, seed: int, how: dict[str, Any]) -> Simulation:
    action = "scheduling" if how["replay"] is None else "replaying"
    with progress(action, len(cluster.pending())) as bar:
        return simulate(cluster, seed=seed, on_progress=bar.show, on_tick=bar.tick, **how)
