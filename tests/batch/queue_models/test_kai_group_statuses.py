"""Events and scheduling conditions of PodGroups in KAI's words."""

from __future__ import annotations

from msgspec.structs import replace

from stowplan.benchmarks.sessions.kai_benchmarks import KaiBenchmark
from stowplan.messages import events as happened
from stowplan.messages.effects import PatchGroup, RecordEvent
from stowplan.objects.kai.kai_kinds import (
    KaiPodGroupObject,
    KaiPodGroupSpec,
    KaiPodGroupStatus,
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
