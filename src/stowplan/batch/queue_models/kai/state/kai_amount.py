"""Amounts as KAI-Scheduler counts them, and what a pod asks of cards.

An amount is a list of float64, one per resource: cpu in milli-cpu, memory in bytes, cards, pods,
then MIG profiles in instances and other resources in thousandths. All amounts of a session have the
same resources in the same order.
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeAlias

from stowplan.objects.kai.zone_placement import decimal_text
from stowplan.objects.quantity import Quantity, milli_value, value

Amount: TypeAlias = list[float]

CPU, MEMORY, CARDS, PODS = range(4)
"""Places of the resources that every session has."""
CORE_RESOURCES = ("cpu", "memory", "gpu", "pods")
CARD_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu")
MIG_PREFIX = "nvidia.com/mig-"
_MIG_PROFILE = re.compile(r"nvidia\.com/mig-(\d+)g\.(\d+)gb")
_BYTES = ("ephemeral-storage", "storage")


def is_mig(resource: str) -> bool:
    """Whether a resource is a MIG profile."""
    return resource.startswith(MIG_PREFIX)


def mig_profile(resource: str) -> tuple[int, int]:
    """Slices of the card and memory in GB of a profile; zeros for another name."""
    match = _MIG_PROFILE.match(resource)
    return (int(match[1]), int(match[2])) if match else (0, 0)


class ResourceIndex:
    """The resources of a session's amounts, by place."""

    def __init__(self, names: Iterable[str]) -> None:
        """names: resources beside the core ones; the card resources are left out."""
        others = sorted({*names} - {*CORE_RESOURCES, *CARD_RESOURCES})
        self.names: tuple[str, ...] = (*CORE_RESOURCES, *others)
        self.place = {name: i for i, name in enumerate(self.names)}
        self._mig = [(i, mig_profile(name)[0]) for i, name in enumerate(self.names) if is_mig(name)]
        # What pods with such a container ask for.
        self.asks: dict[tuple[tuple[str, Quantity], ...], tuple[Amount, KaiCards]] = {}
        self._kinds: dict[Hashable, int] = {}

    def kind_of(self, of: Hashable) -> int:
        """The number of a kind of jobs. of: equal for jobs of one kind."""
        return self._kinds.setdefault(of, len(self._kinds))

    def has(self, resource: str) -> bool:
        """Whether amounts of the session have a resource."""
        return resource in CARD_RESOURCES or resource in self.place

    @property
    def has_mig(self) -> bool:
        """Whether amounts of the session have instances of MIG."""
        return bool(self._mig)

    def place_of(self, resource: str) -> int:
        """The place of a resource that amounts have."""
        return CARDS if resource in CARD_RESOURCES else self.place[resource]

    def empty(self) -> Amount:
        """An amount of nothing."""
        return [0.0] * len(self.names)

    def total_cards(self, amount: Sequence[float]) -> float:
        """Cards of an amount, MIG instances by their slices."""
        total = amount[CARDS]
        for place, slices in self._mig:
            total += slices * amount[place]
        return total

    def shares(self, amount: Sequence[float]) -> tuple[float, float, float]:
        """cpu, memory and cards: what queues are accounted for."""
        return amount[CPU], amount[MEMORY], self.total_cards(amount)

    def read(self, quantities: Mapping[str, Quantity]) -> Amount:
        """The amount of a resource list. Raises QuantityError."""
        amount = self.empty()
        for name, quantity in quantities.items():
            if name in CARD_RESOURCES:
                amount[CARDS] += float(value(quantity))
            elif name == "cpu":
                amount[CPU] += float(milli_value(quantity))
            elif name == "memory" or name == "pods" or is_mig(name) or name in _BYTES:
                amount[self.place[name]] += float(value(quantity))
            else:
                amount[self.place[name]] += float(milli_value(quantity))
        return amount

    def quantity(self, place: int, amount: float) -> str:
        """What there is of one resource as a quantity: cpu in thousandths, all else whole."""
        if place == CPU:
            milli = int(amount)
            return f"{milli}m" if milli % 1000 else decimal_text(milli // 1000)
        name = self.names[place]
        is_whole = place <= PODS or is_mig(name) or name in _BYTES
        return decimal_text(int(amount) if is_whole else math.ceil(amount / 1000))


def plus(left: Sequence[float], right: Sequence[float]) -> Amount:
    """The sum of two amounts."""
    return [a + b for a, b in zip(left, right, strict=True)]


def minus(left: Sequence[float], right: Sequence[float]) -> Amount:
    """The difference of two amounts."""
    return [a - b for a, b in zip(left, right, strict=True)]


def is_within(left: Sequence[float], right: Sequence[float]) -> bool:
    """Whether an amount is at most another one in every resource."""
    return all(a <= b for a, b in zip(left, right, strict=True))


def whole_percent(portion: float, count: int) -> float:
    """Cards of count shares, the share rounded to a hundredth."""
    hundredths = math.floor(abs(portion) * 100 + 0.5)
    return math.copysign(hundredths, portion) * count / 100 if hundredths else 0.0


class KaiCards:
    """What a pod asks of cards.

    count: cards that it is on. portion: of each, 1 for whole ones. memory: MiB of each instead of
    a portion. claimed: cards through device claims, by device class. mig: instances by profile.
    """

    __slots__ = ("claimed", "count", "memory", "mig", "portion")

    def __init__(
        self,
        count: int = 0,
        portion: float = 0.0,
        memory: int = 0,
        mig: Mapping[str, int] | None = None,
        claimed: Mapping[str, int] | None = None,
    ) -> None:
        self.count = count
        self.portion = portion
        self.memory = memory
        self.mig = dict(mig or {})
        self.claimed = dict(claimed or {})

    @property
    def cards(self) -> float:
        """Cards by portion; memory requests count none."""
        if self.portion == 1.0:
            return float(self.count)
        return whole_percent(self.portion, self.count)

    @property
    def claimed_cards(self) -> int:
        """Cards through claims."""
        return sum(self.claimed.values()) if self.claimed else 0

    @property
    def quota(self) -> float:
        """Cards that count for quotas: portions, claims and slices of MIG instances."""
        if not self.mig and not self.claimed:
            return self.cards
        slices = sum(mig_profile(name)[0] * count for name, count in self.mig.items())
        return float(slices) + self.claimed_cards + self.cards

    def memory_as_cards(self, card_memory: int | None) -> float:
        """Cards that a memory request amounts to; 0 for others."""
        if self.memory <= 0 or not card_memory or card_memory <= 0:
            return 0.0
        return self.count * (self.memory / card_memory)


def fraction_request(portion: float, memory: int) -> KaiCards:
    """A share of one card, or whole cards from 1 on."""
    if portion >= 1:
        return KaiCards(int(portion), 1.0, memory)
    return KaiCards(1 if portion > 0 or memory > 0 else 0, portion, memory)
