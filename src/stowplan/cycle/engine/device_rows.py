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
from stowplan.columns.array_types import Bools, Ints
from stowplan.cycle.engine.class_arrays import ClassArrays
from stowplan.cycle.engine.classes import EnginePodClass
from stowplan.framework import CycleState
from stowplan.framework.deciders.kernel_terms import DeviceClaims, DeviceTerms
from stowplan.objects.pod import Pod


class ClassDevices(NamedTuple):
    """One class. static: number of its passing rows. passes: bool (n_nodes,), of its static rules
    alone. admitted, points: of each row, as written; scored: number of the raw score that the
    points are, -1 for none."""

    claims: DeviceClaims
    static: int
    passes: NDArray[np.bool_]
    admitted: NDArray[np.bool_]
    points: Ints
    scored: int


class DeviceRows:
    """The classes with claims of one node table."""

    def __init__(self, class_arrays: ClassArrays, nodes: NodeTable) -> None:
        self._class_arrays = class_arrays
        self._nodes = nodes
        self._classes: dict[EnginePodClass, ClassDevices] = {}
        # States of rows for which the passing rows are written, and the array that they are from:
        # in another one a number may stand for another state.
        self._known: Ints = np.zeros(0, dtype=np.int64)
        self._source = self._known

    def __contains__(self, one: EnginePodClass) -> bool:
        return one in self._classes

    def __bool__(self) -> bool:
        return bool(self._classes)

    def add(self, one: EnginePodClass, terms: DeviceTerms, static: int, scored: int) -> int | None:
        """Add a class whose static rules are those of this number; returns the number of those with
        its devices, None where nodes need answers of their own. scored: number of the raw score
        that the points of rows become, -1 where they do not count."""
        if not self.follow(-1):
            return None
        claims, nodes = terms.claims, self._nodes
        states = claims.states(nodes)
        everything = np.arange(nodes.n_nodes)
        admitted = claims.admitted(nodes, everything)
        if admitted is None:
            return None
        if not self._classes:
            self._known, self._source = states.copy(), states
        passes = self._class_arrays.passes(np.array([static]))[0]
        number = self._class_arrays.add_static_like(static, passes & admitted)
        points = np.zeros(nodes.n_nodes, dtype=np.int64)
        if scored >= 0:
            points = np.where(admitted, claims.points(nodes, everything), 0)
            self._class_arrays.write_raw(number, scored, everything, points)
        self._classes[one] = ClassDevices(claims, number, passes, admitted.copy(), points, scored)
        return number

    def follow(self, placed: int) -> bool:
        """Ask the rows whose devices have changed again; False where one needs an answer of its
        own. placed: a row that is in the log already, -1 for none."""
        first = next(iter(self._classes.values()), None)
        if first is None:
            return True
        states = first.claims.states(self._nodes)
        if states.shape != self._known.shape:
            return False
        is_same = states is self._source
        changed = np.flatnonzero(states != self._known) if is_same else np.arange(states.shape[0])
        self._source = states
        if not changed.shape[0]:
            return True
        differs = np.zeros(changed.shape[0], dtype=np.bool_)
        for one, devices in self._classes.items():
            admitted = devices.claims.admitted(self._nodes, changed)
            if admitted is None:
                return False
            self._write(one, devices, changed, admitted, differs)
        self._known[changed] = states[changed]
        # Where a pool is reached by many nodes, most rows serve what they served before.
        others = [row for row in changed[differs].tolist() if row != placed]
        if others:
            self._class_arrays.note(others, 0)
        return True

    def _write(
        self,
        one: EnginePodClass,
        devices: ClassDevices,
        changed: Ints,
        admitted: Bools,
        differs: Bools,
    ) -> None:
        """Write what changed rows answer to a class; marks in `differs` those that pass now or no
        longer."""
        arrays = self._class_arrays
        differs |= admitted != devices.admitted[changed]
        devices.admitted[changed] = admitted
        arrays.write_passes(devices.static, changed, devices.passes[changed] & admitted)
        if devices.scored < 0:
            return
        points = np.where(admitted, devices.claims.points(self._nodes, changed), 0)
        if (points != devices.points[changed]).any():
            devices.points[changed] = points
            arrays.write_raw(devices.static, devices.scored, changed, points)
            arrays.evaluate_again(one.number)

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
