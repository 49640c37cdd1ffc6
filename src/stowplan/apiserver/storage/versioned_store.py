"""Versioned store: canonical bytes by key, one version for all writes, and a log of recent changes.

Every write increments the version, so the log is an array: the change to version v is at index
v - first. The state at an older version is the current one with the later changes undone, so it is
known as far back as the log. An object whose last change has left the log is kept packed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from stowplan.apis.machinery.resource import Resource, StoreChange
from stowplan.apiserver.storage.body_packing import BodyPacker, StoredBody, unpacked
from stowplan.apiserver.storage.key_index import KeyIndex

Record = tuple[str, int, bytes | None]
COMPACTED_PARTS = 200
"""A full log is shortened by its first of so many parts, so that no write packs many objects."""


class ResourceObjects:
    """The objects of one resource path."""

    __slots__ = ("keys", "packer", "values", "writes")

    def __init__(self) -> None:
        self.writes = 0
        self.values: dict[str, StoredBody] = {}
        self.packer = BodyPacker()
        self.keys = KeyIndex()


class VersionedStore:
    """Current state and recent history.

    records: of a state, or of its writes in order. history_max, history_bytes_max: bounds of the
    log; what a change replaced counts as well, even where an earlier change has it.
    """

    def __init__(
        self,
        records: Iterable[Record] = (),
        history_max: int = 50_000,
        history_bytes_max: int = 192 << 20,
    ) -> None:
        self.version = 1
        self.history_max = history_max
        self.history_bytes_max = history_bytes_max
        self._objects: dict[str, ResourceObjects] = {}
        for key, version, value in records:
            self.version = max(self.version, version)
            of_path = self._objects_of(resource_path_of(key))
            if value is None:
                of_path.values.pop(key, None)
            else:
                of_path.values[key] = of_path.packer.pack(value)
        for objects in self._objects.values():
            objects.keys = KeyIndex(objects.values)
        self.compacted = self.version
        """The changes up to this version are not in the log."""
        self.published_version = self.version
        """Watchers have seen the changes up to this version; later ones are not compacted."""
        self._log: list[StoreChange] = []
        self._log_bytes = 0

    def _objects_of(self, path: str) -> ResourceObjects:
        objects = self._objects.get(path)
        if objects is None:
            objects = self._objects[path] = ResourceObjects()
        return objects

    def get(self, key: str) -> bytes | None:
        """The value of a key, or None."""
        objects = self._objects.get(resource_path_of(key))
        body = objects.values.get(key) if objects else None
        return body if body is None or type(body) is bytes else unpacked(body)

    def stored(self, key: str) -> StoredBody | None:
        """The value of a key as it is kept: another object after each write; None."""
        objects = self._objects.get(resource_path_of(key))
        return objects.values.get(key) if objects else None

    def paths(self) -> list[str]:
        """The resource paths that have or had objects."""
        return sorted(self._objects)

    def keys(self, path: str) -> list[str]:
        """The keys of a resource path, in order."""
        objects = self._objects.get(path)
        return list(objects.keys.since("")) if objects else []

    def writes(self, path: str) -> int:
        """A counter of writes to a resource path."""
        objects = self._objects.get(path)
        return objects.writes if objects else 0

    def count(self, path: str) -> int:
        """The number of objects of a resource path."""
        objects = self._objects.get(path)
        return len(objects.values) if objects else 0

    def has_any(self, paths: Iterable[str]) -> bool:
        """True if there is an object of one of these resource paths."""
        for path in paths:
            objects = self._objects.get(path)
            if objects is not None and objects.values:
                return True
        return False

    def count_under(self, path: str, prefix: str, start: str = "") -> int:
        """The number of keys with `prefix`, which ends in a slash, from key `start` on."""
        objects = self._objects.get(path)
        # "0" follows the slash.
        return objects.keys.count(max(prefix, start), prefix[:-1] + "0") if objects else 0

    def put(self, resource: Resource, key: str, value: bytes) -> StoreChange:
        """Write; `value` already carries `version + 1`."""
        objects = self._objects_of(resource.path)
        body = objects.values.get(key)
        previous = None if body is None else unpacked(body)
        objects.values[key] = value
        objects.writes += 1
        if previous is None:
            objects.keys.add(key)
        kind = "ADDED" if previous is None else "MODIFIED"
        return self._append_to_log(
            StoreChange(self.version + 1, kind, resource, key, value, previous)
        )

    def remove(self, resource: Resource, key: str, last: bytes) -> StoreChange:
        """Delete; `last` is the final state carrying `version + 1`."""
        objects = self._objects_of(resource.path)
        previous = unpacked(objects.values.pop(key))
        objects.writes += 1
        objects.keys.discard(key)
        return self._append_to_log(
            StoreChange(self.version + 1, "DELETED", resource, key, last, previous)
        )

    def _append_to_log(self, change: StoreChange) -> StoreChange:
        self.version = change.version
        self._log.append(change)
        self._log_bytes += len(change.value) + len(change.previous or b"")
        if len(self._log) > self.history_max or self._log_bytes > self.history_bytes_max:
            self._shorten_log()
        return change

    def _shorten_log(self) -> None:
        """Drop the oldest changes until the log is within its bounds."""
        # A part at a time, so that the array is not moved with every write.
        count = max(len(self._log) // COMPACTED_PARTS, 1)
        excess = self._log_bytes - sum(map(_size, self._log[:count])) - self.history_bytes_max
        while excess > 0 and count < len(self._log):
            excess -= _size(self._log[count])
            count += 1
        self.compact(self.compacted + count)

    def compact(self, version: int) -> None:
        """Drop the changes up to and including `version`, as far as they are published."""
        count = min(max(min(version, self.published_version) - self.compacted, 0), len(self._log))
        for change in self._log[:count]:
            self._log_bytes -= _size(change)
            self._pack(change)
        del self._log[:count]
        self.compacted += count

    def _pack(self, change: StoreChange) -> None:
        """Pack an object that was not written since `change`."""
        objects = self._objects[change.resource.path]
        if objects.values.get(change.key) is change.value:
            objects.values[change.key] = objects.packer.pack(change.value)

    def change(self, version: int) -> StoreChange:
        """The change that made `version`; it must be in the log."""
        return self._log[version - self.compacted - 1]

    def changes(self, since: int, until: int | None = None) -> list[StoreChange]:
        """The changes after version `since` up to `until` (default: all), oldest first."""
        stop = (self.version if until is None else until) - self.compacted
        return self._log[since - self.compacted : stop]

    def under(self, path: str, prefix: str, start: str = "") -> Iterator[tuple[str, bytes]]:
        """Keys and values with `prefix`, in order, from key `start` on."""
        objects = self._objects.get(path)
        if objects is None:
            return
        values = objects.values
        # The first key that is greater than all with the prefix.
        stop = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        for key in objects.keys.between(max(prefix, start), stop):
            yield key, unpacked(values[key])

    def bodies(self, path: str) -> list[tuple[str, StoredBody]]:
        """Keys and values of a resource path as they are kept, in order."""
        objects = self._objects.get(path)
        return [(key, objects.values[key]) for key in objects.keys.since("")] if objects else []

    def under_at(
        self, path: str, prefix: str, version: int, start: str = ""
    ) -> Iterator[tuple[str, bytes]]:
        """As `under` at `version`, which must not be older than `compacted`."""
        before: dict[str, bytes | None] = {}
        for change in self.changes(version):
            if change.resource.path == path and change.key.startswith(prefix):
                before.setdefault(change.key, change.previous)
        if not before:
            yield from self.under(path, prefix, start)
            return
        then = {key: value for key, value in before.items() if value is not None and key >= start}
        now = self.under(path, prefix, start)
        then |= {key: value for key, value in now if key not in before}
        yield from sorted(then.items())

    def records(self) -> Iterator[Record]:
        """The current state, as `records` of a new store."""
        for objects in self._objects.values():
            for key, value in objects.values.items():
                yield key, self.version, unpacked(value)


def _size(change: StoreChange) -> int:
    return len(change.value) + len(change.previous or b"")


def resource_path_of(key: str) -> str:
    """The resource path of a key: all but its last two parts."""
    return key.rsplit("/", 2)[0]
