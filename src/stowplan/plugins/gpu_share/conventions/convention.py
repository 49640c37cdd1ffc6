"""What each convention of sharing GPU devices provides."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from stowplan.objects.devices.card_reservation import CardReservations
from stowplan.objects.devices.node_lock import NodeLock
from stowplan.objects.node import Node
from stowplan.objects.pod import Container, Pod
from stowplan.objects.quantity import NANOS_PER_UNIT, OutOfRangeError, QuantityError, nanos, value
from stowplan.plugins.gpu_share.conventions.gpu_devices import (
    DeviceReport,
    DeviceRequest,
    PodShares,
)

NOT_A_NUMBER = -1


class BindingNotes(msgspec.Struct, frozen=True):
    """Annotations that go onto a pod with its binding. times: annotation -> unit (`s` or `ns`) of
    those whose value is the time of the binding. lock: of the node, by which the device plugin
    knows the pod. reservations: cards to be reserved by pods before."""

    annotations: dict[str, str]
    times: dict[str, str] = {}
    lock: NodeLock | None = None
    reservations: CardReservations | None = None


class Convention(msgspec.Struct, frozen=True):
    """One convention. label: how it is called in messages.

    report: the devices of a node; None where the node does not follow the convention. request: what
    a pod requests; None if nothing. shares: what a placed pod has; None where that is unknown.
    notes: what its device plugin has to find on the pod that is bound to the node.
    """

    name: str
    label: str
    report: Callable[[Node], DeviceReport | None]
    request: Callable[[Pod], DeviceRequest | None]
    shares: Callable[[Pod], PodShares | None]
    notes: Callable[[Pod, DeviceRequest, PodShares, Node], BindingNotes]


def limit_of(container: Container, resource: str) -> int | None:
    """A limit, or request, of a container as a whole number; None if there is none, NOT_A_NUMBER if
    it is not whole or below 0."""
    resources = container.resources
    for amounts in (resources.limits, resources.requests):
        if resource in amounts:
            try:
                units, rest = divmod(nanos(amounts[resource]), NANOS_PER_UNIT)
            except (OutOfRangeError, QuantityError):
                return NOT_A_NUMBER
            return NOT_A_NUMBER if rest or units < 0 else units
    return None


def container_limits(
    pod: Pod, resources: Sequence[str]
) -> tuple[list[tuple[int, dict[str, int | None]]], str]:
    """Limits, or requests, of a pod's containers: the container's index and its amounts, None for
    what it does not name; and what is wrong with the first amount that is not a whole number, ""
    if all are. A container with such an amount is left out."""
    found: list[tuple[int, dict[str, int | None]]] = []
    problem = ""
    for index, container in enumerate(pod.spec.containers):
        amounts = {name: limit_of(container, name) for name in resources}
        wrong = next((name for name in resources if amounts[name] == NOT_A_NUMBER), None)
        if wrong is None:
            found.append((index, amounts))
        elif not problem:
            problem = bad_amount(container, wrong)
    return found, problem


def offered(node: Node, resource: str) -> int:
    """An allocatable amount; 0 if the node has none."""
    quantity = node.status.allocatable.get(resource)
    return 0 if quantity is None else value(quantity)


def bad_amount(container: Container, resource: str) -> str:
    """The message for an amount that is not a whole number."""
    got = container.resources.limits.get(resource, container.resources.requests.get(resource))
    return f"container {container.name}: {resource}: got {got}, wanted a whole number"
