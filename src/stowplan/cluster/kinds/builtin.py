"""One row for each built-in kind: where it is served, its rules, its table.

Source: kubernetes v1.36, pkg/registry; discovery as recorded.
"""

from __future__ import annotations

from collections.abc import Iterable

from stowplan.cluster.kinds.corerows import core_rows
from stowplan.cluster.kinds.grouprows import group_rows
from stowplan.cluster.kinds.rows import Row


def rows() -> Iterable[Row]:
    """Every row; order does not matter."""
    yield from core_rows()
    yield from group_rows()
