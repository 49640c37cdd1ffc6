"""ClassFitCheck: compares the needs of many classes with the free amounts of all rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stowplan.columns.engine import arrays as at
from stowplan.columns.pods.podterms import ExistingPodTerms
from stowplan.cycle.engine.class_arrays import ClassArrays
from stowplan.cycle.engine.classes import EnginePodClass
from stowplan.framework import Snapshot

NOT_ASKED = np.iinfo(np.int64).min
"""A free amount that every row satisfies."""


class ClassFitCheck:
    """See `FitCheck`. All classes have a plan with ResourceFit and no terms."""

    def __init__(
        self,
        classes: Sequence[EnginePodClass],
        class_arrays: ClassArrays,
        snapshot: Snapshot,
    ) -> None:
        self._nodes = snapshot.nodes
        self._static_revision = static_revision_of(snapshot)
        # Preemption helps the pod of the highest priority most.
        self._highest_priority = max(classes, key=lambda one: one.pod.priority)
        params = class_arrays.classes[[one.number for one in classes]]
        self._pods_item = int(params[0, at.PODS])
        wanted = [
            {
                int(row[at.WANTED + 2 * i]): int(row[at.WANTED + 2 * i + 1])
                for i in range(int(row[at.N_WANTED]))
            }
            for row in params
        ]
        self._items = np.array(sorted({item for one in wanted for item in one}), dtype=np.int64)
        # int64 (n_classes, n_items): base units.
        self._wanted = np.array(
            [[one.get(item, NOT_ASKED) for item in self._items.tolist()] for one in wanted],
            dtype=np.int64,
        ).reshape(len(classes), len(self._items))
        self._passes: NDArray[np.bool_] = class_arrays.passes(params[:, at.STATIC])

    def hold(self, snapshot: Snapshot) -> bool:
        """See `FitCheck.hold`."""
        one = self._highest_priority
        if static_revision_of(snapshot) != self._static_revision:
            return False
        members = one.framework.at("postFilter")
        return not any(member.may_help(one.pod, snapshot) for member in members)

    def may_fit(self, rows: Sequence[int] | None) -> NDArray[np.bool_]:
        """See `FitCheck.may_fit`."""
        nodes = self._nodes
        those = np.arange(nodes.n_nodes) if rows is None else np.array(rows, dtype=np.int64)
        allocatable, requested, _, pod_count = nodes.amounts
        cells = np.ix_(self._items, those)
        free = allocatable[cells] - requested[cells]
        enough: NDArray[np.bool_] = self._wanted[:, :, None] <= free
        fits = np.logical_and.reduce(enough, axis=1)
        fits &= self._passes[:, those]
        fits &= pod_count[those] < allocatable[self._pods_item, those]
        found: NDArray[np.bool_] = fits.any(axis=1)
        return found


def fit_check_of(
    classes: Sequence[EnginePodClass],
    class_arrays: ClassArrays,
    snapshot: Snapshot,
) -> ClassFitCheck | None:
    """Build the fit check of these classes; None if a class has no plan with resource needs."""
    if not classes or not all(
        one.is_fast and not one.terms and one.claims is None for one in classes
    ):
        return None
    if not class_arrays.classes[[one.number for one in classes], at.HAS_ROOM].all():
        return None
    return ClassFitCheck(classes, class_arrays, snapshot)


def static_revision_of(snapshot: Snapshot) -> tuple[int, ...]:
    """Revision token; changes with anything but free amounts and pods on nodes, unless those pods
    add new terms."""
    nodes = snapshot.nodes
    return (
        id(nodes),
        nodes.shape,
        snapshot.object_store.version,
        ExistingPodTerms.of(nodes).n_entered,
    )
