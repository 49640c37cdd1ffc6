"""The queue as a whole: where a pod is after what happened to it."""

from __future__ import annotations

import pytest

from stowplan.framework.clusterevents import (
    ANYTHING,
    ASSIGNED_POD,
    ASSIGNED_POD_ADD,
    POD,
    Action,
    ClusterEvent,
)
from stowplan.objects.pod import Affinity, PodAffinity, PodAffinityTerm
from stowplan.objects.selectors import LabelSelector
from stowplan.queue import QueueOptions, SubQueue
from stowplan.testing.builders import pod
from tests.queue.fakes import NODE_ADD, NODE_DELETE, NODE_LABEL, Harness, ns


def test_pods_come_by_priority_then_by_age() -> None:
    h = Harness()
    for name, at_s, priority in (("old", 0, 0), ("high", 1, 9), ("young", 2, 0)):
        h.add(name, at_s, priority)
    assert [h.pop().pod.name for _ in range(3)] == ["high", "old", "young"]
    assert h.queue.pop() is None
    assert h.pods_by_queue() == {"flight": ["high-uid", "old-uid", "young-uid"]}
    assert h.queue.cycle == 3


def test_a_rejected_pod_is_unschedulable_until_an_event_helps_it() -> None:
    h = Harness()
    h.park("a", 0, "Picky")
    assert h.pods_by_queue() == {"unschedulable": ["a"]}
    h.queue.move(NODE_DELETE, None, ("a",), ns(1))
    h.queue.move(NODE_ADD, None, ("b",), ns(1))
    assert h.pods_by_queue() == {"unschedulable": ["a"]}
    h.queue.move(NODE_ADD, None, ("a",), ns(1))
    assert h.pods_by_queue() == {"backoff": ["a"]}
    h.queue.flush_backoff(ns(1.9))
    assert h.pods_by_queue() == {"backoff": ["a"]}
    h.queue.flush_backoff(ns(2))
    assert h.pods_by_queue() == {"active": ["a"]}


def test_after_enough_time_an_event_makes_it_active_at_once() -> None:
    h = Harness()
    h.park("a", 0, "Picky")
    h.queue.move(NODE_ADD, None, ("a",), ns(2))
    assert h.pods_by_queue() == {"active": ["a"]}


def test_what_a_pending_plugin_waits_for_needs_no_backoff() -> None:
    h = Harness()
    h.add("a")
    h.fail(h.pop(), 0, pending="Picky")
    h.queue.move(NODE_ADD, None, ("a",), ns(0.1))
    assert h.pods_by_queue() == {"active": ["a"]}


def test_an_error_backs_off_and_is_never_tried_early() -> None:
    h = Harness()
    h.add("a")
    entry = h.pop()
    h.fail(entry, 0)
    assert h.pods_by_queue() == {"failed": ["a"]}
    assert (entry.errors, entry.refusals) == (1, 0)
    assert h.queue.pop() is None
    h.queue.flush_backoff(ns(2))
    h.fail(h.pop(), 2, "Picky")
    assert (entry.errors, entry.refusals) == (0, 1)


def test_with_nothing_else_to_do_a_refused_pod_is_tried_early() -> None:
    h = Harness()
    h.park("a", 0, "Picky")
    h.queue.move(NODE_ADD, None, ("a",), ns(0.1))
    h.add("b", 0.1)
    assert h.pop().pod.name == "b"
    entry = h.pop()
    assert entry.pod.name == "a"
    assert entry.attempts == 2


def test_an_event_in_flight_is_checked_when_the_pod_is_requeued() -> None:
    h = Harness()
    for name in "ab":
        h.add(name)
    entries = [h.pop(), h.pop()]
    h.queue.move(NODE_ADD, None, ("a",), ns(0.1))
    for entry in entries:
        h.fail(entry, 0.2, "Picky")
    assert h.pods_by_queue() == {"backoff": ["a"], "unschedulable": ["b"]}


def test_an_event_before_the_attempt_does_not_count() -> None:
    h = Harness()
    h.add("a")
    h.queue.move(NODE_ADD, None, ("a",), ns(0))
    h.fail(h.pop(), 0.1, "Picky")
    assert h.pods_by_queue() == {"unschedulable": ["a"]}


def test_of_several_events_in_flight_the_strongest_counts() -> None:
    h = Harness()
    h.add("a")
    entry = h.pop()
    h.queue.move(ANYTHING, None, None, ns(0.1))
    h.queue.move(NODE_ADD, None, ("a",), ns(0.1))
    h.fail(entry, 0.2, "Easy", pending="Picky")
    assert h.pods_by_queue() == {"active": ["a"]}


def test_a_pod_that_is_done_may_still_fail_and_then_backs_off() -> None:
    h = Harness()
    h.add("a")
    entry = h.pop()
    h.queue.done(entry.uid)
    h.fail(entry, 0, "Picky")
    assert h.pods_by_queue() == {"backoff": ["a"]}


@pytest.mark.parametrize(
    ("plugins", "event", "text"),
    [
        ((), None, "Pod default/a is already present in the active queue"),
        (("Picky",), None, "Pod default/a is already present in unschedulable queue"),
        (("Picky",), ANYTHING, "Pod default/a is already present in the backoff queue"),
    ],
)
def test_a_pod_is_not_taken_back_twice(
    plugins: tuple[str, ...], event: ClusterEvent | None, text: str
) -> None:
    h = Harness()
    h.add("a")
    old = h.pop()
    again = pod("a", uid="another-uid")
    h.queue.add(again, 0)
    if plugins:
        h.fail(h.pop(), 0, *plugins)
    if event is not None:
        h.queue.move(event, None, None, ns(0.1))
    assert h.fail(old, 0.2, "Picky") == text
    assert "a-uid" not in h.queue.in_flight


def test_only_some_pods_may_be_looked_at() -> None:
    h = Harness()
    for name, priority in (("a", 1), ("b", 2)):
        h.park(name, 0, "Easy", priority=priority)
    h.queue.move(NODE_ADD, None, None, ns(5), lambda of: of.priority <= 1)
    assert h.pods_by_queue() == {"active": ["a"], "unschedulable": ["b"]}


# Gates.


def test_a_gated_pod_waits_for_an_event_that_its_gate_listens_to() -> None:
    h = Harness()
    h.closed.add("a")
    h.add("a")
    assert h.pods_by_queue() == {"gated": ["a"]}
    entry = h.queue.get("default/a")
    assert entry is not None
    assert (entry.gated_by, entry.refused_by, entry.initial_attempt) == ("Gate", {"Gate"}, None)
    h.queue.move(NODE_LABEL, None, None, ns(1))
    assert h.pods_by_queue() == {"gated": ["a"]}
    h.closed.clear()
    h.queue.move(NODE_ADD, None, None, ns(2))
    h.queue.move(ANYTHING, None, None, ns(2))
    assert h.pods_by_queue() == {"gated": ["a"]}
    h.queue.move(NODE_LABEL, None, None, ns(3))
    assert h.pods_by_queue() == {"active": ["a"]}
    assert entry.added_at == 0, "its place in the queue is that of its arrival"
    assert entry.initial_attempt == ns(3), "the wait at the gate does not count"


def test_a_gate_that_closes_while_the_pod_waits_keeps_it_out_of_backoff_too() -> None:
    h = Harness()
    h.park("a", 0, "Picky")
    h.closed.add("a")
    h.queue.move(NODE_ADD, None, ("a",), ns(0.1))
    assert h.pods_by_queue() == {"gated": ["a"]}
    assert h.queue.place_of("default/a") is SubQueue.GATED


def test_without_early_pops_the_gate_is_asked_when_backoff_ends() -> None:
    h = Harness(QueueOptions(pop_from_backoff=False))
    h.park("a", 0, "Picky")
    h.closed.add("a")
    h.queue.move(NODE_ADD, None, ("a",), ns(0.1))
    assert h.pods_by_queue() == {"backoff": ["a"]}
    assert h.queue.pop() is None
    h.queue.flush_backoff(ns(2))
    assert h.pods_by_queue() == {"gated": ["a"]}


def test_a_gated_newcomer_does_not_push_out_an_older_one() -> None:
    h = Harness()
    h.add("a")
    h.closed.add("a")
    h.queue.add(pod("a", uid="another"), ns(1))
    assert h.pods_by_queue() == {"active": ["a"]}
    assert h.pop().uid == "a-uid"


# Updates and deletions.


def test_an_update_in_flight_is_only_noted() -> None:
    h = Harness()
    old = h.add("a")
    h.pop()
    h.queue.update(old, pod("a", uid="a-uid", labels={"x": "y"}), ns(1))
    assert h.pods_by_queue() == {"flight": ["a-uid"]}
    assert [one.event.label for one in h.queue.in_flight.since("a-uid")] == [
        "UnschedulablePodUpdatePodLabel"
    ]


def test_an_update_of_an_active_pod_sorts_it_again() -> None:
    h = Harness()
    old = h.add("a", priority=1)
    h.add("b", priority=2)
    h.queue.update(old, pod("a", uid="a-uid", priority=3), ns(1))
    assert h.pods_by_queue() == {"active": ["a", "b"]}


def test_an_update_of_an_unknown_pod_adds_it() -> None:
    h = Harness()
    h.queue.update(pod("a"), pod("a", priority=3), ns(1))
    assert h.pods_by_queue() == {"active": ["a"]}


def test_an_update_that_helps_no_pod_leaves_an_unschedulable_pod_with_its_new_version() -> None:
    h = Harness()
    entry = h.park("a", 0, "Picky")
    h.queue.update(entry.pod, pod("a", uid="a-uid", labels={"x": "y"}), ns(1))
    assert h.pods_by_queue() == {"unschedulable": ["a"]}
    assert entry.pod.labels == {"x": "y"}


@pytest.mark.parametrize("place", ["active", "backoff", "failed", "unschedulable", "gated"])
def test_a_deleted_pod_leaves_wherever_it_is(place: str) -> None:
    h = Harness()
    if place == "gated":
        h.closed.add("a")
    made = h.add("a")
    if place in ("backoff", "failed", "unschedulable"):
        h.fail(h.pop(), 0, *(() if place == "failed" else ("Picky",)))
    if place == "backoff":
        h.queue.move(NODE_ADD, None, ("a",), ns(0.1))
    assert h.pods_by_queue() == {place: ["a"]}
    h.queue.nominator.nominate(made, "n1")
    h.queue.delete(made)
    assert h.pods_by_queue() == {}
    assert h.queue.nominator.nodes() == ()
    assert len(h.queue) == 0


def test_a_pod_added_again_while_in_flight_is_not_tried_twice() -> None:
    h = Harness()
    made = h.add("a")
    h.pop()
    h.queue.add(made, ns(1))
    assert h.queue.pop() is None
    assert [entry.key for entry in h.queue.discarded] == ["default/a"]
    assert h.queue.cycle == 1


def test_a_pod_with_a_nomination_in_its_status_is_nominated_when_it_gets_active() -> None:
    h = Harness()
    made = pod("a", nominated="n1")
    h.listed[made.key] = made
    h.closed.add("a")
    h.queue.add(made, 0)
    assert h.queue.nominator.nodes() == ()
    h.closed.clear()
    h.queue.add(made, 0)
    assert h.queue.nominator.node_of(made.uid) == "n1"


# Activation and the leftover flush.


def test_activation_skips_backoff_but_not_the_gates() -> None:
    h = Harness()
    for name in ("unschedulable", "gated"):
        h.park(name, 0, "Picky")
    h.add("failed")
    h.fail(h.pop(), 0)
    h.closed.add("gated")
    h.queue.activate(
        [pod(name) for name in ("unschedulable", "gated", "failed", "unknown")], ns(0.1)
    )
    assert h.pods_by_queue() == {"active": ["unschedulable", "failed"], "gated": ["gated"]}


def test_activation_of_a_pod_in_flight_counts_when_it_comes_back() -> None:
    h = Harness()
    made = h.add("a")
    entry = h.pop()
    h.queue.activate([made], ns(0.1))
    assert h.queue.move_request_cycle == 1
    h.fail(entry, 0.2, "Stranger")
    assert h.pods_by_queue() == {"backoff": ["a"]}


def test_a_pod_unschedulable_for_too_long_is_requeued() -> None:
    h = Harness()
    h.park("a", 0, "Stranger")
    h.park("b", 100, "Stranger")
    h.queue.flush_unschedulable(ns(300))
    assert h.pods_by_queue() == {"unschedulable": ["a", "b"]}
    h.queue.flush_unschedulable(ns(300) + 1)
    assert h.pods_by_queue() == {"unschedulable": ["b"], "active": ["a"]}
    entry = h.pop()
    assert entry.flushed
    h.fail(entry, 301, "Stranger")
    assert not entry.flushed


# The older entry points for bound pods.


def near(app: str) -> Affinity:
    term = PodAffinityTerm(label_selector=LabelSelector({"app": app}), topology_key="zone")
    return Affinity(pod_affinity=PodAffinity(required=(term,)))


def test_a_bound_pod_is_looked_at_only_where_it_may_help_across_nodes() -> None:
    h = Harness()
    waiting = {
        "spread": (pod("spread"), "Spread"),
        "elsewhere": (pod("elsewhere", namespace="other"), "Spread"),
        "near": (pod("near", affinity=near("db")), "Easy"),
        "far": (pod("far", affinity=near("web")), "Easy"),
        "plain": (pod("plain"), "Easy"),
    }
    for made, plugin in waiting.values():
        h.queue.add(made, 0)
        h.fail(h.pop(), 0, plugin)
    found = h.queue._helped_by(pod("bound", on="n1", labels={"app": "db"}))
    assert [entry.pod.name for entry in found] == ["spread", "near"]


def test_bound_pods_are_recorded_for_pods_in_flight_only_if_a_plugin_registered() -> None:
    h = Harness()
    h.add("a")
    h.pop()
    h.queue.assigned_pod_added(pod("bound", on="n1"), ns(1))
    scaled = ClusterEvent(ASSIGNED_POD, Action.UPDATE_POD_SCALE_DOWN)
    h.queue.assigned_pod_updated(pod("bound"), pod("bound"), scaled, ns(1))
    assert h.queue.in_flight.since("a-uid") == []
    assert h.queue.move_request_cycle == -1
    assert not h.queue.hints.concern(ASSIGNED_POD_ADD)
    assert not h.queue.hints.concern(ClusterEvent(POD, Action.UPDATE_POD_SCALE_DOWN))
