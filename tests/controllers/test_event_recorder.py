"""Events are counted, combined and limited as in client-go."""

from __future__ import annotations

from stowplan.controller_runtime.event_recorder import EventRecorder
from tests.apiserver.small_cluster import Tree, World, pod


class Said:
    """A world with one pod to say things about."""

    def __init__(self) -> None:
        self.world = World(0, hollow=False, schedules=False)
        self.recorder = EventRecorder(self.world.api)
        self.about = self.world.create("pods", pod("a"))

    def say(self, message: str, reason: str = "Because", about: Tree | None = None) -> None:
        self.recorder.record(about or self.about, "tester", reason, message)

    def events(self) -> list[tuple[str, int]]:
        found = self.world.list("events")
        return [(event["message"], event["count"]) for event in found]


def test_the_same_again_raises_the_count() -> None:
    said = Said()
    for _ in range(3):
        said.say("once more")
    assert said.events() == [("once more", 3)]


def test_an_event_names_what_it_is_about() -> None:
    said = Said()
    said.say("hello")
    (event,) = said.world.list("events")
    meta = said.about["metadata"]
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
    said = Said()
    for n in range(14):
        said.say(f"number {n}")
    events = said.events()
    assert len(events) == 10
    assert ("(combined from similar events): number 13", 5) in events
    said.say("something else", reason="Other")
    assert ("something else", 1) in said.events()


def test_similar_events_are_separate_again_after_ten_minutes() -> None:
    said = Said()
    for n in range(11):
        said.say(f"number {n}")
    said.world.api.now += 601.0
    said.say("number 12")
    assert ("number 12", 1) in said.events()


def test_events_of_one_object_are_limited_to_a_burst() -> None:
    said = Said()
    other = said.world.create("pods", pod("b"))
    for n in range(40):
        said.say("again", reason=f"Reason{n}")
    assert len(said.events()) == 25
    said.say("about another", about=other)
    assert len(said.events()) == 26
    said.world.api.now += 300.0
    said.say("later", reason="A")
    said.say("later", reason="B")
    assert len(said.events()) == 27


def test_a_refused_event_is_ignored() -> None:
    said = Said()
    lost = {**said.about, "metadata": {**said.about["metadata"], "namespace": "nosuch"}}
    said.say("into the void", about=lost)
    assert said.events() == []
