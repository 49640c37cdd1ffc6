"""The demonstration: its acts, one after the other, and what came of them."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec

from stowplan.driver.asking import Found
from stowplan.driver.clocks import steady
from stowplan.driver.demo_acts import ACTS, Act
from stowplan.driver.demo_stage import Audience, Check, DemoError, Placement, complaints, stage
from stowplan.driver.demo_view import quantile
from stowplan.driver.demo_world import BATCH
from stowplan.driver.local_cluster import UpError
from stowplan.objects.pod import DEFAULT_SCHEDULER

PAUSE_S = 1.5


class Wait(msgspec.Struct, frozen=True):
    """How long pods of a scheduler waited from being there to having a node."""

    decided_by: str
    n_pods: int
    p50_s: float
    p99_s: float


class Outcome(msgspec.Struct, frozen=True):
    """What came of it. picture: the cluster when both queues wanted more than there was.

    complaints: what parts of Stowplan warned of meanwhile.
    """

    checks: list[Check]
    placements: list[Placement]
    waits: list[Wait]
    picture: Found
    took_s: float
    complaints: list[str]

    @property
    def is_as_expected(self) -> bool:
        """True if all that was expected has come."""
        return all(check.held for check in self.checks)


class Theatre(Audience, Protocol):
    """An audience that is told of acts, too."""

    def begin(self, number: int, n_acts: int, act: Act) -> None:
        """An act begins."""


def show(audience: Theatre, *, fast: bool = False, acts: Sequence[Act] = ACTS) -> Outcome:
    """Play the acts. fast: without pauses to read. Raises DemoError, and KeyboardInterrupt where
    it was stopped; either way nothing is left."""
    try:
        return asyncio.run(_show(audience, 0.0 if fast else PAUSE_S, acts))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    except (UpError, TimeoutError) as problem:
        raise DemoError(
            f"the cluster did not start: {str(problem) or 'it took too long'}"
        ) from None


async def _show(audience: Theatre, pause_s: float, acts: Sequence[Act]) -> Outcome:
    begun = steady()
    with complaints() as complained, _stopped_by_signals():
        async with stage(audience, pause_s) as made:
            for number, act in enumerate(acts, 1):
                audience.begin(number, len(acts), act)
                await act.play(made)
                await made.pause()
            waits = [
                Wait(name, len(waited), quantile(waited, 0.5), quantile(waited, 0.99))
                for name, batch in ((DEFAULT_SCHEDULER, False), (BATCH, True))
                if (waited := made.view.waits_s(batch))
            ]
    took_s = (steady() - begun) / 1e9
    lines = complained.lines
    return Outcome(made.checks, made.placements, waits, made.picture, took_s, lines)


@contextlib.contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Whoever asks for an end gets a tidy one."""
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
