"""GPU requests of a pod, by its labels.

Source: NJUPT-ISL Yoda-Scheduler 2.x, pkg/yoda/filter and pkg/yoda/sort.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from stowplan.objects.pod import Pod
from stowplan.objects.quantity import INT64_MAX, INT64_MIN

NUMBER_LABEL = "scv/number"
MEMORY_LABEL = "scv/memory"
CLOCK_LABEL = "scv/clock"
PRIORITY_LABEL = "scv/priority"

UINT64_MAX = 2**64 - 1

_WHOLE = re.compile(r"[+-]?[0-9]+")


class GpuRequest(msgspec.Struct, frozen=True):
    """Requested cards: their number, the free memory of each (MiB) and the clock of its memory
    (MHz).

    None: not requested, which for the number means one.
    """

    number: int | None = None
    memory: int | None = None
    clock: int | None = None

    @classmethod
    def of(cls, labels: Mapping[str, str]) -> GpuRequest:
        """The request of a pod's labels.

        As in the original a text that is no number counts as 0, and a negative number as a huge
        one, which no card has.
        """
        requested = {
            key: parse_uint(labels[key])
            for key in (NUMBER_LABEL, MEMORY_LABEL, CLOCK_LABEL)
            if key in labels
        }
        return (
            cls(
                requested.get(NUMBER_LABEL), requested.get(MEMORY_LABEL), requested.get(CLOCK_LABEL)
            )
            if requested
            else NO_GPU_REQUEST
        )

    @property
    def is_none(self) -> bool:
        """True for a pod without GPU labels."""
        return self.number is None and self.memory is None and self.clock is None

    @property
    def n_cards(self) -> int:
        """Number of cards that it uses."""
        return 1 if self.number is None else self.number


NO_GPU_REQUEST = GpuRequest()


def is_gpu_pod(pod: Pod) -> bool:
    """True for a pod whose labels request cards."""
    return not GpuRequest.of(pod.labels).is_none


def parse_uint(text: str) -> int:
    """A label as the original reads an unsigned number: 0 to UINT64_MAX."""
    number = int(text) if _WHOLE.fullmatch(text) else 0
    return number & UINT64_MAX if INT64_MIN <= number <= INT64_MAX else 0


def queue_priority(labels: Mapping[str, str]) -> int:
    """The queue priority of a pod's labels, 0 without one: higher comes first.

    A number beyond 64 bits counts as the nearest one within.
    """
    text = labels.get(PRIORITY_LABEL, "")
    number = int(text) if _WHOLE.fullmatch(text) else 0
    return max(INT64_MIN, min(number, INT64_MAX))
