"""Device rows: which rows serve the claims of a class, written into the rows that its static rules
pass.

What is free on a row changes when one of its devices is taken or given back. Then the row is
asked again for each class with claims, and logged, so that the kernels evaluate it again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stowplan.columns import NodeTable
from stowplan.columns.array_types import Ints
from stowplan.cycle.engine.class_arrays import ClassArrays
from stowplan.cycle.engine.classes import EnginePodClass
from stowplan.framework import CycleState
from stowplan.framework.deciders.kernel_terms import DeviceClaims
from stowplan.objects.pod import Pod


class ClassDevices(NamedTuple):
    """One class. static: number of its passing rows. passes: bool (n_nodes,), of its static rules
    alone."""

    claims: DeviceClaims
    static: int
    passes: NDArray[np.bool_]


class DeviceRows:
    """The classes with claims of one node table."""

    def __init__(self, class_arrays: ClassArrays, nodes: NodeTable) -> None:
        self._class_arrays = class_arrays
        self._nodes = nodes
        self._classes: dict[EnginePodClass, ClassDevices] = {}
        # States of rows for which the passing rows are written.
        self._known: Ints = np.zeros(0, dtype=np.int64)

    def __contains__(self, one: EnginePodClass) -> bool:
        return one in self._classes

    def __bool__(self) -> bool:
        return bool(self._classes)

    def add(self, one: EnginePodClass, claims: DeviceClaims, static: int) -> int | None:
        """Add a class whose static rules are those of this number; returns the number of those with
        its devices, None where nodes need answers of their own."""
        if not self.follow(-1):
            return None
        states = claims.states(self._nodes)
        everything = np.arange(self._nodes.n_nodes)
        admitted = None if states is None else claims.admitted(self._nodes, everything)
        if states is None or admitted is None:
            return None
        if not self._classes:
            self._known = states.copy()
        passes = self._class_arrays.passes(np.array([static]))[0]
        number = self._class_arrays.add_static_like(static, passes & admitted)
        self._classes[one] = ClassDevices(claims, number, passes)
        return number

    def follow(self, placed: int) -> bool:
        """Ask the rows whose devices have changed again; False where one needs an answer of its
        own. placed: a row that is in the log already, -1 for none."""
        first = next(iter(self._classes.values()), None)
        if first is None:
            return True
        states = first.claims.states(self._nodes)
        if states is None or states.shape != self._known.shape:
            return False
        changed = np.flatnonzero(states != self._known)
        if not changed.shape[0]:
            return True
        for one in self._classes.values():
            admitted = one.claims.admitted(self._nodes, changed)
            if admitted is None:
                return False
            self._class_arrays.write_passes(one.static, changed, one.passes[changed] & admitted)
        self._known[changed] = states[changed]
        others = [row for row in changed.tolist() if row != placed]
        if others:
            self._class_arrays.note(others, 0)
        return True

    def drop_all(self) -> list[EnginePodClass]:
        """Forget the classes; returns them."""
        dropped = list(self._classes)
        self._classes.clear()
        return dropped

    def reserve(self, one: EnginePodClass, pod: Pod, row: int) -> CycleState:
        """Take devices of the row for a pod; returns the state of its binding cycle."""
        state = CycleState()
        for name in ("skip_filter", "skip_score", "skip_pre_bind"):
            getattr(state, name).update(getattr(one.state, name))
        self._classes[one].claims.reserve(pod, self._nodes, row, state)
        return state
