"""QueueOptions: how long pods wait in the queue, and by which rules they come back."""

from __future__ import annotations

import msgspec

from stowplan.queue.entry import SECOND

FLUSH_BACKOFF_S = 1
"""How often pods that have waited out their backoff are looked for, in seconds."""

FLUSH_LEFTOVER_S = 30
"""How often pods that have been parked too long are looked for, in seconds."""


class QueueOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Durations in seconds, and the two rules that can be turned off.

    initial_backoff_s: after the first failure; it doubles with each one. max_backoff_s: at
    most; 0 turns backoff off. max_parked_s: a pod that no event has helped is tried again when
    it has waited longer than this; None is 300, and 60 without hints.
    pop_from_backoff: take a refused pod out of its backoff when nothing else is left to do.
    Backoff then ends on whole seconds, so that among pods of the same second priority decides.
    None is as hints.
    hints: False decides as releases before 1.26 did: see `SchedulingQueue`.
    """

    initial_backoff_s: float = 1
    max_backoff_s: float = 10
    max_parked_s: float | None = None
    pop_from_backoff: bool | None = None
    hints: bool = True

    @property
    def parked_s(self) -> float:
        """`max_parked_s`, or what it is where nobody says."""
        if self.max_parked_s is not None:
            return self.max_parked_s
        return 300 if self.hints else 60

    @property
    def pops_early(self) -> bool:
        """`pop_from_backoff`, or what it is where nobody says."""
        return self.hints if self.pop_from_backoff is None else self.pop_from_backoff


def in_ns(seconds: float) -> int:
    """Seconds as whole nanoseconds."""
    return round(seconds * SECOND)
