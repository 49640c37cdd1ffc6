"""The demo: runs its steps in order and collects the results."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import msgspec

from stowplan.driver.client.one_shot_requests import ClusterListing
from stowplan.driver.clocks import monotonic_ns
from stowplan.driver.live.scheduler_server import SchedulerServer
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
from stowplan.examples.demo_state import ObservedCluster, quantile
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

    warnings: those logged meanwhile. view: all that was there, deleted pods included; its times
    begin at began, ns of a monotonic clock.
    """

    checks: list[DemoCheck]
    placements: list[AppPlacement]
    waits: list[SchedulingLatency]
    snapshot: ClusterListing
    took_s: float
    warnings: list[str]
    view: ObservedCluster = msgspec.field(default_factory=ObservedCluster)
    began: int = 0

    @property
    def is_as_expected(self) -> bool:
        """True if all checks have passed."""
        return all(check.held for check in self.checks)


class DemoDisplay(DemoObserver, Protocol):
    """A DemoObserver that also shows the start of each step."""

    def begin(self, number: int, n_steps: int, step: DemoStep) -> None:
        """A step begins."""


class DemoKeeping(NamedTuple):
    """How the cluster goes on after the last step, until a signal. on_server: called with the
    scheduler server before it runs. on_result: called after the last step."""

    on_server: Callable[[SchedulerServer], None]
    on_result: Callable[[DemoResult], None]


def run_demo(
    observer: DemoDisplay,
    *,
    fast: bool = False,
    steps: Sequence[DemoStep] = DEMO_STEPS,
    keeping: DemoKeeping | None = None,
) -> DemoResult:
    """Run the steps. fast: without pauses for reading. keeping: None to end with the last step.
    Raises DemoError, and KeyboardInterrupt if it was stopped before the last step has ended;
    nothing is left running in either case."""
    try:
        return asyncio.run(_run_demo(observer, 0.0 if fast else PAUSE_S, steps, keeping))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    except (UpError, TimeoutError) as problem:
        raise DemoError(f"the cluster did not start: {str(problem) or 'timed out'}") from None


async def _run_demo(
    observer: DemoDisplay,
    pause_s: float,
    steps: Sequence[DemoStep],
    keeping: DemoKeeping | None,
) -> DemoResult:
    begun = monotonic_ns()
    with collected_warnings() as complained, _stopped_by_signals():
        on_server = None if keeping is None else keeping.on_server
        async with running_demo_cluster(observer, pause_s, on_server) as made:
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
            results = made.checks, made.placements, waits, made.snapshot
            result = DemoResult(*results, took_s, lines, made.view, begun)
            if keeping is not None:
                keeping.on_result(result)
                await _until_stopped()
    return result


async def _until_stopped() -> None:
    """Wait for a signal, which ends the demo as its last step would."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        task = asyncio.current_task()
        assert task is not None
        task.uncancel()


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
