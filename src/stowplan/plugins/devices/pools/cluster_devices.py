"""Devices, classes and allocations of a cluster, as every attempt reads them.

They follow the object store by delta: slices and claims that did not change keep what was made of
them. A claim that is reserved but not yet written is assumed in the object store, so that its
devices count as in use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from weakref import WeakKeyDictionary, ref

from stowplan.framework import ObjectStore
from stowplan.framework.feature_gates import FeatureGates
from stowplan.objects.devices.device import DeviceClass, DeviceTaintRule, ResourceSlice
from stowplan.objects.devices.device_claim import ResourceClaim
from stowplan.objects.meta import Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.plugins.devices.extended_resources import classes_by_resource, special_owner_of
from stowplan.plugins.devices.pools.allocated_devices import AllocatedDevices
from stowplan.plugins.devices.pools.device_pools import PoolList, SliceIndex
from stowplan.plugins.devices.pools.device_taint_rules import TaintedSlices
from stowplan.plugins.devices.states.device_states import DeviceStates


class ClusterDevices:
    """Indexes over one object store."""

    @classmethod
    def of(cls, object_store: ObjectStore, gates: FeatureGates) -> ClusterDevices:
        """The indexes of an object store, up to date."""
        found = _DEVICES.get(object_store)
        if found is None:
            found = _DEVICES[object_store] = cls(object_store, gates)
        found.refresh()
        return found

    def __init__(self, object_store: ObjectStore, gates: FeatureGates) -> None:
        """Indexes live as long as the object store; one object store has one set of gates."""
        self._object_store = ref(object_store)
        self._versions: dict[tuple[type[Object], ...], int] = {}
        self._seen_at = -1
        self._of_slices: tuple[type[Object], ...] = (
            (ResourceSlice, DeviceTaintRule) if gates.dra_device_taint_rules else (ResourceSlice,)
        )
        self._tainted = TaintedSlices()
        self.slices = SliceIndex()
        self.allocated = AllocatedDevices()
        self.classes: dict[str, DeviceClass] = {}
        self.by_resource: dict[str, DeviceClass] = {}
        self.states = DeviceStates(self.slices, self.allocated)
        # Keys of claims for extended resources, by the uid of the pod.
        self._special: dict[str, dict[str, None]] = {}
        self._special_owner: dict[str, str] = {}

    @property
    def version(self) -> int:
        """Revision token; changes with every slice, taint rule, class or claim."""
        store = self._object_store()
        if store is None:
            return 0
        return store.version_of([*self._of_slices, DeviceClass, ResourceClaim])

    def refresh(self) -> None:
        """Follow the object store."""
        store = self._object_store()
        assert store is not None, "indexes are used by readers of the object store"
        if self._seen_at == store.version:
            return
        self._seen_at = store.version
        if self._is_new(store, *self._of_slices):
            rules = store.all(DeviceTaintRule) if DeviceTaintRule in self._of_slices else ()
            self.slices.update(self._tainted.of(store.all(ResourceSlice), rules))
            self.states.slices_changed()
        if self._is_new(store, DeviceClass):
            self.classes = {one.name: one for one in store.all(DeviceClass)}
            self.by_resource = classes_by_resource(store.all(DeviceClass))
            self.states.classes_changed()
        if self._is_new(store, ResourceClaim):
            changed = store.take_changed(ResourceClaim)
            found = [(key, store.find(ResourceClaim, key)) for key in changed]
            for key, claim in found:
                self._note_special(key, claim)
            self.states.devices_changed(self.allocated.follow(found))

    def pools(self, node: Node, slices: Iterable[ResourceSlice]) -> PoolList:
        """The pools of a node if there were only these slices; raises AllocationError."""
        store = self._object_store()
        with_rules = store is not None and DeviceTaintRule in self._of_slices
        rules = store.all(DeviceTaintRule) if with_rules and store is not None else ()
        return self.slices.index_of(TaintedSlices().of(slices, rules)).pools(node)

    def special_claims_of(self, pod: Pod, store: ObjectStore) -> Iterator[ResourceClaim]:
        """Claims that may have been created for the extended resources of a pod."""
        for key in self._special.get(pod.uid, ()):
            claim = store.find(ResourceClaim, key)
            if claim is not None:
                yield claim

    def _note_special(self, key: str, claim: ResourceClaim | None) -> None:
        before = self._special_owner.pop(key, None)
        if before is not None:
            self._special[before].pop(key)
            if not self._special[before]:
                del self._special[before]
        owner = None if claim is None else special_owner_of(claim)
        if owner is not None:
            self._special_owner[key] = owner
            self._special.setdefault(owner, {})[key] = None

    def _is_new(self, store: ObjectStore, *kinds: type[Object]) -> bool:
        version = store.version_of(kinds)
        if self._versions.get(kinds) == version:
            return False
        self._versions[kinds] = version
        return True


_DEVICES: WeakKeyDictionary[ObjectStore, ClusterDevices] = WeakKeyDictionary()
