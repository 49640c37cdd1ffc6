"""GPU cards that a node no longer has, or that are no longer healthy, while pods have them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from stowplan.framework import NodeInfo, PodInfo
from stowplan.framework.deciders.node_plugins import PodWarning
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.plugins.gpu_share.card_ledger import gpu_node_of, gpu_request_of
from stowplan.plugins.gpu_share.conventions.convention import Convention

REASON = "GPUCardMissing"


def missing_cards(
    before: Node, after: Node, pods: Iterable[Pod], conventions: Sequence[Convention]
) -> Iterator[PodWarning]:
    """A warning for each pod and card that the node has lost, by the cards of pods' annotations.

    A pod keeps its card in the bookkeeping: it counts again once the card is back.
    """
    notes = before.metadata.annotations != after.metadata.annotations
    if not notes and before.status.allocatable == after.status.allocatable:
        return
    lost = _lost_devices(before, after, conventions)
    (_, had, _), (_, has, _) = gpu_node_of(NodeInfo(before)), gpu_node_of(NodeInfo(after))
    if not lost and has >= had:
        return
    for pod in pods:
        for card in gpu_request_of(PodInfo.of(pod)).prescribed or ():
            if has <= card < had:
                yield _warning(pod, after, str(card), f"it has {has} of {had} cards left")
        for convention, gone in lost:
            given = convention.shares(pod) or ()
            for name in dict.fromkeys(share.id for container in given for share in container):
                if name in gone:
                    yield _warning(pod, after, name, gone[name])


def _lost_devices(
    before: Node, after: Node, conventions: Sequence[Convention]
) -> list[tuple[Convention, dict[str, str]]]:
    """By convention: id of each healthy device that is not there any more -> why."""
    found = []
    for convention in conventions:
        old, new = convention.report(before), convention.report(after)
        if old is None:
            continue
        left = {} if new is None else {one.id: one.is_healthy for one in new.devices}
        why = f"{convention.label} registers no GPUs" if new is None else new.problem
        gone = {
            one.id: why or ("it is not healthy" if one.id in left else "it is not registered")
            for one in old.devices
            if one.is_healthy and not left.get(one.id, False)
        }
        if gone:
            found.append((convention, gone))
    return found


def _warning(pod: Pod, node: Node, card: str, why: str) -> PodWarning:
    text = f"GPU card {card} of the pod is missing on node {node.name}: {why}"
    return PodWarning(pod, REASON, text)
