"""The effects of a random walk, one per line: equal for every hash seed.

Event logs of fault runs are compared in the same way (`tests/fault_runs/test_fault_runs.py`);
random walks also cover claims and volumes.

Run: python -m tests.scheduler.effect_log SEED... [--wrong]. With --wrong the unschedulable pods
that an event may help come in the order of a set.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

import numpy as np

from stowplan.messages.effects import Effect
from stowplan.messages.events import Event
from stowplan.queue import PodRecord
from stowplan.queue.unschedulable_pods import UnschedulablePods
from tests.scheduler.random_walk import RandomWalk

N_STEPS = 120


class Logged(RandomWalk):
    """A walk that keeps every effect."""

    def __init__(self, seed: int) -> None:
        self.effects: list[Effect] = []
        super().__init__(np.random.default_rng(seed))

    def call(self, batch: list[Event], heads_max: int = 1000) -> list[Effect]:
        effects = super().call(batch, heads_max)
        self.effects += effects
        return effects


def effect_log(seed: int) -> list[str]:
    """The effects of the walk with a seed."""
    walk = Logged(seed)
    for _ in range(N_STEPS):
        walk.step()
    return [repr(effect) for effect in walk.effects]


def in_order_of_a_set(self: UnschedulablePods, plugins: Iterable[str]) -> list[PodRecord]:
    """Wrong variant of UnschedulablePods.refused_by."""
    keys = {key for plugin in plugins for key in self._by_plugin.get(plugin, {})}
    return [self.entries[key] for key in keys]


def main(*arguments: str) -> None:
    """Print the logs of the seeds."""
    if "--wrong" in arguments:
        UnschedulablePods.refused_by = in_order_of_a_set  # type: ignore[method-assign]
    for seed in arguments:
        if seed.isdecimal():
            print("\n".join(effect_log(int(seed))))


if __name__ == "__main__":
    main(*sys.argv[1:])
