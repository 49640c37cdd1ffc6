"""Stabilization windows and rates of scaling.

Source: kube-controller-manager v1.36, pkg/controller/podautoscaler/horizontal.go
(normalizeDesiredReplicas and normalizeDesiredReplicasWithBehaviors).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from stowplan.objects.encoding.tree import Tree

DOWNSCALE_STABILIZATION_SECONDS = 300
_SCALE_UP_FACTOR = 2
_SCALE_UP_LEAST = 4
_SCALE_UP_LIMIT = (
    "ScaleUpLimit",
    "the desired replica count is increasing faster than the maximum scale rate",
)
_SCALE_DOWN_LIMIT = (
    "ScaleDownLimit",
    "the desired replica count is decreasing faster than the maximum scale rate",
)
_TOO_MANY = (
    "TooManyReplicas",
    "the desired replica count is more than the maximum replica count",
)
_TOO_FEW = (
    "TooFewReplicas",
    "the desired replica count is less than the minimum replica count",
)
_WITHIN = ("DesiredWithinRange", "the desired count is within the acceptable range")
_READY = ("ReadyForNewScale", "recommended size matches current size")
_LOWEST = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
)
_HIGHEST = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent"
    " recommendation",
)


class Limits(NamedTuple):
    """Lowest and highest number of replicas, and how many there are."""

    least: int
    most: int
    current: int


class Normalized(NamedTuple):
    """Replicas to scale to. able, limited: reason and message of the conditions AbleToScale and
    ScalingLimited; is_limited: the status of the latter."""

    replicas: int
    able: tuple[str, str]
    limited: tuple[str, str]
    is_limited: bool


class _Timed(NamedTuple):
    at: float
    replicas: int


@dataclass(slots=True)
class ScalingHistory:
    """Recommendations and changes of one autoscaler, as far back as its rules look."""

    recommendations: list[_Timed] = field(default_factory=list)
    ups: list[_Timed] = field(default_factory=list)
    downs: list[_Timed] = field(default_factory=list)

    def note_first(self, current: int, now: float) -> None:
        """The first recommendation is the number of replicas that the target has."""
        if not self.recommendations:
            self.recommendations.append(_Timed(now, current))

    def note_scale(self, before: int, after: int, behavior: Tree | None, now: float) -> None:
        """Record a change for the rates of a behavior."""
        if behavior is None:
            return
        rules = (behavior["scaleUp"], behavior["scaleDown"])
        longest = max(each["periodSeconds"] for rule in rules for each in rule["policies"])
        for events in (self.ups, self.downs):
            events[:] = [each for each in events if each.at >= now - longest]
        (self.ups if after > before else self.downs).append(_Timed(now, abs(after - before)))

    def normalize(
        self, wanted: int, limits: Limits, behavior: Tree | None, now: float
    ) -> Normalized:
        """What becomes of a recommendation of `wanted` replicas."""
        if behavior is None:
            stable = self._highest(wanted, DOWNSCALE_STABILIZATION_SECONDS, now)
            able = _READY if stable == wanted else _HIGHEST
            replicas, limited = _within_rules(stable, limits)
        else:
            stable = self._stabilized(wanted, limits.current, behavior, now)
            shift = _LOWEST if wanted >= limits.current else _HIGHEST
            able = _READY if stable == wanted else shift
            replicas, limited = self._within_rates(stable, limits, behavior, now)
        return Normalized(replicas, able, limited, replicas != stable)

    def _highest(self, wanted: int, window_s: int, now: float) -> int:
        """The highest recommendation of a window, this one included."""
        self.recommendations = [each for each in self.recommendations if each.at >= now - window_s]
        found = max([wanted, *(each.replicas for each in self.recommendations)])
        self.recommendations.append(_Timed(now, wanted))
        return found

    def _stabilized(self, wanted: int, current: int, behavior: Tree, now: float) -> int:
        up_s = behavior["scaleUp"]["stabilizationWindowSeconds"]
        down_s = _down_window(behavior)
        recent = self.recommendations
        up = min([wanted, *(each.replicas for each in recent if each.at > now - up_s)])
        down = max([wanted, *(each.replicas for each in recent if each.at > now - down_s)])
        longest = max(up_s, down_s)
        self.recommendations = [each for each in recent if each.at >= now - longest]
        self.recommendations.append(_Timed(now, wanted))
        return min(max(current, up), down)

    def _within_rates(
        self, wanted: int, limits: Limits, behavior: Tree, now: float
    ) -> tuple[int, tuple[str, str]]:
        if wanted > limits.current:
            rate = max(self._limit(limits.current, behavior["scaleUp"], now, 1), limits.current)
            most, why = limits.most, _TOO_MANY
            if limits.most > rate:
                most, why = rate, _SCALE_UP_LIMIT
            if wanted > most:
                return most, why
        elif wanted < limits.current:
            rate = min(self._limit(limits.current, behavior["scaleDown"], now, -1), limits.current)
            least, why = limits.least, _TOO_FEW
            if limits.least < rate:
                least, why = rate, _SCALE_DOWN_LIMIT
            if wanted < least:
                return least, why
        return wanted, _WITHIN

    def _limit(self, current: int, rules: Tree, now: float, sign: int) -> int:
        """The number of replicas that the policies allow; sign: 1 up, -1 down."""
        select: str = rules["selectPolicy"]
        if select == "Disabled":
            return current
        allowed: list[int] = []
        for policy in rules["policies"]:
            since = now - policy["periodSeconds"]
            start = current - _change(self.ups, since) + _change(self.downs, since)
            if policy["type"] == "Pods":
                allowed.append(start + sign * policy["value"])
            elif sign > 0:
                allowed.append(math.ceil(start * (1 + policy["value"] / 100)))
            else:
                allowed.append(int(start * (1 - policy["value"] / 100)))
        # The policy with the largest change, unless the smallest is selected.
        return max(allowed) if (sign > 0) == (select == "Max") else min(allowed)


def _change(events: Iterable[_Timed], since: float) -> int:
    return sum(each.replicas for each in events if each.at > since)


def _down_window(behavior: Tree) -> int:
    window = behavior["scaleDown"].get("stabilizationWindowSeconds")
    return DOWNSCALE_STABILIZATION_SECONDS if window is None else int(window)


def _within_rules(wanted: int, limits: Limits) -> tuple[int, tuple[str, str]]:
    """Without a behavior: at most twice the replicas, or 4."""
    rate = max(_SCALE_UP_FACTOR * limits.current, _SCALE_UP_LEAST)
    most, why = (rate, _SCALE_UP_LIMIT) if limits.most > rate else (limits.most, _TOO_MANY)
    if wanted < limits.least:
        return limits.least, _TOO_FEW
    if wanted > most:
        return most, why
    return wanted, _WITHIN
