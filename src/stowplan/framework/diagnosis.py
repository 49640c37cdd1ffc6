"""Diagnosis: why an attempt found no node, for PostFilter, the queue and the user.

Source: kube-scheduler v1.36, framework/types Diagnosis and FitError.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from stowplan.columns.array_types import Ints
from stowplan.framework.node_to_status import NodeToStatus
from stowplan.framework.status import Code, Status, unresolvable

NO_NODES = "no nodes available to schedule pods"


class Diagnosis:
    """Rejections of one attempt.

    verdicts: of the evaluated nodes, None when PreFilter rejected the pod. absent: status of all
    other nodes.
    """

    def __init__(
        self, n_nodes: int, absent: Status | None = None, n_reported: int | None = None
    ) -> None:
        """n_reported: number of nodes that users read about, where not all were considered."""
        self.n_nodes = n_nodes
        self.n_reported = n_nodes if n_reported is None else n_reported
        self.absent = unresolvable() if absent is None else absent
        self.verdicts: NodeToStatus | None = None
        # Rejections with their numbers of nodes, where all nodes were evaluated and it is not known
        # which they are.
        self.counted: Sequence[tuple[Status, int]] | None = None
        self.pre_filter_message = ""
        # Reasons given for nodes that do not exist.
        self.astray: tuple[str, ...] = ()
        self._blamed: list[tuple[Code, str]] = []

    def blame(self, plugin: str, code: Code = Code.UNSCHEDULABLE) -> None:
        """Record a plugin that rejected the pod as a whole, or nodes before any filter ran."""
        if plugin:
            self._blamed.append((code, plugin))

    @property
    def plugins(self) -> set[str]:
        """Plugins that rejected something; an event may resolve it."""
        return {plugin for code, plugin in self._refusers() if code != Code.PENDING}

    @property
    def pending(self) -> set[str]:
        """Plugins that returned Pending."""
        return {plugin for code, plugin in self._refusers() if code == Code.PENDING}

    def _refusers(self) -> list[tuple[Code, str]]:
        found = list(self._blamed)
        found += [
            (status.code, status.plugin)
            for status, _ in self._rejections()
            if status.is_rejected and status.plugin
        ]
        return found

    def _rejections(self) -> Sequence[tuple[Status, int]]:
        """Each distinct rejection with its number of nodes."""
        if self.counted is not None:
            return self.counted
        if self.verdicts is None:
            return ()
        return [(status, rows.shape[0]) for status, rows in self.verdicts.refusals()]

    def status_of(self, row: int) -> Status:
        """Why the node of `row` was rejected; OK where it passed."""
        if self.verdicts is not None and (self.verdicts.rows == row).any():
            return self.verdicts.status_of(row)
        return self.absent

    def rows_with(self, code: Code) -> Ints:
        """int64: the rows whose status has this code, ascending."""
        if self.verdicts is None:
            rows = np.arange(self.n_nodes)
            return rows if self.absent.code == code else rows[:0]
        found = np.full(self.n_nodes, self.absent.code == code)
        found[self.verdicts.rows] = False
        for status, rows in self.verdicts.refusals():
            if status.code == code:
                found[rows] = True
        return np.flatnonzero(found)

    def reasons(self) -> dict[str, int]:
        """Reason -> number of nodes."""
        counts: Counter[str] = Counter(self.astray)
        explicit = 0
        for status, n_nodes in self._rejections():
            explicit += n_nodes
            for reason in status.reasons:
                counts[reason] += n_nodes
        if explicit < self.n_reported:
            for reason in self.absent.reasons:
                counts[reason] += self.n_reported - explicit
        return dict(counts)

    def near_misses(self) -> tuple[str, ...]:
        """Reasons of the nodes that evictions could help, sorted; all reasons without such nodes.

        The user of a pending pod wants to know what its eligible nodes lack, not that all other
        nodes are not eligible.
        """
        near = {
            reason
            for status, _ in self._rejections()
            if status.code == Code.UNSCHEDULABLE
            for reason in status.reasons
        }
        return tuple(sorted(near or self.reasons()))

    def text(self, post_filter_message: str = "") -> str:
        """The event message: "0/5 nodes are available: 2 Insufficient cpu, ..." and so on."""
        text = f"0/{self.n_reported} nodes are available:"
        if self.pre_filter_message:
            text += f" {self.pre_filter_message}."
        else:
            # Sorted as strings, so "10 x" comes before "2 y", as in kube-scheduler.
            histogram = sorted(f"{count} {reason}" for reason, count in self.reasons().items())
            if histogram:
                text += f" {', '.join(histogram)}."
        return f"{text} {post_filter_message}" if post_filter_message else text


def single_node_diagnosis(status: Status) -> Diagnosis:
    """The diagnosis of a rejection after a node was chosen (Reserve, Permit): one node."""
    diagnosis = Diagnosis(1, status)
    diagnosis.blame(status.plugin, status.code)
    return diagnosis
