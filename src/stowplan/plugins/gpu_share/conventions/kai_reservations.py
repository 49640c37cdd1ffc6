"""KAI's fractions on a live cluster, with reservation pods of our own.

As `kai_fractions`, but that each card of which pods have parts is held by a reservation pod, which
finds out the id of the GPU that the kubelet has given. Cards are shared within a namespace: pods
own their reservation pods, and owners are in the namespace of what they own.

Differs: KAI's binder has its reservation pods in a namespace of their own, deletes them itself, and
gives the id to pods by a config map; here it is an annotation of the pod.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from stowplan.objects.devices.card_reservation import CardReservations, reserved_card
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.plugins.gpu_share.conventions import kai_fractions
from stowplan.plugins.gpu_share.conventions.convention import BindingNotes, Convention
from stowplan.plugins.gpu_share.conventions.gpu_devices import (
    DeviceRequest,
    DeviceShare,
    PodShares,
)

NAME = "kai-reservations"
DEVICES_KEY = "stowplan.dev/gpu-devices"
"""Annotation of a bound pod: the ids of its GPUs, for NVIDIA_VISIBLE_DEVICES."""


def request(pod: Pod) -> DeviceRequest | None:
    """As KAI's; nothing for a reservation pod, which was created on its node."""
    if reserved_card(pod) is not None:
        return DeviceRequest(NAME, is_count_elsewhere=True, tenant=pod.namespace)
    found = kai_fractions.request(pod)
    return None if found is None else replace(found, convention=NAME, tenant=pod.namespace)


def shares(pod: Pod) -> PodShares | None:
    """As KAI's. A reservation pod has no memory: what is left is that of the pods that share its
    card, and no other pod gets it whole."""
    card = reserved_card(pod)
    return kai_fractions.shares(pod) if card is None else ((DeviceShare(card, 0),),)


def notes(pod: Pod, request: DeviceRequest, given: PodShares, node: Node) -> BindingNotes:
    """The annotations, and the cards that have to be reserved for parts."""
    found = kai_fractions.notes(pod, request, given, node)
    if request.is_count_elsewhere:
        return found
    cards = tuple(share.id for container in given for share in container)
    return replace(found, reservations=CardReservations(cards, "", "", DEVICES_KEY))


CONVENTION = Convention(NAME, "KAI", kai_fractions.report, request, shares, notes)


def unused_reservations(pods: Sequence[Pod]) -> tuple[Pod, ...]:
    """Reservation pods of a node whose card no pod there has a part of; none while it is not known
    which card a pod has, since it is being bound."""
    reserved = [(pod, card) for pod in pods if (card := reserved_card(pod)) is not None]
    if not reserved:
        return ()
    used: set[tuple[str, str]] = set()
    for pod in pods:
        notes = pod.metadata.annotations
        if kai_fractions.FRACTION in notes or kai_fractions.MEMORY in notes:
            given = kai_fractions.shares(pod)
            if given is None:
                return ()
            used |= {(pod.namespace, share.id) for container in given for share in container}
    return tuple(
        pod
        for pod, card in reserved
        if (pod.namespace, card) not in used and pod.metadata.deletion_timestamp is None
    )
