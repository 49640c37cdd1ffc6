"""EqualPriority: every node scores 1.

Source: Kubernetes v1.13, scheduler/core EqualPriorityMap.
"""

from __future__ import annotations

import numpy as np

from stowplan.columns.array_types import Ints
from stowplan.framework import Rows
from stowplan.framework.plugin import Plugin
from stowplan.plugins.arithmetic import n_rows_of


class EqualPriority:
    """Score 1, whatever the node."""

    name = "EqualPriority"
    declaration = Plugin(name=name, reads=())

    def score(self) -> int:
        """1."""
        return 1

    def score_column(self, rows: Rows) -> Ints:
        """int64 (n_rows,): `score` of each row."""
        return np.ones(n_rows_of(rows), dtype=np.int64)
