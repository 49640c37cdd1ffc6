"""Session rules: which nodes suit a pod, resources aside; provided by the assembly.

The session plugins `predicates` and `nodeorder` query them. They read the node table, which has
what the session has placed. This package does not depend on the Kubernetes release that they
implement.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Protocol

import msgspec
import numpy as np

from stowplan.batch.state.jobs import TaskInfo
from stowplan.columns.array_types import Bools, Floats, Ints


class ScoringError(Exception):
    """Raised if nodes cannot be scored; the original returns an error."""


class PressureChecks(msgspec.Struct, frozen=True):
    """Which pressure conditions of a node keep pods away."""

    memory: bool = False
    disk: bool = False
    pid: bool = False


class NodeScoreWeights(msgspec.Struct, frozen=True):
    """Weights of node scores; None leaves the weight to the rules."""

    least_requested: int | None = None
    balanced_resource: int | None = None
    node_affinity: int | None = None
    pod_affinity: int | None = None


class SessionRules(Protocol):
    """Rules of one session. Rows are those of the node table."""

    def row_kind(self, task: TaskInfo) -> Hashable:
        """Key of tasks that get the same results for every row.

        None if the result for a row depends on more than that row.
        """

    def passing(self, task: TaskInfo, rows: Ints, pressures: PressureChecks) -> Bools:
        """bool (n_rows,): rows that the task may run on, resources and pod count aside."""

    def refusals(self, task: TaskInfo, pressures: PressureChecks) -> Mapping[str, int]:
        """Reason -> number of nodes refused for it; each node is counted once."""

    def scores(self, task: TaskInfo, rows: Ints, weights: NodeScoreWeights) -> Floats:
        """float64 (n_rows,): scores of these rows, all of which pass.

        Raises ScoringError.
        """


class NoSessionRules:
    """Every node passes, with equal scores."""

    def row_kind(self, task: TaskInfo) -> Hashable:
        """All tasks are equal."""
        return ()

    def passing(self, task: TaskInfo, rows: Ints, pressures: PressureChecks) -> Bools:
        """All rows pass."""
        return np.ones(rows.shape[0], dtype=np.bool_)

    def refusals(self, task: TaskInfo, pressures: PressureChecks) -> Mapping[str, int]:
        """No refusals."""
        return {}

    def scores(self, task: TaskInfo, rows: Ints, weights: NodeScoreWeights) -> Floats:
        """Zeros."""
        return np.zeros(rows.shape[0], dtype=np.float64)
