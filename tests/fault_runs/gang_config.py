"""Configuration of fault runs with gangs: sessions and a profile in one scheduler.

Run: python -m tests.fault_runs.gang_config SEED... prints the result of each seed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache, partial

import pytest
from msgspec.structs import replace

from stowplan.assembly.deciders import ConfigText, Deciders, deciders_of
from stowplan.batch.decider import BatchDecider
from stowplan.framework.deciders.session_decider import NodeAssignment
from stowplan.inputs.annotations import RUN_ANNOTATION
from stowplan.messages import effects as to_do
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import PodGroup, PodGroupSpec, Queue, QueueSpec
from stowplan.objects.workload import PriorityClass
from stowplan.scheduler import Scheduler, SchedulerOptions
from stowplan.scheduler.lanes.session_lane import SessionLane
from stowplan.simulation.cluster.simulated_cluster import SimulatedCluster
from stowplan.testing import pod
from stowplan.testing.generators.choices import RandomSource, chance, pick, random_int
from stowplan.testing.session_invariants import check_session
from tests.fault_runs.auditor import Auditor, SchedulerView, Violation
from tests.fault_runs.cluster_churn import ChurnEvent, ClusterChurn
from tests.fault_runs.fault_run import FaultRunConfig, run_with_faults, shrink_failure

BATCH = "kube-batch"
GROUPS = tuple(f"g{number}" for number in range(9))
QUEUES = ("default", "q1")
CLASSES = {"": 0, "low": 1, "high": 100}
PROFILE = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    multiPoint:
      disabled: [{name: "*"}]
      enabled:
      - {name: PrioritySort}
      - {name: SchedulingGates}
      - {name: NodeUnschedulable}
      - {name: NodeName}
      - {name: TaintToleration}
      - {name: NodeAffinity}
      - {name: NodeResourcesFit}
      - {name: DefaultPreemption}
      - {name: DefaultBinder}
"""
SESSIONS = """
actions: "reclaim, allocate, backfill, preempt"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]
batch: {bindFailurePolicy: POLICY, bindFailures: 1}
"""


@cache
def deciders(policy: str) -> Deciders:
    texts = [
        ConfigText(PROFILE, "profiles"),
        ConfigText(SESSIONS.replace("POLICY", policy), "sessions"),
    ]
    return deciders_of(texts)


def scheduler(seed: int, leads: bool, term: int) -> Scheduler:
    options = SchedulerOptions(leads=leads, term=term, identity=f"run-{seed}")
    made = deciders("Release" if seed % 4 == 0 else "Keep").scheduler(options=options)
    decider_of(made).on_closed = lambda session, result: check_session(session)
    return made


def decider_of(made: Scheduler) -> BatchDecider:
    (lane,) = made.lanes.batch
    decider = lane.decider
    assert isinstance(decider, BatchDecider)
    return decider


class GangAuditor(Auditor):
    """Auditor for session evictions, which follow other rules and may evict whole gangs."""

    def _check_evict(self, view: SchedulerView, effect: to_do.Evict) -> None:
        uid = effect.uid
        victim, preemptor = view.pod(uid), view.pod(effect.preemptor)
        if victim is None:
            raise Violation(f"{view.name} evicts {effect.name}, which it has not seen", uid)
        if effect.message == f"{BATCH}: release":
            return
        if preemptor is None or preemptor.node_name:
            raise Violation(f"{view.name} evicts {effect.name} without a pending preemptor", uid)
        is_member = bool(victim.metadata.annotations.get("scheduling.k8s.io/group-name"))
        if preemptor.spec.scheduler_name == BATCH:
            nodes = set(view.nodes_of(victim))
            cleared = {node for one, node in view.announced if one == effect.preemptor}
            cleared.add(preemptor.status.nominated_node_name)
            if not nodes & cleared:
                raise Violation(
                    f"{effect.name} is evicted from {sorted(nodes)} without a preemptor there", uid
                )
        elif not is_member:
            super()._check_evict(view, effect)


def gangs(rng: RandomSource, until: int) -> Iterator[ChurnEvent]:
    """Queues and priority classes at the start; later PodGroups, with their pods soon after."""
    for index, name in enumerate(QUEUES):
        spec = QueueSpec(weight=1 + index)
        queue = Queue(metadata=ObjectMeta(name=name, uid=name), spec=spec)
        yield ChurnEvent(0, partial(_put, value=queue))
    for name, value in CLASSES.items():
        if name:
            known = PriorityClass(metadata=ObjectMeta(name=name, uid=name), value=value)
            yield ChurnEvent(0, partial(_put, value=known))
    for name in GROUPS[: random_int(rng, 3, len(GROUPS))]:
        yield from _gang(rng, name, until)


def _gang(rng: RandomSource, name: str, until: int) -> Iterator[ChurnEvent]:
    at = random_int(rng, 0, until // SECOND // pick(rng, (1, 4))) * SECOND
    size, priority = random_int(rng, 1, 6), pick(rng, tuple(CLASSES))
    least = random_int(rng, 0, size) if chance(rng, 2) else min(size, 1)
    spec = PodGroupSpec(least, pick(rng, QUEUES), priority)
    meta = ObjectMeta(name=name, namespace="default", uid=name)
    yield ChurnEvent(at, partial(_put, value=PodGroup(metadata=meta, spec=spec)))
    # CPU is scarce in some runs, memory in others.
    cpu, memory = str(random_int(rng, 0, 2)), f"{pick(rng, (0, 1, 3))}Gi"
    runs = {RUN_ANNOTATION: str(random_int(rng, 1, 40))} if chance(rng, 4) else {}
    for index in range(size):
        made = pod(f"{name}-{index}", cpu=cpu, memory=memory, priority=CLASSES[priority])
        annotations = {"scheduling.k8s.io/group-name": name, **runs}
        spec_ = replace(made.spec, scheduler_name=BATCH)
        one = replace(made, metadata=replace(made.metadata, annotations=annotations), spec=spec_)
        later = random_int(rng, 0, 5) * SECOND if chance(rng, 3) else 0
        yield ChurnEvent(at + later, partial(_come, one=one))


def _put(churn: ClusterChurn, value: Queue | PriorityClass | PodGroup) -> None:
    churn.cluster.put_object(value)


def _come(churn: ClusterChurn, one: Pod) -> None:
    churn.create_pod(one)


def is_session_pod(one: Pod, cluster: SimulatedCluster, note: str = "") -> bool:
    """True for a pod of a gang: the session check decides whether it may be pending."""
    return one.spec.scheduler_name == BATCH


def check_rest(made: Scheduler) -> None:
    """At rest another session decides nothing."""
    decider = decider_of(made)
    (lane,) = made.lanes.batch
    if not lane.is_idle:
        raise Violation("sessions are not idle at rest")
    result = decider.run_session("at rest", nominated_by_others(made, BATCH))
    if result.binds or result.victims:
        raise Violation(f"a session was due: {result.binds} {result.victims}")


def nominated_by_others(made: Scheduler, name: str) -> list[NodeAssignment]:
    """Nominated pods of all schedulers but one."""
    nominator = made.queue.nominator
    return [
        NodeAssignment(info.pod, node)
        for node in nominator.nodes()
        if node
        for info in nominator.on(node)
        if info.pod.spec.scheduler_name != name
    ]


def only_additions_start_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug: changes and deletions of pods start none."""

    def pod_deleted(self: SessionLane, uid: str) -> None:
        stirred = self._has_changes
        right(self, uid)
        self._has_changes = stirred

    right = SessionLane._pod_deleted
    monkeypatch.setattr(SessionLane, "_pod_deleted", pod_deleted)
    monkeypatch.setattr(
        "stowplan.scheduler.lanes.session_lane._is_relevant_to_sessions",
        lambda before, after: False,
    )


GANG_CONFIG = FaultRunConfig(
    scheduler,
    may_wait=is_session_pod,
    extra_events=gangs,
    auditor=GangAuditor,
    check_rest=check_rest,
)


if __name__ == "__main__":
    for seed in map(int, sys.argv[1:]):
        failure = run_with_faults(seed, GANG_CONFIG)
        print(seed, "passed" if failure is None else shrink_failure(failure, GANG_CONFIG))
