"""The demo: runs its steps in order and collects the results."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec

from stowplan.driver.client.one_shot_requests import ClusterListing
from stowplan.driver.clocks import monotonic_ns
from stowplan.driver.local_cluster import UpError
from stowplan.examples.demo_cluster import (
    AppPlacement,
    DemoCheck,
    DemoError,
    DemoObserver,
    collected_warnings,
    running_demo_cluster,
)
from stowplan.examples.demo_manifests import BATCH
from stowplan.examples.demo_state import quantile
from stowplan.examples.demo_steps import DEMO_STEPS, DemoStep
from stowplan.objects.pod import DEFAULT_SCHEDULER

PAUSE_S = 1.5


class SchedulingLatency(msgspec.Struct, frozen=True):
    """Scheduling latency of one scheduler's pods: from creation to having a node."""

    decided_by: str
    n_pods: int
    p50_s: float
    p99_s: float


class DemoResult(msgspec.Struct, frozen=True):
    """Result of the demo. snapshot: the cluster when both queues wanted more than it has.

    warnings: those logged meanwhile.
    """

    checks: list[DemoCheck]
    placements: list[AppPlacement]
    waits: list[SchedulingLatency]
    snapshot: ClusterListing
    took_s: float
    warnings: list[str]

    @property
    def is_as_expected(self) -> bool:
        """True if all checks have passed."""
        return all(check.held for check in self.checks)


class DemoDisplay(DemoObserver, Protocol):
    """A DemoObserver that also shows the start of each step."""

    def begin(self, number: int, n_steps: int, step: DemoStep) -> None:
        """A step begins."""


def run_demo(
    observer: DemoDisplay, *, fast: bool = False, steps: Sequence[DemoStep] = DEMO_STEPS
) -> DemoResult:
    """Run the steps. fast: without pauses for reading. Raises DemoError, and KeyboardInterrupt if
    it was stopped; nothing is left running in either case."""
    try:
        return asyncio.run(_run_demo(observer, 0.0 if fast else PAUSE_S, steps))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    except (UpError, TimeoutError) as problem:
        raise DemoError(f"the cluster did not start: {str(problem) or 'timed out'}") from None


async def _run_demo(observer: DemoDisplay, pause_s: float, steps: Sequence[DemoStep]) -> DemoResult:
    begun = monotonic_ns()
    with collected_warnings() as complained, _stopped_by_signals():
        async with running_demo_cluster(observer, pause_s) as made:
            for number, step in enumerate(steps, 1):
                observer.begin(number, len(steps), step)
                await step.run(made)
                await made.pause()
            waits = [
                SchedulingLatency(name, len(waited), quantile(waited, 0.5), quantile(waited, 0.99))
                for name, batch in ((DEFAULT_SCHEDULER, False), (BATCH, True))
                if (waited := made.view.waits_s(batch))
            ]
    took_s = (monotonic_ns() - begun) / 1e9
    lines = complained.lines
    return DemoResult(made.checks, made.placements, waits, made.snapshot, took_s, lines)


@contextlib.contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Turn SIGINT and SIGTERM into an orderly stop."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, task.cancel)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
