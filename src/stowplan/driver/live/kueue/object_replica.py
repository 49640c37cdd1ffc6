"""Replica of the objects of a cluster, fed by watches and by the answers to own writes.

An own write is known as soon as it is answered, and the watch reports it later: what is not newer
than what is known is dropped. Resource versions of one kind are compared as numbers, which
Kubernetes allows since 1.35.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

DELETED_KEPT_MAX = 10_000
"""Deleted objects whose last version is remembered, so that a late answer does not revive them."""

Key = tuple[str, str]


class ReplicatedChange(msgspec.Struct, frozen=True, gc=False):
    """A change as `WatchEvent`."""

    type: str
    path: str
    namespace: str
    name: str
    value: bytes
    previous: bytes | None


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = "0"


class _Head(msgspec.Struct, frozen=True):
    metadata: _Meta


class _Held(msgspec.Struct, frozen=True):
    """uid and version of an object, and its JSON."""

    uid: str
    version: int
    encoded: bytes


_head_decoder = msgspec.json.Decoder(_Head)


class ObjectReplica:
    """Objects as JSON, by path, namespace and name."""

    def __init__(self) -> None:
        self._held: dict[str, dict[Key, _Held]] = {}
        self._deleted: dict[tuple[str, Key], int] = {}

    def get(self, path: str, namespace: str, name: str) -> bytes | None:
        """An object; None if it is not known."""
        held = self._held.get(path, {}).get((namespace, name))
        return None if held is None else held.encoded

    def list(self, path: str, namespace: str = "") -> Iterator[bytes]:
        """The objects of a kind, by namespace and name; "": of all namespaces."""
        held = self._held.get(path, {})
        return iter([held[key].encoded for key in sorted(held) if namespace in ("", key[0])])

    def put(self, path: str, encoded: bytes) -> ReplicatedChange | None:
        """Keep an object; None if nothing is new."""
        meta = _head_decoder.decode(encoded).metadata
        key, version = (meta.namespace, meta.name), int(meta.resource_version)
        held = self._held.setdefault(path, {})
        before = held.get(key)
        known = self._deleted.get((path, key), -1) if before is None else before.version
        if version <= known:
            return None
        held[key] = _Held(meta.uid, version, encoded)
        type_, previous = ("ADDED", None) if before is None else ("MODIFIED", before.encoded)
        return ReplicatedChange(type_, path, *key, encoded, previous)

    def remove(
        self, path: str, namespace: str, name: str, uid: str, version: int
    ) -> ReplicatedChange | None:
        """Forget a deleted object; None if it is not known, or another of that name is. version:
        of its deletion, or the last one that is known."""
        key = (namespace, name)
        before = self._held.get(path, {}).get(key)
        if before is not None and before.uid != uid:
            return None
        while len(self._deleted) >= DELETED_KEPT_MAX:
            del self._deleted[next(iter(self._deleted))]
        self._deleted[path, key] = max(version, 0 if before is None else before.version)
        if before is None:
            return None
        del self._held[path][key]
        return ReplicatedChange("DELETED", path, *key, before.encoded, before.encoded)
