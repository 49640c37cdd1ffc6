"""Devices of nodes and what the pods on them have, followed by delta.

The devices of a pod are those of its annotation, else those that Reserve chose for it. For a pod
with neither, devices are assumed: those with the least memory left that suffice, after all known
ones and in the order of the pods' uids, so that they depend on no history.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from stowplan.columns.nodetable import NodeTable
from stowplan.columns.pods.table_watcher import TableWatcher
from stowplan.framework import NodeInfo, PodInfo
from stowplan.objects.devices.gpu_cards import ASSUME_TIME_KEY, INDEX_KEY
from stowplan.objects.node import Node
from stowplan.plugins.gpu_share.conventions import CONVENTIONS, KAI_NAMES
from stowplan.plugins.gpu_share.conventions.convention import Convention
from stowplan.plugins.gpu_share.conventions.gpu_devices import (
    DeviceReport,
    DeviceRequest,
    NodeDevices,
    PodShares,
)
from stowplan.plugins.gpu_share.conventions.gpu_links import annotated_links, links_by_socket

CARD_ANNOTATIONS = {INDEX_KEY, ASSUME_TIME_KEY}
"""Annotations of a pod's binding that no convention reads."""


class NodeReport(NamedTuple):
    """What a node reports. conventions: those that it follows; none for a node without devices.
    report: of the only one, else empty."""

    conventions: tuple[Convention, ...]
    report: DeviceReport

    @property
    def only(self) -> Convention | None:
        """The convention of the node; None if it follows none, or several."""
        return self.conventions[0] if len(self.conventions) == 1 else None


def report_of(node: Node, conventions: Sequence[Convention]) -> NodeReport:
    """What a node reports, in any of these conventions."""
    found = [(one, report) for one in conventions if (report := one.report(node)) is not None]
    report = with_links(node, *found[0]) if len(found) == 1 else DeviceReport()
    return NodeReport(tuple(one for one, _ in found), report)


def with_links(node: Node, convention: Convention, report: DeviceReport) -> DeviceReport:
    """The report with the links of the node's annotation, else those that it has, else those of
    sockets. KAI's cards are chosen by the kubelet, which looks at no links."""
    if convention.name in KAI_NAMES or not report.devices:
        return report
    links, problem = annotated_links(node, len(report.devices))
    links = links or report.links or links_by_socket([one.numa for one in report.devices])
    return replace(report, links=links, links_problem=problem)


class DeviceLedger(TableWatcher):
    """The devices of one node table, kept as its nodes and pods change, in dry runs as well.

    chosen: by uid, what a session has chosen for pods that are about to be bound.
    """

    def __init__(self, table: NodeTable) -> None:
        super().__init__(table)
        self._reports: dict[tuple[str, tuple[str, ...]], tuple[Node, NodeReport]] = {}
        self._reserved: dict[str, PodShares] = {}
        self.chosen: dict[str, PodShares] = {}

    def report(self, node: NodeInfo, conventions: Sequence[Convention]) -> NodeReport:
        """What a node reports, in any of these conventions."""
        names = tuple(one.name for one in conventions)
        known = self._reports.get((node.name, names))
        if known is None or known[0] is not node.node:
            known = node.node, report_of(node.node, conventions)
            self._reports[node.name, names] = known
        return known[1]

    def devices(
        self, node: NodeInfo, convention: Convention, report: DeviceReport, without: str = ""
    ) -> NodeDevices:
        """The devices of a node with the use of its own pods, which a dry run may have changed.

        without: uid of a pod that does not count.
        """
        devices = NodeDevices(report)
        unknown: list[tuple[str, DeviceRequest]] = []
        for info in node.pods:
            request = convention.request(info.pod) if info.uid != without else None
            if request is None or request.problem:
                continue
            given = self.shares_of(info, convention)
            if given is None:
                unknown.append((info.uid, request))
            else:
                devices.add(given, request.group, request.tenant)
        for _, request in sorted(unknown, key=lambda one: one[0]):
            devices.place(request)
        return devices

    def shares_of(self, info: PodInfo, convention: Convention) -> PodShares | None:
        """What a placed pod has; None where it is unknown."""
        given = self._reserved.get(info.uid)
        return convention.shares(info.pod) if given is None else given

    def remember(self, uid: str) -> None:
        """Keep the reservation of a pod as a choice for its binding."""
        if uid in self._reserved:
            self.chosen[uid] = self._reserved[uid]

    def reserve(self, uid: str, row: int, shares: PodShares) -> None:
        """Give devices to a pod that is assumed on a row."""
        self._reserved[uid] = shares
        self._table.journal.touch(row)

    def unreserve(self, uid: str, row: int) -> None:
        """Take them back."""
        if self._reserved.pop(uid, None) is not None and row >= 0:
            self._table.journal.touch(row)

    # Changes of the table.

    def pod_added(self, row: int, info: PodInfo) -> None:
        """Forget what was reserved once the pod is bound, or has its devices."""
        self._forget(row, info)
        if info.pod.metadata.annotations:
            # The table does not count a change of annotations as one.
            self._table.journal.touch(row)

    def pod_replaced(self, row: int, before: PodInfo, after: PodInfo) -> None:
        """As `pod_added`, where another annotation than those of cards has changed."""
        self._forget(row, after)
        old, new = before.pod.metadata.annotations, after.pod.metadata.annotations
        if not {key for key, _ in old.items() ^ new.items()} <= CARD_ANNOTATIONS:
            self._table.journal.touch(row)

    def _forget(self, row: int, info: PodInfo) -> None:
        given = self._reserved.get(info.uid)
        # Where the watch shows no devices another client has bound the pod.
        if given is not None and (
            info.pod.node_name
            or any(one.shares(info.pod) is not None for one in CONVENTIONS.values())
        ):
            del self._reserved[info.uid]
            self._table.journal.touch(row)

    def pod_removed(self, row: int, info: PodInfo) -> None:
        """Nothing: a node is read by its pods."""

    def row_added(self, row: int) -> None:
        """Nothing: nodes are read when they are asked for."""

    def row_moved(self, source: int, target: int) -> None:
        """Nothing, as for `row_added`."""

    def row_dropped(self, row: int) -> None:
        """Nothing, as for `row_added`."""
