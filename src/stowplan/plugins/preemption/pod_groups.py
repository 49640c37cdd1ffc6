"""Gangs in preemption: a group of pods is not reduced below its minimum.

A group has a minimum of running pods (`minMember`). Pods above it may be evicted one by one; an
eviction below it evicts all of them, wherever they are, as the rest of the group is of no use.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from stowplan.columns import PodInfo
from stowplan.columns.array_types import Ints
from stowplan.columns.nodetable import NodeTable
from stowplan.columns.pods.table_watcher import TableWatcher
from stowplan.framework import Snapshot
from stowplan.framework.deciders.extender_review import PreemptionCandidate
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import GROUP_ANNOTATIONS, PodGroup


def pod_group_key(pod: Pod) -> str:
    """The key of the pod's group, "" when it has none."""
    annotations = pod.metadata.annotations
    name = next((annotations[a] for a in GROUP_ANNOTATIONS if annotations.get(a)), "")
    return f"{pod.namespace}/{name}" if name else ""


class PodGroupMembers(TableWatcher):
    """Pods on nodes by the key of their group; updated by delta beside a table."""

    def __init__(self, table: NodeTable) -> None:
        super().__init__(table)
        self.by_group: dict[str, dict[str, PodInfo]] = {}

    def pod_added(self, row: int, info: PodInfo) -> None:
        """A pod was added to a row."""
        key = pod_group_key(info.pod)
        if key:
            self.by_group.setdefault(key, {})[info.uid] = info

    def pod_removed(self, row: int, info: PodInfo) -> None:
        """A pod was removed from a row."""
        key = pod_group_key(info.pod)
        members = self.by_group.get(key)
        if members is not None:
            members.pop(info.uid, None)
            if not members:
                del self.by_group[key]


class PreemptedPodGroups:
    """The groups of a snapshot, for one preempting pod."""

    def __init__(self, preemptor: Pod, snapshot: Snapshot) -> None:
        self._preemptor = preemptor
        self._nodes = snapshot.nodes
        self._members = PodGroupMembers.of(snapshot.nodes)
        self._needs = {
            group.key: group.spec.min_member
            for group in snapshot.object_store.all(PodGroup)
            if self._members.by_group.get(group.key)
        }

    def __bool__(self) -> bool:
        """True when some group has members on nodes."""
        return bool(self._needs)

    def rows(self) -> Ints:
        """int64: the rows with members."""
        nodes = self._nodes
        found = {
            nodes.row_of_pod(info.uid) for key in self._needs for info in self._active_members(key)
        }
        return np.array(sorted(found), dtype=np.int64)

    def below_min_member(self, candidate: PreemptionCandidate) -> dict[str, list[PodInfo]]:
        """Key -> remaining members of each group that would have too few without the victims."""
        going: dict[str, set[str]] = {}
        for info in candidate.victims:
            key = pod_group_key(info.pod)
            if key in self._needs and info.pod.metadata.deletion_timestamp is None:
                going.setdefault(key, set()).add(info.uid)
        found = {}
        for key, uids in going.items():
            left = [info for info in self._active_members(key) if info.uid not in uids]
            if left and len(left) < self._needs[key]:
                found[key] = left
        return found

    def protected_uids(self, keys: Iterable[str]) -> frozenset[str]:
        """The uids of all members of these groups."""
        return frozenset(info.uid for key in keys for info in self._active_members(key))

    def whole(self, candidate: PreemptionCandidate) -> PreemptionCandidate | None:
        """The candidate with all remaining members of the groups that it breaks up; None where some
        of them may not be evicted for this pod."""
        left = [info for rest in self.below_min_member(candidate).values() for info in rest]
        if any(info.pod.priority >= self._preemptor.priority for info in left):
            return None
        # Those on the node come last: when the last of them is gone the pod is tried again.
        victims = (*left, *candidate.victims)
        return msgspec.structs.replace(candidate, victims=victims)

    def _active_members(self, key: str) -> Sequence[PodInfo]:
        members = self._members.by_group.get(key, {})
        return [i for i in members.values() if i.pod.metadata.deletion_timestamp is None]
