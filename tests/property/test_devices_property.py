"""Device allocation on drawn pools: no device twice, no counter or capacity overdrawn."""

from __future__ import annotations

import random
from typing import Any

import pytest

from stowplan.objects.devices.device import DeviceClass, ResourceSlice
from stowplan.objects.devices.device_claim import ResourceClaim
from stowplan.objects.encoding.json_codec import convert
from stowplan.plugins.devices.allocation_search import SearchInput, search_devices
from stowplan.plugins.devices.claim_allocation import allocation_results
from stowplan.plugins.devices.claim_binding import assume_claims
from stowplan.plugins.devices.device_selectors import DeviceSelectors
from stowplan.plugins.devices.pools.allocated_devices import AllocatedDevices
from stowplan.plugins.devices.pools.device_pools import AllocationError, SliceIndex
from stowplan.testing import node, pod

DRIVER = "gpu.example.com"
CLASS = convert({"metadata": {"name": "gpu"}}, DeviceClass)
N_COUNTERS = 4


def random_slices(rng: random.Random) -> list[ResourceSlice]:
    """Whole cards and halves that share counters, and cards that are shared."""
    devices: list[dict[str, Any]] = []
    for card in range(rng.randint(1, 3)):
        for part, size in (("whole", 4), ("half0", 2), ("half1", 2)):
            used = {"counterSet": f"c{card}", "counters": {"slices": {"value": str(size)}}}
            devices.append({"name": f"{card}-{part}", "consumesCounters": [used]})
    for card in range(rng.randint(0, 2)):
        memory = {"memory": {"value": "8Gi"}}
        devices.append({"name": f"s{card}", "allowMultipleAllocations": True, "capacity": memory})
    rng.shuffle(devices)
    counters = [
        {"name": f"c{card}", "counters": {"slices": {"value": str(N_COUNTERS)}}}
        for card in range(3)
    ]
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 2}
    spec = {"driver": DRIVER, "nodeName": "n", "pool": pool}
    return [
        convert({"metadata": {"name": "a"}, "spec": {**spec, "devices": devices}}, ResourceSlice),
        convert(
            {"metadata": {"name": "b"}, "spec": {**spec, "sharedCounters": counters}}, ResourceSlice
        ),
    ]


def random_claim(rng: random.Random, number: int) -> ResourceClaim:
    def one() -> dict[str, Any]:
        made: dict[str, Any] = {
            "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": rng.randint(1, 2),
        }  # fmt: skip
        if rng.random() < 0.3:
            made["capacity"] = {"requests": {"memory": f"{rng.randint(1, 5)}Gi"}}
        return made

    requests: list[dict[str, Any]] = []
    for index in range(rng.randint(1, 2)):
        if rng.random() < 0.3:
            some = [{"name": f"s{i}", **one()} for i in range(2)]
            requests.append({"name": f"r{index}", "firstAvailable": some})
        else:
            requests.append({"name": f"r{index}", "exactly": one()})
    tree = {"metadata": {"name": f"c{number}"}, "spec": {"devices": {"requests": requests}}}
    return convert(tree, ResourceClaim)


def faults(claims: list[ResourceClaim], slices: list[ResourceSlice]) -> list[str]:
    """What is allocated twice or overdrawn, counted from the claims alone."""
    devices = {one.name: one for part in slices for one in part.spec.devices}
    taken: list[str] = []
    memory: dict[str, int] = {}
    counters: dict[str, int] = {}
    for claim in claims:
        assert claim.status.allocation is not None
        for result in claim.status.allocation.devices.results:
            device = devices[result.device]
            if device.allow_multiple_allocations:
                text = str(result.consumed_capacity["memory"])
                held = memory.get(result.device, 0)
                memory[result.device] = held + int(text.removesuffix("Gi"))
                continue
            taken.append(result.device)
            for used in device.consumes_counters:
                size = int(str(used.counters["slices"].value))
                counters[used.counter_set] = counters.get(used.counter_set, 0) + size
    found = [f"{name} twice" for name in set(taken) if taken.count(name) > 1]
    found += [f"{name}: {size} Gi of 8" for name, size in memory.items() if size > 8]
    return found + [f"{name}: {n} of 4" for name, n in counters.items() if n > N_COUNTERS]


def filled(seed: int, *, forgets: bool = False) -> tuple[list[ResourceClaim], list[ResourceSlice]]:
    """Claims allocated one after the other. forgets: the planted wrong variant does not count what
    earlier claims have."""
    rng = random.Random(seed)
    slices, where = random_slices(rng), node("n")
    index, selectors = SliceIndex(), DeviceSelectors()
    index.update(slices)
    allocated, done = AllocatedDevices(), []
    for number in range(6):
        claim = random_claim(rng, number)
        given = SearchInput([claim], {"gpu": CLASS}, allocated, selectors, 20_000)
        try:
            found = search_devices(given, where, index.pools(where))
        except AllocationError:
            continue
        if found is None:
            continue
        results = allocation_results(given, where, found)
        done.append(assume_claims(pod("p"), [claim], results).claims[0].after)
        if not forgets:
            allocated.update(done)
    return done, slices


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_nothing_is_overdrawn(first: int) -> None:
    for seed in range(first, first + 50):
        assert faults(*filled(seed)) == [], seed


def test_a_search_that_forgets_what_is_in_use_is_caught() -> None:
    assert any(faults(*filled(seed, forgets=True)) for seed in range(20))


def test_claims_are_followed_by_delta() -> None:
    done, _ = filled(7)
    followed, anew = AllocatedDevices(), AllocatedDevices()
    for n in (len(done), 1, len(done), 0, 2):
        followed.update(done[:n])
    anew.update(done[:2])
    allocations = [one.status.allocation for one in done if one.status.allocation is not None]
    places = [(r.driver, r.pool, r.device) for a in allocations for r in a.devices.results]
    for place in places:
        assert followed.is_used(place) == anew.is_used(place)
        assert followed.is_dedicated(place) == anew.is_dedicated(place)
        assert followed.capacity_of(place) == anew.capacity_of(place)
