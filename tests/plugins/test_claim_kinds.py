"""The kinds of volumes by claim, as claims and volumes come, change and go."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from stowplan.benchmarks.benchmark_objects import make_object
from stowplan.framework import ObjectStore
from stowplan.framework.handle_state import HandleState
from stowplan.objects.storage import PersistentVolume, PersistentVolumeClaim
from stowplan.plugins.volumes.claims.claim_kinds import ClaimKinds

BOUND = {"pv.kubernetes.io/bind-completed": "yes"}


def volume(name: str, driver: str = "d", **spec: Any) -> PersistentVolume:
    source = {"driver": driver, "volumeHandle": name}
    return make_object(PersistentVolume, name, spec={"csi": source, **spec})


def claim(name: str, of: str, **rest: Any) -> PersistentVolumeClaim:
    made: PersistentVolumeClaim = make_object(
        PersistentVolumeClaim,
        name,
        "default",
        annotations=BOUND,
        spec={"volumeName": of, **rest},
    )
    return made


def driver_of(store: ObjectStore, name: str) -> str | None:
    kind = ClaimKinds.of(store).find(f"default/{name}")
    return None if kind is None else kind.driver


def test_equal_volumes_are_of_one_kind() -> None:
    store = ObjectStore([volume("v0"), claim("c0", "v0")])
    kinds = ClaimKinds.of(store)
    store.put(claim("c1", "v1"))
    assert driver_of(store, "c1") is None
    store.put(volume("v1", claimRef={"namespace": "default", "name": "c1"}))
    assert kinds.find("default/c1") is kinds.find("default/c0") is not None


def test_a_volume_that_changes_or_goes_is_read_again() -> None:
    store = ObjectStore([claim("c", "v"), volume("v")])
    assert driver_of(store, "c") == "d"
    store.put(volume("v", driver="e"))
    assert driver_of(store, "c") == "e"
    store.drop(PersistentVolume, "v")
    assert driver_of(store, "c") is None
    store.put(volume("v", driver="f"))
    assert driver_of(store, "c") == "f"


def test_a_claim_that_is_looked_at_by_name_has_none() -> None:
    store = ObjectStore([volume("v"), volume("w", driver="e")])
    assert driver_of(store, "c") is None
    for rest in ({"accessModes": ["ReadWriteOncePod"]}, {"volumeName": ""}):
        store.put(claim("c", "v"))
        assert driver_of(store, "c") == "d"
        store.put(claim("c", **{"of": "v", **rest}))
        assert driver_of(store, "c") is None
    store.put(claim("c", "w"))
    assert driver_of(store, "c") == "e"
    unbound = claim("c", "w")
    store.put(replace(unbound, metadata=replace(unbound.metadata, annotations={})))
    assert driver_of(store, "c") is None


def test_what_is_assumed_counts_until_it_is_reverted() -> None:
    free = make_object(PersistentVolumeClaim, "c", "default", spec={})
    store = ObjectStore([volume("v"), free])
    assert driver_of(store, "c") is None
    assumed = claim("c", "v")
    store.assume(assumed)
    assert driver_of(store, "c") == "d"
    store.restore(assumed)
    assert driver_of(store, "c") is None


def test_nothing_is_kept_of_what_is_gone() -> None:
    store = ObjectStore([volume("v"), claim("c", "v"), claim("late", "missing")])
    kinds = ClaimKinds.of(store)
    store.drop(PersistentVolume, "v")
    store.drop(PersistentVolumeClaim, "default/c")
    store.drop(PersistentVolumeClaim, "default/late")
    assert not kinds._volumes
    assert not kinds._of_claim


def test_they_are_read_from_the_first_object_on() -> None:
    state, begun = HandleState(), list[ObjectStore]()
    state.read_from_start(begun.append)
    store = ObjectStore()
    state.object_store = store
    assert begun == [store]
