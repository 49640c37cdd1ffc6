"""predicates: which nodes a task may run on.

The pod count of nodes is checked here, from the session's state; all other checks are session
rules.

Source: kube-batch v0.5, plugins/predicates.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from stowplan.batch.session import Session, SessionPlugin
from stowplan.batch.session_rules import PressureChecks
from stowplan.batch.state.jobs import TaskInfo
from stowplan.framework.deciders.session_arguments import boolean

MEMORY_PRESSURE = "predicate.MemoryPressureEnable"
DISK_PRESSURE = "predicate.DiskPressureEnable"
PID_PRESSURE = "predicate.PIDPressureEnable"


class PredicatesPlugin(SessionPlugin):
    """A conjunction of rules."""

    name = "predicates"

    def __init__(self, arguments: Mapping[str, str]) -> None:
        super().__init__(arguments)
        self.pressures = PressureChecks(
            memory=boolean(arguments, MEMORY_PRESSURE, default=False),
            disk=boolean(arguments, DISK_PRESSURE, default=False),
            pid=boolean(arguments, PID_PRESSURE, default=False),
        )

    def on_open(self, session: Session) -> None:
        """Register the predicate."""
        self._session_state = session.state
        session.hooks.register(
            "predicate", self.name, self.passing, row_kind=session.state.rules.row_kind
        )

    def passing(self, task: TaskInfo, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """bool (n_rows,): rows that may take one more pod, and this one."""
        nodes = self._session_state.nodes
        has_slot = nodes.pod_count[rows] < nodes.pod_limit[rows]
        return has_slot & self._session_state.rules.passing(task, rows, self.pressures)
