"""Runs of pods beside pods that are nominated to nodes.

A pod must fit on a row with its nominated pods counted, and without them. They are counted by the
filters only, and placing pods only takes room. So a row where a class does not fit beside them is
closed for the whole run, and the kernel scores the other rows as they are. On a row where the class
does fit, the run is kept short enough that it still fits before the last pod of the run.

Source: kube-scheduler v1.36, framework/runtime RunFilterPluginsWithNominatedPods.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from stowplan.columns.array_types import Ints
from stowplan.columns.engine import arrays as at
from stowplan.cycle.engine.class_arrays import ClassArrays
from stowplan.cycle.engine.classes import EnginePodClass
from stowplan.framework import Snapshot
from stowplan.framework.runtime.nominated_pods import NominatedPodsByRow
from stowplan.objects.pod import Pod

AMOUNT_MAX = 2**60
"""Sums of amounts below this stay within 64 bits."""

CLOSED = 2**40
"""Added to the pod count of a closed row: more than any node takes."""

ROWS_PER_POD_MAX = 64
"""With more rows to close than this for each pod of a run, its pods are walked."""


class NominatedRows:
    """Rows with nominated pods, for a run of one class.

    n_pods: length of the run, 0 where its first pod has to be walked. closed: int64, the rows that
    are closed for the run.
    """

    def __init__(self, n_pods: int, closed: Ints) -> None:
        self.n_pods = n_pods
        self.closed = closed

    @classmethod
    def none(cls) -> NominatedRows:
        """The first pod has to be walked."""
        return cls(0, np.zeros(0, dtype=np.int64))

    @classmethod
    def of(
        cls,
        pods: Sequence[Pod],
        classes: Sequence[EnginePodClass],
        snapshot: Snapshot,
        class_arrays: ClassArrays,
    ) -> NominatedRows:
        """For as many of these pods as a kernel can place at once."""
        one = classes[0]
        params = class_arrays.classes[one.number]
        if one.terms or not params[at.HAS_ROOM]:
            return cls.none()
        n_pods = _n_alike(pods, classes, snapshot)
        if n_pods == 0:
            return cls.none()
        nominated = NominatedPodsByRow.of(snapshot, one.pod.priority)
        rows = np.flatnonzero(nominated.pod_count)
        if rows.shape[0] > ROWS_PER_POD_MAX * n_pods:
            return cls.none()
        fitting = _n_fitting(rows, nominated, snapshot, params)
        if fitting is None:
            return cls.none()
        open_rows = fitting > 0
        return cls(min(n_pods, int(fitting[open_rows].min(initial=n_pods))), rows[~open_rows])

    @contextmanager
    def are_closed(self, snapshot: Snapshot, class_arrays: ClassArrays) -> Iterator[None]:
        """Close the rows while a kernel runs."""
        if self.closed.shape[0] == 0:
            yield
            return
        rows = self.closed.tolist()
        pod_count = snapshot.nodes.amounts[3]
        pod_count[self.closed] += CLOSED
        class_arrays.note(rows, self.n_pods)
        try:
            yield
        finally:
            pod_count[self.closed] -= CLOSED
            class_arrays.note(rows, 0)


def _n_alike(pods: Sequence[Pod], classes: Sequence[EnginePodClass], snapshot: Snapshot) -> int:
    """How many of the first pods are of one class and not nominated themselves: a pod does not
    count itself."""
    nominations = snapshot.nominations
    for place, (pod, one) in enumerate(zip(pods, classes, strict=True)):
        if one is not classes[0] or nominations.node_of(pod.uid):
            return place
    return len(pods)


def _n_fitting(
    rows: Ints, nominated: NominatedPodsByRow, snapshot: Snapshot, params: Ints
) -> Ints | None:
    """int64 (n_rows,): how many pods of a class fit beside the nominated ones, 0 or less for none;
    None where amounts may be too large to tell."""
    nodes = snapshot.nodes
    allocatable, requested, _, pod_count = nodes.amounts
    n_fitting: Ints = (
        allocatable[params[at.PODS], rows] - pod_count[rows] - nominated.pod_count[rows]
    )
    cells = params.tolist()
    for place in range(at.WANTED, at.WANTED + 2 * cells[at.N_WANTED], 2):
        item, amount = cells[place : place + 2]
        reserved = nominated.requested(nodes.resources.values[item])[rows]
        free = allocatable[item, rows] - requested[item, rows]
        largest = max(int(np.abs(reserved).max(initial=0)), int(np.abs(free).max(initial=0)))
        if largest > AMOUNT_MAX or int(reserved.min(initial=0)) < 0:
            return None
        n_fitting = np.minimum(n_fitting, (free - reserved) // amount)
    return n_fitting
