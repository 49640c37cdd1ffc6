"""Fairness watch: follows events and effects of a scheduler, and says what is unfair.

It has no side effects: live it is fed by the driver after every `handle` call, over a
recording by its reader. Times are nanoseconds of the scheduler's clock.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from stowplan.config import Configuration
from stowplan.framework.deciders.tasks import group_of
from stowplan.insight.fairness.findings import (
    PODS_LISTED,
    FairnessLimits,
    Finding,
    FindingKind,
    duration_text,
    in_seconds,
)
from stowplan.insight.fairness.queue_usage import QueueUsage
from stowplan.insight.pod_owners import NO_OWNER, owner_text
from stowplan.insight.pod_placement import FAILED, condition_message, strip_node_counts
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import PodGroup, Queue

if TYPE_CHECKING:
    from stowplan.recording.recording_files import Recording

CHECK_NS = SECOND
"""Shortest time between two checks of the queues."""
SESSION = "a session, for no pod in particular"
NO_CAUSE = "no attempt has been recorded"


class WatchedPod(msgspec.Struct):
    """A pod. since: when it became pending. queue: in which it is counted, "" for none. cause: of
    its latest refusal, without counts of nodes."""

    pod: Pod
    since: int
    queue: str = ""
    cause: str = ""


class CountedPreemption(NamedTuple):
    """One eviction. victim, preemptor: owners; preemptor: "" for none in particular. priorities: of
    the two pods, twice the victim's where no one pod gets the resources."""

    at: int
    victim: str
    preemptor: str
    pod: str
    priorities: tuple[int, int]


class FairnessWatch:
    """Collects what findings about one scheduler are made of.

    served: scheduler names whose pods it schedules. sessions: those whose pods are in queues.
    default_queue: of pods without a PodGroup.
    """

    def __init__(
        self,
        limits: FairnessLimits | None = None,
        served: Iterable[str] = (),
        sessions: Iterable[str] = (),
        default_queue: str = "default",
    ) -> None:
        self.limits = limits or FairnessLimits()
        self._sessions = frozenset(sessions)
        self._served = self._sessions | set(served)
        self._default_queue = default_queue
        self._pods: dict[str, WatchedPod] = {}
        self._pending: dict[str, WatchedPod] = {}
        self._preemptions: deque[CountedPreemption] = deque()
        self._usage = QueueUsage()
        self._groups: dict[str, str] = {}
        self._members: dict[str, dict[str, None]] = {}
        self._group_causes: dict[str, str] = {}
        self._checked_at = -CHECK_NS
        self._handlers: Mapping[type[Any], Callable[[Any, int], None]] = {
            happened.PodAdded: lambda e, now: self._put_pod(e.pod, now),
            happened.PodUpdated: lambda e, now: self._put_pod(e.pod, now),
            happened.PodDeleted: lambda e, now: self._drop_pod(e.pod.uid),
            happened.NodeAdded: lambda e, now: self._usage.put_node(e.node),
            happened.NodeUpdated: lambda e, now: self._usage.put_node(e.node),
            happened.NodeDeleted: lambda e, now: self._usage.drop_node(e.node.name),
            happened.ObjectAdded: lambda e, now: self._put_object(e.value),
            happened.ObjectUpdated: lambda e, now: self._put_object(e.value),
            happened.ObjectDeleted: lambda e, now: self._drop_object(e.value),
            to_do.Evict: self._evicted,
            to_do.RecordEvent: self._recorded,
        }

    def handled(self, events: Iterable[Any], effects: Iterable[Any], now: int) -> None:
        """Follow one `handle` call."""
        handlers = self._handlers
        for messages in (events, effects):
            for message in messages:
                handler = handlers.get(type(message))
                if handler is not None:
                    handler(message, now)
        if self._usage.uses and now - self._checked_at >= CHECK_NS:
            self._checked_at = now
            self._usage.update(now)

    # Events.

    def _put_pod(self, pod: Pod, now: int) -> None:
        uid = pod.uid
        known = self._pods.get(uid)
        if pod.is_finished:
            self._drop_pod(uid)
            return
        if known is None:
            known = self._pods[uid] = WatchedPod(pod, now)
            group = group_of(pod)
            if group:
                self._members.setdefault(group, {})[uid] = None
        else:
            self._uncount(known)
            known.pod = pod
        self._count(known)
        is_served = pod.spec.scheduler_name in self._served
        if pod.node_name or pod.metadata.deletion_timestamp is not None or not is_served:
            self._pending.pop(uid, None)
        else:
            self._pending[uid] = known

    def _drop_pod(self, uid: str) -> None:
        known = self._pods.pop(uid, None)
        self._pending.pop(uid, None)
        if known is not None:
            self._uncount(known)
            group = group_of(known.pod)
            members = self._members.get(group)
            if members is not None:
                members.pop(uid, None)
                if not members:
                    del self._members[group]

    def _count(self, known: WatchedPod) -> None:
        pod = known.pod
        if pod.spec.scheduler_name in self._sessions and not pod.spec.scheduling_gates:
            known.queue = self._groups.get(group_of(pod), self._default_queue)
            self._usage.count(pod, known.queue, 1)

    def _uncount(self, known: WatchedPod) -> None:
        if known.queue:
            self._usage.count(known.pod, known.queue, -1)
            known.queue = ""

    def _put_object(self, value: Any) -> None:
        if isinstance(value, Queue):
            self._usage.put_queue(value)
        elif isinstance(value, PodGroup):
            before, queue = self._groups.get(value.key), value.spec.queue or self._default_queue
            self._groups[value.key] = queue
            if before != queue:
                for uid in self._members.get(value.key, ()):
                    self._uncount(self._pods[uid])
                    self._count(self._pods[uid])

    def _drop_object(self, value: Any) -> None:
        if isinstance(value, Queue):
            self._usage.drop_queue(value.name)
        elif isinstance(value, PodGroup):
            self._groups.pop(value.key, None)
            self._group_causes.pop(value.key, None)

    # Effects.

    def _evicted(self, effect: to_do.Evict, now: int) -> None:
        victim, preemptor = self._pods.get(effect.uid), self._pods.get(effect.preemptor)
        priority = victim.pod.priority if victim is not None else 0
        priorities = (priority, preemptor.pod.priority if preemptor is not None else priority)
        preemptor = preemptor or self._pods.get(effect.member)
        key = f"{effect.namespace}/{effect.name}"
        whose = (
            key_of_owner(victim.pod)
            if victim is not None
            else f"{effect.namespace}/pod/{effect.name}"
        )
        by = key_of_owner(preemptor.pod) if preemptor is not None else ""
        self._preemptions.append(CountedPreemption(now, whose, by, key, priorities))
        self._forget(now)

    def _recorded(self, effect: to_do.RecordEvent, now: int) -> None:
        if effect.kind == "PodGroup":
            if effect.type == "Warning":
                self._group_causes[f"{effect.namespace}/{effect.name}"] = effect.note
        elif effect.reason == FAILED:
            known = self._pods.get(effect.uid)
            if known is not None:
                known.cause = effect.note

    def _forget(self, now: int) -> None:
        """Drop the preemptions before the window."""
        first = now - round(self.limits.window_s * SECOND)
        while self._preemptions and self._preemptions[0].at < first:
            self._preemptions.popleft()

    # Findings.

    def findings(self, now: int) -> list[Finding]:
        """What is found at a time, by kind, the largest first."""
        self._forget(now)
        if self._usage.uses:
            self._usage.update(now)
        found = [
            *self._mutual(),
            *self._repeated(),
            *self._starving(now),
            *self._pending_long(now),
        ]
        order = {kind.value: rank for rank, kind in enumerate(FindingKind)}
        return sorted(found, key=lambda one: (order[one.kind], -one.count, one.subject))

    def _mutual(self) -> Iterable[Finding]:
        counts: Counter[tuple[str, str]] = Counter(
            (one.victim, one.preemptor) for one in self._preemptions if one.preemptor
        )
        for (victim, preemptor), count in counts.items():
            back = counts.get((preemptor, victim), 0)
            if victim >= preemptor or not back:
                continue
            about = [
                one
                for one in self._preemptions
                if {one.victim, one.preemptor} == {victim, preemptor}
            ]
            text = (
                f"{preemptor} evicted {count} of its pods and lost {back} to it within "
                f"{self._span(about)}: each makes the other start again. Give all pods of an owner "
                "one priority, preemptionPolicy Never to one of the two, or room for both"
            )
            yield Finding(
                FindingKind.PREEMPTS_EACH_OTHER.value,
                victim,
                count + back,
                in_seconds(about[-1].at - about[0].at),
                text,
                (preemptor,),
                _listed(one.pod for one in about),
            )

    def _repeated(self) -> Iterable[Finding]:
        by_owner: dict[str, list[CountedPreemption]] = {}
        for one in self._preemptions:
            by_owner.setdefault(one.victim, []).append(one)
        for owner, about in by_owner.items():
            if len(about) < self.limits.preemptions_min:
                continue
            by = Counter(one.preemptor or SESSION for one in about)
            preemptors = ", ".join(f"{name} ({n})" for name, n in by.most_common(3))
            low = min(one.priorities[0] for one in about)
            high = max(one.priorities[1] for one in about)
            why = (
                f"its priority is {low}, theirs up to {high}"
                if high > low
                else "reclaim or preempt"
            )
            text = (
                f"{len(about)} of its pods were evicted within {self._span(about)}, by "
                f"{preemptors}: {why}. Work that is evicted again and again does not finish: raise "
                "its priority, add room, or protect it with a PodDisruptionBudget"
            )
            yield Finding(
                FindingKind.PREEMPTED_REPEATEDLY.value,
                owner,
                len(about),
                in_seconds(about[-1].at - about[0].at),
                text,
                tuple(name for name, _ in by.most_common() if name != SESSION),
                _listed(one.pod for one in about),
            )

    @staticmethod
    def _span(about: list[CountedPreemption]) -> str:
        return duration_text((about[-1].at - about[0].at) / SECOND)

    def _starving(self, now: int) -> Iterable[Finding]:
        for name, use in self._usage.uses.items():
            since = use.below_since
            if since is None or now - since < self.limits.starves_s * SECOND:
                continue
            waiting = [one for one in self._pending.values() if one.queue == name]
            causes = Counter(self._cause(one) for one in waiting)
            cause = f"; its pods: {causes.most_common(1)[0][0]}" if causes else ""
            text = (
                f"{use.n_pending} pending pods and less than its share for "
                f"{duration_text((now - since) / SECOND)}: {use.short_of}{cause}. See `stowplan "
                "queues` for who borrows it, and whether the action reclaim is configured"
            )
            yield Finding(
                FindingKind.QUEUE_STARVES.value,
                f"queue/{name}",
                use.n_pending,
                in_seconds(now - since),
                text,
                pods=_listed(one.pod.key for one in waiting),
            )

    def _pending_long(self, now: int) -> Iterable[Finding]:
        limit = round(self.limits.pending_s * SECOND)
        groups: dict[tuple[str, str], list[WatchedPod]] = {}
        for one in self._pending.values():
            if now - one.since >= limit:
                groups.setdefault((key_of_owner(one.pod), self._cause(one)), []).append(one)
        for (owner, cause), waiting in groups.items():
            oldest = min(one.since for one in waiting)
            pods = "1 pod" if len(waiting) == 1 else f"{len(waiting)} pods"
            text = f"{pods} pending for up to {duration_text((now - oldest) / SECOND)}: {cause}"
            yield Finding(
                FindingKind.PENDING_LONG.value,
                owner,
                len(waiting),
                in_seconds(now - oldest),
                text,
                pods=_listed(one.pod.key for one in waiting),
            )

    def _cause(self, known: WatchedPod) -> str:
        pod = known.pod
        if pod.spec.scheduling_gates:
            gates = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
            return f"scheduling gates: {gates}"
        text = known.cause or self._group_causes.get(group_of(pod), "") or condition_message(pod)
        return strip_node_counts(text) if text else NO_CAUSE


def watch_for(configuration: Configuration, limits: FairnessLimits | None = None) -> FairnessWatch:
    """The watch of a scheduler with this configuration."""
    batch, served = configuration.batch, configuration.profiles
    if batch is None:
        return FairnessWatch(limits, served)
    return FairnessWatch(limits, served, batch.scheduler_names, batch.default_queue)


def findings_of(
    recording: Recording, configuration: Configuration, limits: FairnessLimits, until: int | None
) -> list[Finding]:
    """The findings of a recording at a time of the scheduler; None: at its end. Raises
    RecordingError."""
    watch = watch_for(configuration, limits)
    now = recording.began
    if recording.snapshot is not None:
        watch.handled(recording.snapshot.events(), (), now)
    for call in recording.calls(until):
        now = call.now
        watch.handled(call.events(), call.effects(), now)
    return watch.findings(now if until is None else max(now, until))


def key_of_owner(pod: Pod) -> str:
    """NAMESPACE/KIND/NAME of the top-level owner, or of the pod itself without one."""
    owner = owner_text(pod)
    return f"{pod.namespace}/{f'pod/{pod.name}' if owner == NO_OWNER else owner}"


def _listed(keys: Iterable[str]) -> tuple[str, ...]:
    """The first distinct keys."""
    return tuple(dict.fromkeys(keys))[:PODS_LISTED]
