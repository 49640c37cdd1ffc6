"""The pods of rows in order of importance, as dry runs on single rows read them."""

from __future__ import annotations

from operator import is_
from typing import NamedTuple

from stowplan.columns import PodInfo
from stowplan.plugins.preemption.disruption_budgets import DisruptionBudgetIndex
from stowplan.plugins.preemption.ranked_pods import pod_importance

AMOUNT_MAX = 2**50
PODS_MAX = 512
"""Amounts and numbers of pods whose sums stay far from 2**63."""


class MustBeWalked(Exception):
    """Sums of amounts may exceed 64 bits, or a filter fails."""


def check_amounts(*amounts: int) -> None:
    """Raises MustBeWalked for amounts whose sums may exceed 64 bits."""
    for amount in amounts:
        if not 0 <= amount <= AMOUNT_MAX:
            raise MustBeWalked


class ImportantPod(NamedTuple):
    """A pod on a node as dry runs read it. covering: numbers of the budgets that count its
    eviction."""

    info: PodInfo
    priority: int
    requested: dict[str, int]
    covering: tuple[int, ...]


class PodsByImportance:
    """The pods of rows in order of importance, for all classes of preemptors."""

    def __init__(self, budgets: DisruptionBudgetIndex) -> None:
        self._budgets = budgets
        self._made_for: object = None
        self._rows: dict[int, tuple[list[PodInfo], list[ImportantPod]]] = {}

    def of_row(self, row: int, pods: list[PodInfo]) -> list[ImportantPod]:
        """The pods of a row, the most important first; equally important ones in this order."""
        if self._made_for is not self._budgets.budgets:
            self._made_for, self._rows = self._budgets.budgets, {}
        known = self._rows.get(row)
        if known is not None and len(known[0]) == len(pods) and all(map(is_, known[0], pods)):
            return known[1]
        if len(pods) > PODS_MAX:
            raise MustBeWalked
        found = []
        for info in sorted(pods, key=pod_importance):
            requested = info.footprint.requested
            check_amounts(*requested.values())
            covering = self._budgets.covering(info.pod)
            found.append(ImportantPod(info, info.footprint.priority, requested, covering))
        self._rows[row] = list(pods), found
        return found
