"""Decisions that a scheduler has made: a bounded ring of the effects of its calls, read on demand.

Recording keeps a reference to the effects of a call, whatever their number; decisions are made of
them on request. Scores are of the moment of the decision where a sample was taken.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeGuard

import msgspec

from stowplan.messages import effects as to_do
from stowplan.messages.effects import Effect
from stowplan.messages.extender_api import ExtenderBindingArgs, ExtenderVerb
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.pod import Pod

EFFECTS_MAX = 60_000
"""Effects that the ring keeps; a decision has two to three."""
DECISIONS_MAX = 20_000
EVICTIONS_MAX = 2000
SAMPLES_MAX = 2000
NAMES_MAX = 100_000
BOUND, UNSCHEDULABLE, ERROR, EVICTED = "bound", "unschedulable", "error", "evicted"
OUTCOMES = (BOUND, UNSCHEDULABLE, ERROR, EVICTED)
PROFILES, SESSIONS = "profiles", "sessions"


class DecisionSample(msgspec.Struct, frozen=True):
    """Scores of one decision. scores: trees of the best three nodes."""

    feasible: int
    evaluated: int
    scores: Sequence[Tree]


class HandledCall(msgspec.Struct, frozen=True):
    """One `handle` call. time: milliseconds since 1970.
    took_ns: its duration. lane: PROFILES or SESSIONS."""

    time: float
    took_ns: int
    lane: str
    effects: Sequence[Effect]


class RecordedDecision(msgspec.Struct, frozen=True):
    """A decision about a pod. outcome: one of OUTCOMES. preemptor: of an eviction, NAMESPACE/NAME,
    its uid where the name is not known, "" for none. priority, preemptor_priority: of an eviction,
    of the two pods, None where they are not known."""

    id: int
    time: float
    pod: str
    uid: str
    outcome: str
    node: str = ""
    scheduler: str = ""
    lane: str = PROFILES
    microseconds: float | None = None
    message: str = ""
    preemptor: str = ""
    sample: DecisionSample | None = None
    priority: int | None = None
    preemptor_priority: int | None = None

    def tree(self) -> Tree:
        """As JSON; see docs/page-api.md."""
        sample = self.sample
        tree: Tree = {
            "id": self.id,
            "time": self.time,
            "pod": self.pod,
            "outcome": self.outcome,
            "node": self.node,
            "scheduler": self.scheduler,
            "lane": self.lane,
            "feasible": None if sample is None else sample.feasible,
            "evaluated": None if sample is None else sample.evaluated,
            "microseconds": self.microseconds,
            "message": self.message,
            "scores": None if sample is None else sample.scores,
        }
        if self.outcome == EVICTED:
            tree["preemptor"] = self.preemptor
        return tree


class DecisionRing:
    """The latest decisions. `add` is called by the scheduler's thread, all else by another one.
    evictions: all kept ones, also of calls that have left the ring. n_kept: effects that wait to
    be read."""

    def __init__(
        self,
        scheduler_of: Callable[[str], str] = lambda pod: "",
        pod_of: Callable[[str], Pod | None] = lambda pod: None,
    ) -> None:
        """scheduler_of: schedulerName of a pod by NAMESPACE/NAME; a binding does not have it.
        pod_of: a pod by the same, None when it is not known (any more)."""
        self._scheduler_of = scheduler_of
        self._pod_of = pod_of
        self.evictions: deque[RecordedDecision] = deque(maxlen=EVICTIONS_MAX)
        self.n_kept = 0
        self._lock = threading.Lock()
        self._calls: deque[HandledCall] = deque()
        self._dropped: deque[HandledCall] = deque(maxlen=EVICTIONS_MAX)
        self._decided: deque[RecordedDecision] = deque(maxlen=DECISIONS_MAX)
        self._n_decided = 0
        self._samples: dict[str, DecisionSample] = {}
        self._names: dict[str, str] = {}
        self._nodes: dict[str, str] = {}

    def add(self, call: HandledCall) -> None:
        """Record a call; costs the same for one effect and for thousands."""
        with self._lock:
            self._calls.append(call)
            self.n_kept += len(call.effects)
            while self.n_kept > EFFECTS_MAX and len(self._calls) > 1:
                oldest = self._calls.popleft()
                self.n_kept -= len(oldest.effects)
                self._keep_evictions(oldest)

    def _keep_evictions(self, oldest: HandledCall) -> None:
        """Keep the evictions of a call that was not read: they are few, and loops are long."""
        evicted = [one for one in oldest.effects if type(one) is to_do.Evict]
        events = [one for one in oldest.effects if _is_of_victim(one)]
        if evicted or events:
            uids = {one.uid for one in (*evicted, *events)} | {one.preemptor for one in evicted}
            about = (to_do.Evict, to_do.PatchStatus, to_do.RecordEvent)
            kept_effects = [e for e in oldest.effects if isinstance(e, about) and e.uid in uids]
            self._dropped.append(msgspec.structs.replace(oldest, effects=kept_effects))

    def add_sample(self, uid: str, sample: DecisionSample) -> None:
        """Keep scores of the next decision of a pod that is read."""
        with self._lock:
            if len(self._samples) >= SAMPLES_MAX:
                self._samples.pop(next(iter(self._samples)))
            self._samples[uid] = sample

    def read(self) -> int:
        """Make decisions of the calls since the last time; returns the number of the latest."""
        with self._lock:
            calls, self._calls, self.n_kept = self._calls, deque(), 0
            dropped, self._dropped = self._dropped, deque(maxlen=EVICTIONS_MAX)
        for call in (*dropped, *calls):
            self._read(call)
        return self._n_decided

    def extend(self, decisions: Iterable[RecordedDecision]) -> None:
        """Add decisions that were made before, of a finished run; they get the next numbers."""
        for one in decisions:
            self._n_decided += 1
            self._decided.append(msgspec.structs.replace(one, id=self._n_decided))

    def since(self, number: int) -> list[RecordedDecision]:
        """Decisions after a number that are still kept, oldest first; `read` first."""
        first = self._n_decided - len(self._decided)
        start = max(0, number - first)
        return [self._decided[place] for place in range(start, len(self._decided))]

    def newest_first(self) -> Iterator[RecordedDecision]:
        """All kept decisions; `read` first."""
        return reversed(list(self._decided))

    def get(self, number: int) -> RecordedDecision | None:
        """A decision by its number; `read` first."""
        place = self._place_of(number)
        return self._decided[place] if 0 <= place < len(self._decided) else None

    def _place_of(self, number: int) -> int:
        return number - 1 - (self._n_decided - len(self._decided))

    def _read(self, call: HandledCall) -> None:
        found = list(self._decisions(call))
        each_us = call.took_ns / 1000 / max(1, len(found))
        for one in found:
            self._n_decided += 1
            made = msgspec.structs.replace(
                one,
                id=self._n_decided,
                scheduler=one.scheduler or self._scheduler_of(one.pod),
                microseconds=round(each_us, 1),
                sample=self._samples.pop(one.uid, None) if one.outcome == BOUND else None,
            )
            self._decided.append(made)
            if one.outcome == EVICTED:
                self.evictions.append(made)

    def _decisions(self, call: HandledCall) -> Iterator[RecordedDecision]:
        """The decisions of a call, in the order of their effects."""
        failed: dict[str, str] = {}
        for effect in call.effects:
            if isinstance(effect, to_do.PatchStatus):
                failed[effect.uid] = effect.reason
                self._name(effect)
            elif _is_of_victim(effect):
                self._note_node(effect)
        for effect in call.effects:
            yield from self._decision(call, effect, failed)

    def _note_node(self, event: to_do.RecordEvent) -> None:
        """The event of a victim names its node, often in a later call than the eviction."""
        _, on, rest = event.note.rpartition(" on node ")
        if not on:
            return
        node = self._nodes[event.uid] = rest.partition(" ")[0]
        for place in reversed(range(len(self.evictions))):
            one = self.evictions[place]
            if one.uid == event.uid and not one.node:
                made = self.evictions[place] = msgspec.structs.replace(one, node=node)
                if self.get(one.id) is one:
                    self._decided[self._place_of(one.id)] = made
                return

    def _evicted(self, call: HandledCall, effect: to_do.Evict) -> RecordedDecision:
        """An eviction, with what is known of the two pods when it is read."""
        made = _of(call, effect, EVICTED)
        victim = self._pod_of(made.pod)
        is_same = victim is not None and victim.uid == effect.uid
        preemptor = self._names.get(effect.preemptor, effect.preemptor)
        for_pod = self._pod_of(preemptor)
        node = self._nodes.get(effect.uid, "")
        return msgspec.structs.replace(
            made,
            node=node or (victim.node_name if victim is not None and is_same else ""),
            message=effect.message,
            preemptor=preemptor,
            priority=victim.priority if victim is not None and is_same else None,
            preemptor_priority=None if for_pod is None else for_pod.priority,
        )

    def _place(self, effect: to_do.OnObject, node: str) -> None:
        """Keep where a pod was bound: an eviction does not say it."""
        if len(self._nodes) >= NAMES_MAX:
            self._nodes.clear()
        self._nodes[effect.uid] = node

    def _name(self, effect: to_do.OnObject) -> None:
        """Keep the name of a pod: an eviction has the uid of its preemptor only."""
        if len(self._names) >= NAMES_MAX:
            self._names.clear()
        self._names[effect.uid] = f"{effect.namespace}/{effect.name}"

    def _decision(
        self,
        call: HandledCall,
        effect: Effect,
        failed: Mapping[str, str],
    ) -> Iterator[RecordedDecision]:
        """The decision that an effect is of, if any. failed: uid -> reason of its condition."""
        match effect:
            case to_do.Bind() | to_do.Prepare(point="bind"):
                self._name(effect)
                self._place(effect, effect.node)
                yield _of(call, effect, BOUND, effect.node)
            case to_do.CallExtender() if effect.question.verb is ExtenderVerb.BIND:
                body = effect.question.body
                assert isinstance(body, ExtenderBindingArgs)
                key = f"{body.pod_namespace}/{body.pod_name}"
                yield RecordedDecision(
                    0, call.time, key, effect.uid, BOUND, body.node, lane=call.lane
                )
            case to_do.RecordEvent(kind="Pod", reason="FailedScheduling"):
                is_error = failed.get(effect.uid) == "SchedulerError"
                made = _of(call, effect, ERROR if is_error else UNSCHEDULABLE)
                yield msgspec.structs.replace(made, scheduler=effect.scheduler, message=effect.note)
            case to_do.Evict():
                yield self._evicted(call, effect)


def _is_of_victim(effect: Effect) -> TypeGuard[to_do.RecordEvent]:
    return isinstance(effect, to_do.RecordEvent) and effect.reason == "Preempted"


def _of(
    call: HandledCall, effect: to_do.OnObject, outcome: str, node: str = ""
) -> RecordedDecision:
    key = f"{effect.namespace}/{effect.name}"
    return RecordedDecision(0, call.time, key, effect.uid, outcome, node, lane=call.lane)


def decisions_page(ring: DecisionRing, query: Mapping[str, str], limit: int, before: int) -> Tree:
    """A page of decisions, newest first. before: number, 0 for the latest."""
    wanted, text = query.get("outcome", ""), query.get("filter", "").casefold()
    found: list[Tree] = []
    for one in ring.newest_first():
        if before and one.id >= before:
            continue
        if wanted and one.outcome != wanted:
            continue
        texts = (one.pod, one.node, one.message, one.preemptor, one.scheduler)
        if text and not any(text in part.casefold() for part in texts):
            continue
        if len(found) == limit:
            return {"decisions": found, "more": True}
        found.append(one.tree())
    return {"decisions": found, "more": False}
