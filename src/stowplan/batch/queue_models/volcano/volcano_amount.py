"""VolcanoAmount: resource amounts with Volcano's comparisons.

Units: cpu in milli-CPU, memory in bytes, `pods` in ones, all other resources in thousandths. A
resource other than cpu and memory may be absent, which is not always the same as 0.

Source: volcano master of 2026-08-20, pkg/scheduler/api/resource_info.go and helpers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stowplan.objects.pod import Pod
from stowplan.objects.pod_requests import is_scalar, requested
from stowplan.objects.quantity import Quantity, milli_value, value

EPSILON = 0.1
"""Amounts that differ by less are equal in most comparisons."""
UNLIMITED = 1.7976931348623157e308
"""Amount of a resource without a limit."""
PODS = "pods"
EPHEMERAL_STORAGE = "ephemeral-storage"


class VolcanoAmount:
    """Amounts by resource. scalars: all but cpu and memory; None if no scalar was ever set."""

    __slots__ = ("cpu", "memory", "pods_max", "scalars")

    def __init__(
        self,
        cpu: float = 0.0,
        memory: float = 0.0,
        scalars: dict[str, float] | None = None,
        pods_max: int = 0,
    ) -> None:
        """pods_max: maximum number of pods of a node; no part of the arithmetic."""
        self.cpu = cpu
        self.memory = memory
        self.scalars = scalars
        self.pods_max = pods_max

    def __repr__(self) -> str:
        return f"VolcanoAmount(cpu {self.cpu}, memory {self.memory}, {self.scalars})"

    @classmethod
    def of(cls, quantities: Mapping[str, Quantity]) -> VolcanoAmount:
        """The amount of a resource list; resources that Volcano does not count are left out."""
        result = cls()
        for name, quantity in quantities.items():
            if name == "cpu":
                result.cpu += float(milli_value(quantity))
            elif name == "memory":
                result.memory += float(value(quantity))
            elif name == PODS:
                result.pods_max += value(quantity)
                result._add_scalar(name, float(value(quantity)))
            elif name == EPHEMERAL_STORAGE or (not name.startswith("count/") and is_scalar(name)):
                result._add_scalar(name, float(milli_value(quantity)))
        return result

    @classmethod
    def requested_by(cls, pod: Pod) -> VolcanoAmount:
        """What a pod requests, itself counted as one of `pods`."""
        scalars = {PODS: 1.0}
        cpu = memory = 0.0
        for name, amount in requested(pod).items():
            if name == "cpu":
                cpu = float(amount)
            elif name == "memory":
                memory = float(amount)
            else:
                scalars[name] = amount * 1000.0
        return cls(cpu, memory, scalars)

    @classmethod
    def unlimited(cls, names: Iterable[str] = ()) -> VolcanoAmount:
        """No limit for cpu, memory and the named scalars."""
        scalars = dict.fromkeys(names, float(2**63 - 1))
        return cls(UNLIMITED, UNLIMITED, scalars or None)

    def copy(self) -> VolcanoAmount:
        """A copy that may be changed."""
        scalars = None if self.scalars is None else dict(self.scalars)
        return VolcanoAmount(self.cpu, self.memory, scalars, self.pods_max)

    def get(self, name: str) -> float:
        """Amount of a resource, 0 where absent."""
        if name == "cpu":
            return self.cpu
        if name == "memory":
            return self.memory
        return self.scalars.get(name, 0.0) if self.scalars else 0.0

    def items(self) -> Iterable[tuple[str, float]]:
        """cpu, memory and the scalars that are present."""
        yield "cpu", self.cpu
        yield "memory", self.memory
        if self.scalars:
            yield from self.scalars.items()

    def names(self) -> list[str]:
        """Resources of which there is at least EPSILON."""
        found = [name for name in ("cpu", "memory") if self.get(name) >= EPSILON]
        if self.scalars:
            found += [name for name, amount in self.scalars.items() if amount >= EPSILON]
        return found

    @property
    def is_empty(self) -> bool:
        """True if there is less than EPSILON of everything, pods aside."""
        if self.cpu >= EPSILON or self.memory >= EPSILON:
            return False
        scalars = self.scalars or {}
        return not any(amount >= EPSILON for name, amount in scalars.items() if name != PODS)

    # Changes in place; each returns the amount.

    def add(self, other: VolcanoAmount) -> VolcanoAmount:
        """Add another amount."""
        self.cpu += other.cpu
        self.memory += other.memory
        scalars, mine = other.scalars, self.scalars
        if scalars:
            if mine is None:
                self.scalars = dict(scalars)
            else:
                for name, amount in scalars.items():
                    mine[name] = mine.get(name, 0.0) + amount
        return self

    def subtract(self, other: VolcanoAmount) -> VolcanoAmount:
        """Subtract another amount.

        Differs: the original panics where less is there than is subtracted; here the result is
        negative.
        """
        self.cpu -= other.cpu
        self.memory -= other.memory
        scalars, mine = other.scalars, self.scalars
        if scalars and mine is not None:
            for name, amount in scalars.items():
                mine[name] = mine.get(name, 0.0) - amount
        return self

    def multiply(self, ratio: float) -> VolcanoAmount:
        """Multiply every resource."""
        self.cpu *= ratio
        self.memory *= ratio
        if self.scalars:
            self.scalars = {name: amount * ratio for name, amount in self.scalars.items()}
        return self

    def limit(self, other: VolcanoAmount, *, absent_is_unlimited: bool) -> VolcanoAmount:
        """Reduce every resource to the amount in `other`; scalars only where both name them,
        unless an absent one counts as 0."""
        self.cpu = min(self.cpu, other.cpu)
        self.memory = min(self.memory, other.memory)
        limits, mine = other.scalars or {}, self.scalars or {}
        for name, amount in mine.items():
            if name in limits:
                mine[name] = min(amount, limits[name])
            elif not absent_is_unlimited:
                mine[name] = 0.0
        return self

    def _add_scalar(self, name: str, amount: float) -> None:
        if self.scalars is None:
            self.scalars = {}
        self.scalars[name] = self.scalars.get(name, 0.0) + amount

    # Comparisons.

    def fits(self, other: VolcanoAmount) -> bool:
        """True if no resource of this amount exceeds `other` by EPSILON; an absent one is 0."""
        # Asked for every node that changes and every pod that is placed, so without calls.
        if not (self.cpu < other.cpu or abs(self.cpu - other.cpu) < EPSILON):
            return False
        if not (self.memory < other.memory or abs(self.memory - other.memory) < EPSILON):
            return False
        if self.scalars:
            there = other.scalars or {}
            for name, amount in self.scalars.items():
                if not _at_most(amount, there.get(name, 0.0)):
                    return False
        return True

    def exceeded_names(self, other: VolcanoAmount, request: VolcanoAmount) -> list[str]:
        """Requested resources of which there is more than in `other`, without EPSILON; pods
        aside. None if this amount names no scalars at all."""
        found = []
        if request.cpu > 0 and self.cpu > other.cpu:
            found.append("cpu")
        if request.memory > 0 and self.memory > other.memory:
            found.append("memory")
        if self.scalars is not None:
            found += [
                name
                for name, amount in (request.scalars or {}).items()
                if name != PODS and amount > 0 and self.get(name) > other.get(name)
            ]
        return found

    def leaves_room(self, limit: VolcanoAmount, request: VolcanoAmount) -> bool:
        """True if this amount and a request together have no `exceeded_names`."""
        if request.cpu > 0 and self.cpu + request.cpu > limit.cpu:
            return False
        if request.memory > 0 and self.memory + request.memory > limit.memory:
            return False
        return not any(
            name != PODS and amount > 0 and self.get(name) + amount > limit.get(name)
            for name, amount in (request.scalars or {}).items()
        )

    def fits_in_some(self, other: VolcanoAmount, request: VolcanoAmount) -> bool:
        """True if a requested resource does not exceed `other`, pods aside, and resources of
        which both have less than EPSILON."""
        return any(
            _at_most(self.get(name), other.get(name))
            for name, amount in request.items()
            if amount > 0
            and name != PODS
            and not (self.get(name) < EPSILON and other.get(name) < EPSILON)
        )

    def exceeds_in_some(self, other: VolcanoAmount, request: VolcanoAmount) -> bool:
        """True if a requested resource that `other` limits exceeds it, pods aside."""
        for name, amount in request.items():
            is_limited = (
                other.get(name) >= EPSILON
                if name in ("cpu", "memory")
                else name in (other.scalars or {})
            )
            if amount > 0 and name != PODS and is_limited and self.get(name) > other.get(name):
                return True
        return False

    def equals(self, other: VolcanoAmount) -> bool:
        """True if all amounts are the same; an absent scalar differs from 0."""
        mine, its = self.scalars or {}, other.scalars or {}
        return self.cpu == other.cpu and self.memory == other.memory and mine == its

    def difference(self, other: VolcanoAmount) -> tuple[VolcanoAmount, VolcanoAmount]:
        """By how much each resource is above `other`, and by how much below; scalars above are
        named only where they are."""
        above, below = VolcanoAmount(scalars={}), VolcanoAmount(scalars={})
        for name in ("cpu", "memory"):
            delta = self.get(name) - other.get(name)
            setattr(above if delta > 0 else below, name, abs(delta))
        for name in {**(self.scalars or {}), **(other.scalars or {})}:
            delta = self.get(name) - other.get(name)
            scalars = (above if delta > 0 else below).scalars
            assert scalars is not None
            scalars[name] = abs(delta)
        return above, below

    def above(self, other: VolcanoAmount) -> VolcanoAmount:
        """By how much each resource is above `other`."""
        return self.difference(other)[0]

    def rest(self, other: VolcanoAmount, *, names_all: bool) -> VolcanoAmount:
        """What is left without `other`, at least 0. names_all: also scalars of which nothing is
        left; otherwise they vanish."""
        result = self.above(other)
        if names_all and result.scalars is not None:
            result.scalars = {**dict.fromkeys(self.scalars or (), 0.0), **result.scalars}
        return result

    def shares_names(self, other: VolcanoAmount, *, with_pods: bool = True) -> bool:
        """True if there is at least EPSILON of some resource in both."""
        names = set(other.names()).intersection(self.names())
        return bool(names if with_pods else names - {PODS})


def maximum(left: VolcanoAmount, right: VolcanoAmount) -> VolcanoAmount:
    """The larger amount of every resource; negative scalars are left out."""
    result = VolcanoAmount(max(left.cpu, right.cpu), max(left.memory, right.memory))
    if left.scalars is None and right.scalars is None:
        return result
    result.scalars = {name: n for name, n in (left.scalars or {}).items() if n >= 0}
    for name, amount in (right.scalars or {}).items():
        if amount >= 0:
            result.scalars[name] = max(amount, result.scalars.get(name, 0.0))
    return result


def share_of(amount: float, whole: float) -> float:
    """amount / whole; of nothing, 0 if the amount is 0, otherwise 1."""
    if whole == 0:
        return 0.0 if amount == 0 else 1.0
    return amount / whole


def total_of(amounts: Iterable[VolcanoAmount]) -> VolcanoAmount:
    """The sum of amounts."""
    total = VolcanoAmount()
    for amount in amounts:
        total.add(amount)
    return total


def _at_most(left: float, right: float) -> bool:
    return left < right or abs(left - right) < EPSILON
