"""Event correlation: repeated events become one Event with a series count.

The first occurrence creates the Event, the second adds a series; later ones are counted and sent
once per refresh interval.

Source: client-go v1.36, tools/events event_broadcaster.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import msgspec

from stowplan.client.requests import ApiRequest, create_event, patch_event
from stowplan.messages.effects import RecordEvent
from stowplan.objects.encoding.duration import SECOND

SERIES_FINISHED_S = 360
"""A series without a new event for this long is finished."""
SERIES_REFRESH_S = 1800
SERIES_KEPT_MAX = 20_000

EventKey = tuple[str, str, str, str, str, str]

PodVersionLookup = Callable[[str, str, str], str]
"""The resource version of a pod by namespace, name and uid; "" if unknown."""


class CorrelatedEvent(msgspec.Struct):
    """An event that was sent. sent_at: when it was last sent; count: 1 before a series."""

    namespace: str
    name: str
    count: int
    last_seen_at: int
    sent_at: int
    sent_count: int = 1


class EventCorrelator:
    """Correlates recent events."""

    def __init__(self, instance: str, version: PodVersionLookup = lambda *_: "") -> None:
        """instance: host name of this scheduler. version: resource version of a pod, as the watch
        last showed it; an event about another version is another event."""
        self._instance = instance
        self._version = version
        self._kept: OrderedDict[EventKey, CorrelatedEvent] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def version_of(self, effect: RecordEvent) -> str:
        """Resource version of the pod that an event is about, "" if unknown or not about a pod."""
        if effect.kind != "Pod":
            return ""
        return self._version(effect.namespace, effect.name, effect.uid)

    def record(
        self,
        effect: RecordEvent,
        now: int,
        wall_ns: int,
        moment: str,
        version: str | None = None,
    ) -> ApiRequest | None:
        """The request for an event, None when it is only counted.

        now, wall_ns, moment: when it happened; nanoseconds of a monotonic clock, nanoseconds since
        1970, for a unique name, and the same in RFC 3339 with microseconds. version: `version_of`
        at that time; None looks it up.
        """
        if version is None:
            version = self.version_of(effect)
        key = (*_series_key(effect), version)
        kept = self._kept.get(key)
        if kept is not None and now - kept.last_seen_at < SERIES_FINISHED_S * SECOND:
            self._kept.move_to_end(key)
            kept.count += 1
            kept.last_seen_at = now
            if kept.sent_count == 1 or now - kept.sent_at >= SERIES_REFRESH_S * SECOND:
                kept.sent_count, kept.sent_at = kept.count, now
                return patch_event(kept.namespace, kept.name, _series(kept.count, moment))
            return None
        name = f"{effect.name}.{wall_ns:x}"
        self._kept[key] = CorrelatedEvent(effect.namespace, name, 1, now, now)
        self._kept.move_to_end(key)
        self._forget(now)
        return create_event(effect.namespace, self._event(effect, name, moment, version))

    def forget(self, effect: RecordEvent, version: str) -> None:
        """Start a new Event next time: the server does not have the one about this version of the
        pod (any more). version: as passed to `record`."""
        self._kept.pop((*_series_key(effect), version), None)

    def _forget(self, now: int) -> None:
        while self._kept:
            key, oldest = next(iter(self._kept.items()))
            if (
                len(self._kept) <= SERIES_KEPT_MAX
                and now - oldest.last_seen_at < SERIES_FINISHED_S * SECOND
            ):
                return
            del self._kept[key]

    def _event(self, effect: RecordEvent, name: str, moment: str, version: str) -> dict[str, Any]:
        regarding = {
            "kind": effect.kind,
            "namespace": effect.namespace,
            "name": effect.name,
            "uid": effect.uid,
            "apiVersion": effect.api_version,
        }
        if version:
            regarding["resourceVersion"] = version
        metadata: dict[str, Any] = {"name": name, "namespace": effect.namespace}
        if effect.annotations:
            metadata["annotations"] = dict(effect.annotations)
        return {
            "kind": "Event",
            "apiVersion": "events.k8s.io/v1",
            "metadata": metadata,
            "eventTime": moment,
            "reportingController": effect.scheduler,
            "reportingInstance": f"{effect.scheduler}-{self._instance}",
            "action": effect.action,
            "reason": effect.reason,
            "regarding": regarding,
            "note": effect.note,
            "type": effect.type,
        }


def _series_key(effect: RecordEvent) -> tuple[str, str, str, str, str]:
    return effect.uid, effect.type, effect.action, effect.reason, effect.scheduler


def _series(count: int, moment: str) -> dict[str, Any]:
    return {"count": count, "lastObservedTime": moment}
