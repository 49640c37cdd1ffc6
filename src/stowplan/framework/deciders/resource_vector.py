"""Resource vectors of sessions.

A vector holds milli-CPU, bytes of memory and thousandths of every other named resource ("scalars"),
as float64, which is exact for all values that occur. Whether a vector names scalars at all is part
of its value: kube-batch compares a vector without scalars differently from one with zeros.

Source: kube-batch v0.5, api/resource_info.go, api/helpers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stowplan.objects.pod_requests import is_scalar
from stowplan.objects.quantity import Quantity, milli_value, value

Scalars = dict[str, float]


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

    def take(self, other: ResourceVector, *, keyless: bool = False) -> ResourceVector:
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
