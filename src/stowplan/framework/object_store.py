"""World: the objects beside nodes and pods that rules read, by kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

import msgspec

from stowplan.objects.meta import NamespacedObject, Object

T = TypeVar("T", bound=Object)


def key_of(value: Object) -> str:
    """`NAMESPACE/NAME` of a namespaced object, the name of another."""
    return value.key if isinstance(value, NamespacedObject) else value.name


class ObjectStore:
    """Objects by kind and key, in order of arrival. `version` grows with every change, and that of
    a kind with those that rules can tell.

    An object may be assumed: it is then seen as a change will leave it that somebody has decided on
    and that the cluster does not show yet. Whatever the cluster shows next takes its place.

    Source, of assuming: kube-scheduler v1.36, plugins/volumebinding/passive_assume_cache.go.
    """

    def __init__(self, objects: Iterable[Object] = ()) -> None:
        self._kinds: dict[type[Object], dict[str, Object]] = {}
        # Of those assumed, what the cluster has shown last.
        self._observed: dict[tuple[type[Object], str], Object] = {}
        self.version = 0
        self._versions: dict[type[Object], int] = {}
        for value in objects:
            self.put(value)

    def put(self, value: Object) -> None:
        """Add an object, or replace the one of the same kind and key, as the cluster shows it."""
        kind, key = type(value), key_of(value)
        objects = self._kinds.setdefault(kind, {})
        before, objects[key] = objects.get(key), value
        if self._observed:
            self._observed.pop((kind, key), None)
        self.version += 1
        if before is None or not is_same_to_plugins(before, value):
            self._changed(kind)

    def drop(self, kind: type[Object], key: str) -> None:
        """Remove an object; raises KeyError when there is none."""
        del self._kinds[kind][key]
        if self._observed:
            self._observed.pop((kind, key), None)
        self.version += 1
        self._changed(kind)

    def assume(self, value: Object) -> None:
        """Let an object be seen like this until the cluster shows it anew; one that is not there
        stays so."""
        kind, key = type(value), key_of(value)
        objects = self._kinds.get(kind, {})
        if key in objects:
            self._observed.setdefault((kind, key), objects[key])
            objects[key] = value
            self.version += 1
            self._changed(kind)

    def restore(self, value: Object) -> None:
        """End what was assumed, unless the cluster has shown a newer version than `value` was made
        from; harmless when done twice."""
        where = type(value), key_of(value)
        observed = self._observed.get(where)
        version = value.metadata.resource_version
        if observed is not None and observed.metadata.resource_version == version:
            del self._observed[where]
            self._kinds[where[0]][where[1]] = observed
            self.version += 1
            self._changed(where[0])

    def _changed(self, kind: type[Object]) -> None:
        self._versions[kind] = self._versions.get(kind, 0) + 1

    def version_of(self, kinds: Iterable[type[Object]]) -> int:
        """Another one after every change to objects of these kinds that rules can tell."""
        return sum(self._versions.get(kind, 0) for kind in kinds)

    def observed(self, kind: type[T], key: str) -> T | None:
        """The object of a kind by key as the cluster has shown it last, whatever is assumed."""
        value = self._observed.get((kind, key)) if self._observed else None
        return value if isinstance(value, kind) else self.find(kind, key)

    def find(self, kind: type[T], key: str) -> T | None:
        """The object of a kind by key (`NAMESPACE/NAME`, or the name where there is no
        namespace), None when there is none."""
        value = self._kinds.get(kind, {}).get(key)
        return value if isinstance(value, kind) else None

    def all(self, kind: type[T]) -> Iterator[T]:
        """Every object of a kind, in order of arrival."""
        return (v for v in self._kinds.get(kind, {}).values() if isinstance(v, kind))


def is_same_to_plugins(before: Object, after: Object) -> bool:
    """True for two versions of an object that differ in what no rule reads: the version number,
    annotations."""
    old, new = before.metadata, after.metadata
    return (
        old.labels == new.labels
        and old.deletion_timestamp == new.deletion_timestamp
        and old.uid == new.uid
        and msgspec.structs.replace(after, metadata=old) == before
    )
