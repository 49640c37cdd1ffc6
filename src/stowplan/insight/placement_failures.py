"""Placement failures: unplaced pods, grouped by owner and reason."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from stowplan.insight.pod_owners import NO_OWNER, owner_text
from stowplan.insight.pod_placement import Placement
from stowplan.objects.pod import Pod


class PlacementFailure(msgspec.Struct, frozen=True):
    """Keys of pods of one owner that failed for the same reason."""

    reason: str
    namespace: str
    owner: str
    pods: list[str]


def failures_of(placements: Iterable[Placement], known: Iterable[Pod]) -> list[PlacementFailure]:
    """Pods without a node, largest groups first. known: the pods, which name their owners."""
    pods = {pod.key: pod for pod in known}
    groups: dict[tuple[str, str, str], list[str]] = {}
    for placement in placements:
        if placement.node:
            continue
        pod = pods.get(placement.pod)
        owner = NO_OWNER if pod is None else owner_text(pod)
        # Pods without an owner have nothing in common but the reason.
        namespace = "" if pod is None or owner == NO_OWNER else pod.namespace
        groups.setdefault((placement.reason, namespace, owner), []).append(placement.pod)
    found = [PlacementFailure(*key, names) for key, names in groups.items()]
    return sorted(found, key=lambda one: (-len(one.pods), one.reason, one.namespace, one.owner))
