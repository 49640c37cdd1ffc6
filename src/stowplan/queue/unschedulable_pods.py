"""Unschedulable pods: rejected or gated pods that wait for an event.

An index by plugin limits an event to the pods that an interested plugin rejected: with thousands of
unschedulable pods, most events concern none of them.

Source: kube-scheduler v1.36, backend/queue/unschedulable_pods.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from stowplan.framework.clusterevents import ClusterEvent
from stowplan.queue.pod_record import PodRecord


class UnschedulablePodsListener(Protocol):
    """Receives entries that are added and removed."""

    def entered(self, entry: PodRecord) -> None:
        """An entry has been added."""

    def left(self, entry: PodRecord) -> None:
        """An entry has been removed."""


class UnschedulableIndex(Protocol):
    """Keeps unschedulable pods in place of the queue; see `scheduler.unschedulable_classes`."""

    def move(self, event: ClusterEvent, old: Any, new: Any, now: int) -> bool:
        """Same as `SchedulingQueue.move`; False when all entries are back in the queue, which must
        move them."""

    def flush(self, moment: int) -> bool:
        """Same as `SchedulingQueue.flush_unschedulable` for pods older than `moment`; False as in
        `move`."""

    def release(self, entry: PodRecord) -> None:
        """Return an entry to the queue."""

    def settle(self) -> None:
        """Return all entries to the queue."""


class UnschedulablePods:
    """Entries in order of arrival.

    The plugins of an entry must not change while it is in here. entries: by key, read-only. since:
    lower bound of the entries' `added_at`; None before the first entry. watcher: is called for
    every entry added or removed.
    """

    __slots__ = ("_by_plugin", "entries", "since", "watcher")

    def __init__(self) -> None:
        self.entries: dict[str, PodRecord] = {}
        self._by_plugin: dict[str, dict[str, PodRecord]] = {}
        self.since: int | None = None
        self.watcher: UnschedulablePodsListener | None = None

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, key: str) -> bool:
        return key in self.entries

    def __iter__(self) -> Iterator[PodRecord]:
        return iter(self.entries.values())

    def put(self, entry: PodRecord) -> None:
        """Add an entry; replaces one with the same key."""
        self.take(entry.key)
        self.entries[entry.key] = entry
        if self.since is None or entry.added_at < self.since:
            self.since = int(entry.added_at)
        for plugin in entry.refusers:
            self._by_plugin.setdefault(plugin, {})[entry.key] = entry
        if self.watcher is not None:
            self.watcher.entered(entry)

    def get(self, key: str) -> PodRecord | None:
        """The entry of a key."""
        return self.entries.get(key)

    def take(self, key: str) -> PodRecord | None:
        """Remove the entry of a key and return it."""
        entry = self.entries.pop(key, None)
        if entry is not None:
            for plugin in entry.refusers:
                del self._by_plugin[plugin][key]
            if self.watcher is not None:
                self.watcher.left(entry)
        return entry

    def reorder(self, keys: Iterable[str]) -> None:
        """Set the order of arrival; keys: those of all entries."""
        self.entries = {key: self.entries[key] for key in keys}
        self._by_plugin = {}
        for key, entry in self.entries.items():
            for plugin in entry.refusers:
                self._by_plugin.setdefault(plugin, {})[key] = entry

    def has_any(self, plugins: Iterable[str]) -> bool:
        """True when any of `plugins` rejected an entry."""
        return any(self._by_plugin.get(plugin) for plugin in plugins)

    def refused_by(self, plugins: Iterable[str]) -> list[PodRecord]:
        """The entries that any of `plugins` rejected, each once."""
        found: dict[str, PodRecord] = {}
        for plugin in plugins:
            found |= self._by_plugin.get(plugin, {})
        return list(found.values())

    def older_than(self, moment: int) -> list[PodRecord]:
        """The entries that arrived or failed before `moment`."""
        self.since = self.oldest()
        return [entry for entry in self.entries.values() if entry.added_at < moment]

    def oldest(self) -> int | None:
        """When the oldest entry arrived or failed; None when empty."""
        return min((int(entry.added_at) for entry in self.entries.values()), default=None)
