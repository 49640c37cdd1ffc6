"""PreEnqueue plugins that break their contract keep their pods out of the queue."""

from __future__ import annotations

from stowplan.assembly.build import configuration_of, scheduler_for
from stowplan.framework import OK, Status, unschedulable
from stowplan.framework.clusterevents import NODE, Action, ClusterEventWithHint, QueueingHint, on
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.objects.pod import Pod
from stowplan.queue import SubQueue
from stowplan.testing import node, pod


class Jammed:
    """A PreEnqueue plugin that breaks its contract."""

    name = "Jammed"

    def pre_enqueue(self, pod: Pod) -> Status:
        if pod.name == "odd":
            raise KeyError("team")
        return OK


def test_a_failing_pre_enqueue_keeps_the_pod_out_and_is_reported() -> None:
    scheduler = scheduler_for(*configuration_of(None, "default", [Jammed]))
    scheduler.handle([happened.NodeAdded(node("n1"))], 0)
    effects = scheduler.handle([happened.PodAdded(pod("odd")), happened.PodAdded(pod("even"))], 1)
    notes = [e.note for e in effects if isinstance(e, to_do.RecordEvent)]
    assert len(notes) == 1, notes
    assert "Jammed" in notes[0], notes
    assert "KeyError" in notes[0], notes
    assert [e.name for e in effects if isinstance(e, to_do.Bind)] == ["even"]
    assert scheduler.queue.place_of("default/odd") is SubQueue.GATED


class Muddled:
    """A filter whose hint breaks its contract."""

    name = "Muddled"

    def filter(self, pod: Pod) -> Status:
        return unschedulable("not yet")

    def events_to_register(self) -> tuple[ClusterEventWithHint, ...]:
        return (on(NODE, Action.ADD, self.helped),)

    def helped(self, pod: Pod, old: object, new: object) -> QueueingHint:
        raise KeyError("zone")


def test_a_failing_hint_retries_the_pod_and_is_reported() -> None:
    scheduler = scheduler_for(*configuration_of(None, "default", [Muddled]))
    scheduler.handle([happened.NodeAdded(node("n1")), happened.PodAdded(pod("web"))], 0)
    assert scheduler.queue.place_of("default/web") is SubQueue.UNSCHEDULABLE
    effects = scheduler.handle([happened.NodeAdded(node("n2"))], 1)
    notes = [e.note for e in effects if isinstance(e, to_do.RecordEvent)]
    assert any("Muddled" in note and "KeyError" in note for note in notes), notes
    (entry,) = scheduler.queue
    assert entry.attempts == 2
