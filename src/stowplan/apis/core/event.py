"""Event: one stored form, served as core/v1 and as events.k8s.io/v1.

Source: kubernetes v1.36, pkg/registry/core/event, pkg/apis/core/validation/events.go,
pkg/apis/events/v1/conversion.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from stowplan.apis.kind.printing import PrintedTable
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import selectable_field, selectable_fields
from stowplan.apis.machinery import timestamps
from stowplan.apis.machinery.errors import Cause, invalid, required
from stowplan.apis.machinery.resource import ApiCall, ResourceStrategy
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

TYPES = """
Event -- a report of an event about an object.
  kind string
  apiVersion string
  metadata ObjectMeta!
  involvedObject ObjectReference!
  reason string
  message string
  source EventSource
  firstTimestamp Time
  lastTimestamp Time
  count int32
  type string
  eventTime MicroTime
  series EventSeries?
  action string
  related ObjectReference?
  reportingComponent string!
  reportingInstance string!

EventSource
  component string
  host string

EventSeries
  count int32
  lastObservedTime MicroTime
"""
EVENTS_V1_TYPES = """
Event -- a report of an event about an object.
  kind string
  apiVersion string
  metadata ObjectMeta!
  eventTime MicroTime!
  series EventSeries?
  reportingController string
  reportingInstance string
  action string
  reason string
  regarding core.ObjectReference
  related core.ObjectReference?
  note string
  type string
  deprecatedSource core.EventSource
  deprecatedFirstTimestamp Time
  deprecatedLastTimestamp Time
  deprecatedCount int32

EventSeries
  count int32!
  lastObservedTime MicroTime!
"""
_TO_CORE = {
    "regarding": "involvedObject",
    "note": "message",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
    "reportingController": "reportingComponent",
}
_TO_VIEW = {core: view for view, core in _TO_CORE.items()}
# Fields that one of the two versions writes even when they are empty.
_CORE_ALWAYS = {"reportingComponent": "", "reportingInstance": "", "eventTime": None}
_OFTEN_EMPTY = ("reportingController", "reportingInstance")
_ABOUT = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
# In the original's order.
_FIXED = (
    "involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count",
    "type", "eventTime", "action", "related", "reportingComponent", "reportingInstance",
)  # fmt: skip
EVENT_TTL_S = 3600.0


class EventsV1Alias:
    """Conversion between events.k8s.io/v1 and the stored core/v1 (`resource.ResourceAlias`)."""

    path = "events"

    def from_stored(self, tree: Tree) -> Tree:
        made: Tree = {}
        for name, value in tree.items():
            made[_TO_VIEW.get(name, name)] = value
        for name in _OFTEN_EMPTY:
            if not made.get(name):
                made.pop(name, None)
        if "series" in made:
            made["series"] = {"count": 0, "lastObservedTime": None} | made["series"]
        made["kind"], made["apiVersion"] = "Event", "events.k8s.io/v1"
        return made

    def to_stored(self, tree: Tree) -> Tree:
        made: Tree = {}
        for name, value in tree.items():
            made[_TO_CORE.get(name, name)] = value
        for name, empty in _CORE_ALWAYS.items():
            made.setdefault(name, empty)
        return made


class EventStrategy(ResourceStrategy):
    """Events of both versions; requests of events.k8s.io/v1 get stricter validation."""

    create_on_update = True
    collects_garbage = False

    def validate(self, obj: Tree, call: ApiCall) -> Iterable[Cause]:
        newer = bool(call.resource.group)
        yield from _validate(obj, newer)
        if newer:
            yield from _series(obj)
            yield from _only_new_fields(obj)

    def validate_update(self, new: Tree, old: Tree, call: ApiCall) -> Iterable[Cause]:
        newer = bool(call.resource.group)
        yield from _validate(new, newer)
        if newer:
            if new.get("series") != old.get("series"):
                yield from _series(new)
            for name in _FIXED:
                path = "reportingController" if name == "reportingComponent" else name
                yield from field_checks.immutable(new.get(name), old.get(name), path)


def _validate(obj: Tree, newer: bool) -> Iterator[Cause]:
    """The rules of both versions; they depend on whether `eventTime` is set."""
    about = obj["involvedObject"].get("namespace", "")
    own = obj["metadata"].get("namespace", "")
    timed = bool(obj.get("eventTime"))
    if timed:
        wrong = not about and own not in ("default", "kube-system")
    else:
        wrong = about != own if about else own not in ("", "default")
    if wrong:
        yield invalid("involvedObject.namespace", about, "does not match event.namespace")
    if timed:
        yield from _reported(obj, "reportingController" if newer else "reportingComponent")


def _reported(obj: Tree, controller_path: str) -> Iterator[Cause]:
    controller = obj.get("reportingComponent", "")
    if not controller:
        yield required(controller_path)
    yield from field_checks.qualified_name(controller, controller_path)
    for name in ("reportingInstance", "action", "reason"):
        value = obj.get(name, "")
        if not value:
            yield required(name)
        elif len(value) > 128:
            yield invalid(name, "", "can have at most 128 characters")
    if len(obj.get("message", "")) > 1024:
        yield invalid("message", "", "can have at most 1024 characters")


def _series(obj: Tree) -> Iterator[Cause]:
    series = obj.get("series")
    if series is None:
        return
    if series.get("count", 0) < 2:
        yield invalid("series.count", "", "should be at least 2")
    if not series.get("lastObservedTime"):
        yield required("series.lastObservedTime")


def _only_new_fields(obj: Tree) -> Iterator[Cause]:
    if not obj.get("eventTime"):
        yield required("eventTime")
    if obj.get("type") not in ("Normal", "Warning"):
        yield invalid("type", "", f"has invalid value: {obj.get('type', '')}")
    for name in ("firstTimestamp", "lastTimestamp", "count", "source"):
        if obj.get(name):
            yield invalid(name, "", "needs to be unset")


def _cells(obj: Tree, now: float) -> list[Any]:
    about = obj["involvedObject"]
    first = timestamps.human_age(obj.get("firstTimestamp") or obj.get("eventTime"), now)
    last = timestamps.human_age(obj["lastTimestamp"], now) if obj.get("lastTimestamp") else first
    count = obj.get("count", 0) or 1
    series = obj.get("series")
    if series is not None:
        last, count = (
            timestamps.human_age(series.get("lastObservedTime"), now),
            series.get("count", 0),
        )
    target = about.get("kind", "").lower()
    if about.get("name"):
        target += f"/{about['name']}"
    source = [
        obj["source"].get("component") or obj.get("reportingComponent", ""),
        obj["source"].get("host") or obj.get("reportingInstance", ""),
    ]
    return [
        last,
        target,
        ", ".join(one for one in source if one) if source[1] else source[0],
        obj.get("message", "").strip(),
        first,
        count,
    ]


TABLE = PrintedTable(
    "Last Seen, Type=type, Reason=reason, Object, Subobject+=involvedObject.fieldPath, Source+, "
    "Message, First Seen+, Count+, Name+",
    _cells,
)


class EventsV1Table:
    """The table of events.k8s.io/v1, with the columns of core/v1."""

    columns = TABLE.columns

    def cells(self, obj: Tree, now: float) -> list[Any]:
        return TABLE.cells(EventsV1Alias().to_stored(obj), now)

    def conditions(self, obj: Tree) -> list[Tree]:
        return []


def core_v1_fields() -> dict[str, Callable[[Tree], str]]:
    """Selectable fields of core/v1."""
    paths = (f"involvedObject.{name}" for name in _ABOUT)
    fields = selectable_fields(*paths, "reason", "reportingComponent", "type")
    return {**fields, "source": _source}


def events_v1_fields() -> dict[str, Callable[[Tree], str]]:
    """Selectable fields of events.k8s.io/v1, read from stored events."""
    made = {f"regarding.{name}": selectable_field(f"involvedObject.{name}") for name in _ABOUT}
    made |= selectable_fields("reason", "type")
    made["reportingController"] = selectable_field("reportingComponent")
    return made


def _source(obj: Tree) -> str:
    component: str = obj["source"].get("component", "")
    return component or str(obj.get("reportingComponent", ""))


KIND = KindRegistration(
    kind="Event",
    types=TYPES,
    strategy=EventStrategy(),
    short_names=("ev",),
    table=TABLE,
    fields=core_v1_fields(),
    ttl_s=EVENT_TTL_S,
)
EVENTS_V1_KIND = KindRegistration(
    group="events.k8s.io",
    kind="Event",
    types=EVENTS_V1_TYPES,
    strategy=EventStrategy(),
    short_names=("ev",),
    table=EventsV1Table(),
    fields=events_v1_fields(),
    ttl_s=EVENT_TTL_S,
    alias=EventsV1Alias(),
)
