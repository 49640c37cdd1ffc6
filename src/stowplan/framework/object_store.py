"""ObjectStore: the objects other than nodes and pods that plugins read, by kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from stowplan.objects.meta import NamespacedObject, Object
from stowplan.objects.storage import CSINode, PersistentVolume, PersistentVolumeClaim

T = TypeVar("T", bound=Object)


def key_of(value: Object) -> str:
    """`NAMESPACE/NAME` of a namespaced object, the name of a cluster-scoped one."""
    return value.key if isinstance(value, NamespacedObject) else value.name


ANNOTATIONS_COUNT = CSINode, PersistentVolume, PersistentVolumeClaim
"""Kinds of which plugins read annotations: which in-tree plugins are migrated, whether a claim is
bound, and the node that was selected for it."""

NOT_OBSERVED = Object()
"""Stands for an object that the watch has not shown yet."""


class ObjectChange(msgspec.Struct, frozen=True):
    """A change of an object in the cluster, applied only while its resource version is that of
    `value`.

    value: the object after the change. patch: the change as a JSON merge patch, which keeps fields
    that Stowplan does not know; a patch of `status` alone goes to the subresource. Of several
    changes of one object in a row each is applied to the result of the one before. A `value`
    without uid and resource version is created, and `patch` is then all of it but its type. An
    empty patch deletes the object.
    """

    value: Object
    patch: dict[str, Any]

    @property
    def creates(self) -> bool:
        """True where the object does not exist yet."""
        metadata = self.value.metadata
        return bool(self.patch) and not metadata.uid and not metadata.resource_version


class ObjectStore:
    """Objects by kind and key, in order of arrival.

    `version` changes with every change; the version of a kind with every change that plugins can
    notice. indexes: what readers derive from the objects, by its type; it lives as long as they do,
    whatever it refers to.

    An object may be assumed: it is shown as a decided change will leave it until the watch shows
    the object again, or shows it in a state that ends the assumption.

    Source, of assuming: kube-scheduler v1.36, plugins/volumebinding/passive_assume_cache.go.
    """

    def __init__(self, objects: Iterable[Object] = ()) -> None:
        self._kinds: dict[type[Object], dict[str, Object]] = {}
        # For assumed objects: their latest version from the watch.
        self._observed: dict[tuple[type[Object], str], Object] = {}
        # What ends an assumption that outlasts versions from the watch.
        self._ends: dict[tuple[type[Object], str], Callable[[Any], bool]] = {}
        # Assumed objects that did not exist: their uids are not known.
        self._created: set[tuple[type[Object], str]] = set()
        # Changed keys, per kind that a reader follows.
        self._journals: dict[type[Object], dict[str, None]] = {}
        self._followers: dict[type[Object], Callable[[str, Any], None]] = {}
        self.indexes: dict[type[Any], Any] = {}
        self.version = 0
        self._versions: dict[type[Object], int] = {}
        self._revisions: dict[type[Object], int] = {}
        for value in objects:
            self.put(value)

    def put(self, value: Object) -> None:
        """Add or replace an object as the watch shows it."""
        kind, key = type(value), key_of(value)
        self._note(kind)
        if self._observed and self._outlasts(kind, key, value):
            self._observed[kind, key] = value
            return
        objects = self._kinds.setdefault(kind, {})
        before, objects[key] = objects.get(key), value
        if self._observed:
            self._forget((kind, key))
        if before is None or not is_same_to_plugins(before, value):
            self._changed(kind, key)

    def _outlasts(self, kind: type[Object], key: str, value: Object) -> bool:
        """True where an assumption holds although the watch shows the object."""
        ends = self._ends.get((kind, key))
        same = ends is not None and (
            (kind, key) in self._created
            or self._kinds[kind][key].metadata.uid == value.metadata.uid
        )
        return same and ends is not None and not ends(value)

    def _forget(self, where: tuple[type[Object], str]) -> None:
        self._observed.pop(where, None)
        self._ends.pop(where, None)
        self._created.discard(where)

    def drop(self, kind: type[Object], key: str) -> None:
        """Remove an object; raises KeyError when it does not exist."""
        del self._kinds[kind][key]
        if self._observed:
            self._forget((kind, key))
        self._note(kind)
        self._changed(kind, key)

    def assume(self, value: Object, ends: Callable[[Any], bool] | None = None) -> None:
        """Show this version of an object until the watch shows it again; no effect when it does not
        exist.

        ends: answers, for a version from the watch, whether it ends the assumption; a change in
        several writes is shown by the last one only. None: every version does. An object of another
        uid always does.
        """
        kind, key = type(value), key_of(value)
        objects = self._kinds.get(kind, {})
        if key in objects:
            self._observed.setdefault((kind, key), objects[key])
            self._ends.pop((kind, key), None)
            if ends is not None:
                self._ends[kind, key] = ends
            objects[key] = value
            self._note(kind)
            self._changed(kind, key)

    def assume_new(self, value: Object, ends: Callable[[Any], bool]) -> None:
        """Show an object that is being created. ends: as for `assume`; its uid is not known yet."""
        where = type(value), key_of(value)
        objects = self._kinds.setdefault(where[0], {})
        if where[1] in objects:
            self.assume(value, ends)
            return
        self._observed[where], self._ends[where] = NOT_OBSERVED, ends
        self._created.add(where)
        objects[where[1]] = value
        self._note(where[0])
        self._changed(*where)

    def restore(self, value: Object) -> None:
        """End an assumption, unless the watch has shown a newer version than `value` was made from
        and so ended it. Idempotent."""
        where = type(value), key_of(value)
        observed = self._observed.get(where)
        version = value.metadata.resource_version
        if observed is None:
            return
        if where in self._ends:
            is_held = self._kinds[where[0]][where[1]] is value
        else:
            is_held = observed.metadata.resource_version == version
        if is_held:
            self._forget(where)
            if observed is NOT_OBSERVED:
                del self._kinds[where[0]][where[1]]
            else:
                self._kinds[where[0]][where[1]] = observed
            self._note(where[0])
            self._changed(*where)

    def _note(self, kind: type[Object]) -> None:
        self.version += 1
        self._revisions[kind] = self._revisions.get(kind, 0) + 1

    def revision_of(self, kind: type[Object]) -> int:
        """Revision token; changes with every change to objects of this kind."""
        return self._revisions.get(kind, 0)

    def _changed(self, kind: type[Object], key: str) -> None:
        self._versions[kind] = self._versions.get(kind, 0) + 1
        journal = self._journals.get(kind)
        if journal is not None:
            journal[key] = None
        follower = self._followers.get(kind)
        if follower is not None:
            follower(key, self._kinds[kind].get(key))

    def follow(self, kind: type[T], changed: Callable[[str, T | None], None]) -> None:
        """Call `changed` with the key and the object, None for one that is gone, after every change
        that plugins can notice; at once for the objects that there are. One reader per kind may
        follow it so, while each object is in the processor's cache."""
        assert kind not in self._followers, f"{kind.__name__} is followed already"
        self._followers[kind] = changed
        for key, value in self._kinds.get(kind, {}).items():
            assert isinstance(value, kind)
            changed(key, value)

    def take_changed(self, kind: type[Object]) -> list[str]:
        """Keys of a kind that changed since the last call; at the first call all keys. One reader
        per kind may follow it so."""
        known = self._journals.get(kind)
        self._journals[kind] = {}
        return list(self._kinds.get(kind, {}) if known is None else known)

    def version_of(self, kinds: Iterable[type[Object]]) -> int:
        """Revision token; changes with every change to these kinds that plugins can notice."""
        versions, version = self._versions, 0
        for kind in kinds:
            version += versions.get(kind, 0)
        return version

    def observed(self, kind: type[T], key: str) -> T | None:
        """The latest version of an object from the watch, ignoring assumptions."""
        value = self._observed.get((kind, key)) if self._observed else None
        if value is NOT_OBSERVED:
            return None
        return value if isinstance(value, kind) else self.find(kind, key)

    def find(self, kind: type[T], key: str) -> T | None:
        """The object of a kind by key (`NAMESPACE/NAME`, or the name of a cluster-scoped object),
        None when it does not exist."""
        objects = self._kinds.get(kind)
        value = None if objects is None else objects.get(key)
        return value if isinstance(value, kind) else None

    def all(self, kind: type[T]) -> Iterator[T]:
        """All objects of a kind, in order of arrival."""
        return (v for v in self._kinds.get(kind, {}).values() if isinstance(v, kind))

    def has_any(self, kind: type[Object]) -> bool:
        """True if there is an object of the kind."""
        return bool(self._kinds.get(kind))

    def every(self) -> Iterator[Object]:
        """All objects, as the watch has shown them, by kind and in order of arrival."""
        for kind, objects in self._kinds.items():
            for key, value in objects.items():
                observed = self._observed.get((kind, key), value)
                if observed is not NOT_OBSERVED:
                    yield observed


def is_same_to_plugins(before: Object, after: Object) -> bool:
    """True when two versions differ only in what no plugin reads: resource version, and annotations
    but for kinds in ANNOTATIONS_COUNT."""
    old, new = before.metadata, after.metadata
    return (
        old.labels == new.labels
        and old.deletion_timestamp == new.deletion_timestamp
        and old.uid == new.uid
        and (old.annotations == new.annotations or not isinstance(after, ANNOTATIONS_COUNT))
        and msgspec.structs.replace(after, metadata=old) == before
    )
