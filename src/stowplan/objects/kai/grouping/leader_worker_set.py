"""Minimum and sub-groups of a LeaderWorkerSet's groups of pods.

A group is a leader and its workers. With segments, workers are divided by their index; the leader
belongs to the first segment, or is alone where the policy excludes it.

Source: KAI-Scheduler, pkg/podgrouper/podgrouper/plugins/leaderworkerset.
"""

from __future__ import annotations

from collections.abc import Sequence

from stowplan.objects.kai.annotation_numbers import unsigned_number
from stowplan.objects.kai.grouping.sub_groups import (
    SEGMENT_PREFERRED,
    SEGMENT_REQUIRED,
    SEGMENT_SIZE,
    SEGMENTS_MAX,
    TOPOLOGY,
    constraint_of,
    field_of,
    whole_number,
)
from stowplan.objects.kai.grouping.workload_owners import GroupingError, Owner
from stowplan.objects.kai.kai_kinds import KaiSubGroup, KaiTopologyConstraint
from stowplan.objects.pod import Pod

SIZE = "leaderworkerset.sigs.k8s.io/size"
GROUP_INDEX = "leaderworkerset.sigs.k8s.io/group-index"
WORKER_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"
LEADER, WORKERS = "leader", "workers"


def leader_worker_minimum(owner: Owner, pods: Sequence[Pod]) -> int:
    """Pods that a group needs. pods: of the group, that exist."""
    size = field_of(owner.spec, "leaderWorkerTemplate.size", int)
    if size is None or size <= 0:
        raise GroupingError(f"LeaderWorkerSet {owner.title} has no leaderWorkerTemplate.size")
    policy = field_of(owner.spec, "startupPolicy", str) or "LeaderCreated"
    if policy not in ("LeaderCreated", "LeaderReady"):
        raise GroupingError(f"LeaderWorkerSet {owner.title} has startupPolicy {policy}")
    if policy == "LeaderCreated":
        return size
    # Workers are created once the leader is ready; until then only the leader is needed.
    started = [pod for pod in pods if pod.node_name or not _is_leader(pod)]
    stated = unsigned_number(started[0].metadata.annotations.get(SIZE) if started else "1")
    return size if stated is None else stated


def group_suffix(pod: Pod) -> str:
    """What the name of a pod's group has at its end."""
    index = unsigned_number(pod.metadata.labels.get(GROUP_INDEX))
    return "" if index is None else f"-group-{index}"


def leader_worker_sub_groups(owner: Owner, pod: Pod, size: int) -> tuple[KaiSubGroup, ...]:
    """Leader and workers, or segments. size: pods that the group needs."""
    segment = _segment_size(owner, size)
    if segment is None:
        leader = KaiSubGroup(LEADER, min_member=1)
        rest = (KaiSubGroup(WORKERS, min_member=size - 1),) if size > 1 else ()
        return (leader, *rest)
    counts = _segment_counts(size, segment)
    constraint = _constraint(owner, pod)
    found = [
        KaiSubGroup(f"segment-{i}", min_member=count, topology_constraint=constraint)
        for i, count in enumerate(counts)
    ]
    policy = _policy(owner)
    if policy == "LeaderExcluded":
        if not _is_whole(size, segment):
            raise GroupingError(
                f"LeaderWorkerSet {owner.title}: LeaderExcluded needs a multiple of {segment} "
                f"workers, not {size - 1}"
            )
        return (KaiSubGroup(LEADER, min_member=1), *found)
    if policy == "LeaderWorker":
        name = found[0].name
        first = counts[0] + _is_whole(size, segment)
        found[0] = KaiSubGroup(name, min_sub_group=2, topology_constraint=constraint)
        found.append(KaiSubGroup(LEADER, name, min_member=1))
        found.append(KaiSubGroup(WORKERS, name, min_member=first - 1))
    return tuple(found)


def leader_worker_sub_group(owner: Owner, pod: Pod, size: int) -> str:
    """The sub-group of a pod."""
    segment = _segment_size(owner, size)
    if segment is None:
        return LEADER if _is_leader(pod) else WORKERS if size > 1 else ""
    text = pod.metadata.labels.get(WORKER_INDEX, "")
    index = whole_number(text, f"label {WORKER_INDEX} of pod {pod.key}")
    place = _segment_of(index, size, segment)
    policy = _policy(owner)
    if policy in ("LeaderWorker", "LeaderExcluded") and index == 0:
        return LEADER
    if policy == "LeaderWorker" and place == 0:
        return WORKERS
    return f"segment-{place}"


def _is_leader(pod: Pod) -> bool:
    return pod.metadata.labels.get(WORKER_INDEX) == "0"


def _policy(owner: Owner) -> str:
    path = "leaderWorkerTemplate.subGroupPolicy.subGroupPolicyType"
    return field_of(owner.spec, path, str) or "LeaderWorker"


def _segment_size(owner: Owner, size: int) -> int | None:
    path = "leaderWorkerTemplate.subGroupPolicy.subGroupSize"
    found = field_of(owner.spec, path, int)
    if found is None:
        template = field_of(
            owner.spec, "leaderWorkerTemplate.workerTemplate.metadata.annotations", dict
        )
        text = owner.annotations.get(SEGMENT_SIZE, (template or {}).get(SEGMENT_SIZE))
        if text is None:
            return None
        found = whole_number(text, f"annotation {SEGMENT_SIZE}")
    if found <= 1 or found > size:
        wanted = f"must be above 1 and at most the {size} pods of a group"
        raise GroupingError(f"LeaderWorkerSet {owner.title}: segment size {found} {wanted}")
    return found


def _is_whole(size: int, segment: int) -> bool:
    """Workers alone fill their segments: then the leader comes on top of the first one."""
    return (size - 1) % segment == 0


def _segment_of(index: int, size: int, segment: int) -> int:
    if index == 0:
        return 0
    return (index - 1) // segment if _is_whole(size, segment) else index // segment


def _segment_counts(size: int, segment: int) -> list[int]:
    """Pods by segment; the last one may have fewer, and the leader does not count where workers
    alone fill their segments."""
    count = _segment_of(size - 1, size, segment) + 1
    if count > SEGMENTS_MAX:
        raise GroupingError(f"{count} segments are more than {SEGMENTS_MAX}")
    last = sum(1 for i in range(size) if _segment_of(i, size, segment) == count - 1)
    return [segment] * (count - 1) + [last]


def _constraint(owner: Owner, pod: Pod) -> KaiTopologyConstraint | None:
    path = "leaderWorkerTemplate.workerTemplate"
    if field_of(owner.spec, path, dict) is None:
        return None
    template = field_of(owner.spec, f"{path}.metadata.annotations", dict) or {}
    notes = {**template, **{key: text for key, text in pod.metadata.annotations.items() if text}}
    if not notes.get(TOPOLOGY):
        notes[TOPOLOGY] = owner.annotations.get(TOPOLOGY, "")
    found = constraint_of(notes, SEGMENT_REQUIRED, SEGMENT_PREFERRED)
    has_level = found.required_topology_level or found.preferred_topology_level
    return found if found.topology and has_level else None
