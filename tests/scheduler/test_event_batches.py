"""Pods that are added and deleted in one call are as those of a call each."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from stowplan.assembly import configuration_of
from stowplan.assembly.build import scheduler_for
from stowplan.columns import NodeTable
from stowplan.framework.feature_gates import FeatureGates
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.objects.encoding.json_codec import convert
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.node import Node
from stowplan.objects.pod import Container, Pod, PodSchedulingGate, PodSpec, ResourceRequirements
from stowplan.objects.pod_templates import PodTemplates
from stowplan.scheduler import Scheduler, event_batches
from stowplan.scheduler.evictions import Evictions
from stowplan.testing import builders
from stowplan.testing.generators.choices import chance, pick, random_int
from tests.property.wrong import assert_caught

Script = list[tuple[str, int]]

NAMES = 5
"""Pods of a script; few, so that names come again."""


def one_node() -> happened.NodeAdded:
    offers = {"cpu": "3", "memory": "8Gi", "pods": "110"}
    return happened.NodeAdded(
        convert({"metadata": {"name": "a"}, "status": {"allocatable": offers}}, Node)
    )


def pod_of(kind: str, number: int) -> Pod:
    """kind: bound, gated, of another scheduler, finished, nominated, urgent or plain."""
    # In two ways, so that a spec is new whose outline is not.
    requests = ResourceRequirements(requests={"cpu": ("1", "1000m")[number % 2]})
    spec = PodSpec(containers=(Container(name="c", resources=requests),))
    if kind == "bound":
        spec = replace(spec, node_name="a")
    elif kind == "gated":
        spec = replace(spec, scheduling_gates=(PodSchedulingGate("hold"),))
    elif kind == "other":
        spec = replace(spec, scheduler_name="other")
    elif kind == "urgent":
        spec = replace(spec, priority=10)
    pod = Pod(ObjectMeta(name=f"p{number}", namespace="default", uid=f"{kind}-{number}"), spec)
    if kind == "nominated":
        return replace(pod, status=replace(pod.status, nominated_node_name="a"))
    return replace(pod, status=replace(pod.status, phase="Failed")) if kind == "done" else pod


def events_of(script: Script) -> list[Any]:
    """Additions and deletions, where a name is known or not; pods of a kind share their spec, or
    its outline."""
    known: dict[int, Pod] = {}
    templates = PodTemplates()
    events: list[Any] = []
    for kind, number in script:
        if kind == "gone":
            if number in known:
                events.append(happened.PodDeleted(known.pop(number)))
        else:
            known[number] = templates.intern(pod_of(kind, number))
            events.append(happened.PodAdded(known[number]))
    return events


def new_scheduler() -> Scheduler:
    configuration, registry = configuration_of(None, "default", (), FeatureGates())
    scheduler = scheduler_for(configuration, registry, engine="walk")
    scheduler.handle([one_node()], 0)
    return scheduler


def state_of(scheduler: Scheduler) -> Any:
    queue, nodes = scheduler.queue, scheduler.cache.nodes
    return (
        [entry.key for entry in queue.active.in_order()],
        [entry.key for entry in queue.unschedulable_pods],
        {uid: record.state for uid, record in scheduler.pods.records.items()},
        dict(scheduler.pods.pods),
        [[info.uid for info in pods] for pods in nodes.pods],
        [nodes.requested(name).tolist() for name in ("cpu", "memory")],
        nodes.pod_count.tolist(),
        queue.move_request_cycle,
        queue.incoming,
        len(queue.nominator),
    )


def alike(script: Script) -> None:
    """All events at once, and the same pods decided, as one after the other."""
    together, alone = new_scheduler(), new_scheduler()
    half = len(script) // 2
    events = events_of(script)
    for some in (events[:half], events[half:]):
        together.handle(some, 0, 0)
        for event in some:
            alone.handle([event], 0, 0)
        assert state_of(together) == state_of(alone)
        placed = [(e.uid, e.node) for e in together.handle([], 0) if hasattr(e, "node")]
        assert placed == [(e.uid, e.node) for e in alone.handle([], 0) if hasattr(e, "node")]
        assert state_of(together) == state_of(alone)
    together.cache.validate()


kinds = st.sampled_from(
    ["bound", "plain", "plain", "gated", "other", "urgent", "done", "nominated", "gone", "gone"]
)
scripts = st.lists(st.tuples(kinds, st.integers(0, NAMES)), max_size=14)


@given(scripts)
def test_pods_taken_together_are_as_those_taken_alone(script: Script) -> None:
    alike(script)


def gates_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """No gate concerns any pod."""
    monkeypatch.setattr("stowplan.queue.pre_enqueue.PreEnqueueGates.concern", lambda *_: False)


def finished_pods_enter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod that has ended is queued."""
    monkeypatch.setattr(event_batches, "FINISHED_PHASES", ())


def one_of_a_template_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of pods with one footprint that leave a node together, one is counted."""
    right = NodeTable._count

    def count(self: NodeTable, row: int, info: Any, times: int) -> None:
        right(self, row, info, max(times, -1))

    monkeypatch.setattr(NodeTable, "_count", count)


WRONG: dict[Any, Script] = {
    gates_are_not_asked: [("gated", 0), ("plain", 1)],
    finished_pods_enter: [("done", 0), ("plain", 1)],
}


def taken_otherwise(right: str, wrong: str) -> Any:
    """`EventBatches.take` with another text in one place."""
    text = inspect.getsource(event_batches)
    assert text.count(right) == 1
    made: dict[str, Any] = {"__name__": event_batches.__name__}
    exec(compile(text.replace(right, wrong), event_batches.__file__, "exec"), made)
    return made["EventBatches"].take


@pytest.mark.parametrize(
    ("right", "wrong", "script"),
    [
        ("is_alike = status is latest_status and (", "is_alike = (", "nominated"),
        ("status is not latest_status and", "not latest_status and", "done"),
        (" and kept_outline(spec) is outline", "", "gated"),
        (" and kept_outline(spec) is outline", "", "other"),
    ],
    ids=["nominated", "finished", "gated", "of another scheduler"],
)
def test_a_pod_is_not_taken_for_the_one_of_its_template_before(
    right: str, wrong: str, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: Script = [("gone", 9), ("gone", 9), ("plain", 0), (script, 1)]
    alike(known)
    monkeypatch.setattr(event_batches.EventBatches, "take", taken_otherwise(right, wrong))
    with pytest.raises(AssertionError):
        alike(known)


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_batches_are_noticed(wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    script = WRONG[wrong]
    alike(script)
    wrong(monkeypatch)
    scheduler = new_scheduler()
    scheduler.handle(events_of(script), 0, 0)
    assert [entry.key for entry in scheduler.queue.active.in_order()] != ["default/p1"]


def bound_twice() -> list[Any]:
    """Pods of one template are bound; two of them are deleted in a call."""
    template = pod_of("bound", 0).spec
    pods = [replace(pod_of("bound", number), spec=template) for number in range(3)]
    return [[happened.PodAdded(pod) for pod in pods], [happened.PodDeleted(p) for p in pods[:2]]]


def requested_after(calls: list[Any]) -> list[int]:
    scheduler = new_scheduler()
    for events in calls:
        scheduler.handle(events, 0, 0)
    return scheduler.cache.nodes.requested("cpu").tolist()


def test_pods_of_a_template_that_leave_are_all_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert requested_after(bound_twice()) == [1000]
    one_of_a_template_leaves(monkeypatch)
    assert requested_after(bound_twice()) != [1000]


def test_a_refused_pod_is_retried_when_a_pod_that_is_deleted_in_a_batch_leaves_room() -> None:
    first, second = bound_twice()
    scheduler = new_scheduler()
    scheduler.handle([*first, happened.PodAdded(pod_of("plain", 4))], 0)
    scheduler.handle([], 0)
    assert len(scheduler.queue.unschedulable_pods) == 1
    scheduler.handle(second, 2_000_000_000, 0)
    assert len(scheduler.queue.unschedulable_pods) == 0


SEEDS = st.integers(0, 2**32 - 1)


def victims_leave_alike(seed: int) -> None:
    """Victims of preemptors, and pods beside them, are deleted in few calls, while evictions have
    outcomes, also refusals: as where each event is taken alone."""
    rng = np.random.default_rng(seed)
    together, alone = new_scheduler(), new_scheduler()
    alone._batch_handlers = {}
    names = [f"n{i}" for i in range(random_int(rng, 1, 4))]
    low = {
        f"low-{i}": builders.pod(
            f"low-{i}", uid=f"low-{i}", cpu="1", priority=-1, on=names[i % len(names)]
        )
        for i in range(3 * len(names))
    }
    events: list[Any] = [happened.NodeAdded(builders.node(name, cpu="3")) for name in names]
    events += map(happened.PodAdded, low.values())
    leaving: list[to_do.Evict] = []
    now = 0
    for step in range(8):
        if step in (1, 3):
            for i in range(random_int(rng, 1, 3)):
                cpu, priority = pick(rng, ("1", "2", "3")), pick(rng, (5, 10))
                name = f"vip-{step}-{i}"
                events.append(
                    happened.PodAdded(builders.pod(name, uid=name, cpu=cpu, priority=priority))
                )
        going = {one.uid for one in leaving if not chance(rng, 3)}
        if chance(rng, 2):
            going |= {pick(rng, tuple(low))} if low else set()
        gone = [happened.PodDeleted(low.pop(uid)) for uid in sorted(going) if uid in low]
        outcomes: list[Any] = [
            happened.EvictFailed(one.effect, one.uid, 429, "")
            if chance(rng, 6)
            else happened.EvictDone(one.effect, one.uid)
            for one in leaving
        ]
        found = together.handle([*events, *gone, *outcomes], now)
        wanted = alone.handle([*events, *gone, *outcomes], now)
        assert list(map(repr, found)) == list(map(repr, wanted))
        assert state_of(together) == state_of(alone)
        events, leaving = [], [one for one in wanted if isinstance(one, to_do.Evict)]
        now += random_int(rng, 0, 3) * 10**9
    together.validate()


@given(SEEDS)
def test_victims_that_leave_together_are_as_those_that_leave_alone(seed: int) -> None:
    victims_leave_alike(seed)


def no_victim_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last victim of a preemptor leaves as any pod does."""
    monkeypatch.setattr(Evictions, "is_awaited", lambda self, uid: False)


def test_control_victims_that_are_awaited_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    no_victim_is_awaited(monkeypatch)
    assert_caught(victims_leave_alike, SEEDS, known=(0,))
