"""Objects that are shown while they are created."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from stowplan.framework import ObjectStore
from stowplan.objects.devices.device_claim import (
    AllocationResult,
    ResourceClaim,
    ResourceClaimStatus,
)
from stowplan.objects.meta import ObjectMeta

ALLOCATED = ResourceClaimStatus(AllocationResult())
ASSUMED = ResourceClaim(ObjectMeta("c", "ns"), status=ALLOCATED)
CREATED = ResourceClaim(ObjectMeta("c", "ns", "uid-1", resource_version="1"))
WRITTEN = replace(CREATED, status=ALLOCATED)


def is_allocated(claim: Any) -> bool:
    return claim.status.allocation is not None


def store() -> ObjectStore:
    made = ObjectStore()
    made.take_changed(ResourceClaim)
    made.assume_new(ASSUMED, is_allocated)
    return made


def states(made: ObjectStore) -> tuple[ResourceClaim | None, ResourceClaim | None, int]:
    """What plugins find, what the watch has shown, and how many objects are listed."""
    found, observed = made.find(ResourceClaim, "ns/c"), made.observed(ResourceClaim, "ns/c")
    return found, observed, len(list(made.every()))


def test_it_is_visible_until_the_watch_has_all_of_it() -> None:
    made = store()
    assert states(made) == (ASSUMED, None, 0)
    assert made.take_changed(ResourceClaim) == ["ns/c"]
    made.put(CREATED)
    assert states(made) == (ASSUMED, CREATED, 1)
    made.put(WRITTEN)
    assert states(made) == (WRITTEN, WRITTEN, 1)


def test_it_is_gone_where_it_was_not_created() -> None:
    made = store()
    made.restore(ASSUMED)
    assert states(made) == (None, None, 0)
    made.restore(ASSUMED)
    made.put(CREATED)
    assert states(made) == (CREATED, CREATED, 1)


def test_what_was_created_stays() -> None:
    made = store()
    made.put(CREATED)
    made.restore(ASSUMED)
    assert states(made) == (CREATED, CREATED, 1)


def test_a_deletion_ends_it() -> None:
    made = store()
    made.put(CREATED)
    made.drop(ResourceClaim, "ns/c")
    assert states(made) == (None, None, 0)
    made.put(CREATED)
    assert states(made) == (CREATED, CREATED, 1)
