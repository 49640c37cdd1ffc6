"""Calls of `handle` as the payload of a frame, and back.

A frame has the pods of all its events in columns, and a run of bindings as the nodes of consecutive
pods of them: what a kernel places at once takes its metadata and a node's name. All other messages
are written one by one. A frame refers to nothing outside of it.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from stowplan.messages import events as happened
from stowplan.messages.effects import Bind, Effect
from stowplan.messages.events import Event
from stowplan.objects.pod import Pod
from stowplan.recording.frames import RecordingError, compress
from stowplan.recording.message_codec import (
    RecordedEffect,
    RecordedEvent,
    events_of,
    recorded_forms,
)
from stowplan.recording.pod_columns import PodColumns, columns_of
from stowplan.scheduler.outbox import BindRun

_POD_EVENTS = (happened.PodAdded, happened.PodUpdated, happened.PodDeleted)
_CODES: dict[type[Any], int] = {kind: code for code, kind in enumerate(_POD_EVENTS, start=1)}
"""Event's type -> its byte in `_CallFrame.codes`; 0 for all other events."""


class Call(NamedTuple):
    """A call of `handle`. bind_runs: of its effects, `Scheduler.bind_runs` after it."""

    now: int
    heads_max: int | None
    events: Sequence[Event]
    effects: Sequence[Effect]
    bind_runs: Sequence[BindRun] = ()


class _CallHead(msgspec.Struct, frozen=True, array_like=True):
    """lengths: of effects that are written one by one, of a run of bindings, and so on in turn."""

    now: int
    heads_max: int | None
    n_events: int
    lengths: list[int]


class _BindRunRecord(msgspec.Struct, frozen=True, array_like=True):
    """A run of Bind. effect: number of the first. first_pod: index of its pod in the frame."""

    effect: int
    term: int
    first_pod: int
    nodes: Sequence[str]


class _EffectColumns(msgspec.Struct, frozen=True, array_like=True):
    runs: list[_BindRunRecord]
    others: list[RecordedEffect]


class _CallFrame(msgspec.Struct, frozen=True, array_like=True):
    """codes: a byte per event, see `_CODES`. pods: of the events that have one. others: all other
    events. effects: `_EffectColumns`, decoded on demand."""

    heads: list[_CallHead]
    codes: bytes
    pods: PodColumns
    others: list[RecordedEvent]
    effects: msgspec.Raw


class _FrameEffects:
    """The effects of the calls of a frame."""

    def __init__(self, content: bytes, heads: list[_CallHead], pods: list[Pod]) -> None:
        self._content, self._heads, self._pods = content, heads, pods

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _FrameEffects) and self._content == other._content

    __hash__ = object.__hash__

    @cached_property
    def by_call(self) -> list[list[RecordedEffect]]:
        """The effects of each call; raises RecordingError."""
        try:
            columns = _EFFECTS.decode(self._content)
        except msgspec.DecodeError as problem:
            raise _undecodable(problem) from None
        runs, others = iter(columns.runs), iter(columns.others)
        found: list[list[RecordedEffect]] = []
        for head in self._heads:
            effects: list[RecordedEffect] = []
            for place, length in enumerate(head.lengths):
                if place % 2:
                    effects += self._bindings(next(runs))
                else:
                    effects += [next(others) for _ in range(length)]
            found.append(effects)
        return found

    def _bindings(self, run: _BindRunRecord) -> list[Bind]:
        pods = self._pods[run.first_pod : run.first_pod + len(run.nodes)]
        return [
            Bind(number, run.term, pod.uid, pod.namespace, pod.name, node)
            for number, (pod, node) in enumerate(zip(pods, run.nodes, strict=True), run.effect)
        ]


class RecordedCall(msgspec.Struct, frozen=True):
    """A `handle` call that was read. number: of the call in its frame."""

    now: int
    heads_max: int | None
    recorded: list[RecordedEvent]
    frame: _FrameEffects
    number: int

    def events(self) -> list[Event]:
        """The events of the call."""
        return events_of(self.recorded)

    def effects(self) -> list[RecordedEffect]:
        """The effects of the call."""
        return self.frame.by_call[self.number]

    def effect_bytes(self) -> bytes:
        """The effects of the call, one after the other."""
        return _ENCODER.encode(self.effects())

    def has_effects(self, effects: Sequence[Effect]) -> bool:
        """True if these are its effects, byte for byte."""
        return _ENCODER.encode(recorded_forms(effects)) == self.effect_bytes()


def encode_calls(calls: Sequence[Call]) -> bytes:
    """The payload of a frame of calls. Raises TypeError and OverflowError for values that have no
    encoding."""
    codes, pods, others = _divide(list(chain.from_iterable(call.events for call in calls)))
    heads, effects = _effect_columns(calls, pods)
    body = (heads, codes, columns_of(pods), recorded_forms(others), effects)
    return compress(_ENCODER.encode(body))


def decode_calls(payload: bytes) -> list[RecordedCall]:
    """The calls of a frame; raises RecordingError."""
    try:
        frame = _FRAME.decode(zlib.decompress(payload))
        pods = frame.pods.pods()
    except (zlib.error, msgspec.DecodeError) as problem:
        raise _undecodable(problem) from None
    effects = _FrameEffects(bytes(frame.effects), frame.heads, pods)
    own, others = iter(pods), iter(frame.others)
    events = [_POD_EVENTS[code - 1](next(own)) if code else next(others) for code in frame.codes]
    calls: list[RecordedCall] = []
    at = 0
    for number, head in enumerate(frame.heads):
        happenings = events[at : at + head.n_events]
        at += head.n_events
        calls.append(RecordedCall(head.now, head.heads_max, happenings, effects, number))
    return calls


def _divide(events: list[Any]) -> tuple[bytes, list[Pod], list[Any]]:
    """Codes of the events, the pods of those that have one, and all other events."""
    kind = type(events[0]) if events else None
    if kind in _CODES and type(events[-1]) is kind:
        pods = [one.pod for one in events if type(one) is kind]
        if len(pods) == len(events):
            return bytes((_CODES[kind],)) * len(pods), pods, []
    codes = bytes([_CODES.get(type(one), 0) for one in events])
    pairs = list(zip(events, codes, strict=True))
    return codes, [one.pod for one, code in pairs if code], [one for one, code in pairs if not code]


def _effect_columns(
    calls: Sequence[Call], pods: list[Pod]
) -> tuple[list[_CallHead], tuple[list[_BindRunRecord], Sequence[Any]]]:
    """Heads of the calls, and the fields of `_EffectColumns`. pods: of the frame."""
    heads: list[_CallHead] = []
    runs: list[_BindRunRecord] = []
    others: list[Any] = []
    next_pod = 0
    for call in calls:
        lengths: list[int] = []
        at = 0
        for first, bound, nodes in call.bind_runs:
            end = next_pod + len(bound)
            # Pods are bound in order of arrival, with few exceptions; those take more bytes.
            if pods[next_pod:end] != bound:
                continue
            others += call.effects[at:first]
            lengths += (first - at, len(bound))
            at = first + len(bound)
            leader = call.effects[first]
            runs.append(_BindRunRecord(leader.effect, leader.term, next_pod, nodes))
            next_pod = end
        others += call.effects[at:]
        lengths.append(len(call.effects) - at)
        heads.append(_CallHead(call.now, call.heads_max, len(call.events), lengths))
    return heads, (runs, recorded_forms(others))


def _undecodable(problem: Exception) -> RecordingError:
    return RecordingError(f"calls that cannot be decoded: {problem}")


_ENCODER = msgspec.msgpack.Encoder()
_FRAME = msgspec.msgpack.Decoder(_CallFrame)
_EFFECTS = msgspec.msgpack.Decoder(_EffectColumns)
