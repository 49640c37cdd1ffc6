"""PredicateFailures: nodes that did not pass the predicates, by job and role."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stowplan.batch.queue_models.volcano.pod_rules import PASSES, UNRESOLVABLE
from stowplan.batch.queue_models.volcano.volcano_node import VolcanoNode
from stowplan.batch.queue_models.volcano.volcano_task import VolcanoTask
from stowplan.columns.array_types import Ints


class PredicateFailures:
    """Nodes that did not pass, by job and role: tasks of a role are alike."""

    def __init__(self, nodes: Sequence[VolcanoNode], *, keeps: bool = True) -> None:
        """nodes: all of the session. keeps: False forgets them between calls."""
        self._nodes = nodes
        self._keeps = keeps
        self._codes: dict[tuple[str, str], Ints] = {}
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
        if not self._keeps or not task.role or not codes.any():
            return
        key = task.job, task.role
        if key not in self._codes:
            self._codes[key] = np.full(len(self._nodes), PASSES, dtype=np.int64)
        failed = codes != PASSES
        self._codes[key][places[failed]] = codes[failed]

    def unresolvable(self) -> frozenset[str]:
        """Nodes of the latest call on which evictions could not help."""
        places, codes = self._last
        found = places[codes == UNRESOLVABLE].tolist()
        return frozenset(self._nodes[place].name for place in found)
