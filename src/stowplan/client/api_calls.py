"""The API requests of each effect, and the event that reports its outcome.

Each effect is a generator: it yields requests, is sent their responses, and returns its outcome, or
None where the effect has no outcome or nothing waits for it. It does no I/O, so that any sender can
drive it.

After a 429 nothing has been done: the request is yielded again after the time that the server asks
for (`RetryPause`). A response that leaves the outcome unknown ends the effect; the scheduler
decides what follows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator
from typing import Any

import msgspec
import numpy as np

from stowplan.client import requests
from stowplan.client.binding.bind_requesting import NO_BINDER, bind_by_request
from stowplan.client.binding.binding_times import BindingTimes
from stowplan.client.binding.card_reserving import release_cards, reserve_cards
from stowplan.client.binding.node_locking import release_lock, take_lock
from stowplan.client.event_correlator import EventCorrelator
from stowplan.client.requests import ApiRequest
from stowplan.client.responses import (
    ApiResponse,
    ResponseOutcome,
    decode_body,
    error_message,
    retry_delay_s,
)
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event
from stowplan.objects.devices.card_reservation import CardReservations
from stowplan.objects.devices.node_lock import NodeLock
from stowplan.objects.encoding.json_codec import DecodeError, decode
from stowplan.objects.pod import Pod
from stowplan.objects.scheduling_group import SCHEDULING_API_VERSION

LOCKED = 423
"""Status of a binding that was not sent because another pod has the lock of the node, or its cards
are not reserved yet, or that KAI's binder has refused."""
UNKNOWN = 504
"""Status of a binding of which it is not known whether it was made."""
RESERVATION_POLL_S = 0.5
"""Seconds between two looks at a reservation pod."""
THROTTLED_RETRIES_MAX = 20
"""How often a throttled request is sent at most."""
EVENT_TRIES_MAX = 12
"""How often an Event without a response is sent at most."""
EVENT_RETRY_S, EVENT_RETRY_SPREAD = 10.0, 0.25
"""Seconds between two tries, and the random part of them that is added at most."""


class RetryPause(msgspec.Struct, frozen=True):
    """Wait this long before the next request."""

    seconds: float


class EventRetryPause(RetryPause, frozen=True):
    """The server has not answered: send an Event again after so long."""


class RequestTime(msgspec.Struct, frozen=True):
    """Time of a request. now: nanoseconds of a monotonic clock. wall_ns: since 1970."""

    now: int
    wall_ns: int
    seconds: str
    micros: str


ApiCallSteps = Generator[ApiRequest | RetryPause, ApiResponse | None, Event | None]
RequestClock = Callable[[], RequestTime]


def send_unthrottled(
    request: ApiRequest,
) -> Generator[ApiRequest | RetryPause, ApiResponse | None, ApiResponse]:
    """Send a request, and repeat it while the server throttles it."""
    attempt = 0
    while True:
        answer = yield request
        assert answer is not None
        attempt += 1
        if answer.verdict is not ResponseOutcome.THROTTLED or attempt == THROTTLED_RETRIES_MAX:
            return answer
        yield RetryPause(retry_delay_s(answer))


class ApiCalls:
    """Turns effects into requests. clock: returns the current time. rng: spreads retries of Events;
    None for no spread. has_kai_binder: what is asked of KAI's binder is asked of it; else pods are
    bound directly."""

    def __init__(
        self,
        series: EventCorrelator,
        clock: RequestClock,
        *,
        rng: np.random.Generator | None = None,
        has_kai_binder: bool = False,
    ) -> None:
        self.series = series
        self._rng = rng
        self._has_kai_binder = has_kai_binder
        self.clock = clock
        self._binding_times = BindingTimes()
        self._kinds: dict[type[Any], Callable[[Any], ApiCallSteps]] = {
            to_do.Bind: self._bind,
            to_do.ReadPod: self._read,
            to_do.PatchStatus: self._patch,
            to_do.PatchGroup: self._patch_group,
            to_do.AnnotateGroup: self._annotate_group,
            to_do.PatchQueue: self._patch_queue,
            to_do.RecordEvent: self._record,
            to_do.Evict: self._evict,
            to_do.Write: self._write,
        }

    def steps(self, effect: Effect) -> ApiCallSteps:
        """Requests of an effect that is performed at the API server; raises KeyError for others."""
        return self._kinds[type(effect)](effect)

    def _bind(self, effect: to_do.Bind) -> ApiCallSteps:
        notes = effect.annotations
        if effect.times:
            notes = self._binding_times.annotations(effect, self.clock().wall_ns)
        if effect.lock is not None:
            return (yield from self._bind_locked(effect, effect.lock, notes))
        if effect.cards is not None:
            return (yield from self._bind_reserved(effect, effect.cards, notes))
        if effect.request is not None and self._has_kai_binder:
            found = yield from bind_by_request(
                send_unthrottled, effect, effect.request, lambda: RetryPause(RESERVATION_POLL_S)
            )
            if not found.reason:
                return happened.BindDone(effect.effect, effect.uid)
            # Zones can be written by the binding itself, cards cannot.
            if found.reason != NO_BINDER or effect.request.selected_gpu_groups:
                code = LOCKED if found.is_known else UNKNOWN
                return happened.BindFailed(effect.effect, effect.uid, code, found.reason)
        answer = yield from send_unthrottled(requests.bind(effect, notes))
        if answer.is_done:
            return happened.BindDone(effect.effect, effect.uid)
        return happened.BindFailed(effect.effect, effect.uid, answer.status, error_message(answer))

    def _bind_locked(
        self, effect: to_do.Bind, lock: NodeLock, notes: dict[str, str]
    ) -> ApiCallSteps:
        """Take the node's lock, then bind; the device plugin of the node gives it back."""
        moment = self.clock()
        taken_at, now_s = moment.seconds, moment.wall_ns / 1e9
        reason = yield from take_lock(send_unthrottled, effect, lock, taken_at, now_s)
        if reason:
            return happened.BindFailed(effect.effect, effect.uid, LOCKED, reason)
        answer = yield from send_unthrottled(requests.bind(effect, notes))
        if answer.is_done:
            return happened.BindDone(effect.effect, effect.uid)
        if 400 <= answer.status < 500 and answer.status != 408:
            # After another failure the pod may be bound, and the lock is the device plugin's.
            yield from release_lock(send_unthrottled, effect, lock, taken_at)
        return happened.BindFailed(effect.effect, effect.uid, answer.status, error_message(answer))

    def _bind_reserved(
        self, effect: to_do.Bind, cards: CardReservations, notes: dict[str, str]
    ) -> ApiCallSteps:
        """Have the cards reserved, then bind, with the ids of the GPUs that were found."""
        found = yield from reserve_cards(
            send_unthrottled, effect, cards, lambda: RetryPause(RESERVATION_POLL_S)
        )
        if found.problem:
            yield from release_cards(send_unthrottled, effect, cards)
            return happened.BindFailed(effect.effect, effect.uid, LOCKED, found.problem)
        notes = {**notes, cards.devices_key: ",".join(found.ids)}
        answer = yield from send_unthrottled(requests.bind(effect, notes))
        if answer.is_done:
            return happened.BindDone(effect.effect, effect.uid)
        if 400 <= answer.status < 500 and answer.status != 408:
            # After another failure the pod may be bound, and is using them.
            yield from release_cards(send_unthrottled, effect, cards)
        return happened.BindFailed(effect.effect, effect.uid, answer.status, error_message(answer))

    def _read(self, effect: to_do.ReadPod) -> ApiCallSteps:
        answer = yield from send_unthrottled(requests.read_pod(effect))
        if answer.status == 404:
            return happened.PodRead(effect.effect, effect.uid, None)
        if not answer.is_done:
            return None
        try:
            return happened.PodRead(effect.effect, effect.uid, decode(answer.body, Pod))
        except DecodeError:
            # Same as no response: the scheduler reads the pod again.
            return None

    def _patch(self, effect: to_do.PatchStatus) -> ApiCallSteps:
        answer = yield from send_unthrottled(requests.patch_status(effect, self.clock().seconds))
        if answer.is_done:
            return None
        return happened.PatchFailed(effect.effect, effect.uid, answer.status, error_message(answer))

    def _patch_group(self, effect: to_do.PatchGroup) -> ApiCallSteps:
        moment = self.clock().seconds
        answer = yield from send_unthrottled(requests.patch_pod_group(effect, moment))
        if answer.status == 404 and effect.api_version != SCHEDULING_API_VERSION:
            answer = yield from send_unthrottled(
                requests.patch_pod_group(effect, moment, whole=True)
            )
        if answer.is_done:
            return None
        return happened.PatchFailed(effect.effect, effect.uid, answer.status, error_message(answer))

    def _annotate_group(self, effect: to_do.AnnotateGroup) -> ApiCallSteps:
        answer = yield from send_unthrottled(requests.annotate_group(effect))
        if answer.is_done:
            return None
        return happened.PatchFailed(effect.effect, effect.uid, answer.status, error_message(answer))

    def _patch_queue(self, effect: to_do.PatchQueue) -> ApiCallSteps:
        answer = yield from send_unthrottled(requests.patch_queue(effect))
        if answer.is_done:
            return None
        return happened.PatchFailed(effect.effect, effect.uid, answer.status, error_message(answer))

    def _record(self, effect: to_do.RecordEvent) -> ApiCallSteps:
        return self.record(effect, self.clock(), self.series.version_of(effect))

    def record(self, effect: to_do.RecordEvent, moment: RequestTime, version: str) -> ApiCallSteps:
        """Requests of an event that happened at a moment; see `EventCorrelator.record`.

        A request without a response is repeated as it was; a refused one is not.
        Source: client-go v1.36, tools/events event_broadcaster.
        """
        when = moment.now, moment.wall_ns, moment.micros
        request = self.series.record(effect, *when, version)
        if request is None:
            return None
        answer = yield from self._send_event(request)
        if request.method == "PATCH" and answer.status == 404:
            # The Event has expired on the server.
            self.series.forget(effect, version)
            request = self.series.record(effect, *when, version)
            assert request is not None
            answer = yield from self._send_event(request)
        # An earlier try may have created the Event, though its response was lost.
        if not answer.is_done and answer.status != 409:
            self.series.forget(effect, version)
        return None

    def _send_event(
        self, request: ApiRequest
    ) -> Generator[ApiRequest | RetryPause, ApiResponse | None, ApiResponse]:
        for n_tries in itertools.count(1):
            answer = yield from send_unthrottled(request)
            if answer.status or n_tries == EVENT_TRIES_MAX:
                break
            spread = 0.0 if self._rng is None else float(self._rng.random())
            yield EventRetryPause(EVENT_RETRY_S * (1 + EVENT_RETRY_SPREAD * spread))
        return answer

    def _evict(self, effect: to_do.Evict) -> ApiCallSteps:
        answer = yield from send_unthrottled(requests.mark_victim(effect, self.clock().seconds))
        if answer.is_done:
            answer = yield from send_unthrottled(requests.delete_victim(effect))
        if answer.is_done:
            return happened.EvictDone(effect.effect, effect.uid)
        return happened.EvictFailed(effect.effect, effect.uid, answer.status, error_message(answer))

    def _write(self, effect: to_do.Write) -> ApiCallSteps:
        try:
            request = requests.update_object(effect)
        except LookupError as problem:
            return happened.WriteFailed(effect.effect, effect.uid, 400, str(problem))
        answer = yield from send_unthrottled(request)
        if answer.is_done:
            version = _version_in(answer)
            return happened.WriteDone(effect.effect, effect.uid, version)
        return happened.WriteFailed(effect.effect, effect.uid, answer.status, error_message(answer))


class _WrittenObjectMeta(msgspec.Struct, frozen=True):
    version: str = msgspec.field(default="", name="resourceVersion")


class _WrittenObject(msgspec.Struct, frozen=True):
    metadata: _WrittenObjectMeta = _WrittenObjectMeta()


def _version_in(answer: ApiResponse) -> str:
    found = decode_body(answer.body, _WrittenObject)
    return found.metadata.version if found is not None else ""
