"""Which compat switches explain a difference from kube-batch's answer to a case.

Starts with all switches on, which gives kube-batch's answer, and turns them off, halves first, then
one by one: a switch stays off if the answer does not change. The switches left on are a minimal set
that explains the difference.
"""

from __future__ import annotations

from msgspec.structs import replace

from stowplan.batch import KUBE_BATCH_0_5, Compat
from stowplan.conformance.session_cases import SessionCase
from stowplan.conformance.session_evaluation import answer


def find_switches(case: SessionCase) -> tuple[str, ...]:
    """A minimal set of switches for kube-batch's answer to a case."""
    expected = answer(case, KUBE_BATCH_0_5)
    compat = KUBE_BATCH_0_5
    size = len(Compat.names())
    while size:
        turned = False
        names = tuple(compat.on())
        for first in range(0, len(names), size):
            off = dict.fromkeys(names[first : first + size], False)
            without = replace(compat, **off)
            if answer(case, without) == expected:
                compat, turned = without, True
        # A switch that was needed together with another may not be needed without it.
        if size > 1:
            size //= 2
        elif not turned:
            size = 0
    return tuple(compat.on())
