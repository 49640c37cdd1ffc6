"""The fairness watch: what is a finding, from when on, and why."""

from __future__ import annotations

from typing import Any

import pytest

from stowplan.insight.fairness.fairness_watch import FairnessWatch
from stowplan.insight.fairness.findings import FairnessLimits, Finding, duration_text
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.meta import ObjectMeta, OwnerReference
from stowplan.objects.node import Node, NodeStatus
from stowplan.objects.pod import Container, Pod, PodSchedulingGate, PodSpec, ResourceRequirements
from stowplan.objects.podgroup import PodGroup, PodGroupSpec, Queue, QueueSpec

LIMITS = FairnessLimits(window_s=100, preemptions_min=3, starves_s=60, pending_s=60)


def pod(
    name: str,
    owner: str = "",
    priority: int = 0,
    node: str = "",
    cpu: str = "1",
    group: str = "",
    scheduler: str = "default-scheduler",
    gates: tuple[str, ...] = (),
) -> Pod:
    owners = (OwnerReference("apps/v1", "StatefulSet", owner, f"uid-{owner}", True),)
    meta = ObjectMeta(
        name=name,
        namespace="shop",
        uid=f"uid-{name}",
        owner_references=owners if owner else (),
        annotations={"scheduling.k8s.io/group-name": group} if group else {},
    )
    spec = PodSpec(
        containers=(Container("c", resources=ResourceRequirements({"cpu": cpu})),),
        node_name=node,
        scheduler_name=scheduler,
        priority=priority,
        scheduling_gates=tuple(map(PodSchedulingGate, gates)),
    )
    return Pod(meta, spec)


def evict(victim: Pod, preemptor: Pod | None) -> to_do.Evict:
    by = "" if preemptor is None else preemptor.uid
    return to_do.Evict(1, 1, victim.uid, "shop", victim.name, by, "preempted")


def refused(about: Pod, note: str) -> to_do.RecordEvent:
    return to_do.RecordEvent(
        1, 1, about.uid, "shop", about.name, "s", "Warning", "FailedScheduling", "Scheduling", note
    )


class Watched:
    """A watch and its clock, in seconds."""

    def __init__(self) -> None:
        self.watch = FairnessWatch(LIMITS, ["default-scheduler"], ["batch"])
        self.now = 0

    def at(self, second: int, *messages: Any) -> Watched:
        self.now = second
        effects = [m for m in messages if isinstance(m, to_do.Numbered)]
        events = [m for m in messages if not isinstance(m, to_do.Numbered)]
        self.watch.handled(events, effects, second * SECOND)
        return self

    def preempts(self, second: int, preemptor: Pod, victim: Pod) -> Watched:
        self.at(second, happened.PodAdded(victim), happened.PodAdded(preemptor))
        self.at(second, evict(victim, preemptor))
        return self.at(second, happened.PodDeleted(victim))

    def found(self, kind: str, second: int | None = None) -> list[Finding]:
        now = (self.now if second is None else second) * SECOND
        return [one for one in self.watch.findings(now) if one.kind == kind]


def test_repeated_preemption_is_found_by_owner() -> None:
    watched = Watched()
    for second in range(2):
        watched.preempts(second, pod("high", "urgent", 10), pod(f"low-{second}", "web", node="n"))
    assert not watched.found("preempted-repeatedly")
    watched.preempts(2, pod("high", "urgent", 10), pod("low-2", "web", node="n"))
    (found,) = watched.found("preempted-repeatedly")
    assert (found.subject, found.count) == ("shop/statefulset/web", 3)
    assert found.others == ("shop/statefulset/urgent",)
    assert "its priority is 0, theirs up to 10" in found.explanation
    assert found.pods == ("shop/low-0", "shop/low-1", "shop/low-2")


def test_preemptions_before_the_window_are_forgotten() -> None:
    watched = Watched()
    for second in (0, 60, 120):
        watched.preempts(second, pod("high", "urgent", 10), pod(f"low-{second}", "web", node="n"))
    assert not watched.found("preempted-repeatedly")
    assert len(watched.watch._preemptions) == 2


def test_pods_without_an_owner_count_by_name() -> None:
    watched = Watched()
    for second in range(3):
        watched.preempts(second, pod("high", "urgent", 10), pod("single", node="n"))
    (found,) = watched.found("preempted-repeatedly")
    assert found.subject == "shop/pod/single"


def test_evictions_count_by_the_job_of_the_pod_that_is_named() -> None:
    watched = Watched()
    watched.at(0, happened.PodAdded(pod("a-0", "a", 7, scheduler="batch")))
    victims = [pod(f"b-{i}", "b", -5, node="n", scheduler="batch") for i in range(4)]
    members = ("uid-a-0", "uid-a-0", "uid-unknown", "")
    for victim, member in zip(victims, members, strict=True):
        effect = to_do.Evict(1, 1, victim.uid, "shop", victim.name, "", "x", "reclaim", member)
        watched.at(1, happened.PodAdded(victim), effect)
    (found,) = watched.found("preempted-repeatedly")
    assert found.others == ("shop/statefulset/a",)
    by = "shop/statefulset/a (2), a session, for no pod in particular (2)"
    # Its priority is no reason: the session chose between jobs.
    assert f"by {by}: reclaim or preempt" in found.explanation


def test_a_pair_that_preempts_each_other() -> None:
    watched = Watched()
    watched.preempts(0, pod("a-0", "a", 10), pod("b-0", "b", 5, node="n"))
    assert not watched.found("preempts-each-other")
    watched.preempts(20, pod("b-1", "b", 20), pod("a-1", "a", 10, node="n"))
    (found,) = watched.found("preempts-each-other")
    assert {found.subject, *found.others} == {"shop/statefulset/a", "shop/statefulset/b"}
    assert found.count == 2
    assert found.seconds == 20
    assert "each makes the other start again" in found.explanation


def test_control_one_direction_is_no_pair() -> None:
    watched = Watched()
    for second in range(5):
        watched.preempts(second, pod("a-0", "a", 10), pod(f"b-{second}", "b", node="n"))
    assert not watched.found("preempts-each-other")
    assert watched.found("preempted-repeatedly")


def test_evictions_for_no_pod_in_particular() -> None:
    watched = Watched()
    for second in range(3):
        victim = pod(f"low-{second}", "web", node="n")
        watched.at(second, happened.PodAdded(victim), evict(victim, None))
    (found,) = watched.found("preempted-repeatedly")
    assert "a session, for no pod in particular (3)" in found.explanation
    assert found.others == ()


def test_long_pending_pods_have_their_cause() -> None:
    watched = Watched()
    waiting = [pod(f"w-{n}", "web") for n in range(3)]
    watched.at(0, *map(happened.PodAdded, waiting))
    note = "0/5 nodes are available: 3 Insufficient cpu, 2 node(s) had untolerated taint(s)."
    watched.at(1, *(refused(one, note) for one in waiting))
    assert not watched.found("pending-long", 59)
    (found,) = watched.found("pending-long", 60)
    assert (found.subject, found.count, found.seconds) == ("shop/statefulset/web", 3, 60)
    assert found.explanation.endswith(": Insufficient cpu; node(s) had untolerated taint(s)")
    watched.at(61, *(happened.PodUpdated(pod(f"w-{n}", "web", node="n")) for n in range(3)))
    assert not watched.found("pending-long", 200)


def test_gates_foreign_pods_and_unattempted_pods() -> None:
    watched = Watched()
    gated = pod("gated", gates=("wait.example.com/here",))
    foreign = pod("foreign", scheduler="another")
    watched.at(0, *map(happened.PodAdded, (gated, foreign, pod("new"))))
    found = {one.subject: one.explanation for one in watched.found("pending-long", 100)}
    assert found.keys() == {"shop/pod/gated", "shop/pod/new"}
    assert "scheduling gates: wait.example.com/here" in found["shop/pod/gated"]
    assert "no attempt has been recorded" in found["shop/pod/new"]


# Queues.


def queue(name: str, weight: int = 1) -> happened.ObjectAdded:
    return happened.ObjectAdded(Queue(ObjectMeta(name=name), spec=QueueSpec(weight)))


def group(name: str, in_queue: str) -> happened.ObjectAdded:
    meta = ObjectMeta(name=name, namespace="shop")
    return happened.ObjectAdded(PodGroup(meta, spec=PodGroupSpec(1, in_queue)))


def a_node(cpu: str) -> happened.NodeAdded:
    return happened.NodeAdded(Node(ObjectMeta(name="n"), status=NodeStatus({"cpu": cpu})))


def batch_pod(name: str, of: str, node: str = "") -> Pod:
    return pod(name, group=of, node=node, scheduler="batch")


def two_queues(*, groups_first: bool = True) -> Watched:
    """Research holds all eight cores, production waits for four of its deserved ones."""
    watched = Watched()
    objects = [queue("research"), queue("production"), a_node("8")]
    groups = [group("r", "research"), group("p", "production")]
    running = [happened.PodAdded(batch_pod(f"r-{n}", "r", "n")) for n in range(8)]
    waiting = [happened.PodAdded(batch_pod(f"p-{n}", "p")) for n in range(4)]
    pods = [*running, *waiting]
    watched.at(0, *objects, *((*groups, *pods) if groups_first else (*pods, *groups)))
    return watched


@pytest.mark.parametrize("groups_first", [True, False])
def test_a_starving_queue(groups_first: bool) -> None:
    watched = two_queues(groups_first=groups_first)
    assert not watched.found("queue-starves", 59)
    (found,) = watched.found("queue-starves", 60)
    assert (found.subject, found.count, found.seconds) == ("queue/production", 4, 60)
    assert "cpu 0 of 4 deserved" in found.explanation


def test_a_queue_that_gets_its_share_starves_no_more() -> None:
    watched = two_queues()
    for number in range(4):
        watched.at(30, happened.PodDeleted(batch_pod(f"r-{number}", "r", "n")))
        watched.at(30, happened.PodUpdated(batch_pod(f"p-{number}", "p", "n")))
    watched.at(31)
    assert not watched.found("queue-starves", 200)


def test_a_queue_with_its_share_and_pending_pods_does_not_starve() -> None:
    watched = two_queues()
    assert [one.subject for one in watched.found("queue-starves", 100)] == ["queue/production"]
    watched.at(30, *(happened.PodAdded(batch_pod(f"more-{n}", "r")) for n in range(5)))
    assert [one.subject for one in watched.found("queue-starves", 100)] == ["queue/production"]


def test_weights_and_deleted_pods_count() -> None:
    watched = two_queues()
    watched.at(1, happened.ObjectUpdated(queue("production", 3).value))
    (found,) = watched.found("queue-starves", 100)
    assert "of 4 deserved" in found.explanation
    watched.at(2, *(happened.PodDeleted(batch_pod(f"p-{n}", "p")) for n in range(4)))
    assert not watched.found("queue-starves", 100)
    assert not watched.watch._usage.uses["production"].pending.get("cpu")


def test_control_a_watch_that_forgets_what_it_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: an updated pod counts twice."""
    monkeypatch.setattr(FairnessWatch, "_uncount", lambda self, known: None)
    watched = two_queues()
    for number in range(4):
        watched.at(30, happened.PodUpdated(batch_pod(f"p-{number}", "p", "n")))
    assert watched.watch._usage.uses["production"].n_pending == 4


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (119, "119s"), (120, "2m"), (7199, "119m"), (7200, "2h"), (9000, "2h30m"),
     (200_000, "2d7h"), (172_800, "2d")],
)  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
