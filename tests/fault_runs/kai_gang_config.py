"""Configuration of fault runs with KAI's model: queues, gangs and parts of them.

Run: python -m tests.fault_runs.kai_gang_config SEED... prints the result of each seed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache, partial
from typing import Any

from msgspec.structs import replace

from stowplan.assembly.deciders import ConfigText, Deciders, deciders_of
from stowplan.batch.queue_models.model_decider import ModelDecider
from stowplan.inputs.annotations import RUN_ANNOTATION
from stowplan.messages import effects as to_do
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.kai.kai_kinds import (
    KAI_GROUP_ANNOTATION,
    SUB_GROUP_LABEL,
    KaiPodGroupObject,
    KaiPodGroupSpec,
    KaiQueueObject,
    KaiQueueResource,
    KaiQueueResources,
    KaiQueueSpec,
    KaiSubGroup,
)
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.pod import Pod
from stowplan.scheduler import Scheduler, SchedulerOptions
from stowplan.simulation.cluster.simulated_cluster import SimulatedCluster
from stowplan.testing import pod
from stowplan.testing.generators.choices import RandomSource, chance, pick, random_int
from tests.fault_runs.auditor import Auditor, SchedulerView, Violation
from tests.fault_runs.cluster_churn import ChurnEvent, ClusterChurn
from tests.fault_runs.fault_run import FaultRunConfig, run_with_faults, shrink_failure
from tests.fault_runs.gang_config import PROFILE, nominated_by_others

KAI = "kai-scheduler"
GROUPS = tuple(f"g{number}" for number in range(9))
PARENTS = {"top": "", "red": "top", "blue": "top"}
CLASSES = ("train", "build-preemptible", "build", "inference")
ACTIONS = ("reclaim", "preempt", "consolidation", "stalegangeviction")


@cache
def deciders() -> Deciders:
    return deciders_of([ConfigText(PROFILE, "profiles"), ConfigText("scheduler: kai", "kai")])


def scheduler(seed: int, leads: bool, term: int) -> Scheduler:
    options = SchedulerOptions(leads=leads, term=term, identity=f"run-{seed}")
    return deciders().scheduler(options=options)


class KaiAuditor(Auditor):
    """Auditor for KAI's evictions: each says of which action it is, and those that make room name a
    group with a pod that waits."""

    def _check_evict(self, view: SchedulerView, effect: to_do.Evict) -> None:
        uid = effect.uid
        victim = view.pod(uid)
        if victim is None:
            raise Violation(f"{view.name} evicts {effect.name}, which it has not seen", uid)
        if not effect.message.startswith(f"{KAI}: "):
            # A pod of a session whose binding was refused stays assumed until it is read.
            if victim.node_name or victim.spec.scheduler_name != KAI:
                super()._check_evict(view, effect)
            return
        action, _, group = effect.message.removeprefix(f"{KAI}: ").partition(" for default/")
        if action not in ACTIONS:
            raise Violation(f"{effect.name} is evicted by {effect.message!r}", uid)
        waits = (one for one in view.pods.values() if not one.node_name)
        notes = (one.metadata.annotations.get(KAI_GROUP_ANNOTATION) for one in waits)
        if action != "stalegangeviction" and group not in notes:
            raise Violation(f"{view.name} evicts {effect.name} for {group}, which waits not", uid)


def gangs(rng: RandomSource, until: int) -> Iterator[ChurnEvent]:
    """Queues at the start, some of which change; later PodGroups, with their pods soon after."""
    for name in PARENTS:
        yield ChurnEvent(0, partial(_put, value=_queue(rng, name)))
    for _ in range(random_int(rng, 0, 3)):
        at = random_int(rng, 1, until // SECOND) * SECOND
        yield ChurnEvent(at, partial(_put, value=_queue(rng, pick(rng, ("red", "blue")))))
    for name in GROUPS[: random_int(rng, 3, len(GROUPS))]:
        yield from _gang(rng, name, until)


def _queue(rng: RandomSource, name: str) -> KaiQueueObject:
    amounts = [
        KaiQueueResource(float(pick(rng, (-1, 0, size, 4 * size))), -1.0, float(pick(rng, (1, 2))))
        for size in (1000, 1000, 1)
    ]
    runtimes = {"reclaim_min_runtime": "15s"} if chance(rng, 4) else {}
    spec = KaiQueueSpec(
        parent_queue=PARENTS[name], resources=KaiQueueResources(*amounts), **runtimes
    )
    return KaiQueueObject(metadata=ObjectMeta(name=name, uid=name), spec=spec)


def _gang(rng: RandomSource, name: str, until: int) -> Iterator[ChurnEvent]:
    at = random_int(rng, 0, until // SECOND // pick(rng, (1, 4))) * SECOND
    size = random_int(rng, 1, 6)
    fields: dict[str, Any] = {"min_member": random_int(rng, 1, size)}
    has_parts = chance(rng, 4)
    if has_parts:
        fields = {"sub_groups": tuple(KaiSubGroup(name=part, min_member=1) for part in "ab")}
    spec = KaiPodGroupSpec(
        queue=pick(rng, ("red", "blue")),
        priority_class_name=pick(rng, CLASSES),
        staleness_grace_period=pick(rng, (None, "5s", "-1s")),
        **fields,
    )
    meta = ObjectMeta(name=name, namespace="default", uid=name)
    yield ChurnEvent(at, partial(_put, value=KaiPodGroupObject(metadata=meta, spec=spec)))
    cpu, memory = str(random_int(rng, 0, 2)), f"{pick(rng, (0, 1, 3))}Gi"
    runs = {RUN_ANNOTATION: str(random_int(rng, 1, 40))} if chance(rng, 4) else {}
    for index in range(size):
        made = pod(f"{name}-{index}", cpu=cpu, memory=memory)
        labels = {SUB_GROUP_LABEL: "ab"[index % 2]} if has_parts else {}
        meta = replace(made.metadata, annotations={KAI_GROUP_ANNOTATION: name, **runs})
        one = replace(
            made,
            metadata=replace(meta, labels={**meta.labels, **labels}),
            spec=replace(made.spec, scheduler_name=KAI),
        )
        later = random_int(rng, 0, 5) * SECOND if chance(rng, 3) else 0
        yield ChurnEvent(at + later, partial(_come, one=one))


def _put(churn: ClusterChurn, value: KaiQueueObject | KaiPodGroupObject) -> None:
    churn.cluster.put_object(value)


def _come(churn: ClusterChurn, one: Pod) -> None:
    churn.create_pod(one)


def is_session_pod(one: Pod, cluster: SimulatedCluster, note: str = "") -> bool:
    """True for a pod of a gang: whether it may wait is decided by another session."""
    return one.spec.scheduler_name == KAI


def check_rest(made: Scheduler) -> None:
    """At rest another session decides nothing."""
    (lane,) = made.lanes.batch
    if not lane.is_idle:
        raise Violation("sessions are not idle at rest")
    decider = lane.decider
    assert isinstance(decider, ModelDecider)
    now = lane._context.now + lane._context.options.unix_offset_ns
    result = decider.run_session("at rest", nominated_by_others(made, KAI), now)
    if result.binds or result.victims:
        raise Violation(f"a session was due: {result.binds} {result.victims}")


KAI_GANG_CONFIG = FaultRunConfig(
    scheduler,
    may_wait=is_session_pod,
    extra_events=gangs,
    auditor=KaiAuditor,
    check_rest=check_rest,
)


if __name__ == "__main__":
    for seed in map(int, sys.argv[1:]):
        failure = run_with_faults(seed, KAI_GANG_CONFIG)
        print(seed, "passed" if failure is None else shrink_failure(failure, KAI_GANG_CONFIG))
