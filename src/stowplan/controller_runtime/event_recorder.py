"""Event recorder of controllers and kubelets.

As in client-go: an identical event increments the count of the first; from the tenth on, events
that differ only in their text are combined; and one component writes at most 25 events about one
object at a time, then one in five minutes.

Source: client-go v1.36, tools/record (event.go, events_cache.go).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from stowplan.apis.machinery.errors import ApiError
from stowplan.controller_runtime.object_times import format_time
from stowplan.controller_runtime.resource_paths import EVENTS
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import Store

CACHED_EVENTS_MAX = 4096
SIMILAR_SECONDS = 600.0
SIMILAR_MAX = 10
BURST = 25
REFILL_SECONDS = 300.0
_MESSAGE_MAX = 1024

Key = tuple[str, ...]


@dataclass(slots=True)
class _SimilarEvents:
    """Messages of events that are otherwise equal. last: time of the latest one."""

    texts: set[str] = field(default_factory=set)
    last: float = 0.0


@dataclass(slots=True)
class _EventTokenBucket:
    """Tokens left for events about an object. at: when they were counted."""

    left: float = BURST
    at: float = 0.0


class EventRecorder:
    """Writes core/v1 events in process."""

    def __init__(self, api: Store) -> None:
        self.api = api
        self._written: dict[Key, str] = {}
        self._similar: dict[Key, _SimilarEvents] = {}
        self._budgets: dict[Key, _EventTokenBucket] = {}
        self._number = 0

    def record(self, about: Tree, component: str, reason: str, message: str, **more: str) -> None:
        """Record an event about the object `about`.

        component: its source. more: `type` ("Normal" if absent), `host`, `api_version` and
        `object_kind` if the tree lacks them. Errors are ignored on purpose: an event must never
        stop the work that it reports.
        """
        involved = _reference(about, more)
        host, type_ = more.get("host", ""), more.get("type", "Normal")
        subject: Key = (component, host, involved.get("uid", ""), involved["name"])
        text = message[:_MESSAGE_MAX]
        alike: Key = (*subject, type_, reason)
        combined = self._is_combined(alike, text)
        key = alike if combined else (*alike, text)
        if combined:
            text = f"(combined from similar events): {text}"
        if not self._take_token(subject):
            return
        source = {"component": component, **({"host": host} if host else {})}
        fields: Tree = {
            "involvedObject": involved,
            "reason": reason,
            "message": text,
            "source": source,
            "type": type_,
            "reportingComponent": "" if combined else component,
            "reportingInstance": "" if combined else host,
        }
        namespace = about["metadata"].get("namespace") or "default"
        try:
            if not self._count_again(namespace, key, text):
                self._write(namespace, key, fields)
        except ApiError:
            self._written.pop(key, None)

    def _is_combined(self, alike: Key, text: str) -> bool:
        """True when so many similar events are recent that they are combined."""
        found = self._similar.get(alike)
        if found is None or self.api.now - found.last > SIMILAR_SECONDS:
            found = _SimilarEvents()
            _cache(self._similar, alike, found)
        found.texts.add(text)
        found.last = self.api.now
        if len(found.texts) < SIMILAR_MAX:
            return False
        found.texts.discard(text)
        return True

    def _take_token(self, subject: Key) -> bool:
        """Take a token for an event about this object."""
        budget = self._budgets.get(subject)
        if budget is None:
            budget = _EventTokenBucket(at=self.api.now)
            _cache(self._budgets, subject, budget)
        budget.left = min(BURST, budget.left + (self.api.now - budget.at) / REFILL_SECONDS)
        budget.at = self.api.now
        if budget.left < 1:
            return False
        budget.left -= 1
        return True

    def _count_again(self, namespace: str, key: Key, text: str) -> bool:
        name = self._written.get(key)
        event = self.api.get(EVENTS, namespace, name) if name else None
        if event is None:
            return False
        event["count"] = event.get("count", 1) + 1
        event["message"] = text
        event["lastTimestamp"] = format_time(self.api.now)
        self.api.update(EVENTS, event)
        return True

    def _write(self, namespace: str, key: Key, fields: Tree) -> None:
        moment = format_time(self.api.now)
        self._number += 1
        # The original names events by the time in nanoseconds; the number keeps the names of one
        # step unique.
        nanos = int(self.api.now * 1e6) * 1000 + self._number % 1000
        name = f"{fields['involvedObject']['name']}.{nanos:x}"
        event: Tree = {
            "kind": "Event",
            "apiVersion": "v1",
            "metadata": {"name": name, "namespace": namespace},
            **fields,
            "firstTimestamp": moment,
            "lastTimestamp": moment,
            "count": 1,
            "eventTime": None,
        }
        self.api.create(EVENTS, event)
        _cache(self._written, key, name)


def _cache(table: dict[Key, Any], key: Key, value: object) -> None:
    """Store a value, and evict the oldest if there are too many."""
    table.pop(key, None)
    if len(table) >= CACHED_EVENTS_MAX:
        del table[next(iter(table))]
    table[key] = value


def _reference(about: Tree, more: dict[str, str]) -> Tree:
    meta = about["metadata"]
    reference = {
        "kind": about.get("kind") or more.get("object_kind", ""),
        "namespace": meta.get("namespace", ""),
        "name": meta["name"],
        "uid": meta.get("uid", ""),
        "apiVersion": about.get("apiVersion") or more.get("api_version", ""),
        "resourceVersion": meta.get("resourceVersion", ""),
    }
    return {name: value for name, value in reference.items() if value}
