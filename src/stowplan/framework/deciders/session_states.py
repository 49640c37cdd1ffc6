"""Cycle states of the pods that sessions bind."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import numpy as np

from stowplan.framework.cycle_state import CycleState
from stowplan.framework.deciders.session_decider import NodeAssignment
from stowplan.framework.runtime.framework import Framework
from stowplan.framework.snapshot import Snapshot


class SessionCycleStates:
    """Cycle states of one session's pods. Pods of one kind without Reserve or Permit work share
    one."""

    def __init__(self, framework: Framework) -> None:
        self._framework = framework
        self._kept: dict[Hashable, CycleState] = {}
        # Of our own plugins none refuses a pod, or has work to do for it, for its labels.
        self._by_labels = not all(member.in_tree for member in framework.at("preFilter"))

    def clear(self) -> None:
        """Another session begins."""
        self._kept.clear()

    def state_for(self, place: NodeAssignment, current: Callable[[], Snapshot]) -> CycleState | str:
        """Cycle state of a pod for its chosen node; the reason if the node does not fit after all.

        current: returns the current snapshot.
        """
        pod = place.pod
        notes = self._framework.annotations_of(pod)
        labels = frozenset(pod.labels.items()) if self._by_labels else None
        kind = (id(pod.spec), pod.namespace, labels, notes)
        kept = self._kept.get(kind)
        if kept is not None:
            return kept
        snapshot, state = current(), CycleState()
        found = self._framework.run_pre_filter(pod, snapshot, state)
        if not found.status.is_success:
            return found.status.message
        if self._framework.binds_directly(state):
            self._kept[kind] = state
            return state
        rows = np.array([snapshot.nodes.row(place.node)], dtype=np.int64)
        verdict = self._framework.run_filters(pod, snapshot, state, rows).at(0)
        return state if verdict.is_success else verdict.message
