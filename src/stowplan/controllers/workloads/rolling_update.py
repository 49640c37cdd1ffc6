"""The arithmetic of a rolling update: who may grow, who may shrink, and by how much.

A Deployment has one ReplicaSet whose template is the wanted one (the new) and older ones. All of
them together may have at most `replicas + maxSurge` pods, and at least `replicas -
maxUnavailable` must be available; everything here follows from these two bounds.

Source: kube-controller-manager v1.36, pkg/controller/deployment/util and rolling.go.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stowplan.controllers.runtime.object_fields import int_or_percent_of


@dataclass(frozen=True, slots=True)
class RollingUpdateLimits:
    """What a Deployment allows. replicas: wanted. surge: pods beyond that. unavailable: fewer."""

    replicas: int
    surge: int
    unavailable: int

    @property
    def most(self) -> int:
        """The most pods that may exist at once."""
        return self.replicas + self.surge

    @property
    def available_least(self) -> int:
        """The fewest pods that must be available."""
        return self.replicas - self.unavailable


@dataclass(frozen=True, slots=True)
class ReplicaSetSize:
    """One ReplicaSet. wanted: `spec.replicas`. most_before: its max-replicas annotation or 0."""

    name: str
    wanted: int
    available: int
    created: float = 0.0
    most_before: int = 0


def rolling_update_limits(replicas: int, strategy: Mapping[str, object]) -> RollingUpdateLimits:
    """The bounds of a Deployment's `spec.strategy`; none but the count for `Recreate`."""
    if strategy.get("type") != "RollingUpdate":
        return RollingUpdateLimits(replicas, 0, 0)
    rolling = strategy.get("rollingUpdate")
    values = rolling if isinstance(rolling, Mapping) else {}
    surge = int_or_percent_of(values.get("maxSurge"), replicas, round_up=True)
    unavailable = int_or_percent_of(values.get("maxUnavailable"), replicas, round_up=False)
    if surge == 0 and unavailable == 0:
        # Both may have come to 0 by rounding; then nothing could ever move.
        unavailable = 1
    return RollingUpdateLimits(replicas, surge, min(unavailable, replicas) if replicas else 0)


def scale_up_new(new: int, total: int, limits: RollingUpdateLimits) -> int:
    """The size that the new set may have. total: what all sets together want now."""
    if new >= limits.replicas:
        return limits.replicas
    if total >= limits.most:
        return new
    return new + min(limits.most - total, limits.replicas - new)


def scale_down_old(
    new: ReplicaSetSize, old: Sequence[ReplicaSetSize], limits: RollingUpdateLimits
) -> dict[str, int]:
    """New sizes of those old sets that may shrink.

    First go replicas that are not available, then available ones as far as the bound lets; of the
    new set, what is not available yet must not be counted on.
    """
    by_age = sorted(old, key=lambda each: (each.created, each.name))
    total = new.wanted + sum(each.wanted for each in old)
    spare = total - limits.available_least - (new.wanted - new.available)
    sizes = {each.name: each.wanted for each in by_age}
    if spare <= 0 or not any(sizes.values()):
        return {}
    _drop_unavailable(by_age, sizes, spare)
    available = new.available + sum(each.available for each in old)
    _drop_available(by_age, sizes, available - limits.available_least)
    return {each.name: sizes[each.name] for each in by_age if sizes[each.name] != each.wanted}


def _drop_unavailable(by_age: Sequence[ReplicaSetSize], sizes: dict[str, int], spare: int) -> None:
    for each in by_age:
        gone = min(spare, max(0, each.wanted - each.available))
        sizes[each.name] -= gone
        spare -= gone


def _drop_available(by_age: Sequence[ReplicaSetSize], sizes: dict[str, int], spare: int) -> None:
    for each in by_age:
        gone = max(0, min(spare, sizes[each.name]))
        sizes[each.name] -= gone
        spare -= gone


def scale_proportionally(
    sets: Sequence[ReplicaSetSize], limits: RollingUpdateLimits, replicas_now: int
) -> dict[str, int]:
    """Sizes of all active sets after the Deployment was scaled in the middle of a rollout.

    The difference is spread by size, so that the rollout is as far along as it was. replicas_now:
    `status.replicas`, for sets without the annotation.
    """
    allowed = limits.most if limits.replicas > 0 else 0
    to_add = allowed - sum(each.wanted for each in sets)
    newest_first = to_add > 0
    order = sorted(
        sets,
        key=lambda each: (-each.wanted, -each.created if newest_first else each.created, each.name),
    )
    sizes = {each.name: each.wanted for each in order}
    if not order or to_add == 0:
        return sizes
    added = 0
    for each in order:
        part = _proportion(each, limits, replicas_now, to_add - added) if added != to_add else 0
        sizes[each.name] += part
        added += part
    largest = order[0].name
    sizes[largest] = max(0, sizes[largest] + to_add - added)
    return sizes


def _proportion(
    each: ReplicaSetSize, limits: RollingUpdateLimits, replicas_now: int, left: int
) -> int:
    """What one set gets of `left` more (or, below 0, fewer) replicas."""
    if each.wanted == 0:
        return 0
    if limits.replicas == 0:
        fraction = -each.wanted
    else:
        before = each.most_before or replicas_now
        if not before:
            return 0
        size = each.wanted * limits.most / before
        fraction = math.floor(size + 0.5) - each.wanted
    return min(fraction, left) if left > 0 else max(fraction, left)
