"""What a worker does for a run: read its inputs, simulate, measure, and name the result files."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec

from stowplan.assembly.plugin_files import installed_code
from stowplan.experiments.gpu_sharing.arrived_load import columns_text
from stowplan.experiments.gpu_sharing.experiment import fill, measures_by_column
from stowplan.experiments.gpu_sharing.openb_workload import OpenBWorkload, workload_of
from stowplan.experiments.measures.measure_series import fairness_over_time
from stowplan.experiments.measures.run_result import RunResult
from stowplan.experiments.plan.option_values import replay_options
from stowplan.experiments.plan.plan_file import GPU_SHARING, REPLAY
from stowplan.experiments.plan.plan_inputs import NamedFile, PolicySource, RunTask, versions
from stowplan.experiments.results_summary import (
    ARRIVED_LOAD,
    arrived_load_of,
    measures_of_fill,
    measures_of_simulation,
)
from stowplan.experiments.store.run_store import (
    COLUMNS_FILE,
    FAIRNESS_FILE,
    MEASURES_FILE,
    RUN_FILE,
    ExperimentStoreError,
    RunStore,
)
from stowplan.framework.problems import ContractError
from stowplan.inputs.cluster_reader import Cluster, read_cluster
from stowplan.inputs.cluster_resize import resized
from stowplan.inputs.files import read_bytes
from stowplan.inputs.generated_workload import generate_workload
from stowplan.inputs.workloads.arrivals import parse_arrivals, with_arrivals
from stowplan.insight.autoscaling.autoscale_config import read_autoscale
from stowplan.plugins.gpu_share.policies import GpuPolicy
from stowplan.simulation.results.summary import sha256
from stowplan.simulation.simulate import SUMMARY, Simulation, as_json, simulate
from stowplan.simulation.simulate_jobs import JobSimulation, is_for_sessions, simulate_jobs

KEPT_WORKLOADS = 2
"""Inputs that a worker keeps; runs of a workload follow each other."""


class RunOutcome(msgspec.Struct, frozen=True):
    """End of a run. error: one line, "" where it succeeded. store_error: why its results could
    not be written. files: result files, where the caller writes them."""

    key: str
    error: str = ""
    traceback: str = ""
    store_error: str = ""
    files: dict[str, bytes] = {}


def run_and_store(task: RunTask, folder: str) -> RunOutcome:
    """Run, and write the results into the folder of the experiment."""
    outcome = run_task(task)
    if outcome.error:
        return outcome
    try:
        RunStore(folder).write_run(task.key, outcome.files)
    except ExperimentStoreError as problem:
        return RunOutcome(task.key, store_error=str(problem))
    return RunOutcome(task.key)


def run_task(task: RunTask) -> RunOutcome:
    """Run, with every exception as an outcome: one run does not stop the others."""
    try:
        return RunOutcome(task.key, files=run_files(task))
    except MemoryError:
        return RunOutcome(task.key, "MemoryError: not enough memory", traceback.format_exc())
    # Reported to the client, which shows it and writes it into failures/.
    except Exception as problem:  # noqa: BLE001
        text = " ".join(f"{type(problem).__name__}: {problem}".split())
        return RunOutcome(task.key, text, traceback.format_exc())


def run_files(task: RunTask) -> dict[str, bytes]:
    """The result files of a run by name. They depend on the task alone."""
    _check_inputs(task)
    if task.mode == GPU_SHARING:
        files, measures = _gpu_sharing(task)
    else:
        files, measures = _simulated(task)
    cell = task.cell
    described = {
        "key": task.key,
        "mode": task.mode,
        "policy": cell.policy,
        "workload": cell.workload,
        "seed": cell.seed,
        "options": cell.options,
        "versions": task.identity["versions"],
        "inputs": task.identity,
        "command": task.command,
    }
    return {**files, MEASURES_FILE: as_json(measures), RUN_FILE: as_json(described)}


def _check_inputs(task: RunTask) -> None:
    """Raise RuntimeError where this machine has other versions than the client, or files of the
    policy and measures have changed since: the key of the run stands for what they were."""
    if versions() != task.identity["versions"]:
        own, wanted = (_version_text(one) for one in (versions(), task.identity["versions"]))
        raise RuntimeError(f"versions differ: the worker has {own}, the client {wanted}")
    policy = task.policy
    more = () if task.autoscale is None else (task.autoscale,)
    for one in (*policy.files, *task.measure_files, *more):
        if sha256(read_bytes(one.path)) != one.sha256:
            raise RuntimeError(f"{one.label}: changed since the experiment was started")
    imported = policy.distributions | task.measure_distributions
    here = {name: _version_of(name) for name in imported}
    if here != imported:
        got, expected = _version_text(here), _version_text(imported)
        raise RuntimeError(f"versions differ: the worker has {got}, the client {expected}")
    if policy.installed:
        _check_installed(policy)


def _check_installed(policy: PolicySource) -> None:
    """Raise RuntimeError for installed plugins that are others than those of the client."""
    found = {one.name: one for text in policy.config_texts for one in installed_code(text)}
    for plugin in policy.installed:
        if found.get(plugin.name) != plugin:
            owner = _version_text(plugin.distributions)
            raise RuntimeError(f"plugin {plugin.name!r} of {owner}: the worker has another one")


def _version_of(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "none"


def _version_text(found: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in found.items())


# Fill and replay.


def _simulated(task: RunTask) -> tuple[dict[str, bytes], dict[str, float | None]]:
    found = _simulate(task)
    if isinstance(found, Simulation) and found.plugin_failure:
        # A scheduler only refuses the pod; here its figures would be compared as those of others.
        raise ContractError(found.plugin_failure)
    labels = {one.path: one.label for one in _files_of(task)}
    summary = found.summary
    for name in ("inputs", "plugins"):
        summary[name] = {labels.get(path, path): sha for path, sha in summary[name].items()}
    result = RunResult.of(found)
    files, fairness = found.files(), fairness_over_time(result)
    if fairness:
        files[FAIRNESS_FILE] = fairness
    return files, measures_of_simulation(result, task.measures)


def _files_of(task: RunTask) -> list[NamedFile]:
    policy = task.policy
    return [*task.workload.files, *policy.config, *policy.plugins, *policy.extenders]


def _simulate(task: RunTask) -> Simulation | JobSimulation:
    cell, policy = task.cell, task.policy
    replays = task.mode == REPLAY
    deciders = policy.deciders()
    cluster = _cluster(task, keep_manifests=replays)
    arrivals = cell.options.get("arrivals")
    if arrivals is not None:
        cluster = with_arrivals(cluster, parse_arrivals(str(arrivals)), cell.seed)
    node_count = cell.options.get("nodeCount")
    plugins = [one.path for one in policy.plugins]
    if not replays and is_for_sessions(deciders, cluster):
        if node_count is not None:
            cluster = resized(cluster, int(node_count))
        return simulate_jobs(cluster, config=deciders, plugins=plugins, seed=cell.seed)
    replay = None
    if replays:
        autoscale = None
        if task.autoscale is not None:
            path = task.autoscale.path
            autoscale = read_autoscale(read_bytes(path), task.autoscale.label)
        replay = replay_options(cell.options, autoscale)
    return simulate(
        cluster,
        config=deciders,
        plugins=plugins,
        extenders=[one.path for one in policy.extenders],
        seed=cell.seed,
        profile=policy.profile,
        node_count=None if node_count is None else int(node_count),
        replay=replay,
    )


def _cluster(task: RunTask, *, keep_manifests: bool) -> Cluster:
    generated = task.workload.generated
    if generated is not None:
        return generate_workload(generated.nodes, generated.pods, task.cell.seed)
    # The digests are part of what is kept: a file that has changed is read again.
    digests = tuple(one.sha256 for one in task.workload.files)
    workload = task.workload
    return _read_cluster(workload.paths, digests, keep_manifests, workload.trace_format)


@lru_cache(KEPT_WORKLOADS)
def _read_cluster(
    paths: tuple[str, ...],
    digests: tuple[str, ...],
    keep_manifests: bool,
    trace_format: str,
) -> Cluster:
    cluster = read_cluster(paths, keep_manifests=keep_manifests, trace_format=trace_format)
    if sorted(cluster.inputs.values()) != sorted(digests):
        raise RuntimeError(f"{', '.join(paths)}: changed since the experiment began")
    return cluster


# The published experiment on GPU sharing.


def _gpu_sharing(task: RunTask) -> tuple[dict[str, bytes], dict[str, float | None]]:
    files = task.workload.files
    workload = _read_openb(task.workload.openb, files)
    filled = fill(workload, GpuPolicy(task.policy.gpu_share), task.cell.seed)
    columns = measures_by_column(filled, workload.n_cards)
    n_pods, n_placed = filled.rows.shape[0], int((filled.rows >= 0).sum())
    summary: dict[str, Any] = {
        "seed": task.cell.seed,
        "versions": versions(),
        "inputs": {one.label: one.sha256 for one in files},
        "nodes": len(workload.nodes),
        "cards": workload.n_cards,
        "pods": n_pods,
        "placed": n_placed,
        ARRIVED_LOAD: arrived_load_of(columns),
    }
    files_of_run = {SUMMARY: as_json(summary), COLUMNS_FILE: columns_text(columns).encode()}
    return files_of_run, measures_of_fill(summary)


@lru_cache(KEPT_WORKLOADS)
def _read_openb(name: str, files: tuple[NamedFile, ...]) -> OpenBWorkload:
    texts = []
    for file in files:
        data = read_bytes(file.path)
        if sha256(data) != file.sha256:
            raise RuntimeError(f"{file.path}: changed since the experiment began")
        texts.append((data.decode(), file.path))
    nodes, pods = texts
    return workload_of(name, nodes, pods)


def warm_gpu_sharing() -> None:
    """Load the kernels of the published experiment, or compile them once per computer."""
    nodes = "sn,cpu_milli,memory_mib,gpu,model\nn,64000,262144,2,T4\n"
    pods = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1000,1024,1,500\n"
    workload = workload_of("kernels", (nodes, "kernels"), (pods, "kernels"))
    fill(workload, GpuPolicy.FGD, 0)
