"""Events are counted, combined and limited as in client-go."""

from __future__ import annotations

from stowplan.controller_runtime.event_recorder import EventRecorder
from tests.apiserver.small_cluster import SmallCluster, Tree, pod


class RecorderOfOnePod:
    """A world with one pod to say things about."""

    def __init__(self) -> None:
        self.cluster = SmallCluster(0, simulates_nodes=False, schedules=False)
        self.recorder = EventRecorder(self.cluster.api)
        self.about = self.cluster.create("pods", pod("a"))

    def say(self, message: str, reason: str = "Because", about: Tree | None = None) -> None:
        self.recorder.record(about or self.about, "tester", reason, message)

    def events(self) -> list[tuple[str, int]]:
        found = self.cluster.list("events")
        return [(event["message"], event["count"]) for event in found]


def test_the_same_again_raises_the_count() -> None:
    recorded = RecorderOfOnePod()
    for _ in range(3):
        recorded.say("once more")
    assert recorded.events() == [("once more", 3)]


def test_an_event_names_what_it_is_about() -> None:
    recorded = RecorderOfOnePod()
    recorded.say("hello")
    (event,) = recorded.cluster.list("events")
    meta = recorded.about["metadata"]
    assert event["involvedObject"] == {
        "kind": "Pod",
        "namespace": "default",
        "name": "a",
        "uid": meta["uid"],
        "apiVersion": "v1",
        "resourceVersion": meta["resourceVersion"],
    }
    assert (event["source"], event["reportingComponent"]) == ({"component": "tester"}, "tester")


def test_similar_events_are_combined_from_the_tenth_on() -> None:
    recorded = RecorderOfOnePod()
    for n in range(14):
        recorded.say(f"number {n}")
    events = recorded.events()
    assert len(events) == 10
    assert ("(combined from similar events): number 13", 5) in events
    recorded.say("something else", reason="Other")
    assert ("something else", 1) in recorded.events()


def test_similar_events_are_separate_again_after_ten_minutes() -> None:
    recorded = RecorderOfOnePod()
    for n in range(11):
        recorded.say(f"number {n}")
    recorded.cluster.api.now += 601.0
    recorded.say("number 12")
    assert ("number 12", 1) in recorded.events()


def test_events_of_one_object_are_limited_to_a_burst() -> None:
    recorded = RecorderOfOnePod()
    other = recorded.cluster.create("pods", pod("b"))
    for n in range(40):
        recorded.say("again", reason=f"Reason{n}")
    assert len(recorded.events()) == 25
    recorded.say("about another", about=other)
    assert len(recorded.events()) == 26
    recorded.cluster.api.now += 300.0
    recorded.say("later", reason="A")
    recorded.say("later", reason="B")
    assert len(recorded.events()) == 27


def test_a_refused_event_is_ignored() -> None:
    recorded = RecorderOfOnePod()
    lost = {**recorded.about, "metadata": {**recorded.about["metadata"], "namespace": "nosuch"}}
    recorded.say("into the void", about=lost)
    assert recorded.events() == []
