"""Rolling update arithmetic: a rollout in small steps stays within its limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.controllers.workloads import rolling_update
from stowplan.controllers.workloads.rolling_update import (
    ReplicaSetSize,
    RollingUpdateLimits,
    rolling_update_limits,
    scale_proportionally,
    scale_up_new,
)
from tests.soak import examples

Shrink = Callable[
    [ReplicaSetSize, Sequence[ReplicaSetSize], RollingUpdateLimits], Mapping[str, int]
]


def rolling(surge: int | str, unavailable: int | str) -> dict[str, object]:
    return {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable},
    }


@pytest.mark.parametrize(
    ("replicas", "surge", "unavailable", "most", "least"),
    [
        (3, "25%", "25%", 4, 3),
        (10, "25%", "25%", 13, 8),
        (10, 3, 2, 13, 8),
        (1, 0, "25%", 1, 0),  # Both come to 0: one may be missing.
        (4, 0, "100%", 4, 0),
        (4, 0, 9, 4, 0),
        (0, "25%", "25%", 0, 0),
    ],
)
def test_surge_is_rounded_up_and_unavailable_down(
    replicas: int, surge: int | str, unavailable: int | str, most: int, least: int
) -> None:
    found = rolling_update_limits(replicas, rolling(surge, unavailable))
    assert (found.most, found.available_least) == (most, least)


def test_recreate_has_no_room_to_move() -> None:
    assert rolling_update_limits(5, {"type": "Recreate"}) == RollingUpdateLimits(5, 0, 0)


def test_the_new_set_grows_as_far_as_the_surge_lets_it() -> None:
    limits = RollingUpdateLimits(10, 3, 2)
    assert scale_up_new(0, 10, limits) == 3
    assert scale_up_new(3, 13, limits) == 3
    assert scale_up_new(9, 9, limits) == 10
    assert scale_up_new(12, 12, limits) == 10


def test_unavailable_old_pods_go_first_and_are_not_counted_on() -> None:
    limits = RollingUpdateLimits(10, 3, 2)
    new = ReplicaSetSize("new", wanted=5, available=0)
    old = [ReplicaSetSize("old", wanted=8, available=8)]
    assert rolling_update.scale_down_old(new, old, limits) == {}
    old = [ReplicaSetSize("old", wanted=8, available=7)]
    # 13 pods, 8 must be available, 5 new ones are not: nothing is to spare.
    assert rolling_update.scale_down_old(new, old, limits) == {}
    rolled_back = ReplicaSetSize("old", wanted=8, available=7)
    broken = [ReplicaSetSize("new", wanted=5, available=0, created=1.0)]
    assert rolling_update.scale_down_old(rolled_back, broken, limits) == {"new": 1}


def test_scaling_in_mid_rollout_is_shared_by_size() -> None:
    sets = [
        ReplicaSetSize("old", wanted=8, available=8, created=1.0, most_before=13),
        ReplicaSetSize("new", wanted=5, available=2, created=2.0, most_before=13),
    ]
    assert scale_proportionally(sets, RollingUpdateLimits(20, 5, 4), 13) == {"old": 15, "new": 10}
    assert scale_proportionally(sets, RollingUpdateLimits(0, 0, 0), 13) == {"old": 0, "new": 0}
    assert sum(scale_proportionally(sets, RollingUpdateLimits(5, 2, 1), 13).values()) == 7


@dataclass
class RandomDeployment:
    """A Deployment whose pods become available, and break, by chance."""

    limits: RollingUpdateLimits
    new: int = 0
    new_available: int = 0
    old: dict[str, int] = field(default_factory=dict)
    old_available: dict[str, int] = field(default_factory=dict)

    def total(self) -> int:
        return self.new + sum(self.old.values())

    def available(self) -> int:
        return self.new_available + sum(self.old_available.values())

    def step(self, shrink: Shrink) -> None:
        """One sync: grow, or else shrink; availability follows the sizes."""
        size = scale_up_new(self.new, self.total(), self.limits)
        if size != self.new:
            self.new = size
            self.new_available = min(self.new_available, size)
            return
        sets = [
            ReplicaSetSize(name, wanted, self.old_available[name], created=float(at))
            for at, (name, wanted) in enumerate(self.old.items())
        ]
        for name, wanted in shrink(
            ReplicaSetSize("new", self.new, self.new_available, created=99.0), sets, self.limits
        ).items():
            # The pods that are not available go first, as the ReplicaSet ranks them.
            self.old[name] = wanted
            self.old_available[name] = min(self.old_available[name], wanted)


def violation(deployment: RandomDeployment, moves: list[int], shrink: Shrink) -> str:
    """What goes wrong in a rollout; "": nothing."""
    healthy = deployment.available()
    for move in moves:
        before = deployment.available()
        deployment.step(shrink)
        if deployment.total() > max(deployment.limits.most, healthy):
            return f"{deployment.total()} pods"
        least = min(deployment.limits.available_least, before)
        if deployment.available() < least:
            return f"{deployment.available()} available, wanted {least}"
        deployment.new_available = min(deployment.new, deployment.new_available + move)
    return ""


def hasty(
    new: ReplicaSetSize, old: Sequence[ReplicaSetSize], limits: RollingUpdateLimits
) -> Mapping[str, int]:
    """The wrong variant: takes the new pods for available as soon as they are wanted."""
    ready = ReplicaSetSize(new.name, new.wanted, new.wanted, new.created)
    return rolling_update.scale_down_old(ready, old, limits)


@st.composite
def fleets(draw: st.DrawFn) -> RandomDeployment:
    replicas = draw(st.integers(1, 12))
    limits = RollingUpdateLimits(replicas, draw(st.integers(0, 4)), draw(st.integers(0, replicas)))
    if limits.surge == limits.unavailable == 0:
        limits = RollingUpdateLimits(replicas, 0, 1)
    split = draw(st.integers(0, replicas))
    old = {"a": split, "b": replicas - split}
    return RandomDeployment(limits, old=old, old_available=dict(old))


@given(fleets(), st.lists(st.integers(0, 3), max_size=40))
@settings(max_examples=examples(200), deadline=None)
def test_a_rollout_never_leaves_its_bounds(deployment: RandomDeployment, moves: list[int]) -> None:
    assert violation(deployment, moves, rolling_update.scale_down_old) == ""


@given(fleets())
@settings(max_examples=examples(50), deadline=None)
def test_a_rollout_ends(deployment: RandomDeployment) -> None:
    for _ in range(100):
        deployment.step(rolling_update.scale_down_old)
        deployment.new_available = deployment.new
    assert deployment.new == deployment.limits.replicas
    assert sum(deployment.old.values()) == 0


def test_the_hasty_variant_is_caught() -> None:
    deployment = RandomDeployment(
        RollingUpdateLimits(4, 2, 0), old={"a": 4, "b": 0}, old_available={"a": 4, "b": 0}
    )
    assert violation(deployment, [0] * 10, hasty) == "2 available, wanted 4"
