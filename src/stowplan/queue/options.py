"""QueueOptions: backoff durations, flush intervals and modes of the scheduling queue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import msgspec

from stowplan._deprecated import RenamedFields, deprecated_property
from stowplan.framework import Problem
from stowplan.objects.encoding.duration import SECOND


class QueueOptions(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, metaclass=RenamedFields
):
    """Options of the scheduling queue; durations in seconds.

    initial_backoff_s: after the first failure; doubles with each one. max_backoff_s: upper limit; 0
    turns backoff off. None: 1 and 10, or the configuration file's values.
    max_in_unschedulable_pods_s: a pod that stayed unschedulable for longer is retried without an
    event; None: 300, or 60 without hints. flush_backoff_s, flush_unschedulable_s: interval of the
    flush of the backoff queue and of the unschedulable pods. pop_from_backoff: pop a rejected pod
    from the backoff queue when the active queue is empty. Backoff then ends on whole seconds, so
    that priority decides among pods of the same second. None: same as hints. hints: False queues as
    releases before 1.26; see `SchedulingQueue`. by_arrival: pop in order of arrival; QueueSort
    plugins are ignored.
    """

    OLD_FIELDS: ClassVar[Mapping[str, str]] = {
        "max_parked_s": "max_in_unschedulable_pods_s",
        "flush_leftover_s": "flush_unschedulable_s",
    }

    initial_backoff_s: float | None = None
    max_backoff_s: float | None = None
    max_in_unschedulable_pods_s: float | None = None
    flush_backoff_s: float = 1
    flush_unschedulable_s: float = 30
    pop_from_backoff: bool | None = None
    hints: bool = True
    by_arrival: bool = False

    max_parked_s = deprecated_property("max_parked_s", "max_in_unschedulable_pods_s")
    flush_leftover_s = deprecated_property("flush_leftover_s", "flush_unschedulable_s")

    @property
    def initial_s(self) -> float:
        """`initial_backoff_s`, or its default."""
        return 1 if self.initial_backoff_s is None else self.initial_backoff_s

    @property
    def max_s(self) -> float:
        """`max_backoff_s`, or its default."""
        return 10 if self.max_backoff_s is None else self.max_backoff_s

    @property
    def unschedulable_limit_s(self) -> float:
        """`max_in_unschedulable_pods_s`, or its default."""
        if self.max_in_unschedulable_pods_s is not None:
            return self.max_in_unschedulable_pods_s
        return 300 if self.hints else 60

    @property
    def pops_from_backoff(self) -> bool:
        """`pop_from_backoff`, or its default."""
        return self.hints if self.pop_from_backoff is None else self.pop_from_backoff

    def problems(self, path: str) -> Iterator[Problem]:
        """Problems of durations out of range."""
        for name in ("initial_backoff_s", "max_backoff_s", "max_in_unschedulable_pods_s"):
            given = getattr(self, name)
            if given is not None and not given >= 0:
                yield Problem(f"{path}.{name}", str(given), "0 or more")
        for name in ("flush_backoff_s", "flush_unschedulable_s"):
            if not seconds_to_ns(getattr(self, name)) > 0:
                yield Problem(f"{path}.{name}", str(getattr(self, name)), "more than 0")


def seconds_to_ns(seconds: float) -> int:
    """Seconds as whole nanoseconds, rounded."""
    return round(seconds * SECOND)
