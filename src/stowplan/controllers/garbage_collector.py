"""Garbage collector: deletes dependents of deleted owners, and finishes foreground and orphan
deletion.

Background deletion: the owner is deleted at once, its dependents afterwards. Foreground: the owner
stays (finalizer `foregroundDeletion`) until all dependents that block its deletion are deleted.
Orphan: it stays (finalizer `orphan`) until its dependents no longer refer to it.

Source: kube-controller-manager v1.36, pkg/controller/garbagecollector.
"""

from __future__ import annotations

import msgspec

from stowplan.apis.machinery.errors import ApiError
from stowplan.controller_runtime.object_fields import is_deleting
from stowplan.controller_runtime.object_index import Key, ObjectIndex, PodFacts, split_key
from stowplan.controller_runtime.resource_paths import PODS
from stowplan.controller_runtime.work_queue import WorkQueue
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import DeleteOptions, Store, WatchEvent

Item = tuple[str, str, str]
"""Path, namespace and name."""


class _DependentMeta(msgspec.Struct, rename="camel"):
    uid: str = ""
    deletion_timestamp: str | None = None
    finalizers: list[str] | None = None


class _DependentObject(msgspec.Struct):
    metadata: _DependentMeta


_DEPENDENT_DECODER = msgspec.json.Decoder(_DependentObject)
FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"


class GarbageCollector:
    """Deletes objects without living owners, and removes the finalizers of deleted owners."""

    name = "garbage"
    observed: tuple[str, ...] = ()

    def __init__(self, api: Store, index: ObjectIndex) -> None:
        self.api = api
        self.index = index
        self.queue: WorkQueue[Item] = WorkQueue()
        self._waiting: dict[str, Item] = {}

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Queue objects with new owners, deletions that wait for dependents, and dependents of
        deleted objects."""
        namespace, name = split_key(change)
        item = (change.path, namespace, name)
        if self.index.owners_changed:
            if change.type != "DELETED":
                self.queue.add(item)
            for uid in self.index.owners_lost:
                if uid in self._waiting:
                    self.queue.add(self._waiting[uid])
        if change.type == "DELETED":
            uid = _DEPENDENT_DECODER.decode(change.value).metadata.uid
            self._waiting.pop(uid, None)
            self.queue_all(self.index.dependents(uid))
        elif self._may_be_deleting(change, (namespace, name)):
            meta = _DEPENDENT_DECODER.decode(change.value).metadata
            held = meta.finalizers or ()
            if meta.deletion_timestamp and (FOREGROUND in held or ORPHAN in held):
                self.queue.add(item)
                if FOREGROUND in held and meta.uid not in self._waiting:
                    self._waiting[meta.uid] = item
                    self.queue_all(self.index.dependents(meta.uid))

    def queue_all(self, items: list[Item]) -> None:
        """Queue all of these."""
        for item in items:
            self.queue.add(item)

    def work_once(self) -> bool:
        """Sync the next due object; False if there is none."""
        item = self.queue.take(self.api.now)
        if item is None:
            return False
        try:
            self.sync(item)
        except ApiError as error:
            if error.code != 404:
                self.queue.retry(item, self.api.now)
        # Any exception concerns this object only: the others are synced.
        except Exception as error:  # noqa: BLE001
            self.queue.retry(item, self.api.now)
            self.api.faults.add(self.name, "/".join(part for part in item if part), error)
        else:
            self.queue.forget(item)
        return True

    @property
    def n_failing(self) -> int:
        """Number of objects whose last sync failed."""
        return self.queue.n_failing

    def next_at(self) -> float | None:
        """When `work_once` is due again."""
        return self.queue.next_at()

    def _may_be_deleting(self, change: WatchEvent, key: Key) -> bool:
        # Reading the bytes of every pod once more would take longer.
        pod = self.index.pods.get(key) if change.path == PODS else None
        return b'"deletionTimestamp"' in change.value if pod is None else bool(pod.deleting)

    def sync(self, item: Item) -> None:
        """Keep an object, remove references to deleted owners, delete it, or remove its
        finalizer."""
        obj = self.api.get(*item)
        if obj is None:
            return
        finalizers = obj["metadata"].get("finalizers") or []
        if is_deleting(obj):
            if ORPHAN in finalizers:
                self._orphan_dependents(item, obj)
            elif FOREGROUND in finalizers:
                self._try_remove_finalizer(item, obj)
            return
        owners = obj["metadata"].get("ownerReferences") or []
        if owners:
            self._decide(item, obj, owners)

    def _decide(self, item: Item, obj: Tree, owners: list[Tree]) -> None:
        solid, dangling, waiting = [], [], []
        for owner in owners:
            found = self._owner(owner, item[1])
            if found is None:
                solid.append(owner)  # The kind is not served: do nothing.
            elif not found:
                dangling.append(owner)
            elif is_deleting(found) and FOREGROUND in found["metadata"].get("finalizers", ()):
                waiting.append(owner)
            else:
                solid.append(owner)
        if solid:
            if dangling or waiting:
                self._cut(item, obj, {owner["uid"] for owner in (*dangling, *waiting)})
            return
        policy = "Background"
        finalizers = obj["metadata"].get("finalizers") or []
        if waiting and self.index.dependents(obj["metadata"]["uid"]):
            policy = "Foreground"
            obj = self._unblocked(item, obj)
        elif ORPHAN in finalizers:
            policy = "Orphan"
        elif FOREGROUND in finalizers:
            policy = "Foreground"
        meta = obj["metadata"]
        asked = DeleteOptions(propagation=policy, uid=meta["uid"], version=meta["resourceVersion"])
        self.api.delete(*item, asked)

    def _owner(self, owner: Tree, namespace: str) -> Tree | None:
        """The owner; {} if it is deleted (or has another uid); None if unknown."""
        place = self.api.path_of(owner.get("apiVersion", ""), owner.get("kind", ""))
        if place is None:
            return None
        path, namespaced = place
        if namespaced and not namespace:
            return None
        found = self.api.get(path, namespace if namespaced else "", owner.get("name", ""))
        if found is None or found["metadata"]["uid"] != owner.get("uid"):
            return {}
        return found

    def _unblocked(self, item: Item, obj: Tree) -> Tree:
        """The object, with blockOwnerDeletion cleared if it is in a cycle with a dependent."""
        circle = any(uid in self._waiting for uid in self._uids_below(obj["metadata"]["uid"]))
        if not circle:
            return obj
        for owner in obj["metadata"]["ownerReferences"]:
            owner["blockOwnerDeletion"] = False
        return self.api.update(item[0], obj)

    def _uids_below(self, uid: str) -> list[str]:
        found = (self.api.get(*item) for item in self.index.dependents(uid))
        return [child["metadata"]["uid"] for child in found if child is not None]

    def _cut(self, item: Item, obj: Tree, uids: set[str]) -> None:
        owners = obj["metadata"].get("ownerReferences") or []
        kept = [each for each in owners if each.get("uid") not in uids]
        if len(kept) != len(owners):
            obj["metadata"]["ownerReferences"] = kept
            self.api.update(item[0], obj)

    def _orphan_dependents(self, item: Item, obj: Tree) -> None:
        uid = obj["metadata"]["uid"]
        for dependent in self.index.dependents(uid):
            child = self.api.get(*dependent)
            if child is not None:
                self._cut(dependent, child, {uid})
        self._without_finalizer(item, ORPHAN)

    def _try_remove_finalizer(self, item: Item, obj: Tree) -> None:
        """Remove the foreground finalizer when no blocking dependent is left."""
        uid = obj["metadata"]["uid"]
        blocked = False
        for dependent in self.index.dependents(uid):
            child = self.api.get(*dependent)
            owners = child["metadata"].get("ownerReferences", ()) if child is not None else ()
            if any(o.get("uid") == uid and o.get("blockOwnerDeletion") for o in owners):
                blocked = True
                if child is not None and not is_deleting(child):
                    self.queue.add(dependent)
        if blocked:
            return
        self._waiting.pop(uid, None)
        self._without_finalizer(item, FOREGROUND)

    def _without_finalizer(self, item: Item, finalizer: str) -> None:
        obj = self.api.get(*item)
        if obj is None:
            return
        held = obj["metadata"].get("finalizers") or []
        obj["metadata"]["finalizers"] = [each for each in held if each != finalizer]
        self.api.update(item[0], obj)
