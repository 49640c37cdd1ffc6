"""What device plugins of simulated nodes give to pods: the GPU cards that their annotations name.

A kubelet asks before it admits a pod. The answer depends on the pod's annotations, the node and the
pods that were admitted, and on nothing that a scheduler has counted.

Differs: device plugins of Volcano, HAMi and Aliyun look for a pod that waits for as many devices
as the kubelet asks for; here it is the pod that is admitted. The annotations of open-gpu-share are
read by no device plugin; a pod whose cards they name gets these, a pod without is admitted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from stowplan.framework import NodeInfo, PodInfo
from stowplan.objects.devices.card_reservation import DEVICE_ID_KEY, reserved_card
from stowplan.objects.devices.gpu_cards import CARD_MILLI, MILLI_KEY
from stowplan.objects.devices.node_lock import is_released_by, lock_texts
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.plugins.gpu_share.card_ledger import gpu_node_of, gpu_request_of
from stowplan.plugins.gpu_share.conventions import (
    CONVENTIONS,
    KAI_NAMES,
    aliyun_gpu_mem,
    hami,
    kai_fractions,
    volcano_vgpu,
)
from stowplan.plugins.gpu_share.conventions.convention import Convention
from stowplan.plugins.gpu_share.conventions.device_ledger import NodeReport, report_of
from stowplan.plugins.gpu_share.conventions.gpu_devices import DeviceReport, GpuDevice
from stowplan.plugins.gpu_share.conventions.mixed_nodes import mixed_problem

DEVICE_PLUGINS = (volcano_vgpu.CONVENTION, hami.CONVENTION, aliyun_gpu_mem.CONVENTION)
"""Conventions whose device plugins register GPUs; what they register counts before KAI's."""
NODE_ANNOTATIONS = {"volcano": volcano_vgpu.NODE, "hami": hami.NODE}
"""Annotation that names the node for which the devices of a pod were chosen, by convention."""


WAITING = {
    volcano_vgpu.PHASE: volcano_vgpu.ALLOCATING,
    hami.PHASE: hami.ALLOCATING,
    aliyun_gpu_mem.ASSIGNED: aliyun_gpu_mem.WAITING,
}
"""Annotation of a pod -> its value until a device plugin has served the pod."""
SERVED = {volcano_vgpu.ALLOCATING: "success", aliyun_gpu_mem.WAITING: "true"}
FAILED = {volcano_vgpu.ALLOCATING: "failed"}
"""What a device plugin writes instead."""


class CardUse(NamedTuple):
    """What a pod has of a card. card: index, or id of a device. memory: MiB. cores: percent.
    slices: of those that the card is registered with."""

    card: str
    milli: int = 0
    memory: int = 0
    cores: int = 0
    slices: int = 0


class _NodeCards(NamedTuple):
    """The cards that a node offers. problem: why parts of them cannot be given."""

    n_cards: int
    found: NodeReport
    problem: str


class CardAdmission:
    """The cards of simulated nodes and the pods that were admitted to them."""

    def __init__(self) -> None:
        self._held: dict[str, dict[str, tuple[CardUse, ...]]] = {}
        self._offers: dict[str, tuple[Node, _NodeCards]] = {}

    def refusal(self, pod: Pod, node: Node) -> str:
        """Why the pod does not get the cards that its annotations name, "" if it does; in the words
        of the kubelet's device manager."""
        offer = self._offer(node)
        if offer.problem and _requests_parts(pod):
            return f"rpc error: code = Unknown desc = {offer.problem}"
        if MILLI_KEY in pod.metadata.annotations:
            return self._without_milli(pod, node.name, offer.n_cards)
        convention = offer.found.only
        if convention is None or convention.request(pod) is None:
            return ""
        return self._without_devices(pod, node.name, convention, offer.found.report)

    def admit(self, pod: Pod) -> None:
        """Count the cards of a pod on its node, once."""
        uses = tuple(card_uses(pod))
        if uses:
            self._held.setdefault(pod.node_name, {})[pod.key] = uses

    def release(self, key: str, node: str) -> None:
        """Give back the cards of a pod, by its namespace and name."""
        held = self._held.get(node)
        if held is not None:
            held.pop(key, None)

    def answers(self, pod: Pod, *, is_served: bool) -> dict[str, str]:
        """The annotations by which device plugins say that they have served a pod, or could not.

        Differs: HAMi's plugin also empties the list of devices that it has served.
        """
        notes = pod.metadata.annotations
        answer = SERVED if is_served else FAILED
        card = reserved_card(pod)
        if card is not None:
            # What the program in the reservation pod does.
            return {DEVICE_ID_KEY: f"GPU-{pod.node_name}-{card}"} if is_served else {}
        return {
            key: answer[waiting]
            for key, waiting in WAITING.items()
            if notes.get(key) == waiting and waiting in answer
        }

    def released_locks(self, pod: Pod, node_annotations: Mapping[str, str]) -> list[str]:
        """The locks of the node that device plugins remove once they have answered for a pod."""
        return [
            key
            for key, text in lock_texts(node_annotations).items()
            if is_released_by(text, pod.namespace, pod.name)
        ]

    def uses(self, node: str, without: str = "") -> dict[str, CardUse]:
        """What the admitted pods of a node have of each card. without: a pod that does not
        count."""
        total: dict[str, CardUse] = {}
        for key, uses in self._held.get(node, {}).items():
            for use in uses if key != without else ():
                total[use.card] = _sum(total.get(use.card, CardUse(use.card)), use)
        return total

    def _offer(self, node: Node) -> _NodeCards:
        known = self._offers.get(node.name)
        if known is None or known[0] is not node:
            _, n_cards, _ = gpu_node_of(NodeInfo(node))
            found = report_of(node, DEVICE_PLUGINS)
            if not found.conventions:
                found = report_of(node, (kai_fractions.CONVENTION,))
            offer = _NodeCards(n_cards, found, mixed_problem(node))
            known = self._offers[node.name] = node, offer
        return known[1]

    def _without_milli(self, pod: Pod, node: str, n_cards: int) -> str:
        used = self.uses(node, pod.key)
        for use in card_uses(pod):
            before = used.get(use.card, CardUse(use.card))
            available = max(CARD_MILLI - before.milli, 0) if int(use.card) < n_cards else 0
            if use.milli > available:
                return _unavailable(f"{MILLI_KEY} of card {use.card}", use.milli, available)
            # The same card may be named twice.
            used[use.card] = _sum(before, use)
        return ""

    def _without_devices(
        self, pod: Pod, node: str, convention: Convention, report: DeviceReport
    ) -> str:
        wanted = NODE_ANNOTATIONS.get(convention.name)
        shares, request = convention.shares(pod), convention.request(pod)
        is_for = pod.metadata.annotations.get(wanted, "") if wanted is not None else node
        count = 0 if request is None else request.count
        has_devices = shares is not None and is_for == node and sum(map(len, shares)) == count
        if not has_devices and convention.name in KAI_NAMES:
            # KAI's whole devices are a count for the kubelet.
            return ""
        if report.problem:
            return f"rpc error: code = Unknown desc = {report.problem}"
        if not has_devices:
            return _no_pod(convention)
        devices = {device.id: device for device in report.devices}
        used = self.uses(node, pod.key)
        for share in card_uses(pod):
            before = used.get(share.card, CardUse(share.card))
            why = _lacks(devices.get(share.card), share, before)
            if why:
                return why
            used[share.card] = _sum(before, share)
        return ""


def card_uses(pod: Pod) -> Iterator[CardUse]:
    """What the annotations of a pod say that it has; a card twice where several containers do."""
    if MILLI_KEY in pod.metadata.annotations:
        request = gpu_request_of(PodInfo.of(pod))
        yield from (CardUse(str(card), request.milli) for card in request.prescribed or ())
        return
    for convention in CONVENTIONS.values():
        shares = convention.shares(pod)
        if shares is not None:
            for share in (share for container in shares for share in container):
                yield CardUse(share.id, 0, share.memory, share.cores, 1)
            return


def _requests_parts(pod: Pod) -> bool:
    """True for a pod that some device plugin would serve, or that has its cards by milli."""
    by_plugin = (one.request(pod) for one in DEVICE_PLUGINS)
    return MILLI_KEY in pod.metadata.annotations or any(one is not None for one in by_plugin)


def _lacks(device: GpuDevice | None, share: CardUse, used: CardUse) -> str:
    if device is None or not device.is_healthy:
        return _unavailable(f"GPU {share.card}", 1, 0)
    for what, requested, left in (
        ("MiB", share.memory, device.memory - used.memory),
        ("cores", share.cores, device.cores - used.cores),
        ("slices", share.slices, device.slots - used.slices),
    ):
        if requested > left:
            return _unavailable(f"{what} of GPU {share.card}", requested, max(left, 0))
    return ""


def _sum(one: CardUse, other: CardUse) -> CardUse:
    amounts = (have + more for have, more in zip(one[1:], other[1:], strict=True))
    return CardUse(one.card, *amounts)


def _unavailable(what: str, requested: int, available: int) -> str:
    return (
        f"requested number of devices unavailable for {what}. Requested: {requested}, "
        f"Available: {available}"
    )


def _no_pod(convention: Convention) -> str:
    return (
        f"rpc error: code = Unknown desc = no annotation of {convention.label} names devices of "
        "this node for the pod"
    )
