"""What a session asks about pods and nodes apart from amounts: filters and scores of a framework.

The assembly provides them, so that this package does not depend on a Kubernetes release. Rows are
those of the session's node table, which has what the session placed and evicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from stowplan.batch.queue_models.volcano.volcano_task import VolcanoTask
from stowplan.columns.array_types import Floats, Ints

PASSES, UNSCHEDULABLE, UNRESOLVABLE = 0, 1, 2
"""Codes of a node: it passes; evictions could help; they could not."""


class NodeScoreUse(msgspec.Struct, frozen=True):
    """A score. name: the argument of Volcano that weighs it, or that turns on the filter whose
    score it is."""

    name: str
    weight: int


class RowScores(Protocol):
    """Scores of the pods of one kind, each of which depends on its row alone."""

    def totals(self, rows: Ints) -> Floats:
        """float64 (n_rows,): a new array."""

    def at(self, row: int) -> float:
        """The score of one row."""


class PodFilters(Protocol):
    """Filters that apply to pods."""

    def prepare(self, task: VolcanoTask) -> bool:
        """Compute the state that filters read; False if the pod fits nowhere."""

    def codes(self, task: VolcanoTask, rows: Ints) -> Ints:
        """int64 (n_rows,): a code per row, by the state that was prepared last."""

    def constant_codes(self, task: VolcanoTask) -> Ints | None:
        """int64 (n_rows of the table,): the codes of every row, which nothing changes that a
        session does, until `PodRules.n_affine` changes; None if there are no such codes."""

    def codes_without(self, task: VolcanoTask, row: int, gone: Sequence[VolcanoTask]) -> Ints:
        """int64 (1,): the code of a row as if some tasks on it had gone, state included."""

    def reserve(self, task: VolcanoTask) -> bool:
        """Reserve volumes and devices for a placed pod; False if that fails."""

    def unreserve(self, task: VolcanoTask) -> None:
        """Undo `reserve`."""


class PodScores(Protocol):
    """Scores of nodes."""

    def totals(self, task: VolcanoTask, rows: Ints) -> Floats | None:
        """float64 (n_rows,): weighted sums of the scores; None if one fails."""

    def column(self, task: VolcanoTask) -> RowScores | None:
        """The same by row, until `PodRules.n_affine` changes; None if a sum depends on other
        rows."""


class PodRules(Protocol):
    """Filters and scores over the node table of a session."""

    @property
    def n_affine(self) -> int:
        """Number of placed or removed pods so far that may keep others away, or attract them."""

    def filters(self, names: Sequence[str]) -> PodFilters:
        """The filters that these arguments of Volcano turn on."""

    def scores(self, uses: Sequence[NodeScoreUse]) -> PodScores:
        """The weighted sum of these scores."""

    def pod_counts(self, rows: Ints) -> Ints:
        """int64 (n_rows,): pods on each node."""

    def place(self, task: VolcanoTask, row: int) -> None:
        """A pod is on a node from now on."""

    def take(self, task: VolcanoTask, row: int) -> None:
        """A pod is no longer on a node."""

    def close(self) -> None:
        """The table is as before the session."""
