"""Storms with gangs: sessions and a profile in one machine, and what each session decides judged.

Run: python -m tests.sim.gang_storms SEED... and read what became of each.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache, partial

from msgspec.structs import replace

from stowplan.assembly.deciders import Deciders, Text, deciders_of
from stowplan.batch.decider import BatchDecider
from stowplan.framework.sessions import Place
from stowplan.messages import effects as to_do
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import PodGroup, PodGroupSpec, Queue, QueueSpec
from stowplan.objects.workload import PriorityClass
from stowplan.scheduler import Machine, MachineOptions
from stowplan.sim.agenda import SECOND
from stowplan.sim.sea import Happening, Sea
from stowplan.sim.storm import Kit, told, weathered
from stowplan.sim.world import RUN_ANNOTATION, World
from stowplan.testing import pod
from stowplan.testing.auditor import Auditor, View, Violation
from stowplan.testing.dice import Dice, chance, number, pick
from stowplan.testing.session_judge import judge

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
    texts = [Text(PROFILE, "profiles"), Text(SESSIONS.replace("POLICY", policy), "sessions")]
    return deciders_of(texts)


def machine(seed: int, leads: bool, term: int) -> Machine:
    options = MachineOptions(leads=leads, term=term, identity=f"storm-{seed}")
    made = deciders("Release" if seed % 4 == 0 else "Keep").machine(options=options)
    decider_of(made).on_closed = lambda session, result: judge(session)
    return made


def decider_of(made: Machine) -> BatchDecider:
    assert made.sessions is not None
    decider = made.sessions.decider
    assert isinstance(decider, BatchDecider)
    return decider


class GangAuditor(Auditor):
    """Knows that sessions evict by other rules, and that whole gangs may go."""

    def _judge_evict(self, view: View, effect: to_do.Evict) -> None:
        uid = effect.uid
        victims = view.versions(uid)
        if not victims:
            raise Violation(f"{view.name} evicts {effect.name}, which it was not shown", uid)
        if effect.message == f"{BATCH}: release":
            return
        preemptors = [one for one in view.versions(effect.preemptor) if not one.node_name]
        if not preemptors:
            raise Violation(f"{view.name} evicts {effect.name} for nobody who waits", uid)
        is_member = bool(victims[0].metadata.annotations.get("scheduling.k8s.io/group-name"))
        if preemptors[0].spec.scheduler_name == BATCH:
            nodes = {node for victim in victims for node in view.nodes_of(victim)}
            cleared = {node for one, node in view.announced if one == effect.preemptor}
            cleared |= {one.status.nominated_node_name for one in preemptors}
            if not nodes & cleared:
                raise Violation(f"{effect.name} goes from {sorted(nodes)} for nobody there", uid)
        elif not is_member:
            super()._judge_evict(view, effect)


def gangs(dice: Dice, until: int) -> Iterator[Happening]:
    """Queues and classes at first; then groups, their pods soon after, some in pieces."""
    for index, name in enumerate(QUEUES):
        spec = QueueSpec(weight=1 + index)
        queue = Queue(metadata=ObjectMeta(name=name, uid=name), spec=spec)
        yield Happening(0, partial(_put, value=queue))
    for name, value in CLASSES.items():
        if name:
            known = PriorityClass(metadata=ObjectMeta(name=name, uid=name), value=value)
            yield Happening(0, partial(_put, value=known))
    for name in GROUPS[: number(dice, 3, len(GROUPS))]:
        yield from _gang(dice, name, until)


def _gang(dice: Dice, name: str, until: int) -> Iterator[Happening]:
    at = number(dice, 0, until // SECOND // pick(dice, (1, 4))) * SECOND
    size, priority = number(dice, 1, 6), pick(dice, tuple(CLASSES))
    least = number(dice, 0, size) if chance(dice, 2) else min(size, 1)
    spec = PodGroupSpec(least, pick(dice, QUEUES), priority)
    meta = ObjectMeta(name=name, namespace="default", uid=name)
    yield Happening(at, partial(_put, value=PodGroup(metadata=meta, spec=spec)))
    # Now one is scarce, now the other.
    cpu, memory = str(number(dice, 0, 2)), f"{pick(dice, (0, 1, 3))}Gi"
    runs = {RUN_ANNOTATION: str(number(dice, 1, 40))} if chance(dice, 4) else {}
    for index in range(size):
        made = pod(f"{name}-{index}", cpu=cpu, memory=memory, priority=CLASSES[priority])
        annotations = {"scheduling.k8s.io/group-name": name, **runs}
        spec_ = replace(made.spec, scheduler_name=BATCH)
        one = replace(made, metadata=replace(made.metadata, annotations=annotations), spec=spec_)
        later = number(dice, 0, 5) * SECOND if chance(dice, 3) else 0
        yield Happening(at + later, partial(_come, one=one))


def _put(sea: Sea, value: Queue | PriorityClass | PodGroup) -> None:
    sea.world.put_object(value)


def _come(sea: Sea, one: Pod) -> None:
    sea.come(one)


def is_batch(one: Pod, world: World, note: str = "") -> bool:
    """Whether gangs may wait is for the judge of sessions to say."""
    return one.spec.scheduler_name == BATCH


def rested(made: Machine) -> None:
    """A session that was not held would decide nothing."""
    decider = decider_of(made)
    assert made.sessions is not None
    if not made.sessions.is_still:
        raise Violation("sessions have not come to rest")
    nominator = made.queue.nominator
    others = [
        Place(info.pod, node)
        for node in nominator.nodes()
        if node
        for info in nominator.on(node)
        if info.pod.spec.scheduler_name != BATCH
    ]
    result = decider.hold("at rest", others)
    if result.binds or result.victims:
        raise Violation(f"a session was due: {result.binds} {result.victims}")


KIT = Kit(machine, held=is_batch, more=gangs, auditor=GangAuditor, rested=rested)


if __name__ == "__main__":
    for seed in map(int, sys.argv[1:]):
        failure = weathered(seed, KIT)
        print(seed, "went well" if failure is None else told(failure, KIT))
