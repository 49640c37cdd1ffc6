"""Scv reports and Yoda's labels in the model of shared GPUs: devices, requests and shares.

A report measures: the memory of a device is what is free on it, whichever pods use the rest. Shares
are what pods hold beyond that: those which were placed a moment ago.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from msgspec.structs import replace

from stowplan.objects.devices.scv import Scv
from stowplan.plugins.gpu_share.conventions.gpu_devices import (
    ALL_CORES,
    ContainerDevices,
    DeviceFilter,
    DeviceReport,
    DeviceRequest,
    DeviceShare,
    GpuDevice,
    NodeDevices,
)
from stowplan.plugins.gpu_share.conventions.share_texts import is_number
from stowplan.plugins.yoda.gpu_request import GpuRequest

CONVENTION = "scv"
CARDS_KEY = "stowplan.dev/scv-cards"
"""Annotation of a bound pod: `ID:MIB` of each of its cards, or `ID` of one that it has whole."""

CardShares = tuple[DeviceShare, ...]
"""What a pod holds. cores: all of them where it holds a whole card."""

AMOUNT_MAX = 2**50
"""Larger amounts of a report count as this, so that no sum wraps."""


class Gpu(NamedTuple):
    """A card of a report, every amount from 0 to the bound; units as in `objects.devices.scv`."""

    id: int
    is_healthy: bool
    power: int
    total_memory: int
    clock: int
    free: int
    core: int
    bandwidth: int


class GpuReport(NamedTuple):
    """The content of a node's Scv. n_cards: the number that it states. total, free: MiB of all
    cards."""

    gpus: tuple[Gpu, ...]
    n_cards: int
    total: int
    free: int


def gpu_report_of(scv: Scv, bound: int) -> GpuReport:
    """The report with every amount from 0 to `bound`, at most 2^64 - 1."""

    def bounded(amount: int) -> int:
        return min(max(amount, 0), bound)

    status = scv.status
    gpus = tuple(
        Gpu(
            card.id,
            card.is_healthy,
            bounded(card.power),
            bounded(card.total_memory),
            bounded(card.clock),
            bounded(card.free_memory),
            bounded(card.core),
            bounded(card.bandwidth),
        )
        for card in status.card_list
    )
    total, free = bounded(status.total_memory_sum), bounded(status.free_memory_sum)
    return GpuReport(gpus, bounded(status.card_number), total, free)


class AvailableCard(NamedTuple):
    """A card and its remaining free memory. is_open: False where a pod reserves all of it."""

    gpu: Gpu
    memory: int
    is_open: bool


class ReportedCards:
    """The cards of a report, as devices, with what pods hold of them."""

    def __init__(self, report: GpuReport, held: Iterable[CardShares] = ()) -> None:
        self.report = report
        self._devices = NodeDevices(DeviceReport(tuple(_device(gpu) for gpu in report.gpus)))
        for shares in held:
            self.add(shares)

    def add(self, shares: CardShares) -> None:
        """Count what one more pod holds."""
        self._devices.add((shares,))

    def left(self) -> list[AvailableCard]:
        """Every card with what remains of it."""
        found = []
        for gpu, device in zip(self.report.gpus, self._devices.devices, strict=True):
            use = self._devices.use_of(device)
            is_open = use.cores < ALL_CORES
            left = max(0, gpu.free - use.memory) if is_open else 0
            found.append(AvailableCard(gpu, left, is_open))
        return found

    def healthy(self) -> list[GpuDevice]:
        """The healthy devices."""
        return [one for one in self._devices.devices if one.is_healthy]

    def n_suiting(self, demand: GpuRequest) -> int:
        """Number of devices that serve a request."""
        request = device_request(demand)
        (part,) = request.containers
        devices = self._devices.devices
        return sum(not self._devices.refusal(one, part, request) for one in devices)

    def choose(self, demand: GpuRequest) -> CardShares | None:
        """What a pod is to hold, which counts from now on: of the devices that serve it those with
        the least left, so that the others remain whole; None where there are too few."""
        if demand.n_cards > len(self._devices.devices):
            return None
        given = self._devices.place(device_request(demand))
        if given is None:
            return None
        (shares,) = given
        if demand.memory is None:
            shares = tuple(replace(one, cores=ALL_CORES) for one in shares)
            self.add(shares)
        return shares


def _device(gpu: Gpu) -> GpuDevice:
    return GpuDevice(str(gpu.id), gpu.free, is_healthy=gpu.is_healthy, clock=gpu.clock)


def device_request(demand: GpuRequest) -> DeviceRequest:
    """Labels as a request. A pod that names no memory shares a card with those that hold a part."""
    part = ContainerDevices(0, demand.n_cards, demand.memory or 0)
    return DeviceRequest(CONVENTION, (part,), DeviceFilter(clock=demand.clock))


def format_shares(shares: CardShares) -> str:
    """The annotation of a bound pod."""
    return ",".join(one.id if one.cores else f"{one.id}:{one.memory}" for one in shares)


def parse_shares(text: str) -> CardShares:
    """What the annotation says; () for a text that is none."""
    found = []
    for entry in text.split(","):
        card, separator, memory = entry.partition(":")
        if not is_number(card.removeprefix("-")) or (separator and not is_number(memory)):
            return ()
        whole = DeviceShare(card, 0, ALL_CORES)
        found.append(DeviceShare(card, int(memory)) if separator else whole)
    return tuple(found)
