"""Devices for the claims of pods in a session of KAI-Scheduler, by the search that profiles use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stowplan.batch.queue_models.kai.session_claims import Allocate
from stowplan.batch.queue_models.kai.state.kai_node import KaiNode
from stowplan.objects.devices.device import DeviceClass, ResourceSlice
from stowplan.objects.devices.device_claim import AllocationResult, ResourceClaim
from stowplan.plugins.devices.allocation_search import InvalidPools, SearchInput, search_devices
from stowplan.plugins.devices.claim_allocation import allocation_results
from stowplan.plugins.devices.device_selectors import DeviceSelectors
from stowplan.plugins.devices.pools.allocated_devices import AllocatedDevices
from stowplan.plugins.devices.pools.device_pools import AllocationError, SliceIndex


def device_allocation(slices: Iterable[ResourceSlice], classes: Iterable[DeviceClass]) -> Allocate:
    """Chooses devices from what drivers publish. A node whose pools are invalid has none, and so
    has one on which a selector or request is at fault."""
    index = SliceIndex()
    index.update(slices)
    by_name = {one.name: one for one in classes}
    selectors = DeviceSelectors()
    in_use = AllocatedDevices()

    def allocate(
        claims: Sequence[ResourceClaim], node: KaiNode, others: Iterable[ResourceClaim]
    ) -> Sequence[AllocationResult] | None:
        in_use.update(others)
        given = SearchInput(claims, by_name, in_use, selectors)
        try:
            found = search_devices(given, node.node, index.pools(node.node))
            return None if found is None else allocation_results(given, node.node, found)
        except (AllocationError, InvalidPools):
            return None

    return allocate
