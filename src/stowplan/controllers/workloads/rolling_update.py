"""Arithmetic of a rolling update: which ReplicaSets are scaled up or down, and by how much.

A Deployment has one ReplicaSet of the current template (the new one) and older ones. Together they
may have at most `replicas + maxSurge` pods, and at least `replicas - maxUnavailable` must be
available; everything here follows from these two limits.

Source: kube-controller-manager v1.36, pkg/controller/deployment/util and rolling.go.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stowplan.controller_runtime.object_fields import int_or_percent_of


@dataclass(frozen=True, slots=True)
class RollingUpdateLimits:
    """Limits of a Deployment. replicas: wanted. surge: pods beyond that. unavailable: fewer."""

    replicas: int
    surge: int
    unavailable: int

    @property
    def most(self) -> int:
        """Maximum number of pods."""
        return self.replicas + self.surge

    @property
    def available_least(self) -> int:
        """Minimum number of available pods."""
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
    """Limits from `spec.strategy`; only the replicas for `Recreate`."""
    if strategy.get("type") != "RollingUpdate":
        return RollingUpdateLimits(replicas, 0, 0)
    rolling = strategy.get("rollingUpdate")
    values = rolling if isinstance(rolling, Mapping) else {}
    surge = int_or_percent_of(values.get("maxSurge"), replicas, round_up=True)
    unavailable = int_or_percent_of(values.get("maxUnavailable"), replicas, round_up=False)
    if surge == 0 and unavailable == 0:
        # Both may round to 0; then the rollout could never proceed.
        unavailable = 1
    return RollingUpdateLimits(replicas, surge, min(unavailable, replicas) if replicas else 0)


def scale_up_new(new: int, total: int, limits: RollingUpdateLimits) -> int:
    """New size of the new ReplicaSet. total: current wanted size of all ReplicaSets together."""
    if new >= limits.replicas:
        return limits.replicas
    if total >= limits.most:
        return new
    return new + min(limits.most - total, limits.replicas - new)


def scale_down_old(
    new: ReplicaSetSize, old: Sequence[ReplicaSetSize], limits: RollingUpdateLimits
) -> dict[str, int]:
    """New sizes of the old ReplicaSets that are scaled down.

    Unavailable replicas are removed first, then available ones within the limit; replicas of the
    new ReplicaSet that are not available yet do not count.
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
    """Sizes of all active ReplicaSets after a Deployment was scaled during a rollout.

    The difference is spread by size, so that the rollout progress stays the same. replicas_now:
    `status.replicas`, for ReplicaSets without the annotation.
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
    """Share of one ReplicaSet in `left` more (or, below 0, fewer) replicas."""
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
