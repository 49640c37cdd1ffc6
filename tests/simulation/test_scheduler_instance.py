"""Scheduler instance: virtual time advances although a scheduler requeues without end."""

from __future__ import annotations

from typing import Any

import pytest

from stowplan.messages.effects import Effect, Wake
from stowplan.objects.encoding.duration import SECOND
from stowplan.simulation.cluster import scheduler_instance
from stowplan.simulation.cluster.cluster_api import Pace
from stowplan.simulation.cluster.scheduler_instance import SchedulerInstance
from stowplan.simulation.cluster.simulated_cluster import SimulatedCluster
from stowplan.simulation.event_queue import EventQueue


class Spinning:
    """A scheduler whose pods are requeued at once."""

    n_waiting = 2

    def __init__(self) -> None:
        self.times: list[int] = []

    def handle(self, events: Any, now: int, heads_max: int | None) -> list[Effect]:
        self.times.append(now)
        return [Wake(len(self.times), 1, now)]


def spun(n_steps: int = 200) -> list[int]:
    """Times of the calls of such a scheduler."""
    scheduler, cluster = Spinning(), SimulatedCluster(EventQueue(), Pace())
    untyped: Any = scheduler
    untyped.plugin_io = lambda effect: None
    one = SchedulerInstance("s1", cluster, untyped, ())
    one.follow()
    one._alarm = 0
    for _ in range(n_steps):
        if cluster.event_queue.next() is None:
            break
        cluster.event_queue.step()
    return scheduler.times


def test_time_advances_for_a_scheduler_that_requeues_without_end() -> None:
    times = spun()
    assert times[0] == times[scheduler_instance.IDLE_MIN] == 0
    assert times[-1] > 10 * SECOND
    assert times == sorted(times)


def test_without_pauses_it_would_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: idle calls are never delayed."""
    monkeypatch.setattr(scheduler_instance, "IDLE_MIN", 10**9)
    assert set(spun()) == {0}
