"""Messages as they are recorded, and as bytes.

Messages are arrays that begin with their type's name. Three kinds have a form of their own, because
their type does not say which object they hold: changes of objects, writes, and extender calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

import msgspec

from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.events import Event, Message
from stowplan.messages.extender_api import body_tree
from stowplan.objects.meta import Object
from stowplan.recording.frames import RecordingError


class ObjectRecord(msgspec.Struct, frozen=True, array_like=True):
    """An object with the name of its kind."""

    kind: str
    value: msgspec.Raw

    @classmethod
    def of(cls, value: Object) -> ObjectRecord:
        """The record of an object."""
        return cls(type(value).__name__, msgspec.Raw(_ENCODER.encode(value)))

    def object(self) -> Object:
        """The object; raises RecordingError for a kind that this version does not know."""
        kind = _kinds().get(self.kind)
        if kind is None:
            # A plugin loaded meanwhile may define it.
            _kinds.cache_clear()
            kind = _kinds().get(self.kind)
        if kind is None:
            raise RecordingError(f"unknown kind {self.kind!r} in the recording")
        found: Object = msgspec.msgpack.decode(self.value, type=kind)
        return found


class ObjectChangeRecord(Message, frozen=True):
    """ObjectAdded, ObjectUpdated or ObjectDeleted, by `event`."""

    event: str
    record: ObjectRecord


class WriteRecord(Message, frozen=True):
    """A Write."""

    effect: int
    term: int
    uid: str
    record: ObjectRecord
    patch: dict[str, Any]


class ExtenderCallRecord(Message, frozen=True):
    """A CallExtender. extender: its URL prefix. body: as sent."""

    effect: int
    term: int
    uid: str
    extender: str
    verb: str
    body: dict[str, Any]
    timeout_s: float


RecordedEvent = (
    happened.PodAdded
    | happened.PodUpdated
    | happened.PodDeleted
    | happened.NodeAdded
    | happened.NodeUpdated
    | happened.NodeDeleted
    | ObjectChangeRecord
    | happened.BindDone
    | happened.BindFailed
    | happened.PodRead
    | happened.PatchFailed
    | happened.EvictDone
    | happened.EvictFailed
    | happened.PrepareDone
    | happened.PrepareFailed
    | happened.WriteDone
    | happened.WriteFailed
    | happened.ExtenderReplied
    | happened.ExtenderFailed
    | happened.Allowed
    | happened.Rejected
    | happened.LeaderElected
    | happened.LeaderLost
    | happened.Synced
    | happened.ConfigurationChanged
    | happened.SessionEnded
    | happened.Tick
)
RecordedEffect = (
    to_do.Bind
    | to_do.ReadPod
    | to_do.PatchStatus
    | to_do.PatchGroup
    | to_do.AnnotateGroup
    | to_do.PatchQueue
    | to_do.RecordEvent
    | to_do.Evict
    | to_do.Prepare
    | WriteRecord
    | ExtenderCallRecord
    | to_do.Cancel
    | to_do.Report
    | to_do.Wake
)


def events_of(recorded: Iterable[RecordedEvent]) -> list[Event]:
    """The events of their recorded forms; raises RecordingError."""
    return [
        _OBJECT_EVENTS[one.event](one.record.object())
        if isinstance(one, ObjectChangeRecord)
        else one
        for one in recorded
    ]


def recorded_forms(messages: Sequence[Any]) -> Sequence[Any]:
    """The messages, with those that need it in their recorded form."""
    if _RECORDED_FORMS.keys().isdisjoint(map(type, messages)):
        return messages
    forms = _RECORDED_FORMS
    return [forms[type(one)](one) if type(one) in forms else one for one in messages]


def _object_change(event: Any) -> ObjectChangeRecord:
    return ObjectChangeRecord(type(event).__name__, ObjectRecord.of(event.value))


def _write(effect: to_do.Write) -> WriteRecord:
    record = ObjectRecord.of(effect.value)
    return WriteRecord(effect.effect, effect.term, effect.uid, record, effect.patch)


def _extender_call(effect: to_do.CallExtender) -> ExtenderCallRecord:
    question = effect.question
    return ExtenderCallRecord(
        effect.effect,
        effect.term,
        effect.uid,
        question.extender.url_prefix,
        question.verb.value,
        body_tree(question.body),
        effect.timeout_s,
    )


@cache
def _kinds() -> dict[str, type[Object]]:
    """All kinds of objects, by name."""
    found: dict[str, type[Object]] = {}
    classes: list[type[Object]] = [Object]
    while classes:
        kind = classes.pop()
        found[kind.__name__] = kind
        classes += kind.__subclasses__()
    return found


_OBJECT_EVENTS: dict[str, Callable[[Object], Event]] = {
    kind.__name__: kind
    for kind in (happened.ObjectAdded, happened.ObjectUpdated, happened.ObjectDeleted)
}
_RECORDED_FORMS: dict[type[Any], Callable[[Any], Message]] = {
    happened.ObjectAdded: _object_change,
    happened.ObjectUpdated: _object_change,
    happened.ObjectDeleted: _object_change,
    to_do.Write: _write,
    to_do.CallExtender: _extender_call,
}
_ENCODER = msgspec.msgpack.Encoder()
