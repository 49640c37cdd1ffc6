"""Benchmarks of Kueue's admission in virtual time, in the shapes of its own performance tests.

Source: sigs.k8s.io/kueue of 2026-08-22, test/performance/scheduler/configs (baseline, large-scale).
"""

from __future__ import annotations

import gc
import heapq
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from stowplan.batch.queue_models.kueue.kueue_admission import KueueAdmission, KueueObjects
from stowplan.batch.queue_models.kueue.kueue_objects import (
    ClusterQueuePreemption,
    FlavorQuotas,
    KueueClusterQueue,
    KueueClusterQueueSpec,
    KueueNamespace,
    KueuePodTemplate,
    KueueResourceGroup,
    KueueWorkloadSpec,
    LocalQueue,
    LocalQueueSpec,
    PodSet,
    ResourceFlavor,
    ResourceQuotaValue,
    Workload,
)
from stowplan.batch.queue_models.kueue.kueue_options import KueueOptions
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.pod import Container, PodSpec, ResourceRequirements
from stowplan.objects.selectors import LabelSelector

START = datetime(2026, 1, 1, tzinfo=UTC)
NOMINAL, BORROWING = 20, 100
QUEUES_PER_COHORT = 6


class WorkloadClass(NamedTuple):
    """Workloads of one kind in each queue. every_s: between their creations."""

    name: str
    n_workloads: int
    every_s: float
    cpu: int
    run_s: float
    priority: int


class KueueShape(NamedTuple):
    """A performance test. n_queues: ClusterQueues, six in a cohort."""

    n_queues: int
    classes: tuple[WorkloadClass, ...]

    @property
    def n_workloads(self) -> int:
        """Of all queues."""
        return self.n_queues * sum(one.n_workloads for one in self.classes)


BASELINE = KueueShape(
    30,
    (
        WorkloadClass("small", 350, 0.1, 1, 0.2, 50),
        WorkloadClass("medium", 100, 0.5, 5, 0.5, 100),
        WorkloadClass("large", 50, 1.2, 20, 1.0, 200),
    ),
)
"""15,000 workloads."""
LARGE = KueueShape(
    2000,
    (
        WorkloadClass("small", 21, 0.1, 1, 0.2, 50),
        WorkloadClass("medium", 6, 0.5, 5, 0.5, 100),
        WorkloadClass("large", 3, 1.2, 20, 1.0, 200),
    ),
)
"""60,000 workloads."""


def kueue_shape(shape: KueueShape) -> float:
    """Seconds until all workloads of a shape were admitted and have ended in virtual time."""
    admission = KueueAdmission(_objects(shape.n_queues), KueueOptions())
    arrivals = list(_arrivals(shape))
    gc.collect()
    gc.freeze()
    began = time.perf_counter()
    n_admitted = run_admission(admission, arrivals)
    took = time.perf_counter() - began
    gc.unfreeze()
    if n_admitted < shape.n_workloads:
        raise RuntimeError(f"{n_admitted} of {shape.n_workloads} workloads were admitted")
    return took


def run_admission(admission: KueueAdmission, arrivals: list[tuple[float, Workload, float]]) -> int:
    """Let workloads arrive, be admitted, run and end; the number that ended. arrivals: times,
    workloads and run times, in order."""
    ends: list[tuple[float, int, str]] = []
    started: dict[str, int] = {}
    runs = {one.key: run_s for _, one, run_s in arrivals}
    position = n_ended = n_started = 0
    while position < len(arrivals) or ends or admission.has_active:
        now = min(
            arrivals[position][0] if position < len(arrivals) else float("inf"),
            ends[0][0] if ends else float("inf"),
        )
        if now == float("inf"):
            break
        admission.now = max(now, admission.now)
        new = []
        while position < len(arrivals) and arrivals[position][0] <= now:
            new.append(arrivals[position][1])
            position += 1
        admission.add(new)
        done = []
        while ends and ends[0][0] <= now:
            _, number, key = heapq.heappop(ends)
            if started.get(key) == number:
                done.append(key)
        n_ended += len(done)
        admission.finish(done)
        while True:
            outcome = admission.run_cycle()
            if outcome is None or not outcome.has_effect:
                break
            for key in outcome.admitted:
                n_started += 1
                started[key] = n_started
                heapq.heappush(ends, (now + runs[key], n_started, key))
            for key in outcome.preempted:
                started.pop(key, None)
                admission.release(key)
    return n_ended


def _objects(n_queues: int) -> KueueObjects:
    quota = ResourceQuotaValue("cpu", NOMINAL, BORROWING)
    group = KueueResourceGroup(("cpu",), (FlavorQuotas("rf", (quota,)),))
    queues = [
        KueueClusterQueue(
            metadata=ObjectMeta(name=f"cq-{i}"),
            spec=KueueClusterQueueSpec(
                cohort_name=f"cohort-{i // QUEUES_PER_COHORT}",
                resource_groups=(group,),
                namespace_selector=LabelSelector(),
                preemption=ClusterQueuePreemption("LowerPriority", "Any"),
            ),
        )
        for i in range(n_queues)
    ]
    return KueueObjects(
        cluster_queues=queues,
        local_queues=[
            LocalQueue(
                metadata=ObjectMeta(name=one.name, namespace="ns"),
                spec=LocalQueueSpec(one.name),
            )
            for one in queues
        ],
        resource_flavors=[ResourceFlavor(metadata=ObjectMeta(name="rf"))],
        namespaces=[KueueNamespace(metadata=ObjectMeta(name="ns"))],
        now=START.timestamp(),
    )


def _arrivals(shape: KueueShape) -> Iterator[tuple[float, Workload, float]]:
    """Workloads with the times of their arrival and their run times, in order."""
    found = []
    start = START.timestamp()
    for kind in shape.classes:
        container = Container("c", resources=ResourceRequirements({"cpu": kind.cpu}))
        pod_set = PodSet(template=KueuePodTemplate(PodSpec(containers=(container,))))
        for queue in range(shape.n_queues):
            spec = KueueWorkloadSpec(f"cq-{queue}", (pod_set,), kind.priority)
            for i in range(kind.n_workloads):
                at_s = (i + 1) * kind.every_s
                name = f"{kind.name}-{queue}-{i}"
                meta = ObjectMeta(
                    name=name,
                    namespace="ns",
                    uid=name,
                    creation_timestamp=START + timedelta(seconds=int(at_s)),
                )
                found.append((start + at_s, Workload(metadata=meta, spec=spec), kind.run_s))
    return iter(sorted(found, key=lambda one: (one[0], one[1].name)))


def kueue_seconds(part: float = 1.0) -> dict[str, float]:
    """Seconds of each shape. part: of the queues."""
    found = {}
    for shape in (BASELINE, LARGE):
        own = shape._replace(n_queues=max(1, round(shape.n_queues * part)))
        title = f"kueue {own.n_workloads} in {own.n_queues} queues"
        found[title] = round(kueue_shape(own), 3)
    return found
