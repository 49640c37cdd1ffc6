"""Sub-groups of a pod group of KAI-Scheduler: sets of pods, and nested sets of those."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from stowplan.batch.queue_models.kai.state.kai_task import (
    ACTIVE_STATUSES,
    ALIVE_STATUSES,
    DEFAULT_SUB_GROUP,
    USED_STATUSES,
    KaiStatus,
    KaiTask,
)
from stowplan.objects.kai.kai_kinds import KaiSubGroup, KaiTopologyConstraint


class KaiPodSet:
    """Pods of which `minimum` are needed together. tasks: by uid. statuses: as they were when a
    pod was last assigned. active, used, pending, alive: how many of them are so; alive: without
    those that are gated."""

    def __init__(
        self, name: str, minimum: int, constraint: KaiTopologyConstraint | None = None
    ) -> None:
        self.name = name
        self.minimum = minimum
        self.constraint = constraint
        self.parent: SubGroupSet | None = None
        self.tasks: dict[str, KaiTask] = {}
        self.statuses: dict[str, int] = {}
        self.active = 0
        self.used = 0
        self.pending = 0
        self.alive = 0

    def assign(self, task: KaiTask) -> None:
        """Take a pod in, or count it by its new status."""
        old = self.statuses.pop(task.uid, None)
        if old is not None:
            self.active -= bool(old & ACTIVE_STATUSES)
            self.used -= bool(old & USED_STATUSES)
            self.pending -= old == KaiStatus.PENDING
            self.alive -= bool(old & READY_STATUSES)
            del self.tasks[task.uid]
        status = int(task.status)
        self.active += bool(status & ACTIVE_STATUSES)
        self.used += bool(status & USED_STATUSES)
        self.pending += status == KaiStatus.PENDING
        self.alive += bool(status & READY_STATUSES)
        self.statuses[task.uid] = status
        self.tasks[task.uid] = task

    @property
    def members(self) -> tuple[Member, ...]:
        """None: pods are no sub-groups."""
        return ()

    @property
    def needed(self) -> int:
        """Members that satisfy it."""
        return self.minimum

    @property
    def is_ready(self) -> bool:
        """Enough pods run or may run."""
        return self.alive >= self.minimum

    @property
    def is_gang_satisfied(self) -> bool:
        """Enough pods are on nodes."""
        return self.used >= self.minimum

    @property
    def is_elastic(self) -> bool:
        """Has more pods than it needs."""
        return self.minimum < len(self.tasks)

    def pod_sets(self) -> Iterator[KaiPodSet]:
        """Itself."""
        yield self

    def clone(self) -> KaiPodSet:
        """A copy without pods."""
        return KaiPodSet(self.name, self.minimum, self.constraint)

    def signature(self) -> str:
        """What the placement of its pods without a place depends on; "" if all have one."""
        if self.active == len(self.tasks):
            return ""
        pods = sorted(
            task.constraints for task in self.tasks.values() if not task.status & ACTIVE_STATUSES
        )
        chain, parent = [repr(self.constraint)], self.parent
        while parent is not None:
            chain.append(repr(parent.constraint))
            parent = parent.parent
        return repr((chain, pods))


class SubGroupSet:
    """Sub-groups of which `minimum`, or all, are needed. The root's name is empty."""

    def __init__(
        self,
        name: str = "",
        constraint: KaiTopologyConstraint | None = None,
        minimum: int | None = None,
    ) -> None:
        self.name = name
        self.constraint = constraint
        self.minimum = minimum
        self.parent: SubGroupSet | None = None
        self.groups: list[SubGroupSet] = []
        self.sets: list[KaiPodSet] = []

    def add(self, member: Member) -> None:
        """Take a sub-group in."""
        member.parent = self
        if isinstance(member, SubGroupSet):
            self.groups.append(member)
        else:
            self.sets.append(member)

    @property
    def members(self) -> tuple[Member, ...]:
        """Direct sub-groups."""
        return (*self.groups, *self.sets)

    def constraints(self) -> Iterator[KaiTopologyConstraint]:
        """Topology constraints of it and of all below."""
        found = [self.constraint, *(pods.constraint for pods in self.sets)]
        yield from (one for one in found if one is not None)
        for group in self.groups:
            yield from group.constraints()

    @property
    def active(self) -> int:
        """Direct sub-groups that are satisfied by pods with a place."""
        return sum(1 for member in self.members if member.active >= member.needed)

    @property
    def needed(self) -> int:
        """Direct sub-groups that satisfy it."""
        return len(self.members) if self.minimum is None else self.minimum

    @property
    def is_ready(self) -> bool:
        """Enough sub-groups have enough pods that run or may run."""
        return sum(1 for member in self.members if member.is_ready) >= self.needed

    def pod_sets(self) -> Iterator[KaiPodSet]:
        """All pod sets below."""
        yield from self.sets
        for group in self.groups:
            yield from group.pod_sets()

    def clone(self) -> SubGroupSet:
        """A copy of the tree without pods."""
        copied = SubGroupSet(self.name, self.constraint, self.minimum)
        for pods in self.sets:
            copied.add(pods.clone())
        for group in self.groups:
            copied.add(group.clone())
        return copied


READY_STATUSES = ALIVE_STATUSES & ~int(KaiStatus.GATED)
"""Runs, or may run at once."""

Member: TypeAlias = KaiPodSet | SubGroupSet


def sub_group_tree(
    sub_groups: Sequence[KaiSubGroup],
    minimum: int | None,
    min_sub_group: int | None,
    constraint: KaiTopologyConstraint | None,
) -> SubGroupSet:
    """The tree of a group; a group whose sub-groups do not form one is a single set of pods."""
    root = SubGroupSet("", constraint, min_sub_group)
    by_name = {one.name: one for one in sub_groups}
    parents = {(one.parent or "").lower() for one in sub_groups}
    if len(by_name) < len(sub_groups):
        return _single(None, 1, None)
    nodes: dict[str, Member] = {
        one.name: SubGroupSet(one.name, one.topology_constraint, one.min_sub_group)
        if one.name in parents
        else KaiPodSet(one.name, max(one.min_member or 0, 0), one.topology_constraint)
        for one in sub_groups
    }
    for one in sub_groups:
        parent = nodes.get(one.parent.lower()) if one.parent else root
        if not isinstance(parent, SubGroupSet):
            return _single(None, 1, None)
        parent.add(nodes[one.name])
    if not any(True for _ in root.pod_sets()):
        return _single(constraint, 1 if minimum is None else minimum, min_sub_group)
    return root


def _single(
    constraint: KaiTopologyConstraint | None, minimum: int, min_sub_group: int | None
) -> SubGroupSet:
    root = SubGroupSet("", constraint, min_sub_group)
    root.add(KaiPodSet(DEFAULT_SUB_GROUP, minimum))
    return root


def member_order(member: Member) -> tuple[int, float, str]:
    """Members in the order in which they get pods: unsatisfied, then needed ones by the part that
    they have, then those that are not needed, by what they have; then by name."""
    have, need = member.active, member.needed
    if have < need:
        return 0, 0.0, member.name
    if need == 0:
        return 2, float(have), member.name
    return 1, have / need, member.name


def shrink_minimums(root: SubGroupSet) -> None:
    """Lower what a partial copy of a group needs to what it has."""
    for pods in root.pod_sets():
        if pods.tasks:
            pods.minimum = min(pods.minimum, len(pods.tasks))
    _shrink_groups(root)


def _shrink_groups(group: SubGroupSet) -> bool:
    filled = sum(1 for pods in group.sets if pods.tasks)
    filled += sum(1 for one in group.groups if _shrink_groups(one))
    if group.minimum is not None:
        group.minimum = min(group.minimum, filled)
    return filled > 0


def by_name(root: SubGroupSet) -> Mapping[str, KaiPodSet]:
    """The pod sets of a tree by name."""
    return {pods.name: pods for pods in root.pod_sets()}
