"""Which mends explain that a case is answered otherwise than kube-batch would answer it.

All switches of the compatibility are turned on, which gives the original's answer, and then turned
off again, halves first and in the end one by one: those without which the answer stays the same
stay off. What is left on is a smallest set that explains the difference, for none of them can be
missed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from stowplan.batch import KUBE_BATCH_0_5, Compat
from stowplan.conformance.session_cases import SessionCase
from stowplan.conformance.session_evaluation import answer


class SwitchExplanation(msgspec.Struct, frozen=True):
    """A case and the switches that explain its difference; none where there is no difference."""

    id: str
    switches: tuple[str, ...]


def find_switches(case: SessionCase) -> SwitchExplanation:
    """The switches that have to be on for the original's answer to a case."""
    wanted = answer(case, KUBE_BATCH_0_5)
    compat = KUBE_BATCH_0_5
    size = len(Compat.names())
    while size:
        turned = False
        names = tuple(compat.on())
        for first in range(0, len(names), size):
            without = compat
            for name in names[first : first + size]:
                without = without.turned(name, on=False)
            if answer(case, without) == wanted:
                compat, turned = without, True
        # A switch that was needed beside another need not be so without it.
        if size > 1:
            size //= 2
        elif not turned:
            size = 0
    return SwitchExplanation(case.id, tuple(compat.on()))


def switches_table(found: Iterable[SwitchExplanation]) -> Iterator[str]:
    """The cases by switches as lines of Markdown: how many cases a switch explains, and which one
    it explains with the fewest others."""
    kept = list(found)
    yield "| switch | cases | shown by |"
    yield "|---|---|---|"
    for name in Compat.names():
        cases = sorted((e for e in kept if name in e.switches), key=lambda e: len(e.switches))
        shown = f"`{cases[0].id}` ({len(cases[0].switches)})" if cases else ""
        yield f"| `{name}` | {len(cases)} | {shown} |"
    n_same = sum(not e.switches for e in kept)
    yield f"| none: the same answer | {n_same} | |"
