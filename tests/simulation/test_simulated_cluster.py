"""The simulated cluster: API, kubelets, watches and dispatcher."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from stowplan.inputs.annotations import RUN_ANNOTATION
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.events import Event
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.pod import Pod
from stowplan.simulation.cluster.cluster_api import Pace
from stowplan.simulation.cluster.effect_dispatcher import InjectedFault
from stowplan.simulation.cluster.simulated_cluster import ResourceVersionExpired, SimulatedCluster
from stowplan.simulation.cluster.simulated_dispatcher import SimulatedDispatcher
from stowplan.simulation.cluster.watch_stream import WatchStream, any_kind
from stowplan.simulation.event_queue import EventQueue, in_seconds
from stowplan.testing import node, pod
from tests.fault_runs.delayed_watch import is_not_pod, is_pod


def simulated(*pods: Pod, pace: Pace | None = None) -> SimulatedCluster:
    made = SimulatedCluster(EventQueue(), pace)
    made.put_node(node("n"))
    for one in pods:
        made.put_pod(one)
    return made


def running(name: str, seconds: str) -> Pod:
    one = pod(name)
    return replace(one, metadata=replace(one.metadata, annotations={RUN_ANNOTATION: seconds}))


# Event queue.


def test_things_happen_in_their_order() -> None:
    event_queue, seen = EventQueue(), []

    def note(text: str) -> None:
        seen.append((event_queue.now, text))

    event_queue.at(20, note, "late")
    event_queue.at(10, note, "first of ten")
    event_queue.at(10, note, "second of ten")
    event_queue.at(10, lambda: event_queue.at(5, note, "what is over happens now"))
    assert event_queue.next() == 10
    event_queue.run(15)
    assert seen == [
        (10, "first of ten"),
        (10, "second of ten"),
        (10, "what is over happens now"),
    ]
    assert (event_queue.now, len(event_queue)) == (15, 1)
    event_queue.step()
    assert (seen[-1], event_queue.next()) == ((20, "late"), None)


def test_seconds_are_whole_microseconds() -> None:
    assert in_seconds(1_500_000_400) == 1.5


# The API.


def test_a_binding_is_made_once() -> None:
    there = simulated(pod("p", uid="1", nominated="n"))
    assert there.bind("default/q", "1", "n") == 404
    assert there.bind("default/p", "2", "n") == 409
    assert there.bind("default/p", "1", "n") == 201
    assert there.bind("default/p", "1", "n") == 409
    bound = there.pods["default/p"]
    assert (bound.node_name, bound.status.nominated_node_name) == ("n", "")


def test_a_pod_that_is_being_deleted_is_not_bound() -> None:
    there = simulated(pod("p", on="n"), pace=Pace(0, 0, 5))
    there.delete_pod("default/p", "deleted")
    assert there.pods["default/p"].metadata.deletion_timestamp is not None
    there.event_queue.run(5 * SECOND)
    assert there.pods == {}


def test_a_pending_pod_goes_at_once() -> None:
    there = simulated(pod("p"))
    there.delete_pod("default/p", "deleted")
    assert there.pods == {}


def test_a_victim_gets_a_condition_before_it_ends() -> None:
    there = simulated(pod("p", on="n"), pace=Pace(0, 0, 5))
    assert there.evict("default/p", "another") == 404
    assert there.evict("default/p", "default/p") == 200
    there.evict("default/p", "default/p")
    condition = there.pods["default/p"].status.conditions
    assert [(one.type, one.reason) for one in condition] == [
        ("DisruptionTarget", "PreemptionByScheduler")
    ]
    announced, going = there.since(2)
    assert isinstance(announced, happened.PodUpdated)
    assert announced.pod.metadata.deletion_timestamp is None
    assert isinstance(going, happened.PodUpdated)
    assert going.pod.metadata.deletion_timestamp is not None


def patch(reason: str = "", node_name: str | None = None) -> to_do.PatchStatus:
    return to_do.PatchStatus(1, 1, "default/p", "default", "p", reason, "why", node_name)


def test_a_status_is_patched_only_where_it_changes() -> None:
    there = simulated(pod("p"))
    assert there.patch_status(patch("Unschedulable", "n")) == 200
    before = there.version
    assert there.patch_status(patch("Unschedulable", "n")) == 200
    assert there.version == before
    patched = there.pods["default/p"].status
    assert patched.nominated_node_name == "n"
    assert patched.conditions[0].message == "why"
    there.patch_status(patch(node_name=""))
    assert there.pods["default/p"].status.nominated_node_name == ""
    assert there.patch_status(replace(patch(), uid="another")) == 404


# Kubelets.


def test_a_pod_runs_for_its_stated_duration() -> None:
    there = simulated(running("p", "10"), pace=Pace(0, 2, 0))
    seen: list[tuple[str, float]] = []
    there.on_started = lambda one: seen.append(("started", in_seconds(there.event_queue.now)))
    there.on_ended = lambda one, why: seen.append(
        (f"ended {why}", in_seconds(there.event_queue.now))
    )
    there.bind("default/p", "default/p", "n")
    there.event_queue.run(60 * SECOND)
    assert seen == [("started", 2), ("ended ", 12)]
    last = there.latest
    assert isinstance(last, happened.PodUpdated)
    assert last.pod.is_finished


def test_a_recreated_pod_is_not_ended_by_its_predecessor() -> None:
    there = simulated(running("p", "10"))
    there.bind("default/p", "default/p", "n")
    there.event_queue.run(SECOND)
    there.drop_pod("default/p", "node left")
    there.put_pod(pod("p", uid="new"))
    there.event_queue.run(60 * SECOND)
    assert there.pods["default/p"].uid == "new"


# Watches.


def event_texts(events: list[Event]) -> list[str]:
    return [type(event).__name__ for event in events]


def test_a_stream_lists_and_then_follows() -> None:
    there = simulated(pod("p"))
    stream = WatchStream(there, any_kind)
    assert event_texts(stream.take()) == ["NodeAdded", "PodAdded"]
    assert stream.take() == []
    there.bind("default/p", "default/p", "n")
    there.drop_node("n")
    assert event_texts(stream.take(1)) == ["PodUpdated"]
    assert event_texts(stream.take(1)) == ["NodeDeleted"]


def test_streams_show_their_own_kinds() -> None:
    there = simulated(pod("p"))
    assert event_texts(WatchStream(there, is_pod).take()) == ["PodAdded"]
    assert event_texts(WatchStream(there, is_not_pod).take()) == ["NodeAdded"]


def test_objects_deleted_during_a_gap_are_reported_by_the_relist() -> None:
    there = simulated(pod("p"), pod("q"))
    stream = WatchStream(there, any_kind)
    stream.take()
    there.drop_pod("default/p", "deleted")
    there.put_pod(pod("r"))
    there.compact(there.version)
    with pytest.raises(ResourceVersionExpired):
        there.since(1)
    found = stream.take()
    assert event_texts(found) == ["PodDeleted", "NodeUpdated", "PodUpdated", "PodAdded"]


def test_a_stream_repeats_only_what_it_has_sent() -> None:
    there = simulated(pod("p"))
    stream = WatchStream(there, any_kind)
    assert stream.repeat(0, 2) == []
    stream.take()
    there.put_pod(pod("q"))
    assert event_texts(stream.repeat(1, 5)) == ["PodUpdated"]


# API dispatcher.


def events_of(
    there: SimulatedCluster, injected_fault: InjectedFault | None, *effects: to_do.Effect
) -> list[str]:
    """Outcomes that a scheduler receives for its effects."""
    answers: list[Event] = []
    dispatcher = SimulatedDispatcher(there, lambda number: None)
    dispatcher.answer = answers.append
    dispatcher.inject = lambda effect: injected_fault
    for effect in effects:
        dispatcher.take(effect)
    there.event_queue.run(60 * SECOND)
    return [f"{type(one).__name__} {getattr(one, 'code', '')}".strip() for one in answers]


BIND = to_do.Bind(1, 1, "default/p", "default", "p", "n")


@pytest.mark.parametrize(
    ("injected_fault", "hears", "is_bound"),
    [
        (None, ["BindDone"], True),
        (InjectedFault(500), ["BindFailed 500"], False),
        (InjectedFault(0, done=True), ["BindFailed 0"], True),
        (InjectedFault(504, late=SECOND), ["BindFailed 504"], True),
        (InjectedFault(None), [], False),
    ],
)
def test_what_may_become_of_a_binding(
    injected_fault: InjectedFault | None, hears: list[str], is_bound: bool
) -> None:
    there = simulated(pod("p"))
    assert events_of(there, injected_fault, BIND) == hears
    assert bool(there.pods["default/p"].node_name) is is_bound


def test_other_effects_end_in_their_own_ways() -> None:
    there = simulated(pod("p"), pod("v", on="n"))
    read = to_do.ReadPod(2, 1, "default/p", "default", "p")
    evict = to_do.Evict(3, 1, "default/v", "default", "v", "default/p", "")
    assert events_of(there, None, read, evict, patch("Unschedulable")) == ["PodRead", "EvictDone"]
    assert events_of(there, InjectedFault(500), read, evict, patch("x")) == [
        "EvictFailed 500",
        "PatchFailed 500",
    ]


def test_effects_about_one_pod_keep_their_order() -> None:
    there = simulated(pod("p"))
    answers: list[Event] = []
    dispatcher = SimulatedDispatcher(there, lambda number: None)
    dispatcher.answer = answers.append
    delays = iter([50, 0, 0, 0])
    dispatcher.delay = lambda: next(delays)
    dispatcher.take(BIND)
    dispatcher.take(to_do.ReadPod(2, 1, "default/p", "default", "p"))
    there.event_queue.run(SECOND)
    read = next(one for one in answers if isinstance(one, happened.PodRead))
    assert read.pod is not None
    assert read.pod.node_name == "n"


def test_nothing_is_sent_without_the_lead() -> None:
    there = simulated(pod("p"))
    answers: list[Event] = []
    dispatcher = SimulatedDispatcher(there, lambda number: None)
    dispatcher.answer = answers.append
    dispatcher.may_write = lambda effect: False
    dispatcher.take(BIND)
    dispatcher.take(to_do.ReadPod(2, 1, "default/p", "default", "p"))
    there.event_queue.run(SECOND)
    assert [type(one).__name__ for one in answers] == ["PodRead"]
    assert there.pods["default/p"].node_name == ""
