"""Rules: what decides, beside resources, which node suits a pod. Given from above.

The policies `predicates` and `nodeorder` ask them; sessions tell them what they put where. Which
generation of Kubernetes they are of is not known here.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from stowplan.batch.jobs import Task

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Unanswerable(Exception):
    """The rules cannot say how nodes score; the original ends the question with an error."""


class Pressures(msgspec.Struct, frozen=True):
    """Which pressures of a node keep pods away."""

    memory: bool = False
    disk: bool = False
    pid: bool = False


class Weights(msgspec.Struct, frozen=True):
    """What the scores of nodes weigh; None leaves it to the rules."""

    least_requested: int | None = None
    balanced_resource: int | None = None
    node_affinity: int | None = None
    pod_affinity: int | None = None


class Rules(Protocol):
    """The rules of one session. Rows are those of the session's ledger."""

    def row_kind(self, task: Task) -> Hashable:
        """Equal for tasks of which rows are always said the same.

        None where what is said of a row depends on more than that row.
        """

    def passing(self, task: Task, rows: Ints, pressures: Pressures) -> Bools:
        """bool (n_rows,): the rows that the task may be on, resources and pod count aside."""

    def refusals(self, task: Task, pressures: Pressures) -> Mapping[str, int]:
        """Reason -> how many nodes are refused for it; a node may be counted once only."""

    def scores(self, task: Task, rows: Ints, weights: Weights) -> Floats:
        """float64 (n_rows,): how well the task would be on each of these rows, which pass.

        Raises Unanswerable.
        """

    def placed(self, task: Task, row: int) -> None:
        """The session put the task on a node."""

    def unplaced(self, task: Task, row: int) -> None:
        """The session took it off again; the last one placed goes first."""

    def close(self) -> None:
        """The session is over: forget what it placed."""


class NoRules:
    """Every node passes and none is better than another."""

    def row_kind(self, task: Task) -> Hashable:
        """All are equal."""
        return ()

    def passing(self, task: Task, rows: Ints, pressures: Pressures) -> Bools:
        """All of them."""
        return np.ones(rows.shape[0], dtype=np.bool_)

    def refusals(self, task: Task, pressures: Pressures) -> Mapping[str, int]:
        """None."""
        return {}

    def scores(self, task: Task, rows: Ints, weights: Weights) -> Floats:
        """Zeros."""
        return np.zeros(rows.shape[0], dtype=np.float64)

    def placed(self, task: Task, row: int) -> None:
        """Nothing to note."""

    def unplaced(self, task: Task, row: int) -> None:
        """Nothing to note."""

    def close(self) -> None:
        """Nothing to forget."""
