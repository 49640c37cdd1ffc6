"""Sessions that time alone makes due: nothing has changed since, and a grace period has ended."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stowplan.batch.queue_models.kai.model import kai_model
from stowplan.benchmarks.sessions.kai_benchmarks import KaiBenchmark
from stowplan.messages import events as happened
from stowplan.messages.effects import Evict, Wake

SECOND = 10**9


class Idle(KaiBenchmark):
    """A cluster where nothing happens but time."""

    wake: int | None = None

    def until(self, seconds: float) -> list[str]:
        """Wait as long as the scheduler asks for, at most so many seconds; what was evicted."""
        end = self.now + int(seconds * SECOND)
        while True:
            evicted = [one.name for one in self.effects if isinstance(one, Evict)]
            wakes = [one.at for one in self.effects if isinstance(one, Wake)]
            self.effects.clear()
            self.wake = max(wakes, default=self.wake)
            if evicted or self.wake is None or self.wake > end:
                self.now = max(self.now, end)
                return evicted
            self.now, self.wake = max(self.wake, self.now), None
            self.effects += self.scheduler.handle([], self.now)


def stale(cluster: Idle) -> float:
    """A gang that loses a pod; when it is evicted."""
    cluster.show(list(cluster.gang("g", "q", 2, ("1", "1Gi", "1"), (0, 0))))
    cluster.session(happened.Synced())
    cluster.session(happened.PodDeleted(cluster.pods.pop("g-0")))
    return 60.0


def protected(cluster: Idle) -> float:
    """A job that may be preempted once it has run for its minimum."""
    cluster.show(list(cluster.gang("low", "q", 1, ("1", "1Gi", "2"))))
    cluster.session(happened.Synced())
    cluster.settle()
    cluster.session()
    high = cluster.gang("high", "q", 1, ("1", "1Gi", "2"), priority_class_name="build-preemptible")
    cluster.session(*high)
    return 300.0


def cluster_of(queue: dict[str, str]) -> Idle:
    cluster = Idle(1, 2)
    cluster.show([cluster.queue("q", **queue)])
    return cluster


@pytest.mark.parametrize(
    ("happens", "queue"), [(stale, {}), (protected, {"preempt_min_runtime": "5m"})]
)
def test_a_session_runs_once_time_lets_it_evict(
    happens: Callable[[Idle], float], queue: dict[str, str]
) -> None:
    cluster = cluster_of(queue)
    seconds = happens(cluster)
    assert cluster.until(seconds - 5) == []
    assert len(cluster.until(10)) == 1


def test_nothing_is_evicted_where_only_changes_start_sessions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kai_model, "next_session_in", lambda *_: None)
    cluster = cluster_of({})
    stale(cluster)
    assert cluster.until(1000) == []


def test_a_quiet_cluster_has_no_sessions() -> None:
    cluster = cluster_of({"preempt_min_runtime": "5m"})
    cluster.show(list(cluster.gang("g", "q", 2, ("1", "1Gi", "1"), (0, 0))))
    cluster.session(happened.Synced())
    number = cluster.scheduler.lanes.batch[0].number
    cluster.until(1000)
    # The first session noted the start of the gang, the second one that nothing is left to do.
    assert cluster.scheduler.lanes.batch[0].number <= number + 1
