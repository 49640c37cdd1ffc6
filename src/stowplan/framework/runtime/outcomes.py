"""Results of extension points made from those of their plugins."""

from __future__ import annotations

import msgspec

from stowplan.columns.array_types import Ints
from stowplan.framework.runtime.registered_plugin import RegisteredPlugin
from stowplan.framework.status import OK, Code, Status, error


class PreFilterOutcome(msgspec.Struct, frozen=True):
    """Combined result of all PreFilters.

    restrict: the remaining node names, None for all. restricted_by: plugins that restricted them.
    """

    status: Status
    restrict: frozenset[str] | None = None
    restricted_by: tuple[str, ...] = ()


def checked_status(point: str, member: RegisteredPlugin, status: Status) -> Status:
    """OK, a rejection with its plugin, or an error that names its origin."""
    if status is OK or status.is_success:
        return OK
    if status.is_rejected:
        return status.by(member.name)
    return error(f'running {point} plugin "{member.name}": {status.message}').by(member.name)


def no_nodes_left(restricting: list[str]) -> PreFilterOutcome:
    """The rejection by PreFilters that restrict the pod to disjoint sets of nodes."""
    names = sorted(restricting)
    text = f"node(s) didn't satisfy plugin {names[0]}"
    if len(names) > 1:
        text = f"node(s) didn't satisfy plugin(s) [{' '.join(names)}] simultaneously"
    status = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (text,))
    return PreFilterOutcome(status, frozenset(), tuple(restricting))


class Scores(msgspec.Struct, frozen=True):
    """Scores of the nodes that passed.

    rows: int64 (n_rows,). raw, final: plugin -> int64 (n_rows,), before and after normalization and
    weighting. total: int64 (n_rows,), sum of the final scores.
    """

    rows: Ints
    raw: dict[str, Ints]
    final: dict[str, Ints]
    total: Ints
