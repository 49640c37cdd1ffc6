"""Resource vectors, and the comparisons that decide whether a task fits.

A vector holds milli-CPU, bytes of memory and thousandths of every other named resource ("scalars"),
as float64, which is exact for all values that occur. Whether a vector names scalars at all is part
of its value: the original compares a vector without scalars differently from one with zeros.

Source: kube-batch v0.5, api/resource_info.go, api/pod_info.go, api/helpers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stowplan.batch.compat import Compat
from stowplan.objects.pod import Pod
from stowplan.objects.pod_requests import is_scalar, requested
from stowplan.objects.quantity import Quantity, milli_value, value

MIB = 1024 * 1024
COARSE_MILLI = 10.0
COARSE_BYTES = 10.0 * MIB
FINE = 0.1
"""Amounts that differ by less are equal: requests are integers, shares are not."""

Scalars = dict[str, float]


class SessionPanic(Exception):
    """Raised where the original would have panicked and ended the process."""


class ResourceVector:
    """Amounts of resources. scalars: None if none was ever named."""

    __slots__ = ("cpu", "memory", "pods", "scalars")

    def __init__(
        self,
        cpu: float = 0.0,
        memory: float = 0.0,
        scalars: Scalars | None = None,
        pods: int = 0,
    ) -> None:
        """pods: number of pods that a node takes; not part of sums and comparisons."""
        self.cpu = cpu
        self.memory = memory
        self.scalars = scalars
        self.pods = pods

    def __repr__(self) -> str:
        extra = "".join(f", {name} {amount:.2f}" for name, amount in (self.scalars or {}).items())
        return f"cpu {self.cpu:.2f}, memory {self.memory:.2f}{extra}"

    def copy(self) -> ResourceVector:
        """A copy that may be modified."""
        scalars = None if self.scalars is None else dict(self.scalars)
        return ResourceVector(self.cpu, self.memory, scalars, self.pods)

    def get(self, name: str) -> float:
        """The amount of one resource; 0 if it is not named."""
        if name == "cpu":
            return self.cpu
        if name == "memory":
            return self.memory
        return self.scalars.get(name, 0.0) if self.scalars else 0.0

    def names(self) -> Iterable[str]:
        """cpu, memory and the named scalars."""
        return ("cpu", "memory", *(self.scalars or ()))

    def pairs(self) -> tuple[tuple[str, float], ...]:
        """(resource, amount) of every named resource."""
        return tuple((name, self.get(name)) for name in self.names())

    def add(self, other: ResourceVector) -> ResourceVector:
        """Add in place."""
        self.cpu += other.cpu
        self.memory += other.memory
        if other.scalars:
            if self.scalars is None:
                self.scalars = {}
            for name, amount in other.scalars.items():
                self.scalars[name] = self.scalars.get(name, 0.0) + amount
        return self

    def take(self, other: ResourceVector, *, keyless: bool) -> ResourceVector:
        """Subtract in place, without a check. keyless: do not add scalars if none is named."""
        self.cpu -= other.cpu
        self.memory -= other.memory
        if other.scalars:
            if self.scalars is None:
                if keyless:
                    return self
                self.scalars = {}
            for name, amount in other.scalars.items():
                self.scalars[name] = self.scalars.get(name, 0.0) - amount
        return self

    def times(self, factor: float) -> ResourceVector:
        """Multiply in place."""
        self.cpu *= factor
        self.memory *= factor
        for name in self.scalars or ():
            assert self.scalars is not None
            self.scalars[name] *= factor
        return self

    def raise_to(self, other: ResourceVector) -> None:
        """Raise in place to the maximum of the two, per resource."""
        self.cpu = max(self.cpu, other.cpu)
        self.memory = max(self.memory, other.memory)
        if not other.scalars:
            return
        if self.scalars is None:
            self.scalars = dict(other.scalars)
            return
        for name, amount in other.scalars.items():
            if amount > self.scalars.get(name, 0.0):
                self.scalars[name] = amount


class ResourceArithmetic:
    """Comparisons and checked subtraction, depending on compat switches."""

    def __init__(self, compat: Compat) -> None:
        self.milli_epsilon = COARSE_MILLI if compat.coarse_epsilon else FINE
        self.memory_epsilon = COARSE_BYTES if compat.coarse_epsilon else FINE
        self.nil_scalars = compat.nil_scalars
        self.panics = compat.subtraction_panics

    def is_empty(self, amount: ResourceVector) -> bool:
        """True if every resource is below its epsilon."""
        if not (amount.cpu < self.milli_epsilon and amount.memory < self.memory_epsilon):
            return False
        return all(n < self.milli_epsilon for n in (amount.scalars or {}).values())

    def less(self, a: ResourceVector, b: ResourceVector) -> bool:
        """True if `a` is below `b` in cpu, memory and every scalar that it names."""
        if not (a.cpu < b.cpu and a.memory < b.memory):
            return False
        if self.nil_scalars:
            if a.scalars is None:
                return b.scalars is not None
            if b.scalars is None:
                return False
        return all(n < b.get(name) for name, n in (a.scalars or {}).items())

    def less_equal(self, a: ResourceVector, b: ResourceVector) -> bool:
        """True if `a` is within `b`, with an epsilon, in cpu, memory and its scalars."""
        if not (a.cpu < b.cpu or abs(b.cpu - a.cpu) < self.milli_epsilon):
            return False
        if not (a.memory < b.memory or abs(b.memory - a.memory) < self.memory_epsilon):
            return False
        if not a.scalars:
            return True
        if b.scalars is None and self.nil_scalars:
            return False
        return all(
            n < b.get(name) or abs(b.get(name) - n) < self.milli_epsilon
            for name, n in a.scalars.items()
        )

    def subtract(self, a: ResourceVector, b: ResourceVector) -> ResourceVector:
        """Subtract `b` from `a` in place; raises SessionPanic if checked and insufficient."""
        if self.panics and not self.less_equal(b, a):
            raise SessionPanic(f"Resource is not sufficient to do operation: <{a}> sub <{b}>")
        return a.take(b, keyless=self.nil_scalars)

    def shortage(self, have: ResourceVector, request: ResourceVector) -> ResourceVector:
        """`have` minus the request and an epsilon; negative where it is insufficient."""
        left = have.copy()
        if request.cpu > 0:
            left.cpu -= request.cpu + self.milli_epsilon
        if request.memory > 0:
            left.memory -= request.memory + self.memory_epsilon
        if request.scalars:
            scalars = left.scalars = {} if left.scalars is None else left.scalars
            for name, amount in request.scalars.items():
                if amount > 0:
                    scalars[name] = scalars.get(name, 0.0) - (amount + self.milli_epsilon)
        return left


def difference(a: ResourceVector, b: ResourceVector) -> tuple[ResourceVector, ResourceVector]:
    """Amounts by which `a` exceeds `b`, and by which it falls short; only scalars that `a`
    names."""
    above, below = ResourceVector(), ResourceVector()
    if a.cpu > b.cpu:
        above.cpu += a.cpu - b.cpu
    else:
        below.cpu += b.cpu - a.cpu
    if a.memory > b.memory:
        above.memory += a.memory - b.memory
    else:
        below.memory += b.memory - a.memory
    for name, amount in (a.scalars or {}).items():
        other = b.get(name)
        side, gap = (above, amount - other) if amount > other else (below, other - amount)
        if side.scalars is None:
            side.scalars = {}
        side.scalars[name] = side.scalars.get(name, 0.0) + gap
    return above, below


def minimum(a: ResourceVector, b: ResourceVector) -> ResourceVector:
    """The minimum of the two, per resource; no scalars unless both name some."""
    result = ResourceVector(min(a.cpu, b.cpu), min(a.memory, b.memory))
    if a.scalars is not None and b.scalars is not None:
        result.scalars = {name: min(n, b.get(name)) for name, n in a.scalars.items()}
    return result


def share_of(part: float, whole: float) -> float:
    """`part` divided by `whole`; 1 if only `whole` is 0."""
    if whole == 0:
        return 0.0 if part == 0 else 1.0
    return part / whole


def parse_resources(resources: Mapping[str, Quantity]) -> ResourceVector:
    """Parse a Kubernetes resource list; raises QuantityError.

    Resources other than cpu, memory, pods and scalars are left out.
    """
    amount = ResourceVector()
    for name, q in resources.items():
        if name == "cpu":
            amount.cpu += float(milli_value(q))
        elif name == "memory":
            amount.memory += float(value(q))
        elif name == "pods":
            amount.pods += value(q)
        elif is_scalar(name):
            if amount.scalars is None:
                amount.scalars = {}
            amount.scalars[name] = amount.scalars.get(name, 0.0) + float(milli_value(q))
    return amount


class TaskRequest:
    """Requests of the pods of one spec; shared by them and immutable.

    running: resources used while running. launching: resources needed to start.
    """

    __slots__ = ("is_best_effort", "launching", "running", "running_pairs", "wants")

    def __init__(
        self, running: ResourceVector, launching: ResourceVector, arithmetic: ResourceArithmetic
    ) -> None:
        self.running = running
        self.launching = launching
        self.running_pairs = running.pairs()
        self.wants = tuple((name, n) for name, n in launching.pairs() if n > 0)
        self.is_best_effort = arithmetic.is_empty(launching)


def task_request_of(
    pod: Pod, arithmetic: ResourceArithmetic, *, containers_only: bool
) -> TaskRequest:
    """Requests of a pod; raises QuantityError.

    containers_only: counted as in 2019; otherwise as current kubelets do: start-up, sidecars,
    overhead, pod-level requests and resizes included.
    """
    if not containers_only:
        amount = _effective_request(pod)
        return TaskRequest(amount, amount, arithmetic)
    running = ResourceVector()
    for container in pod.spec.containers:
        running.add(parse_resources(container.resources.requests))
    launching = running.copy()
    for container in pod.spec.init_containers:
        launching.raise_to(parse_resources(container.resources.requests))
    return TaskRequest(running, launching, arithmetic)


def _effective_request(pod: Pod) -> ResourceVector:
    amount = ResourceVector()
    for name, n in requested(pod).items():
        if name == "cpu":
            amount.cpu = float(n)
        elif name == "memory":
            amount.memory = float(n)
        else:
            if amount.scalars is None:
                amount.scalars = {}
            amount.scalars[name] = n * 1000.0
    return amount


def node_allocatable_of(
    resources: Mapping[str, Quantity], *, containers_only: bool
) -> ResourceVector:
    """Allocatable resources of a node; with current counting local storage is a scalar."""
    amount = parse_resources(resources)
    if not containers_only and "ephemeral-storage" in resources:
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
