"""Processor time of questions about a loaded cluster of 5,000 nodes and 100,000 pods.

explain without and with changes (median and longest of the pods of bench/explain.py, the first
explanation on new tables); what-if of one cordoned node, of 100 changed pods and of a drained zone;
capacity of 1,000 pods. Each is asked once, after the state is loaded: for what-if, which follows a
loaded scheduler, after the decisions before the changes; for capacity, with the cluster read. A
first, small question loads modules and kernels. `record` is what a recording costs of `bench
basic`. Run: python bench/questions.py [explain|what-if|capacity|record ...]
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from explain import N_NODES, N_PODS, PENDING, nodes, pods
from msgspec.structs import replace

from stowplan import Cluster
from stowplan.benchmarks.benchmark_workload import WorkloadSizes
from stowplan.benchmarks.catalog import CASES
from stowplan.benchmarks.measurement import ENGINES
from stowplan.benchmarks.recording_cost import measure_recording
from stowplan.cycle.explanation import explain
from stowplan.forecast.explain import framework_for, snapshot_for
from stowplan.inputs.cluster_reader import Cluster as ReadCluster
from stowplan.insight.changes.search import find_changes
from stowplan.objects.meta import OwnerReference
from stowplan.objects.pod import Pod
from stowplan.simulation.scheduler_configuration import read_deciders
from stowplan.testing import builders

GROUP = 100
"""Pods that one question changes."""
CAPACITY = 1_000
RECORDINGS = 15
"""Pairs of runs without and with a recording."""


def timed(work: Callable[..., Any], *given: Any, **more: Any) -> tuple[float, float, Any]:
    """Processor seconds and elapsed seconds of a call, and its result."""
    gc.collect()
    gc.disable()
    cpu, began = time.process_time(), time.perf_counter()
    found = work(*given, **more)
    took = time.process_time() - cpu, time.perf_counter() - began, found
    gc.enable()
    return took


def report(question: str, cpu: float, elapsed: float, what: str, bar: str) -> None:
    """Print a line."""
    print(
        f"{question:32} {cpu:7.3f} s cpu {elapsed:7.3f} s elapsed  bar {bar:7} {what}", flush=True
    )


def measure_explain() -> None:
    """The first explanation of each pod on new tables, without and with changes."""
    deciders, made, bound = read_deciders(None, ()), nodes(), pods()
    plain: list[tuple[float, float]] = []
    whole: list[tuple[float, float]] = []
    warm = next(iter(PENDING.values()))
    small = snapshot_for(warm, ReadCluster(made[:50], [warm]))
    explain(warm, small, framework_for(warm, deciders, None))
    find_changes(warm, small, framework_for(warm, deciders, None))
    for pod in PENDING.values():
        snapshot = snapshot_for(pod, ReadCluster(made, [*bound, pod]))
        given = pod, snapshot, framework_for(pod, deciders, None)
        snapshot.nodes.refresh()
        cpu, elapsed, _ = timed(explain, *given)
        more_cpu, more_elapsed, _ = timed(find_changes, *given)
        plain.append((cpu, elapsed))
        whole.append((cpu + more_cpu, elapsed + more_elapsed))
    for question, times, bar in (
        ("explain, no changes", plain, "0.05 s"),
        ("explain with changes", whole, "0.3 s"),
    ):
        for of, how in ((median, "median"), (max, "longest")):
            cpu, elapsed = (of(column) for column in zip(*times, strict=True))
            report(question, cpu, elapsed, f"{how} of {len(PENDING)} pods", bar)


def measure_what_if() -> None:
    """What-if of 100 pods whose priority changes, of 100 new ones, and of a drained zone."""
    group = [
        builders.pod(f"job-{i}", cpu="2", memory="1Gi", labels={"group": "job"})
        for i in range(GROUP)
    ]
    made = nodes()
    cluster = Cluster(made, [*map(owned, pods()), *group], shared=[])
    small = Cluster(made[:30], group, shared=[])
    for one in ("node-0003", "node-0004"):
        small.what_if([{"drain": one}])
    cpu, elapsed, _ = timed(cluster.what_if, [{"cordon": "node-0001"}])
    report("what-if, with loading", cpu, elapsed, "a cordon", "-")
    cpu, elapsed, _ = timed(cluster.what_if, [{"cordon": "node-0002"}])
    report("what-if, loaded", cpu, elapsed, "a cordon", "-")
    raised = [{"priority": f"pod/job-{i}=5"} for i in range(GROUP)]
    cpu, elapsed, found = timed(cluster.what_if, raised)
    report("what-if of 100 changed pods", cpu, elapsed, _counts(found), "1 s")
    cpu, elapsed, found = timed(cluster.what_if, [{"drain": "b"}])
    report("what-if of a drained zone", cpu, elapsed, _counts(found), "5 s")


def owned(pod: Pod) -> Pod:
    """The pod of a ReplicaSet, which creates it again where it is evicted."""
    owner = OwnerReference("apps/v1", "ReplicaSet", pod.labels["app"], "", controller=True)
    return replace(pod, metadata=replace(pod.metadata, owner_references=(owner,)))


def _counts(found: Any) -> str:
    return f"{len(found.pods)} pods differ"


def measure_capacity() -> None:
    """How many of 1,000 pods fit."""
    cluster = ReadCluster(nodes(), pods())
    pod: Pod = builders.pod("more", cpu="500m", memory="1Gi")
    from stowplan import capacity

    capacity(ReadCluster([], [pod]), ReadCluster(cluster.nodes[:30], []), limit=10)
    given = ReadCluster([], [pod]), cluster
    cpu, elapsed, found = timed(capacity, *given, limit=CAPACITY)
    report("capacity of 1,000 pods", cpu, elapsed, f"{found.units[0].count} fit", "2 s")


def measure_record() -> None:
    """What a recording costs of `bench basic`, of runs with and without one in turn."""
    cost = measure_recording(
        CASES["basic"], WorkloadSizes(5_000, 10_000), RECORDINGS, next(iter(ENGINES))
    )
    print(
        f"recording of bench basic: {cost.decision_percent}% of the deciding thread's CPU time, "
        f"{cost.process_percent}% of the process's, {cost.elapsed_percent}% elapsed; bar 5%"
    )


PARTS = {
    "explain": measure_explain,
    "what-if": measure_what_if,
    "capacity": measure_capacity,
    "record": measure_record,
}


def main() -> None:
    """Measure and print a line per question."""
    print(f"{N_NODES:,} nodes, {N_PODS:,} pods")
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()


if __name__ == "__main__":
    main()
