"""One row for each built-in kind: where it is served, its rules, its table.

Source: kubernetes v1.36, pkg/registry; discovery as recorded.
"""

from __future__ import annotations

from collections.abc import Iterable

from stowplan.apis.kind.registration import KindRegistration
from stowplan.apiserver.core_kinds import core_kinds
from stowplan.apiserver.group_kinds import group_kinds


def builtin_kinds() -> Iterable[KindRegistration]:
    """Every row; order does not matter."""
    yield from core_kinds()
    yield from group_kinds()
