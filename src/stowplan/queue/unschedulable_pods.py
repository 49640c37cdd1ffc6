"""Unschedulable pods: rejected or gated pods that wait for an event.

An index by plugin limits an event to the pods that an interested plugin rejected: with thousands of
unschedulable pods, most events concern none of them.

Source: kube-scheduler v1.36, backend/queue/unschedulable_pods.go.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from stowplan.framework.clusterevents import ClusterEvent, EventKeys
from stowplan.objects.pod import Pod
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


class EntriesByKey:
    """Entries that a plugin rejected, by the keys of their pods; see `EventKeys`."""

    def __init__(self, of_pod: Callable[[Pod], Iterable[Hashable]]) -> None:
        self.of_pod = of_pod
        self._keys: dict[str, tuple[Hashable, ...]] = {}
        self._found: dict[Hashable, dict[str, PodRecord]] = {}

    def add(self, entry: PodRecord) -> None:
        """Add an entry that is not here."""
        keys = self._keys[entry.key] = tuple(dict.fromkeys(self.of_pod(entry.pod)))
        for key in keys:
            self._found.setdefault(key, {})[entry.key] = entry

    def remove(self, entry: PodRecord) -> None:
        """Remove an entry, by the keys that it had."""
        for key in self._keys.pop(entry.key):
            entries = self._found[key]
            del entries[entry.key]
            if not entries:
                del self._found[key]

    def remove_all(self, entries: Iterable[PodRecord]) -> None:
        """Remove entries."""
        for entry in entries:
            self.remove(entry)

    def found(self, key: Hashable) -> Iterable[PodRecord]:
        """The entries with a key."""
        return self._found.get(key, {}).values()


class UnschedulablePods:
    """Entries in order of arrival.

    The plugins of an entry change by `refuse_by` only while it is in here. entries: by key,
    read-only. since: lower bound of the entries' `added_at`; None before the first entry. watcher:
    is called for every entry added or removed.
    """

    __slots__ = (
        "_arrivals",
        "_by_key",
        "_by_plugin",
        "_closed",
        "_mixed",
        "_n_put",
        "entries",
        "since",
        "watcher",
    )

    def __init__(self) -> None:
        self.entries: dict[str, PodRecord] = {}
        self._by_plugin: dict[str, dict[str, PodRecord]] = {}
        # Of plugins with keys for an event that has happened.
        self._by_key: dict[str, EntriesByKey] = {}
        # Entries that wait for their victims, by uid, with their place in the order of arrival.
        self._closed: dict[str, tuple[PodRecord, int]] = {}
        self._arrivals: dict[str, int] = {}
        self._n_put = 0
        # Plugins whose entries are no longer in order of arrival.
        self._mixed: set[str] = set()
        self.since: int | None = None
        self.watcher: UnschedulablePodsListener | None = None

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, key: str) -> bool:
        return key in self.entries

    def __iter__(self) -> Iterator[PodRecord]:
        return iter(self.entries.values())

    def put(self, entry: PodRecord, *, waits_for_victims: bool = False) -> None:
        """Add an entry; replaces one with the same key. waits_for_victims: no event moves it before
        `victims_gone`."""
        if entry.key in self.entries:
            self.take(entry.key)
        self.entries[entry.key] = entry
        self._n_put += 1
        if self.since is None or entry.added_at < self.since:
            self.since = int(entry.added_at)
        if waits_for_victims:
            self._closed[entry.uid] = entry, self._n_put
        else:
            self._arrivals[entry.key] = self._n_put
            self._enter(entry)
        if self.watcher is not None:
            self.watcher.entered(entry)

    def put_all(self, entries: Sequence[PodRecord]) -> None:
        """Add entries that are not here and that events may move, all of them rejected by the same
        plugins, at one time."""
        self.note_since(entries[0].added_at)
        for entry in entries:
            self.entries[entry.key] = entry
            self._n_put += 1
            self._arrivals[entry.key] = self._n_put
        for plugin in entries[0].refusers:
            by_plugin = self._by_plugin.setdefault(plugin, {})
            by_plugin.update((entry.key, entry) for entry in entries)
            if plugin in self._by_key:
                for entry in entries:
                    self._by_key[plugin].add(entry)
        if self.watcher is not None:
            for entry in entries:
                self.watcher.entered(entry)

    def note_since(self, at: float) -> None:
        """An entry that arrived or failed at this time is here, or was."""
        if self.since is None or at < self.since:
            self.since = int(at)

    def refuse_by(self, entry: PodRecord, refusers: frozenset[str]) -> None:
        """Other plugins reject an entry that events may move. Its place among the entries of these
        plugins is the last one until `reorder`."""
        self._leave(entry)
        entry.refused_by = refusers
        self._enter(entry)

    def _enter(self, entry: PodRecord) -> None:
        for plugin in entry.refusers:
            self._by_plugin.setdefault(plugin, {})[entry.key] = entry
            if plugin in self._by_key:
                self._by_key[plugin].add(entry)

    def _leave(self, entry: PodRecord) -> None:
        for plugin in entry.refusers:
            del self._by_plugin[plugin][entry.key]
            if plugin in self._by_key:
                self._by_key[plugin].remove(entry)

    def pod_changed(self, entry: PodRecord, pod: Pod) -> None:
        """An entry has another version of its pod from now on."""
        entry.pod = pod
        if entry.key in self._arrivals:
            for plugin in entry.refusers:
                if plugin in self._by_key:
                    self._by_key[plugin].remove(entry)
                    self._by_key[plugin].add(entry)

    def victims_gone(self, uid: str) -> None:
        """The victims of a pod are gone: events may move it again."""
        closed = self._closed.pop(uid, None)
        if closed is None:
            return
        entry, arrival = closed
        self._arrivals[entry.key] = arrival
        self._mixed.update(plugin for plugin in entry.refusers if self._by_plugin.get(plugin))
        self._enter(entry)

    def open_all(self) -> None:
        """Let events move every entry."""
        for uid in tuple(self._closed):
            self.victims_gone(uid)

    def get(self, key: str) -> PodRecord | None:
        """The entry of a key."""
        return self.entries.get(key)

    def take(self, key: str) -> PodRecord | None:
        """Remove the entry of a key and return it."""
        entry = self.entries.pop(key, None)
        if entry is not None:
            closed = self._closed.get(entry.uid) if self._closed else None
            if closed is not None and closed[0] is entry:
                del self._closed[entry.uid]
            else:
                del self._arrivals[key]
                self._leave(entry)
            if self.watcher is not None:
                self.watcher.left(entry)
        return entry

    def take_all(self, entries: Sequence[PodRecord]) -> None:
        """Remove entries that events may move, all of them rejected by the same plugins."""
        own, arrivals = self.entries, self._arrivals
        for entry in entries:
            del own[entry.key], arrivals[entry.key]
        for plugin in entries[0].refusers:
            by_plugin = self._by_plugin[plugin]
            for entry in entries:
                del by_plugin[entry.key]
            if plugin in self._by_key:
                self._by_key[plugin].remove_all(entries)
        if self.watcher is not None:
            for entry in entries:
                self.watcher.left(entry)

    def reorder(self, keys: Iterable[str]) -> None:
        """Set the order of arrival; keys: those of all entries."""
        self.entries = {key: self.entries[key] for key in keys}
        self._by_plugin, self._by_key, self._arrivals, self._mixed = {}, {}, {}, set()
        for key, entry in self.entries.items():
            self._n_put += 1
            if entry.uid in self._closed:
                self._closed[entry.uid] = entry, self._n_put
                continue
            self._arrivals[key] = self._n_put
            self._enter(entry)

    def has_any(self, plugins: Iterable[str]) -> bool:
        """True when any of `plugins` rejected an entry."""
        names = tuple(plugins)
        if any(self._by_plugin.get(plugin) for plugin in names):
            return True
        return any(not entry.refusers.isdisjoint(names) for entry, _ in self._closed.values())

    def has_any_open(self, plugins: Iterable[str]) -> bool:
        """True when any of `plugins` rejected an entry that an event may move."""
        return any(self._by_plugin.get(plugin) for plugin in plugins)

    def refused_by(self, plugins: Iterable[str]) -> list[PodRecord]:
        """The entries that any of `plugins` rejected and that an event may move, each once."""
        found: dict[str, PodRecord] = {}
        for plugin in plugins:
            entries = self._by_plugin.get(plugin, {})
            if plugin in self._mixed:
                self._mixed.discard(plugin)
                by_arrival = sorted(entries, key=self._arrivals.__getitem__)
                entries = self._by_plugin[plugin] = {key: entries[key] for key in by_arrival}
            found |= entries
        return list(found.values())

    def concerned(
        self, plugins: Iterable[str], keys: Mapping[str, EventKeys], old: Any, new: Any
    ) -> list[PodRecord]:
        """As `refused_by`, without the entries that a change of an object does not concern, by the
        keys of plugins."""
        if not self.entries or self._by_plugin.keys().isdisjoint(plugins):
            return []
        if not keys:
            return self.refused_by(plugins)
        found: dict[str, PodRecord] = {}
        for plugin in plugins:
            one = keys.get(plugin)
            key = None if one is None else one.of_change(old, new)
            if one is None or key is None:
                found |= {entry.key: entry for entry in self.refused_by((plugin,))}
            elif plugin in self._by_plugin:
                known = self._by_key.get(plugin)
                if known is None or known.of_pod is not one.of_pod:
                    known = self._by_key[plugin] = EntriesByKey(one.of_pod)
                    for entry in self._by_plugin[plugin].values():
                        known.add(entry)
                by_arrival = sorted(known.found(key), key=lambda entry: self._arrivals[entry.key])
                found |= {entry.key: entry for entry in by_arrival}
        return list(found.values())

    def older_than(self, moment: int) -> list[PodRecord]:
        """The entries that arrived or failed before `moment`."""
        self.since = self.oldest()
        return [entry for entry in self.entries.values() if entry.added_at < moment]

    def oldest(self) -> int | None:
        """When the oldest entry arrived or failed; None when empty."""
        return min((int(entry.added_at) for entry in self.entries.values()), default=None)
