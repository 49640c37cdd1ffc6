"""Filter, score and reserve by the devices that nodes register in one of the conventions.

The work of the plugin GpuShare for pods whose requests are limits or annotations of Volcano vGPU,
HAMi, Aliyun gpushare or KAI.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from stowplan.columns.array_types import Bools, Ints
from stowplan.columns.column_cache import ColumnCache
from stowplan.framework import (
    OK,
    NodeInfo,
    NodeTable,
    Pod,
    PodInfo,
    Rows,
    Snapshot,
    Status,
    unresolvable,
    unschedulable,
)
from stowplan.objects.devices.gpu_cards import MILLI_KEY, CardState, GpuShareRequest
from stowplan.plugins.gpu_share.conventions import CONVENTIONS, KAI_NAMES
from stowplan.plugins.gpu_share.conventions.convention import BindingNotes, Convention
from stowplan.plugins.gpu_share.conventions.device_ledger import DeviceLedger, NodeReport
from stowplan.plugins.gpu_share.conventions.gpu_devices import (
    DeviceRequest,
    NodeDevices,
)
from stowplan.plugins.gpu_share.conventions.gpu_links import LinkRows
from stowplan.plugins.gpu_share.conventions.mixed_nodes import (
    gpu_sources,
    has_nodes_by_milli,
    is_by_milli,
    mixed_problem,
    requests_counted_gpus,
)

FITS = 0
NO_SUCH_DEVICES, TOO_LITTLE_LEFT, NOT_REGISTERED, UNUSABLE, SEVERAL = range(11, 16)
BY_MILLI, UNKNOWN_CARDS = 16, 17
REFUSALS = {
    NO_SUCH_DEVICES: unresolvable("node(s) had too few GPUs that the pod accepts"),
    TOO_LITTLE_LEFT: unschedulable("node(s) had too little left on their GPUs"),
    NOT_REGISTERED: unresolvable("node(s) had no GPUs of the convention that the pod asks by"),
    UNUSABLE: unresolvable("node(s) had an invalid registration of GPUs"),
    SEVERAL: unresolvable("node(s) had the same GPUs registered by several conventions"),
    BY_MILLI: unresolvable("node(s) had GPUs that are given by milli, not by count"),
    UNKNOWN_CARDS: unschedulable("node(s) had pods on GPUs that the kubelet has chosen"),
}


class DeviceAttempt(msgspec.Struct, frozen=True):
    """The requests of a pod, by name of the convention, and where devices are looked up.

    key: equal for pods with equal requests.
    """

    requests: dict[str, DeviceRequest]
    conventions: tuple[Convention, ...]
    ledger: DeviceLedger
    nodes: NodeTable
    cpu_milli: int

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for pods with equal requests."""
        return (*self.requests.values(), self.cpu_milli)

    @property
    def is_count(self) -> bool:
        """True where the request is a number of whole devices on nodes of no convention."""
        return all(one.is_count_elsewhere for one in self.requests.values())

    def verdicts(self, rows: Rows) -> Ints:
        """int64 (n_rows,): `verdict` of each row."""
        numbers = np.arange(self.nodes.n_nodes)[rows].tolist()
        found = [self.verdict(self.nodes.info(row)) for row in numbers]
        return np.array(found, dtype=np.int64)

    def has_devices(self) -> Bools:
        """bool (n_nodes,): nodes that report devices in any of the conventions; read-only."""

        def evaluate(rows: Rows) -> Bools:
            # Most nodes report none; what they report is read for those that are looked at.
            nodes = self.nodes.nodes
            numbers = np.arange(self.nodes.n_nodes)[rows].tolist()
            found = [
                any(one.report(nodes[row]) is not None for one in self.conventions)
                for row in numbers
            ]
            return np.array(found, dtype=np.bool_)

        names = tuple(one.name for one in self.conventions)
        found: Bools = ColumnCache.of(self.nodes).of_nodes(
            ("has devices", names), self.nodes, evaluate
        )
        return found

    def verdict(self, node: NodeInfo) -> int:
        """FITS, or the reason of the refusal."""
        found = self.ledger.report(node, self.conventions)
        convention = found.only
        if len(found.conventions) > 1 or mixed_problem(node.node):
            return SEVERAL
        if (convention is None or convention.name in KAI_NAMES) and is_by_milli(node.node):
            # The kubelet, or KAI's binder, would choose a card that has parts by milli.
            return BY_MILLI if self.is_count else SEVERAL
        request = None if convention is None else self.requests.get(convention.name)
        if convention is None or request is None:
            return FITS if self.is_count else NOT_REGISTERED
        if found.report.problem:
            return UNUSABLE
        if self.ledger.devices(node, convention, found.report).place(request) is not None:
            return FITS
        can_ever = NodeDevices(found.report).place(request) is not None
        return TOO_LITTLE_LEFT if can_ever else NO_SUCH_DEVICES

    def on_cards(self, node: NodeInfo) -> tuple[CardState, GpuShareRequest] | None:
        """The node and the request in thousandths of a card, as policies see them; None for a node
        without registered devices."""
        found = self.ledger.report(node, self.conventions)
        if found.only is None or found.report.problem:
            return None
        devices = self.ledger.devices(node, found.only, found.report)
        request = self.requests.get(found.only.name)
        cards = GpuShareRequest(self.cpu_milli)
        if request is not None and devices.devices:
            milli = request.milli_on(devices.devices[0].memory)
            cards = GpuShareRequest(self.cpu_milli, request.count, milli)
        return self._state(node, devices, found), cards

    def _state(self, node: NodeInfo, devices: NodeDevices, found: NodeReport) -> CardState:
        assert found.only is not None
        kinds: dict[str, int] = {}
        memory = devices.devices[0].memory if devices.devices else 0
        for info in node.pods:
            request = found.only.request(info.pod)
            if request is not None:
                kind = GpuShareRequest(0, request.count, request.milli_on(memory)).kind
                if kind is not None:
                    kinds[kind] = kinds.get(kind, 0) + 1
        capacity = node.allocatable.get("cpu", 0)
        left = capacity - node.requested.get("cpu", 0)
        model = devices.devices[0].model if devices.devices else ""
        return CardState(capacity, left, devices.milli_left(), model, kinds)

    def reserve(self, pod: Pod, node_name: str, *, most_left: bool) -> BindingNotes | Status | None:
        """Choose devices for a pod on a node: what goes onto the pod with its binding; a refusal
        where they do not suffice; None on a node where the pod has no devices to choose.

        most_left: the devices with the most memory left first, else those with the least.
        """
        row = self.nodes.row(node_name)
        if row < 0:
            return REFUSALS[NOT_REGISTERED]
        node = self.nodes.info(row)
        found = self.ledger.report(node, self.conventions)
        convention = found.only
        request = None if convention is None else self.requests.get(convention.name)
        if convention is None or request is None:
            return None if self.is_count else REFUSALS[NOT_REGISTERED]
        devices = self.ledger.devices(node, convention, found.report, pod.uid)
        given = self.ledger.chosen.get(pod.uid)
        if given is None or not devices.has_left(given, request):
            given = devices.place(request, _order(devices, most_left=most_left))
        if given is None:
            return REFUSALS[TOO_LITTLE_LEFT]
        self.ledger.reserve(pod.uid, row, given)
        return convention.notes(pod, request, given, node.node)

    def linked_on(
        self, node: NodeInfo
    ) -> tuple[LinkRows, tuple[str, ...], list[tuple[int, ...]]] | None:
        """Links and ids of a node's devices, and those that each container with several would get;
        None on a node that registers none, no links, or too few that are free."""
        found = self.ledger.report(node, self.conventions)
        request = None if found.only is None else self.requests.get(found.only.name)
        if found.only is None or request is None or not found.report.links:
            return None
        given = self.ledger.devices(node, found.only, found.report).place(request)
        if given is None:
            return None
        ids = tuple(device.id for device in found.report.devices)
        places = {name: index for index, name in enumerate(ids)}
        chosen = [tuple(places[one.id] for one in some) for some in given if len(some) > 1]
        return found.report.links, ids, chosen

    def unreserve(self, pod: Pod, node_name: str) -> None:
        """Take the devices back."""
        self.ledger.unreserve(pod.uid, self.nodes.row(node_name))

    def explain(self, node: NodeInfo) -> list[str]:
        """What the pod needs, and what is left of each device."""
        found = self.ledger.report(node, self.conventions)
        problem = mixed_problem(node.node)
        if problem:
            return [problem]
        if len(found.conventions) > 1:
            labels = " and ".join(one.label for one in found.conventions)
            return [f"gpus: given by {labels}; parts would be given twice"]
        if (found.only is None or found.only.name in KAI_NAMES) and is_by_milli(node.node):
            sources = " and ".join(gpu_sources(node.node))
            return [f"gpus: {sources}; the kubelet would choose a card that pods have parts of"]
        if found.only is None:
            return []
        if found.report.problem:
            return [f"gpus: {found.report.problem}"]
        request = self.requests.get(found.only.name)
        devices = self.ledger.devices(node, found.only, found.report)
        lines = []
        for part in () if request is None else request.containers:
            for device in devices.devices:
                why = devices.refusal(device, part, request) if request is not None else ""
                left = device.memory - devices.use_of(device).memory
                lines.append(
                    f"gpu {device.id}: needs {part.memory_on(device)} MiB, {part.cores} % cores, "
                    f"left {left} MiB: {why or 'fits'}"
                )
        return lines


def device_attempt(
    pod: Pod, snapshot: Snapshot, conventions: Sequence[Convention]
) -> DeviceAttempt | Status | None:
    """What a pod requests in these conventions; None for nothing, a refusal if it is wrong.

    Differs: Volcano and HAMi read a request that makes no sense as no request.
    """
    requests = requests_of(pod, conventions)
    if not requests:
        is_count = requests_counted_gpus(pod) and has_nodes_by_milli(snapshot.nodes)
        return attempt_of(pod, snapshot, conventions, requests) if is_count else None
    parts = [CONVENTIONS[name] for name, one in requests.items() if not one.is_count_elsewhere]
    labels = [one.label for one in parts]
    if MILLI_KEY in pod.metadata.annotations and parts:
        labels.append(f"annotation {MILLI_KEY}")
    if len(labels) > 1:
        return unresolvable(
            f"pod requests parts of GPUs by {' and by '.join(labels)}, one is allowed"
        )
    problem = next((requests[one.name].problem for one in parts if requests[one.name].problem), "")
    if problem:
        return unresolvable(f"pod requests GPUs that cannot be: {problem}")
    if not parts and MILLI_KEY in pod.metadata.annotations:
        # Parts by milli that are whole devices for others.
        return None
    return attempt_of(pod, snapshot, conventions, requests)


def attempt_of(
    pod: Pod,
    snapshot: Snapshot,
    conventions: Sequence[Convention],
    requests: dict[str, DeviceRequest] | None = None,
) -> DeviceAttempt:
    """The attempt of a pod, also of one without requests."""
    if requests is None:
        requests = requests_of(pod, conventions)
    cpu_milli, _ = PodInfo.of(pod).footprint.nonzero
    ledger = DeviceLedger.of(snapshot.nodes)
    return DeviceAttempt(requests, tuple(conventions), ledger, snapshot.nodes, cpu_milli)


def requests_of(pod: Pod, conventions: Sequence[Convention]) -> dict[str, DeviceRequest]:
    """The requests of a pod by name of the convention."""
    found = ((one.name, one.request(pod)) for one in conventions)
    return {name: request for name, request in found if request is not None}


def refusal(code: int) -> Status:
    """The status of a verdict."""
    return OK if code == FITS else REFUSALS[code]


def _order(devices: NodeDevices, *, most_left: bool) -> list[int]:
    left = devices.memory_left()
    sign = -1 if most_left else 1
    return sorted(range(len(left)), key=lambda index: (sign * left[index], index))
