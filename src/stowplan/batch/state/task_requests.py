"""Requests of pods, and the comparisons that decide whether a task fits.

Source: kube-batch v0.5, api/resource_info.go, api/pod_info.go.
"""

from __future__ import annotations

from collections.abc import Mapping

from stowplan.framework.deciders.resource_vector import ResourceVector, parse_resources
from stowplan.objects.pod import Pod
from stowplan.objects.pod_requests import requested
from stowplan.objects.quantity import Quantity, value

EPSILON = 0.1
"""Amounts that differ by less are equal: requests are integers, shares are not."""


def is_empty(amount: ResourceVector) -> bool:
    """True if every resource is below EPSILON."""
    return all(n < EPSILON for _, n in amount.pairs())


def less(a: ResourceVector, b: ResourceVector) -> bool:
    """True if `a` is below `b` in cpu, memory and every other resource that it names."""
    return all(n < b.get(name) for name, n in a.pairs())


def less_equal(a: ResourceVector, b: ResourceVector) -> bool:
    """True if `a` is within `b`, up to EPSILON, in every resource that it names."""
    return all(n - b.get(name) < EPSILON for name, n in a.pairs())


def subtract(a: ResourceVector, b: ResourceVector) -> ResourceVector:
    """Subtract `b` from `a` in place; the result may be negative."""
    return a.take(b)


def shortage(have: ResourceVector, request: ResourceVector) -> ResourceVector:
    """`have` minus the requested resources and EPSILON each; negative where it is insufficient."""
    left = have.copy()
    if request.cpu > 0:
        left.cpu -= request.cpu + EPSILON
    if request.memory > 0:
        left.memory -= request.memory + EPSILON
    if request.scalars:
        scalars = left.scalars = {} if left.scalars is None else left.scalars
        for name, amount in request.scalars.items():
            if amount > 0:
                scalars[name] = scalars.get(name, 0.0) - (amount + EPSILON)
    return left


class TaskRequest:
    """Requests of the pods of one spec; shared by them and immutable.

    running: resources used while running. launching: resources needed to start. amounts: the same
    in base units, as node tables count them. least: the amounts above 0, which a node must have.
    """

    __slots__ = (
        "amounts", "is_best_effort", "launching", "least", "running", "running_pairs", "wants",
    )  # fmt: skip

    def __init__(self, amounts: Mapping[str, int]) -> None:
        self.amounts = amounts
        self.running = self.launching = _in_session_units(amounts)
        self.running_pairs = self.running.pairs()
        self.wants = tuple((name, n) for name, n in self.launching.pairs() if n > 0)
        self.least = tuple((name, amounts[name]) for name, _ in self.wants)
        self.is_best_effort = is_empty(self.launching)


def task_request_of(pod: Pod) -> TaskRequest:
    """Requests of a pod, counted as current kubelets do: start-up, sidecars, overhead, pod-level
    requests and resizes included. Raises QuantityError."""
    return TaskRequest(requested(pod))


def unit_of(name: str) -> float:
    """Session units in a base unit of a resource: thousandths of all but cpu and memory."""
    return 1.0 if name in ("cpu", "memory") else 1000.0


def _in_session_units(amounts: Mapping[str, int]) -> ResourceVector:
    amount = ResourceVector()
    for name, n in amounts.items():
        if name == "cpu":
            amount.cpu = float(n)
        elif name == "memory":
            amount.memory = float(n)
        else:
            if amount.scalars is None:
                amount.scalars = {}
            amount.scalars[name] = n * unit_of(name)
    return amount


def node_allocatable_of(resources: Mapping[str, Quantity]) -> ResourceVector:
    """Allocatable resources of a node; local storage is one of them."""
    amount = parse_resources(resources)
    if "ephemeral-storage" in resources:
        scalars = amount.scalars = {} if amount.scalars is None else amount.scalars
        scalars["ephemeral-storage"] = value(resources["ephemeral-storage"]) * 1000.0
    return amount


def format_resource(name: str, amount: float) -> str:
    """Format an amount in session units as a quantity: `2500m`, `4`, `3Gi`."""
    if name != "memory":
        whole = amount / 1000
        if name == "ephemeral-storage":
            return format_bytes(whole)
        return f"{whole:.0f}" if whole == round(whole) else f"{amount:.0f}m"
    return format_bytes(amount)


def format_bytes(amount: float) -> str:
    """Format bytes in the largest unit that leaves at most two decimal places."""
    for unit, size in (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
        if amount >= size:
            return f"{amount / size:.2f}".rstrip("0").rstrip(".") + unit
    return f"{amount:.0f}"
