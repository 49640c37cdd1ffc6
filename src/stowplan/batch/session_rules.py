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

from stowplan.batch.state.jobs import TaskInfo

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class ScoringError(Exception):
    """The rules cannot say how nodes score; the original ends the question with an error."""


class PressureChecks(msgspec.Struct, frozen=True):
    """Which pressures of a node keep pods away."""

    memory: bool = False
    disk: bool = False
    pid: bool = False


class NodeScoreWeights(msgspec.Struct, frozen=True):
    """What the scores of nodes weigh; None leaves it to the rules."""

    least_requested: int | None = None
    balanced_resource: int | None = None
    node_affinity: int | None = None
    pod_affinity: int | None = None


class SessionRules(Protocol):
    """The rules of one session. Rows are those of the session's ledger."""

    def row_kind(self, task: TaskInfo) -> Hashable:
        """Equal for tasks of which rows are always said the same.

        None where what is said of a row depends on more than that row.
        """

    def passing(self, task: TaskInfo, rows: Ints, pressures: PressureChecks) -> Bools:
        """bool (n_rows,): the rows that the task may be on, resources and pod count aside."""

    def refusals(self, task: TaskInfo, pressures: PressureChecks) -> Mapping[str, int]:
        """Reason -> how many nodes are refused for it; a node may be counted once only."""

    def scores(self, task: TaskInfo, rows: Ints, weights: NodeScoreWeights) -> Floats:
        """float64 (n_rows,): how well the task would be on each of these rows, which pass.

        Raises Unanswerable.
        """

    def placed(self, task: TaskInfo, row: int) -> None:
        """The session put the task on a node."""

    def unplaced(self, task: TaskInfo, row: int) -> None:
        """The session took it off again; the last one placed goes first."""

    def close(self) -> None:
        """The session is over: forget what it placed."""


class NoSessionRules:
    """Every node passes and none is better than another."""

    def row_kind(self, task: TaskInfo) -> Hashable:
        """All are equal."""
        return ()

    def passing(self, task: TaskInfo, rows: Ints, pressures: PressureChecks) -> Bools:
        """All of them."""
        return np.ones(rows.shape[0], dtype=np.bool_)

    def refusals(self, task: TaskInfo, pressures: PressureChecks) -> Mapping[str, int]:
        """None."""
        return {}

    def scores(self, task: TaskInfo, rows: Ints, weights: NodeScoreWeights) -> Floats:
        """Zeros."""
        return np.zeros(rows.shape[0], dtype=np.float64)

    def placed(self, task: TaskInfo, row: int) -> None:
        """Nothing to note."""

    def unplaced(self, task: TaskInfo, row: int) -> None:
        """Nothing to note."""

    def close(self) -> None:
        """Nothing to forget."""
