"""Devices, classes and allocations of a cluster, as every attempt reads them.

They follow the object store by delta: slices and claims that did not change keep what was made of
them. A claim that is reserved but not yet written is assumed in the object store, so that its
devices count as in use.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary, ref

from stowplan.framework import ObjectStore
from stowplan.framework.feature_gates import FeatureGates
from stowplan.objects.devices.device import DeviceClass, DeviceTaintRule, ResourceSlice
from stowplan.objects.devices.device_claim import ResourceClaim
from stowplan.objects.meta import Object
from stowplan.plugins.devices.extended_resources import classes_by_resource
from stowplan.plugins.devices.pools.allocated_devices import AllocatedDevices
from stowplan.plugins.devices.pools.device_pools import SliceIndex
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
        self._of_slices: tuple[type[Object], ...] = (
            (ResourceSlice, DeviceTaintRule) if gates.dra_device_taint_rules else (ResourceSlice,)
        )
        self._tainted = TaintedSlices()
        self.slices = SliceIndex()
        self.allocated = AllocatedDevices()
        self.classes: dict[str, DeviceClass] = {}
        self.by_resource: dict[str, DeviceClass] = {}
        self.states = DeviceStates(self.slices, self.allocated)

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
            found = ((key, store.find(ResourceClaim, key)) for key in changed)
            self.states.devices_changed(self.allocated.follow(found))

    def _is_new(self, store: ObjectStore, *kinds: type[Object]) -> bool:
        version = store.version_of(kinds)
        if self._versions.get(kinds) == version:
            return False
        self._versions[kinds] = version
        return True


_DEVICES: WeakKeyDictionary[ObjectStore, ClusterDevices] = WeakKeyDictionary()
