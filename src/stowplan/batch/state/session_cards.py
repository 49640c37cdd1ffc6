"""Session cards: devices of nodes of which pods have single ones, beside the amounts of a node.

That a node has half a GPU left does not mean that one of its cards has: the assembly provides who
counts card by card. Idle and future mean what they mean for amounts: a pod that will leave has its
cards until then, and a pipelined pod has its cards already.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from typing import Protocol

import numpy as np

from stowplan.batch.state.jobs import TaskInfo
from stowplan.columns.array_types import Bools, Ints


class SessionCards(Protocol):
    """Cards of one session's nodes. Rows are those of the node table.

    ignored: resources that are counted card by card, and not as an amount of the node.
    """

    ignored: Collection[str]

    def request(self, task: TaskInfo) -> Hashable:
        """Key of tasks with equal requests for cards; None for a task without."""

    def fits(self, task: TaskInfo, rows: Ints, *, later: bool) -> Bools:
        """bool (n_rows,): rows whose cards suffice; later: once those of leaving pods are free."""

    def fits_without(self, task: TaskInfo, row: int, victims: Collection[str]) -> bool:
        """True if the cards of a row suffice later, without some pods on it, by uid."""

    def refusals(self, task: TaskInfo, rows: Ints) -> Mapping[str, int]:
        """Reason -> number of these rows whose cards do not suffice later."""

    def take(self, task: TaskInfo, row: int, *, later: bool) -> str:
        """Choose cards for a task that is about to be placed; returns an error message or ""."""

    def give_back(self, task: TaskInfo, row: int) -> None:
        """Take the cards of a task back."""

    def close(self) -> None:
        """The session has ended: nothing is taken any more, and the choices are remembered for the
        bindings."""


class NoSessionCards:
    """No task requests cards."""

    ignored: Collection[str] = ()

    def request(self, task: TaskInfo) -> Hashable:
        """None."""
        return None

    def fits(self, task: TaskInfo, rows: Ints, *, later: bool) -> Bools:
        """All rows."""
        return np.ones(rows.shape[0], dtype=np.bool_)

    def fits_without(self, task: TaskInfo, row: int, victims: Collection[str]) -> bool:
        """True."""
        return True

    def refusals(self, task: TaskInfo, rows: Ints) -> Mapping[str, int]:
        """No refusals."""
        return {}

    def take(self, task: TaskInfo, row: int, *, later: bool) -> str:
        """Nothing to choose."""
        return ""

    def give_back(self, task: TaskInfo, row: int) -> None:
        """Nothing to give back."""

    def close(self) -> None:
        """Nothing to remember."""
