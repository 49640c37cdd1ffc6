"""Objects as canonical bytes under keys, a version that counts all writes, and recent changes.

Every write raises the version by one, so the log is an array: the change to version v stands at
v - first. The state at an older version is the present one with the changes since taken back; it
is therefore known exactly as far back as the log goes, and not a version further.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from stowplan.apis.machinery.resource import Resource, StoreChange
from stowplan.apiserver.storage.key_index import KeyIndex

Record = tuple[str, int, bytes | None]


class ResourceObjects:
    """The objects of one resource path."""

    __slots__ = ("keys", "values", "writes")

    def __init__(self) -> None:
        self.writes = 0
        self.values: dict[str, bytes] = {}
        self.keys = KeyIndex()


class Store:
    """Present state and recent history.

    records: of a state or of its writes in order. history_max, history_bytes_max: what the log may
    hold.
    """

    def __init__(
        self,
        records: Iterable[Record] = (),
        history_max: int = 50_000,
        history_bytes_max: int = 128 << 20,
    ) -> None:
        self.version = 1
        self.history_max = history_max
        self.history_bytes_max = history_bytes_max
        self._objects: dict[str, ResourceObjects] = {}
        for key, version, value in records:
            self.version = max(self.version, version)
            values = self._objects_of(resource_path_of(key)).values
            if value is None:
                values.pop(key, None)
            else:
                values[key] = value
        for shelf in self._objects.values():
            shelf.keys = KeyIndex(shelf.values)
        self.compacted = self.version
        """Versions up to this one have no change in the log: what came after it is known."""
        self.published_version = self.version
        """Watchers have been shown changes up to this one; the later ones are not forgotten."""
        self._log: list[StoreChange] = []
        self._log_bytes = 0

    def _objects_of(self, path: str) -> ResourceObjects:
        shelf = self._objects.get(path)
        if shelf is None:
            shelf = self._objects[path] = ResourceObjects()
        return shelf

    def get(self, key: str) -> bytes | None:
        """What stands under `key` now."""
        shelf = self._objects.get(resource_path_of(key))
        return shelf.values.get(key) if shelf else None

    def paths(self) -> list[str]:
        """The resource paths that have, or had, objects."""
        return sorted(self._objects)

    def keys(self, path: str) -> list[str]:
        """The keys of a resource path now, in order."""
        shelf = self._objects.get(path)
        return list(shelf.keys.since("")) if shelf else []

    def writes(self, path: str) -> int:
        """A number that is another after every write below a resource path."""
        shelf = self._objects.get(path)
        return shelf.writes if shelf else 0

    def count(self, path: str) -> int:
        """How many objects a resource path has now."""
        shelf = self._objects.get(path)
        return len(shelf.values) if shelf else 0

    def count_under(self, path: str, prefix: str, start: str = "") -> int:
        """How many keys begin with `prefix`, which ends in a slash, from key `start` on."""
        shelf = self._objects.get(path)
        # The character after the slash ends the range.
        return shelf.keys.count(max(prefix, start), prefix[:-1] + "0") if shelf else 0

    def put(self, resource: Resource, key: str, value: bytes) -> StoreChange:
        """Write; `value` already carries `version + 1`."""
        shelf = self._objects_of(resource.path)
        previous = shelf.values.get(key)
        shelf.values[key] = value
        shelf.writes += 1
        if previous is None:
            shelf.keys.add(key)
        kind = "ADDED" if previous is None else "MODIFIED"
        return self._append_to_log(
            StoreChange(self.version + 1, kind, resource, key, value, previous)
        )

    def remove(self, resource: Resource, key: str, last: bytes) -> StoreChange:
        """Delete; `last` is the final state carrying `version + 1`."""
        shelf = self._objects_of(resource.path)
        previous = shelf.values.pop(key)
        shelf.writes += 1
        shelf.keys.discard(key)
        return self._append_to_log(
            StoreChange(self.version + 1, "DELETED", resource, key, last, previous)
        )

    def _append_to_log(self, change: StoreChange) -> StoreChange:
        self.version = change.version
        self._log.append(change)
        self._log_bytes += len(change.value)
        if len(self._log) > self.history_max or self._log_bytes > self.history_bytes_max:
            # A tenth at once, so that the array is not moved at every write.
            self.compact(self.compacted + max(len(self._log) // 10, 1))
        return change

    def compact(self, version: int) -> None:
        """Forget the changes up to and including `version`, as far as they have been shown."""
        count = min(max(min(version, self.published_version) - self.compacted, 0), len(self._log))
        self._log_bytes -= sum(len(change.value) for change in self._log[:count])
        del self._log[:count]
        self.compacted += count

    def change(self, version: int) -> StoreChange:
        """The change that made `version`; it must be in the log."""
        return self._log[version - self.compacted - 1]

    def changes(self, since: int, until: int | None = None) -> list[StoreChange]:
        """The changes after version `since` up to `until` (now, unless told), oldest first."""
        stop = (self.version if until is None else until) - self.compacted
        return self._log[since - self.compacted : stop]

    def under(self, path: str, prefix: str, start: str = "") -> Iterator[tuple[str, bytes]]:
        """Key and value of what begins with `prefix` now, in order, from key `start` on."""
        shelf = self._objects.get(path)
        if shelf is None:
            return
        for key in shelf.keys.since(max(prefix, start)):
            if not key.startswith(prefix):
                return
            yield key, shelf.values[key]

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
        """The present state, as a new store would be given it."""
        for shelf in self._objects.values():
            for key, value in shelf.values.items():
                yield key, self.version, value


def resource_path_of(key: str) -> str:
    """The resource path that a key begins with: all but its last two parts."""
    return key.rsplit("/", 2)[0]
