"""PredicateFailures: nodes that did not pass the predicates, by job and role."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

import numpy as np

from stowplan.batch.queue_models.volcano.pod_rules import PASSES, UNRESOLVABLE
from stowplan.batch.queue_models.volcano.volcano_node import VolcanoNode
from stowplan.batch.queue_models.volcano.volcano_task import VolcanoTask
from stowplan.columns.array_types import Ints

TaskKind = tuple[Hashable, int]
"""Kind of a pod, and the identity of its request."""


class PredicateFailures:
    """Nodes that did not pass, by job and role: tasks of a role are alike."""

    def __init__(self, nodes: Sequence[VolcanoNode], *, keeps: bool = True) -> None:
        """nodes: all of the session. keeps: False forgets them between calls."""
        self._nodes = nodes
        self._keeps = keeps
        self._codes: dict[tuple[str, str], Ints] = {}
        # Roles that were asked about: the kind that came first, and whether all tasks are of it.
        self._first: dict[tuple[str, str], TaskKind] = {}
        self._is_alike: dict[tuple[str, str], bool] = {}
        none = np.zeros(0, dtype=np.int64)
        # Places that were asked about last, and their codes.
        self._last: tuple[Ints, Ints] = none, none

    def of(self, task: VolcanoTask) -> Ints | None:
        """int64 (n_nodes,): a code per node of the session, PASSES for an unknown one; None for a
        task without a role, or of which nothing is known."""
        if not self._keeps or not task.role:
            return None
        return self._codes.get((task.job, task.role))

    def record(self, task: VolcanoTask, places: Ints, codes: Ints) -> None:
        """Record what was found at these places of the session."""
        self._last = places, codes
        key = task.job, task.role
        self._first.setdefault(key, _kind_of(task))
        if not self._keeps or not task.role or not codes.any():
            return
        if key not in self._codes:
            self._codes[key] = np.full(len(self._nodes), PASSES, dtype=np.int64)
        failed = codes != PASSES
        self._codes[key][places[failed]] = codes[failed]

    def would_not_change(self, task: VolcanoTask, others: Iterable[VolcanoTask]) -> bool:
        """True if asking about the task records nothing that matters to it or to others: tasks of
        its role were asked about, and all are alike. others: tasks that are still to be asked
        about."""
        if not self._keeps or not task.role:
            return True
        key = task.job, task.role
        if key not in self._first:
            return False
        if key not in self._is_alike:
            kinds = {_kind_of(one) for one in (task, *others) if one.role == task.role}
            self._is_alike[key] = kinds == {self._first[key]}
        return self._is_alike[key]

    def unresolvable(self) -> frozenset[str]:
        """Nodes of the latest call on which evictions could not help."""
        places, codes = self._last
        found = places[codes == UNRESOLVABLE].tolist()
        return frozenset(self._nodes[place].name for place in found)


def _kind_of(task: VolcanoTask) -> TaskKind:
    return task.kind, id(task.request)
