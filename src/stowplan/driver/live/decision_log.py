"""Decision log: one log line with keys for each decision of a live scheduler.

Read from the effects of the scheduler, which logs nothing itself. A pod that stays unschedulable is
logged again when its reason changes; numbers are ignored: `0/5 nodes are available` and `0/6 nodes
are available` with the same reasons are equal. Each message has a rate limit; dropped lines are
counted and the count is logged.

Messages are kube-scheduler's where it has them. Differs: the original logs each attempt, at
verbosity 2 and up, and no score.

Source: kube-scheduler v1.36, schedule_one.go, framework/preemption.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from stowplan.driver.logs import log_keys
from stowplan.driver.token_bucket import TokenBucket
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event
from stowplan.messages.extender_api import ExtenderVerb
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.podgroup import PodGroupStatus
from stowplan.objects.scheduling_group import SCHEDULING_API_VERSION

if TYPE_CHECKING:
    from stowplan.scheduler import Scheduler

log = logging.getLogger("stowplan.decisions")

LINES_PER_S, BURST = 100, 1000
"""Rate limit of each message."""

BOUND = "Successfully bound pod to node"
UNSCHEDULABLE = "Unable to schedule pod; no fit; waiting"
FAILED = "Error scheduling pod; retrying"
PLUGIN_FAILED = "Plugin failed"
PREEMPTED = "Preempted pod"
GROUP_STATUS = "PodGroup status changed"
GROUP_EVENT = "PodGroup event"
SESSION = "Session closed"
DROPPED = "Dropped lines over the rate limit"

ERROR = "SchedulerError"
_NUMBER = re.compile(r"\d+")
_EXTENSION_POINT = re.compile(r"\(([^\s()]+:\d+) in [^()]+\)")
_PLUGIN_NAME = re.compile(r"(?:plugin|priority|rule|policy|action) '([^']+)'")
_PREEMPTED = re.compile(r"Preempted by pod (\S+) on node (\S+)")


class LogRateLimiter:
    """Rate limit of one message; counts the lines that it drops."""

    def __init__(self) -> None:
        self._n_dropped = 0
        self._tokens = TokenBucket(LINES_PER_S, BURST)

    def try_take(self, now: int) -> bool:
        """True when a line may be logged; otherwise it is counted as dropped. now: nanoseconds of a
        monotonic clock."""
        if self._tokens.refill(now) < 1:
            self._n_dropped += 1
            return False
        self._tokens.take(now)
        return True

    def dropped(self, now: int) -> int:
        """Number of dropped lines, once a line may report it; resets the count."""
        if not self._n_dropped or self._tokens.refill(now) < 1:
            return 0
        self._tokens.take(now)
        n_dropped, self._n_dropped = self._n_dropped, 0
        return n_dropped


class LoggedPod(msgspec.Struct, frozen=True, gc=False):
    """An unscheduled pod. pod: namespace/name. reason: last logged, without numbers."""

    pod: str
    reason: str


class LoggedPodGroup(msgspec.Struct, gc=False):
    """A PodGroup. status: last logged. reasons: last logged, by event."""

    status: tuple[Any, ...] = ()
    reasons: dict[str, str] = {}


class DecisionLog:
    """scheduler: whose effects are logged. node_of: node of a pod by namespace/name, as the watch
    shows it, "" for none."""

    def __init__(self, scheduler: Scheduler, node_of: Callable[[str], str]) -> None:
        self._scheduler = scheduler
        self._node_of = node_of
        self._buckets: dict[str, LogRateLimiter] = {}
        # By uid; `_scores` of bindings in progress.
        self._scores: dict[str, int] = {}
        self._logged_pods: dict[str, LoggedPod] = {}
        self._logged_groups: dict[str, LoggedPodGroup] = {}

    def handled(self, events: Iterable[Event], effects: list[Effect], now: int) -> None:
        """Log the effects of one `handle` call. now: its start, nanoseconds of a monotonic
        clock."""
        if not log.isEnabledFor(logging.ERROR):
            return
        for event in events:
            if isinstance(event, happened.PodDeleted):
                self._scores.pop(event.pod.uid, None)
                self._logged_pods.pop(event.pod.uid, None)
            elif isinstance(event, happened.ObjectDeleted):
                self._logged_groups.pop(event.value.metadata.uid, None)
        failed = {e.uid for e in effects if isinstance(e, to_do.PatchStatus) and e.reason == ERROR}
        for effect in effects:
            match effect:
                case to_do.Bind() | to_do.Prepare(point="bind"):
                    self._note_score(effect.uid)
                case to_do.CallExtender() if effect.question.verb is ExtenderVerb.BIND:
                    self._note_score(effect.uid)
                case to_do.RecordEvent(kind="Pod"):
                    self._pod(effect, effect.uid in failed, effects, now)
                case to_do.RecordEvent():
                    self._group_event(effect, now)
                case to_do.PatchGroup():
                    self._group_status(effect, now)
        for message, bucket in self._buckets.items():
            n_dropped = bucket.dropped(now)
            if n_dropped:
                log_keys(log, logging.WARNING, DROPPED, lines=message, count=n_dropped)

    def session(self, number: int, effects: Iterable[Effect], took_ns: int) -> None:
        """Log a session; at info if it made a decision, else debug. Profiles may have scheduled
        pods in the same call."""
        names = {name for lane in self._scheduler.lanes.batch for name in lane.scheduler_names}
        counts = {"bindings": 0, "preempted": 0, "podGroups": 0}
        for effect in effects:
            match effect:
                case to_do.Bind(uid=uid):
                    binding_cycle = self._scheduler.bindings.get(uid)
                    is_ours = (
                        binding_cycle is not None and binding_cycle.pod.spec.scheduler_name in names
                    )
                    counts["bindings"] += is_ours
                case to_do.Evict(message=text):
                    counts["preempted"] += text.partition(":")[0] in names
                case to_do.PatchGroup():
                    counts["podGroups"] += 1
        level = logging.INFO if any(counts.values()) else logging.DEBUG
        duration = f"{took_ns / SECOND:.3f}s"
        log_keys(log, level, SESSION, session=number, **counts, duration=duration)

    # Pods.

    def _note_score(self, uid: str) -> None:
        binding_cycle = self._scheduler.bindings.get(uid)
        if binding_cycle is not None and binding_cycle.binding.score is not None:
            self._scores[uid] = binding_cycle.binding.score

    def _pod(
        self, effect: to_do.RecordEvent, is_fault: bool, effects: list[Effect], now: int
    ) -> None:
        uid, key = effect.uid, f"{effect.namespace}/{effect.name}"
        if effect.reason == "Scheduled":
            self._logged_pods.pop(uid, None)
            score = self._scores.pop(uid, None)
            node = effect.note.rpartition(" to ")[2]
            self._log(logging.INFO, BOUND, now, pod=key, node=node, score=score)
        elif effect.reason == "Preempted":
            self._victim(effect, key, effects, now)
        elif effect.type == "Warning":
            self._log_unschedulable(effect, key, is_fault, now)

    def _log_unschedulable(
        self, effect: to_do.RecordEvent, key: str, is_fault: bool, now: int
    ) -> None:
        text = _NUMBER.sub("", effect.note)
        before = self._logged_pods.get(effect.uid)
        if before is not None and before.reason == text:
            return
        self._logged_pods[effect.uid] = LoggedPod(key, text)
        self._scores.pop(effect.uid, None)
        place, whose = _EXTENSION_POINT.search(effect.note), _PLUGIN_NAME.search(effect.note)
        if place is not None and whose is not None:
            keys = {"plugin": whose[1], "at": place[1], "reason": effect.note}
            self._log(logging.ERROR, PLUGIN_FAILED, now, pod=key, **keys)
        elif is_fault or effect.reason != "FailedScheduling":
            self._log(logging.ERROR, FAILED, now, pod=key, reason=effect.note)
        else:
            self._log(logging.INFO, UNSCHEDULABLE, now, pod=key, reason=effect.note)

    def _victim(self, effect: to_do.RecordEvent, key: str, effects: list[Effect], now: int) -> None:
        """Log a victim. The preemptor is logged by uid if that pod is not known to be pending, as
        "" if the room is for no particular pod."""
        named = _PREEMPTED.match(effect.note)
        if named is not None:
            # The watch may have removed the victim already.
            uid, node = named.groups()
        else:
            asked = (e for e in effects if isinstance(e, to_do.Evict) and e.uid == effect.uid)
            uid, node = next((one.preemptor for one in asked), ""), self._node_of(key)
        known = self._logged_pods.get(uid)
        keys = {"node": node, "preemptor": uid if known is None else known.pod}
        self._log(logging.INFO, PREEMPTED, now, pod=key, **keys, reason=effect.note)

    # PodGroups.

    def _group_status(self, effect: to_do.PatchGroup, now: int) -> None:
        if effect.api_version == SCHEDULING_API_VERSION:
            keys = _condition_keys(effect.status)
        else:
            keys = _phase_keys(effect.status)
        logged = tuple(keys.values())
        group = self._logged_groups.setdefault(effect.uid, LoggedPodGroup())
        if group.status == logged:
            return
        group.status = logged
        named = f"{effect.namespace}/{effect.name}"
        self._log(logging.INFO, GROUP_STATUS, now, podGroup=named, **keys)

    def _group_event(self, effect: to_do.RecordEvent, now: int) -> None:
        key, text = f"{effect.namespace}/{effect.name}", _NUMBER.sub("", effect.note)
        reasons = self._logged_groups.setdefault(effect.uid, LoggedPodGroup()).reasons
        if reasons.get(effect.reason) == text:
            return
        reasons[effect.reason] = text
        level = logging.WARNING if effect.type == "Warning" else logging.INFO
        self._log(level, GROUP_EVENT, now, podGroup=key, event=effect.reason, reason=effect.note)

    def _log(self, level: int, message: str, now: int, **keys: Any) -> None:
        if not log.isEnabledFor(level):
            return
        bucket = self._buckets.get(message)
        if bucket is None:
            bucket = self._buckets[message] = LogRateLimiter()
        if bucket.try_take(now):
            logged = {key: value for key, value in keys.items() if value not in (None, "")}
            log_keys(log, level, message, **logged)


def _condition_keys(status: PodGroupStatus) -> dict[str, Any]:
    """Logged keys of a group of scheduling.k8s.io, whose status is one condition."""
    found = status.conditions[-1]
    keys = {"condition": found.type, "status": found.status}
    return keys | {"reason": found.message or found.reason}


def _phase_keys(status: PodGroupStatus) -> dict[str, Any]:
    """Logged keys of a group of kube-batch or Volcano."""
    return {
        "phase": status.phase,
        "running": status.running,
        "succeeded": status.succeeded,
        "failed": status.failed,
        "reason": _reason_of(status),
    }


def _reason_of(status: PodGroupStatus) -> str:
    """Message of the Unschedulable condition of a group, "" for none."""
    found = [one for one in status.conditions if one.type == "Unschedulable"]
    return found[-1].message if found and found[-1].status == "True" else ""
