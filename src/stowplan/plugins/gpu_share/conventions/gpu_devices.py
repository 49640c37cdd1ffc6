"""GPU devices of a node that pods share, and the parts of them that pods request and have.

Memory is in MiB, cores in percent of a device. The rules are those that Volcano's vGPU plugin and
HAMi's scheduler have in common.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from stowplan.objects.devices.gpu_cards import CARD_MILLI
from stowplan.plugins.gpu_share.conventions.gpu_links import LinkRows, closest_cards

ALL_CORES = 100
UNLIMITED = 1 << 30
"""Pods per device where the node names no limit."""


class GpuDevice(msgspec.Struct, frozen=True):
    """A device. memory: MiB. cores: percent. slots: pods that may share it. numa: -1 if unknown.
    clock: of its memory, MHz; 0 if unknown."""

    id: str
    memory: int
    model: str = ""
    cores: int = ALL_CORES
    slots: int = UNLIMITED
    is_healthy: bool = True
    numa: int = -1
    mode: str = ""
    clock: int = 0


class DeviceReport(msgspec.Struct, frozen=True):
    """The devices of a node. problem: why they cannot be used, "" if they can. links: how close two
    devices are, by index; empty where nothing is known. links_problem: why the links that a node is
    annotated with do not count, "" if they do."""

    devices: tuple[GpuDevice, ...] = ()
    problem: str = ""
    links: LinkRows = ()
    links_problem: str = ""


class ContainerDevices(msgspec.Struct, frozen=True):
    """The request of a container: parts of `count` different devices.

    index: of the container in the pod's spec. memory: MiB on each. percentage, millionths: of the
    memory of each, instead of MiB; 0 for none. cores: percent of each.
    """

    index: int
    count: int
    memory: int = 0
    percentage: int = 0
    cores: int = 0
    millionths: int = 0

    def memory_on(self, device: GpuDevice) -> int:
        """MiB on a device."""
        if self.percentage:
            return device.memory * self.percentage // 100
        if self.millionths:
            return -(-device.memory * self.millionths // 1_000_000)
        return self.memory


class DeviceFilter(msgspec.Struct, frozen=True):
    """Devices that a pod accepts. models, not_models: parts of model names, in any case; empty for
    any. ids, not_ids: likewise, whole ids. modes: "" for any. numa: all from one NUMA node. clock:
    exactly this one, None for any."""

    models: tuple[str, ...] = ()
    not_models: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    not_ids: tuple[str, ...] = ()
    mode: str = ""
    numa: bool = False
    clock: int | None = None

    def accepts(self, device: GpuDevice) -> bool:
        """True for an accepted device."""
        model = device.model.upper()
        if self.models and not any(part.upper() in model for part in self.models):
            return False
        if any(part.upper() in model for part in self.not_models):
            return False
        if (self.ids and device.id not in self.ids) or device.id in self.not_ids:
            return False
        if self.clock not in (None, device.clock):
            return False
        return not self.mode or device.mode in self.mode


class DeviceRequest(msgspec.Struct, frozen=True):
    """The request of a pod. convention: name of it. is_count_elsewhere: on a node without that
    convention it is a number of whole devices, which the kubelet assigns. group: of pods that must
    not share a device, "" for none. tenant: of pods that alone share devices with it, "" for all.
    problem: why no node can serve it, "" if one may."""

    convention: str
    containers: tuple[ContainerDevices, ...] = ()
    accepted: DeviceFilter = DeviceFilter()
    is_count_elsewhere: bool = False
    group: str = ""
    tenant: str = ""
    problem: str = ""

    @property
    def count(self) -> int:
        """Devices of all containers."""
        return sum(container.count for container in self.containers)

    def milli_on(self, memory: int) -> int:
        """Thousandths of a device with so much memory: the larger of memory and cores, of the
        container that requests most; at least 1, at most 1000."""
        device = GpuDevice("", memory)
        parts = [
            max(
                -(-CARD_MILLI * one.memory_on(device) // memory) if memory else 0,
                one.cores * CARD_MILLI // ALL_CORES,
            )
            for one in self.containers
        ]
        return min(max(parts, default=0, key=int) or 1, CARD_MILLI)


class DeviceShare(msgspec.Struct, frozen=True):
    """What a container has of a device."""

    id: str
    memory: int
    cores: int = 0


PodShares = tuple[tuple[DeviceShare, ...], ...]
"""By container of the pod's request, in its order."""


class DeviceUse(msgspec.Struct):
    """What pods have of a device."""

    memory: int = 0
    cores: int = 0
    pods: int = 0
    groups: set[str] = msgspec.field(default_factory=set)
    tenants: set[str] = msgspec.field(default_factory=set)


class NodeDevices:
    """The devices of a node and what is used of them.

    Shares of devices that the node no longer has count nowhere.
    """

    def __init__(self, report: DeviceReport) -> None:
        devices = report.devices
        self.devices = devices
        self.links = report.links
        self._uses = {device.id: DeviceUse() for device in devices}

    def use_of(self, device: GpuDevice) -> DeviceUse:
        """The use of one of the devices."""
        return self._uses[device.id]

    def memory_left(self) -> list[int]:
        """MiB left of each device; 0 of one that is not healthy."""
        return [
            max(one.memory - self._uses[one.id].memory, 0) if one.is_healthy else 0
            for one in self.devices
        ]

    def milli_left(self) -> tuple[int, ...]:
        """Thousandths left of each device: the smaller of memory and cores."""
        left = []
        for device, memory in zip(self.devices, self.memory_left(), strict=True):
            use = self._uses[device.id]
            parts = [CARD_MILLI * memory // device.memory if device.memory else 0]
            if device.cores:
                parts.append(CARD_MILLI * max(device.cores - use.cores, 0) // device.cores)
            left.append(min(parts) if device.is_healthy else 0)
        return tuple(left)

    def add(self, shares: PodShares, group: str = "", tenant: str = "") -> None:
        """Count a pod's shares."""
        for share in (share for container in shares for share in container):
            use = self._uses.get(share.id)
            if use is not None:
                use.memory += share.memory
                use.cores += share.cores
                use.pods += 1
                if group:
                    use.groups.add(group)
                if tenant:
                    use.tenants.add(tenant)

    def refusal(self, device: GpuDevice, part: ContainerDevices, request: DeviceRequest) -> str:
        """Why a device does not serve a container, "" if it does."""
        use = self._uses[device.id]
        if not device.is_healthy:
            return "not healthy"
        if not request.accepted.accepts(device):
            return "not accepted by the pod"
        if use.pods >= device.slots:
            return "shared by as many pods as it may be"
        if request.group and request.group in use.groups:
            return "used by a pod of the same group"
        if request.tenant and use.tenants - {request.tenant}:
            return "shared by pods of another namespace"
        if device.memory - use.memory < part.memory_on(device):
            return "too little memory left"
        if device.cores - use.cores < part.cores:
            return "too few cores left"
        # All cores mean that no other pod shares the device.
        if part.cores == ALL_CORES == device.cores and use.pods:
            return "in use"
        if device.cores and use.cores == device.cores and not part.cores:
            return "all cores used"
        return ""

    def place(self, request: DeviceRequest, order: Iterable[int] | None = None) -> PodShares | None:
        """Devices for each container, counted as used; None, and nothing is counted, if one finds
        too few.

        order: indexes of the devices in the order in which they are taken; the one with the least
        memory left first by default.
        """
        taken: list[tuple[DeviceShare, ...]] = []
        before = {name: msgspec.structs.replace(use) for name, use in self._uses.items()}
        for use in before.values():
            use.groups, use.tenants = set(use.groups), set(use.tenants)
        for part in request.containers:
            shares = self._for_container(part, request, self._order(order))
            if shares is None:
                self._uses = before
                return None
            taken.append(shares)
            # Containers of one pod may share a device.
            self.add((shares,), tenant=request.tenant)
        if request.group:
            self.add_group(taken, request.group)
        return tuple(taken)

    def has_left(self, shares: PodShares, request: DeviceRequest) -> bool:
        """True if the devices still have what was chosen for a request."""
        devices = {device.id: device for device in self.devices}
        chosen = [
            (devices.get(share.id), part)
            for part, given in zip(request.containers, shares, strict=False)
            for share in given
        ]
        total = Counter(share.id for given in shares for share in given)
        return len(shares) == len(request.containers) and all(
            device is not None and total[device.id] == 1 and not self.refusal(device, part, request)
            for device, part in chosen
        )

    def add_group(self, shares: Iterable[Iterable[DeviceShare]], group: str) -> None:
        """Mark devices as used by a group."""
        for share in (share for container in shares for share in container):
            self._uses[share.id].groups.add(group)

    def _order(self, order: Iterable[int] | None) -> list[int]:
        if order is not None:
            return list(order)
        left = self.memory_left()
        return sorted(range(len(self.devices)), key=lambda index: (left[index], index))

    def _for_container(
        self, part: ContainerDevices, request: DeviceRequest, order: list[int]
    ) -> tuple[DeviceShare, ...] | None:
        devices = self.devices
        suiting = [one for one in order if not self.refusal(devices[one], part, request)]
        if request.accepted.numa:
            suiting = _of_one_numa_node(devices, suiting, part.count)
        if len(suiting) < part.count:
            return None
        chosen = tuple(suiting[: part.count])
        if self.links:
            chosen = closest_cards(self.links, tuple(suiting), part.count)
        return tuple(
            DeviceShare(device.id, part.memory_on(device), part.cores)
            for device in (devices[index] for index in chosen)
        )


def _of_one_numa_node(
    devices: Sequence[GpuDevice], suiting: Sequence[int], count: int
) -> list[int]:
    """Those of the first NUMA node that has enough of them; none if none has."""
    by_node: dict[int, list[int]] = {}
    for index in suiting:
        by_node.setdefault(devices[index].numa, []).append(index)
    return next((some for some in by_node.values() if len(some) >= count), [])


def listed(annotations: Mapping[str, str], key: str) -> tuple[str, ...]:
    """The parts of an annotation that is separated by commas."""
    parts = (part.strip() for part in annotations.get(key, "").split(","))
    return tuple(part for part in parts if part)
