"""QueueOptions: how long pods wait in the queue, and by which rules they come back."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from stowplan.framework import Problem
from stowplan.queue.entry import SECOND


class QueueOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Durations in seconds, and the two rules that can be turned off.

    initial_backoff_s: after the first failure; it doubles with each one. max_backoff_s: at
    most; 0 turns backoff off. None is 1 and 10, or what a configuration file says.
    max_in_unschedulable_pods_s: a pod that no event has helped is tried again when it has waited
    longer than this; None is 300, and 60 without hints.
    flush_backoff_s, flush_unschedulable_s: how often pods are looked for that have waited out their
    backoff, and such as have been parked too long.
    pop_from_backoff: take a refused pod out of its backoff when nothing else is left to do.
    Backoff then ends on whole seconds, so that among pods of the same second priority decides.
    None is as hints.
    hints: False decides as releases before 1.26 did: see `SchedulingQueue`.
    by_arrival: pods are tried in the order in which they came, whatever QueueSort says.
    """

    initial_backoff_s: float | None = None
    max_backoff_s: float | None = None
    max_in_unschedulable_pods_s: float | None = None
    flush_backoff_s: float = 1
    flush_unschedulable_s: float = 30
    pop_from_backoff: bool | None = None
    hints: bool = True
    by_arrival: bool = False

    @property
    def initial_s(self) -> float:
        """`initial_backoff_s`, or what it is where nobody says."""
        return 1 if self.initial_backoff_s is None else self.initial_backoff_s

    @property
    def max_s(self) -> float:
        """`max_backoff_s`, or what it is where nobody says."""
        return 10 if self.max_backoff_s is None else self.max_backoff_s

    @property
    def unschedulable_limit_s(self) -> float:
        """`max_in_unschedulable_pods_s`, or what it is where nobody says."""
        if self.max_in_unschedulable_pods_s is not None:
            return self.max_in_unschedulable_pods_s
        return 300 if self.hints else 60

    @property
    def pops_from_backoff(self) -> bool:
        """`pop_from_backoff`, or what it is where nobody says."""
        return self.hints if self.pop_from_backoff is None else self.pop_from_backoff

    def problems(self, path: str) -> Iterator[Problem]:
        """Durations that cannot be."""
        for name in ("initial_backoff_s", "max_backoff_s", "max_in_unschedulable_pods_s"):
            given = getattr(self, name)
            if given is not None and not given >= 0:
                yield Problem(f"{path}.{name}", str(given), "0 or more")
        for name in ("flush_backoff_s", "flush_unschedulable_s"):
            if not seconds_to_ns(getattr(self, name)) > 0:
                yield Problem(f"{path}.{name}", str(getattr(self, name)), "more than 0")


def seconds_to_ns(seconds: float) -> int:
    """Seconds as whole nanoseconds."""
    return round(seconds * SECOND)
