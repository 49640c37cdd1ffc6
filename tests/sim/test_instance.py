"""Instance: a scheduler that spins does not keep time from passing."""

from __future__ import annotations

from typing import Any

import pytest

from stowplan.messages.effects import Effect, Wake
from stowplan.sim import instance
from stowplan.sim.agenda import SECOND, Agenda
from stowplan.sim.instance import Instance
from stowplan.sim.world import Pace


class Spinning:
    """A machine whose pods are tried again at once, whatever comes of it."""

    n_waiting = 2

    def __init__(self) -> None:
        self.times: list[int] = []

    def handle(self, events: Any, now: int, heads_max: int | None) -> list[Effect]:
        self.times.append(now)
        return [Wake(len(self.times), 1, now)]


class EmptyWorld:
    def __init__(self) -> None:
        self.agenda = Agenda()
        self.pace = Pace()
        self.on_change: list[Any] = []


def spun(n_steps: int = 200) -> list[int]:
    """The times at which such a machine was called."""
    machine, world = Spinning(), EmptyWorld()
    machine_: Any = machine
    world_: Any = world
    machine_.work = lambda effect: None
    one = Instance("s1", world_, machine_, ())
    one.follow()
    one._alarm = 0
    for _ in range(n_steps):
        if world.agenda.next() is None:
            break
        world.agenda.step()
    return machine.times


def test_time_passes_for_a_machine_that_spins() -> None:
    times = spun()
    assert times[0] == times[instance.IDLE_MIN] == 0
    assert times[-1] > 10 * SECOND
    assert times == sorted(times)


def test_without_pauses_it_would_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: however often the machine asks to be called again, it is at once."""
    monkeypatch.setattr(instance, "IDLE_MIN", 10**9)
    assert set(spun()) == {0}
