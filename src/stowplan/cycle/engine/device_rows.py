"""Device rows: which rows serve the claims of a class, written into the rows that its static rules
pass. Claims of volumes that wait for their first consumer are served alike.

What is free on a row changes when one of its devices is taken or given back. Then the row is
asked again for each class with claims, and logged, so that the kernels evaluate it again.

Between two such times kernels count: a class whose rows say how many of its pods they serve, one
after the other, has a term about the row with a count that each placed pod raises, and which is
above 0 once the row serves no more. Pods of classes that count alike are placed by one call.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stowplan.columns import NodeTable
from stowplan.columns.array_types import Bools, Ints
from stowplan.columns.engine import arrays as at
from stowplan.cycle.engine.class_arrays import ClassArrays
from stowplan.cycle.engine.classes import EnginePodClass
from stowplan.framework import CycleState
from stowplan.framework.deciders.kernel_terms import DeviceClaims, DeviceTerms
from stowplan.objects.pod import Pod

COUNTED_CLASSES_MAX = 64
"""Classes whose pods are counted: each adds to the counts of all."""

_NEVER = -(1 << 40)
"""A count that no number of pods raises above 0."""


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
    """The classes with claims of one type of one node table."""

    def __init__(self, class_arrays: ClassArrays, nodes: NodeTable) -> None:
        self._class_arrays = class_arrays
        self._nodes = nodes
        self._classes: dict[EnginePodClass, ClassDevices] = {}
        # By class that is counted: its term.
        self._counted: dict[EnginePodClass, int] = {}
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
        if not self.follow():
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

    def count(self, one: EnginePodClass) -> None:
        """Add the term of a class that was added and has its number, if it can be counted."""
        devices, arrays = self._classes.get(one), self._class_arrays
        if devices is None or devices.scored >= 0 or len(self._counted) >= COUNTED_CLASSES_MAX:
            return
        n_fitting = devices.claims.n_fitting(self._nodes, np.arange(self._nodes.n_nodes))
        if n_fitting is None:
            return
        key, term = arrays.row_key(), arrays.add_term(self._nodes.n_nodes)
        arrays.terms[term, [at.KIND, at.KEY, at.MASK]] = at.APART, key, -1
        arrays.counted(term)[:] = 1 - n_fitting
        arrays.add_effect(one.number, term, 1)
        for other, other_term in self._counted.items():
            arrays.add_effect(one.number, other_term, 1)
            arrays.add_effect(other.number, term, 1)
        self._counted[one] = term

    def n_together(self, classes: Sequence[EnginePodClass]) -> int:
        """How many of the first pods a kernel can place in one call. classes: of the pods, the
        first with claims."""
        first = classes[0]
        if first not in self._counted:
            return 1
        alike = {first}
        for place, one in enumerate(classes):
            if one in alike or one not in self._classes:
                continue
            if one not in self._counted:
                return place
            if not self._classes[first].claims.is_alike(self._classes[one].claims):
                return place
            alike.add(one)
        return len(classes)

    def n_own(self, pods: Sequence[Pod], classes: Sequence[EnginePodClass]) -> int:
        """How many of the first pods have claims as their classes read them, each its own. classes:
        of the pods."""
        taken: set[Hashable] = set()
        for place, (pod, one) in enumerate(zip(pods, classes, strict=True)):
            devices = self._classes.get(one)
            if devices is not None and not devices.claims.are_own(pod, taken):
                return place
        return len(pods)

    def follow(self, placed: Sequence[int] = ()) -> bool:
        """Ask the rows whose devices have changed again; False where one needs an answer of its
        own. placed: the last rows in the log."""
        first = next(iter(self._classes.values()), None)
        if first is None:
            return True
        states = first.claims.states(self._nodes)
        if states.shape != self._known.shape:
            return False
        is_same = states is self._source
        changed = np.flatnonzero(states != self._known) if is_same else np.arange(states.shape[0])
        self._source = states
        if len(self._counted) > 1:
            self._recount_unchanged(states, placed)
        if not changed.shape[0]:
            return True
        differs = np.zeros(changed.shape[0], dtype=np.bool_)
        for one, devices in self._classes.items():
            admitted = devices.claims.admitted(self._nodes, changed)
            if admitted is None:
                return False
            self._write(one, devices, changed, admitted, differs)
        for one in tuple(self._counted):
            self._recount(one, changed)
        self._known[changed] = states[changed]
        # Where a pool is reached by many nodes, most rows serve what they served before. Rows in
        # the log before the last one may have been evaluated since.
        last = placed[-1] if placed else -1
        others = [row for row in changed[differs].tolist() if row != last]
        if others:
            self._class_arrays.note(others, 0)
        return True

    def _recount_unchanged(self, states: Ints, placed: Sequence[int]) -> None:
        """Count again where a pod of one class has taken nothing, which kernels have counted for
        the others."""
        rows = np.unique(np.array(placed, dtype=np.int64))
        rows = rows[states[rows] == self._known[rows]]
        if rows.shape[0]:
            for one in tuple(self._counted):
                self._recount(one, rows)

    def _recount(self, one: EnginePodClass, changed: Ints) -> None:
        counts = self._class_arrays.counted(self._counted[one])
        n_fitting = self._classes[one].claims.n_fitting(self._nodes, changed)
        if n_fitting is None:
            counts[:] = _NEVER
            del self._counted[one]
        else:
            counts[changed] = 1 - n_fitting

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

    def states_of(self, rows: Iterable[int]) -> dict[int, int]:
        """By row what is free on it."""
        states = next(iter(self._classes.values())).claims.states(self._nodes)
        return {row: int(states[row]) for row in rows}

    def drop_all(self) -> list[EnginePodClass]:
        """Forget the classes; returns them."""
        dropped = list(self._classes)
        self._classes.clear()
        self._counted.clear()
        return dropped

    def reserve(self, one: EnginePodClass, pod: Pod, row: int, free: dict[int, int]) -> CycleState:
        """Take devices of the row for a pod; returns the state of its binding cycle. free: states
        of rows as by `states_of`, with what was taken since."""
        state = CycleState()
        for name in ("skip_filter", "skip_score", "skip_pre_bind"):
            getattr(state, name).update(getattr(one.state, name))
        free[row] = self._classes[one].claims.reserve(pod, self._nodes.nodes[row], free[row], state)
        return state
