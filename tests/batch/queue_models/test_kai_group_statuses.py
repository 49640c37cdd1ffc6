"""Events and scheduling conditions of PodGroups in KAI's words."""

from __future__ import annotations

from msgspec.structs import replace

from stowplan.benchmarks.sessions.kai_benchmarks import FREE, KaiBenchmark
from stowplan.messages import events as happened
from stowplan.messages.effects import PatchGroup, RecordEvent
from stowplan.objects.kai.kai_kinds import (
    KaiPodGroupObject,
    KaiPodGroupSpec,
    KaiPodGroupStatus,
    KaiQueueResource,
    KaiQueueResources,
    KaiSchedulingCondition,
)
from stowplan.objects.meta import ObjectMeta


def group(name: str, least: int, *conditions: KaiSchedulingCondition) -> KaiPodGroupObject:
    return KaiPodGroupObject(
        metadata=ObjectMeta(name=name, namespace="ns", uid=name),
        spec=KaiPodGroupSpec(queue="q", min_member=least),
        status=KaiPodGroupStatus(conditions),
    )


class Statuses(KaiBenchmark):
    """What a session writes about groups."""

    def notes(self) -> list[tuple[str, str]]:
        """(reason, text) of events about groups."""
        found = [one for one in self.effects if isinstance(one, RecordEvent)]
        return [(one.reason, one.note) for one in found if one.kind == "PodGroup"]

    def conditions(self) -> list[list[tuple[str, str]]]:
        """(type, transition ID) of the conditions of each patch."""
        return [
            [(condition.type, condition.transition_id) for condition in one.status.conditions]
            for one in self.effects
            if isinstance(one, PatchGroup)
        ]


def cluster_of(name: str, size: int, cards: str, nodes: tuple[int, ...] = ()) -> Statuses:
    cluster = Statuses(1, 4)
    cluster.show([cluster.queue("q")])
    cluster.show(list(cluster.gang(name, "q", size, ("1", "1Gi", cards), nodes)))
    return cluster


def test_a_gang_that_finds_no_room_has_a_condition_until_it_is_placed() -> None:
    cluster = cluster_of("g", 3, "2")
    cluster.session(happened.Synced())
    (note,) = cluster.notes()
    assert note[0] == "Unschedulable"
    assert cluster.conditions() == [[("UnschedulableOnNodePool", "1")]]
    cluster.settle()
    observed = KaiSchedulingCondition("UnschedulableOnNodePool", "True", "", "1")
    cluster.session(happened.ObjectUpdated(group("g", 3, observed)))
    # It is written once.
    assert (cluster.notes(), cluster.conditions()) == ([], [])
    cluster.session(happened.ObjectUpdated(group("g", 2, observed)))
    cluster.settle()
    left = [one.name for one in cluster.pods.values() if not one.node_name]
    for name in left:
        cluster.session(happened.PodDeleted(cluster.pods.pop(name)))
    cluster.session()
    assert cluster.conditions() == [[]]


def test_the_event_of_a_pod_is_about_that_pod() -> None:
    """Of pods that ask for the same; another one waits for the one that fits nowhere."""
    cluster = cluster_of("g", 3, "5")
    small = cluster.gang("other", "q", 1, ("1", "1Gi", "1"))
    (added,) = (one for one in small if isinstance(one, happened.PodAdded))
    meta = replace(added.pod.metadata, annotations={"pod-group-name": "g"})
    cluster.show([happened.PodAdded(replace(added.pod, metadata=meta))])
    cluster.session(happened.Synced())
    found = {
        one.name: one.note.partition(";")[0]
        for one in cluster.effects
        if isinstance(one, RecordEvent) and one.kind == "Pod"
    }
    text = "0/1 nodes fit {}: 1 Insufficient nvidia.com/gpu"
    assert found == {
        **dict.fromkeys(("g-0", "g-1", "g-2"), text.format("this pod")),
        added.pod.name: "waits for another pod of its group: " + text.format("pod ns/g-0"),
    }


def test_a_group_that_lacks_pods_and_a_stale_one_have_events_in_the_words_of_kai() -> None:
    cluster = cluster_of("g", 2, "1", (0, 0))
    few = list(cluster.gang("few", "q", 1, ("1", "1Gi", "1")))
    cluster.show([happened.ObjectAdded(group("few", 3)), *few[1:]])
    cluster.session(happened.Synced())
    text = "Job is not ready for scheduling. Waiting for 3 pods, currently 1 exist, 0 are gated"
    assert cluster.notes() == [("NotReady", text)]
    cluster.effects.clear()
    cluster.session(happened.PodDeleted(cluster.pods.pop("g-0")))
    assert cluster.notes() == [("StaleJob", "Job is stale. 1 pods are active, minMember is 2")]


def test_a_session_follows_no_change_of_a_status_alone() -> None:
    cluster = cluster_of("g", 2, "1", (0, 0))
    cluster.session(happened.Synced())
    cluster.session()
    number = cluster.scheduler.lanes.batch[0].number
    observed = group("g", 2)
    cluster.session(happened.ObjectUpdated(observed))
    number_after = cluster.scheduler.lanes.batch[0].number
    cluster.session(
        happened.ObjectUpdated(replace(observed, status=group("g", 2, _CONDITION).status))
    )
    assert cluster.scheduler.lanes.batch[0].number == number_after
    assert number_after <= number + 1


_CONDITION = KaiSchedulingCondition("UnschedulableOnNodePool", "True", "", "1")


def evictions(cluster: Statuses) -> list[tuple[str, str, dict[str, str]]]:
    """(group, text, annotations) of the events about evictions."""
    found = [one for one in cluster.effects if isinstance(one, RecordEvent)]
    return [(one.name, one.note, dict(one.annotations)) for one in found if one.reason == "Evict"]


def test_victims_of_a_preemption_have_events_in_the_words_of_kai() -> None:
    cluster = cluster_of("g", 1, "4", (0,))
    cluster.session(happened.Synced())
    high = {"priority_class_name": "inference", "preemptibility": "preemptible"}
    cluster.session(*cluster.gang("high", "q", 1, ("1", "1Gi", "4"), **high))
    on_pod = [e for e in cluster.effects if isinstance(e, RecordEvent) and e.kind == "Pod"]
    preempted = [(one.name, one.note) for one in on_pod if one.reason == "Preempted"]
    assert preempted == [("g-0", "kai-scheduler: preempt for ns/high")]
    text = "Pod ns/g-0 was preempted by higher priority workload ns/high"
    about = {
        "num-evicted-pods": "1",
        "evictor-action-type": "preempt",
        "evictor-pod-group-name": "high",
        "evictor-pod-group-namespace": "ns",
    }
    assert evictions(cluster) == [("g", text, about)]


def test_victims_of_a_reclaim_have_the_figures_of_both_queues() -> None:
    cluster = cluster_of("g", 1, "3", (0,))
    quota = KaiQueueResources(FREE, FREE, KaiQueueResource(2.0, -1, 1.0))
    cluster.show([cluster.queue("poor", resources=quota)])
    cluster.session(happened.Synced())
    cluster.session(*cluster.gang("new", "poor", 1, ("1", "1Gi", "2")))
    ((name, text, about),) = evictions(cluster)
    assert (name, about["evictor-action-type"]) == ("g", "reclaim")
    assert text.split("\n") == [
        "Pod ns/g-0 was preempted by workload ns/new.",
        "q uses <GPU: 3, CPU: 1 (cores), memory: 1.073 (GB)> with a quota of <GPU: 0, CPU: "
        "Unlimited (cores), memory: Unlimited (GB)>, fair-share of <GPU: 2, CPU: 1 (cores), "
        "memory: 1.073 (GB)> and queue priority of <100>.",
        "poor uses <GPU: 0, CPU: 0 (cores), memory: 0 (GB)> with a quota of <GPU: 2, CPU: "
        "Unlimited (cores), memory: Unlimited (GB)>, fair-share of <GPU: 2, CPU: 1 (cores), "
        "memory: 1.073 (GB)> and queue priority of <100>.",
    ]


def test_pods_that_consolidation_moves_have_an_event() -> None:
    cluster = Statuses(2, 4)
    cluster.show([cluster.queue("q")])
    for node in range(2):
        cluster.show(list(cluster.gang(f"g{node}", "q", 1, ("1", "1Gi", "2"), [node])))
    cluster.session(happened.Synced())
    cluster.session(*cluster.gang("whole", "q", 1, ("1", "1Gi", "4")))
    ((name, text, about),) = evictions(cluster)
    assert about["evictor-action-type"] == "consolidation"
    assert text == (
        f"Pod ns/{name}-0 was preempted and rescheduled due to bin packing (resource "
        "consolidation) procedure"
    )


def test_pods_of_a_stale_gang_have_an_event_without_an_evictor() -> None:
    cluster = cluster_of("g", 3, "1", (0, 0, 0))
    cluster.session(happened.Synced())
    cluster.session(happened.PodDeleted(cluster.pods.pop("g-0")))
    cluster.now += 61 * 10**9
    cluster.session()
    text = "Workload doesn't meet the minimum required number of pods (3), evicting remaining pod: "
    about = {"num-evicted-pods": "2", "evictor-action-type": "stalegangeviction"}
    assert evictions(cluster) == [("g", f"{text}ns/g-{i}", about) for i in (1, 2)]
