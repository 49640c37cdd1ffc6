"""Member orders: the order in which the members of a group are tried, and others when that fails.

Members are placed one after the other, so a large one may find that small ones have taken its room.
Where that leaves a group unschedulable, its members are tried again, those that found no room
first, until the group is schedulable or nothing is new.

Differs: kube-scheduler tries one order. Only in the profile `stowplan`, without `compat`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stowplan.framework import Framework
from stowplan.framework.pod_groups.pod_group_states import PodGroupState
from stowplan.queue import PodRecord
from stowplan.scheduler.pod_groups.group_results import GroupResult

EXTENDED_PROFILE = "stowplan"
"""schedulerName of the profile that does more for groups than kube-scheduler."""

ORDERS_MAX = 8
"""Further orders that are tried on one placement."""


def in_order(records: Sequence[PodRecord], state: PodGroupState) -> list[PodRecord]:
    """The members in the order in which a cycle tries them. state: of their group."""
    places = {uid: place for place, uid in enumerate(state.pods)}
    arrived = state.arrived

    def rank(record: PodRecord) -> tuple[int, int, bool, int]:
        # Of the pods that entered the queue at one time, one that had arrived before was released
        # by another.
        pod, first = record.pod, record.initial_attempt or 0
        uid = pod.metadata.uid or record.key
        return -(pod.spec.priority or 0), first, arrived.get(uid) != first, places.get(uid, 0)

    return sorted(records, key=rank)


def has_extensions(framework: Framework, *, has_defects: bool) -> bool:
    """True for the profile that does more for groups than kube-scheduler."""
    return framework.profile.scheduler_name == EXTENDED_PROFILE and not has_defects


class MemberOrders:
    """The orders of one group on one placement."""

    def __init__(self, records: Sequence[PodRecord]) -> None:
        self._records = records
        # Uids in the order in which they come first.
        self._first: list[str] = []
        self._tried: set[tuple[str, ...]] = {tuple(one.uid for one in records)}
        specs = {id(one.pod.spec): one.pod.spec for one in records}.values()
        first = next(iter(specs))
        # Members that are alike can take each other's places.
        self._are_alike = all(spec == first for spec in specs)

    def after(self, result: GroupResult) -> Iterator[list[PodRecord]]:
        """The next order after a result that failed; none where it would be no new one."""
        if self._are_alike or len(self._tried) > ORDERS_MAX:
            return
        failed = [one.record.uid for one in result.members if not one.node]
        self._first = [*failed, *(uid for uid in self._first if uid not in failed)]
        place = {uid: number for number, uid in enumerate(self._first)}
        order = sorted(self._records, key=lambda one: place.get(one.uid, len(place)))
        key = tuple(one.uid for one in order)
        if key not in self._tried:
            self._tried.add(key)
            yield order
