"""Devices in use by allocated claims, followed by the claims that changed.

Source: kube-scheduler v1.36, plugins/dynamicresources/allocateddevices.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stowplan.objects.devices.device_claim import AllocationResult, DeviceResult, ResourceClaim
from stowplan.plugins.devices.device_amounts import amount_of
from stowplan.plugins.devices.pools.device_pools import DeviceId, PoolId

_UNUSED: Mapping[str, int] = {}


class AllocatedDevices:
    """Devices and device capacity in use; devices used with admin access are not.

    devices: those that one claim has for itself. capacities: of shared devices, billionths by name
    of the capacity. n_releases: changes with every device that is given back.
    """

    def __init__(self) -> None:
        """Nothing is in use."""
        self.n_releases = 0
        self.capacities: dict[DeviceId, dict[str, int]] = {}
        self._claims: dict[str, ResourceClaim] = {}
        self._n_uses: dict[DeviceId, int] = {}
        self._n_shares: dict[DeviceId, int] = {}

    def is_dedicated(self, place: DeviceId) -> bool:
        """True for a device that a claim has for itself."""
        return place in self._n_uses

    def is_used(self, place: DeviceId) -> bool:
        """True for a device that a claim uses, shared or not."""
        return place in self._n_uses or self.is_shared(place)

    @property
    def has_shares(self) -> bool:
        """True where a device is shared by claims."""
        return bool(self._n_shares or self.capacities)

    def is_shared(self, place: DeviceId) -> bool:
        """True for a device of which a claim has a share."""
        return place in self._n_shares or place in self.capacities

    def capacity_of(self, place: DeviceId) -> Mapping[str, int]:
        """Consumed capacity of a device, billionths by name."""
        return self.capacities.get(place, _UNUSED)

    def follow(self, changed: Iterable[tuple[str, ResourceClaim | None]]) -> set[PoolId]:
        """Follow changed claims by key, None for one that is gone; returns the pools whose devices
        changed."""
        touched: set[PoolId] = set()
        for key, claim in changed:
            held = self._claims.pop(key, None)
            if claim is not None:
                self._claims[key] = claim
            if held is claim or _devices_of(held) == _devices_of(claim):
                continue
            self.n_releases += bool(_devices_of(held))
            touched |= self._apply(_devices_of(held), -1)
            touched |= self._apply(_devices_of(claim), 1)
        return touched

    def suppose(self, result: AllocationResult) -> None:
        """Count the devices of a result as in use, until it is withdrawn."""
        self._apply(result.devices.results, 1)

    def withdraw(self, result: AllocationResult) -> None:
        """End a supposition."""
        self.n_releases += 1
        self._apply(result.devices.results, -1)

    def update(self, claims: Iterable[ResourceClaim]) -> set[PoolId]:
        """Follow the claims of the cluster; returns the pools whose devices changed."""
        now = {claim.key: claim for claim in claims}
        gone = [key for key in self._claims if key not in now]
        return self.follow([*((key, None) for key in gone), *now.items()])

    def _apply(self, results: Iterable[DeviceResult], sign: int) -> set[PoolId]:
        """Count devices once more or once less; returns their pools."""
        touched: set[PoolId] = set()
        for result in results:
            if result.admin_access:
                continue
            touched.add((result.driver, result.pool))
            place = (result.driver, result.pool, result.device)
            if result.share_id is None:
                _count(self._n_uses, place, sign)
                continue
            _count(self._n_shares, place, sign)
            if result.consumed_capacity:
                self._consume(place, result, sign)
        return touched

    def _consume(self, place: DeviceId, result: DeviceResult, sign: int) -> None:
        held = self.capacities.setdefault(place, {})
        for name, quantity in result.consumed_capacity.items():
            held[name] = held.get(name, 0) + sign * amount_of(quantity).nanos
        if sign < 0 and not any(held.values()):
            del self.capacities[place]


def _devices_of(claim: ResourceClaim | None) -> tuple[DeviceResult, ...]:
    allocation = None if claim is None else claim.status.allocation
    return () if allocation is None else allocation.devices.results


def _count(counts: dict[DeviceId, int], place: DeviceId, sign: int) -> None:
    counts[place] = counts.get(place, 0) + sign
    if not counts[place]:
        del counts[place]
