"""Evaluation of queue cases: scripts of operations on a scheduling queue with a manual clock.

The answer has for each step the result of the operation, the results of queueing hints, and the
changes of all parts of the queue. The plugins are those of the default profile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import msgspec

from stowplan import config
from stowplan.assembly import DEFAULT_PLUGINS, registry
from stowplan.conformance.queue_cases import QueueCase, QueueOperation, value_of
from stowplan.framework import FeatureGates, Framework, Profile, Registry
from stowplan.framework.clusterevents import (
    ACTION_OF_TITLE,
    ANYTHING,
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    FORCE_ACTIVATE,
    RESOURCE_OF_KIND,
    UNSCHEDULABLE_TIMEOUT,
    Action,
    ClusterEvent,
    QueueingHint,
    event_labels,
    node_update_events,
    pod_update_events,
)
from stowplan.framework.object_store import ObjectStore, key_of
from stowplan.inputs.input_error import mismatch
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.encoding.json_codec import convert
from stowplan.objects.meta import Object, ObjectMeta
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.queue import PodRecord, SchedulingQueue
from stowplan.queue.in_flight_pods import InFlightEvent

Answer = dict[str, Any]
ScriptChange = tuple[ClusterEvent, Any, Any]
"""An event with the old and the new object."""

_MS = SECOND // 1000
_WILDCARDS = {
    "*/All": ANYTHING,
    "UnschedulableTimeout": UNSCHEDULABLE_TIMEOUT,
    "ForceActivate": FORCE_ACTIVATE,
}


def answer(case: QueueCase) -> Answer:
    """The answer to one case; raises ValueError for an invalid operation."""
    return QueueScriptRunner(case).run()


class QueueScriptRunner:
    """State between the steps of a case: the queue and its listers."""

    def __init__(self, case: QueueCase) -> None:
        self.case = case
        self.now = 0
        self.object_store = ObjectStore()
        self.pods: dict[str, Pod] = {}
        self._brought: dict[str, Pod] = {}
        self.attempts: dict[str, list[PodRecord]] = {}
        self.hints: list[Answer] = []
        for kind, trees in case.objects.items():
            for tree in trees:
                self._list(value_of(kind, tree))
        self.preempting: set[str] = set()
        self.queue = self.make_queue()
        self._seen: Answer = _empty()

    def make_queue(self) -> SchedulingQueue:
        """A queue of the default profile on this script's listers."""
        profile, full = _defaults()
        framework = Framework(profile, full, FeatureGates())
        self.preempting = framework.shared.preempting
        by_name = {profile.scheduler_name: framework}
        return SchedulingQueue.of(
            by_name, self.pods.get, self.object_store, self.case.config.options()
        )

    def run(self) -> Answer:
        """Run all steps."""
        return {"steps": [self._step(number, op) for number, op in enumerate(self.case.ops)]}

    def _step(self, number: int, op: QueueOperation) -> Answer:
        act: Callable[[QueueOperation], Answer | None] | None = getattr(
            self, f"_on_{_snake(op.op)}", None
        )
        if act is None:
            raise ValueError(f"{self.case.id}: step {number}: unknown op {op.op!r}")
        self.now += op.ms * _MS
        self.hints = []
        try:
            result = act(op)
        except ValueError as problem:
            raise ValueError(f"{self.case.id}: step {number} ({op.op}): {problem}") from problem
        step: Answer = {}
        if result is not None:
            step["result"] = result
        if self.hints:
            step["hints"] = self.hints
        changes = self._changes()
        if changes:
            step["state"] = changes
        return step

    # Pods in the queue.

    def _on_advance(self, op: QueueOperation) -> None:
        """Only advances the clock, which `_step` has done."""

    def _on_add(self, op: QueueOperation) -> None:
        self.queue.add(self._listed(op), self.now)

    def _on_update(self, op: QueueOperation) -> Answer:
        old, new = self._known(_pod(op).key), self._listed(op)
        waiting = self.queue.unschedulable_pods.get(new.key)
        entries = [] if waiting is None or new.uid in self.queue.in_flight else [waiting]
        events = pod_update_events(old, new)
        self._ask([_copy(entry, new) for entry in entries], [(event, old, new) for event in events])
        self.queue.update(old, new, self.now)
        result: Answer = {"events": event_labels(events)}
        if op.handler:
            named = old.status.nominated_node_name
            released = bool(named) and named != new.status.nominated_node_name
            result["nominationReleased"] = released
            if released:
                self._release(old)
        return result

    def _on_delete(self, op: QueueOperation) -> Answer | None:
        pod = self._unlisted(op.pod)
        self.queue.delete(pod)
        if not op.handler:
            return None
        released = bool(pod.status.nominated_node_name)
        if released:
            self._release(pod)
        return {"nominationReleased": released}

    def _release(self, old: Pod) -> None:
        self._send([(ASSIGNED_POD_DELETE, old, None)], lambda pod: pod.priority <= old.priority)

    def _on_activate(self, op: QueueOperation) -> None:
        self.queue.activate((self.pods.get(key) or _unknown(key) for key in op.pods), self.now)

    # Attempts.

    def _on_pop(self, op: QueueOperation) -> Answer:
        entry = None if self._would_block() else self.queue.pop()
        result: Answer = {"pod": None}
        if entry is not None:
            self.attempts.setdefault(entry.key, []).append(entry)
            result = {"pod": entry.key, "attempts": entry.attempts}
        if entry is not None and self.queue.discarded:
            result["discarded"] = [lost.key for lost in self.queue.discarded]
        return result

    def _would_block(self) -> bool:
        """True when every pod that could be popped is in flight, so that Pop would block."""
        queue = self.queue
        ready = [*queue.active, *(queue.backoff.refused if queue.options.pops_from_backoff else ())]
        return all(entry.uid in queue.in_flight for entry in ready)

    def _on_done(self, op: QueueOperation) -> None:
        running = self.attempts.get(op.pod, ())
        if any(op.uid in ("", entry.uid) for entry in running):
            self.queue.done(self._attempt(op, keep=op.keep).uid)
        else:
            self.queue.done(op.uid or self._known(op.pod).uid)

    def _on_fail(self, op: QueueOperation) -> Answer:
        entry = self._attempt(op)
        listed = self.pods.get(entry.key)
        skipped = None
        if listed is None:
            skipped = "gone"
        elif listed.node_name:
            skipped = "assigned"
        elif listed.uid != entry.uid:
            skipped = "recreated"
        error = None
        if skipped is None:
            error = self._requeue(entry, op, listed)
        else:
            self.queue.done(entry.uid)
        if skipped != "recreated":
            self.queue.nominator.nominate(entry.pod, op.nominate.override)
        return {"error": error, "skipped": skipped}

    def _on_add_unschedulable(self, op: QueueOperation) -> Answer:
        entry = self._attempt(op)
        listed = self.pods.get(entry.key)
        same = listed is not None and listed.uid == entry.uid
        return {"error": self._requeue(entry, op, listed if same else None)}

    def _requeue(self, entry: PodRecord, op: QueueOperation, pod: Pod | None) -> str | None:
        refused, pending = op.unschedulable_plugins, op.pending_plugins
        if entry.uid in self.queue.in_flight:
            asked = _copy(entry, pod or entry.pod)
            asked.refused_by, asked.pending_on = refused, pending
            events = self.queue.in_flight.since(entry.uid)
            self._ask([asked], [(one.event, one.old, one.new) for one in events])
        return (
            self.queue.add_unschedulable_if_not_present(
                entry, self.now, refused_by=refused, pending_on=pending, pod=pod
            )
            or None
        )

    def _attempt(self, op: QueueOperation, *, keep: bool = False) -> PodRecord:
        """The attempt of an operation, removed unless `keep`."""
        running = self.attempts.get(op.pod, [])
        entry = next((one for one in running if op.uid in ("", one.uid)), None)
        if entry is None:
            raise ValueError(f"pod {op.pod!r} has not been popped")
        if not keep:
            running.remove(entry)
        return entry

    # Events.

    def _on_move(self, op: QueueOperation) -> Answer:
        event = _WILDCARDS.get(op.event) or _event(op.event)
        old = None if op.old is None else value_of(op.kind, op.old)
        new = None if op.new is None else value_of(op.kind, op.new)
        most = op.priority_le
        only = None if most is None else lambda pod: pod.priority <= most
        return self._send([(event, old, new)], only)

    def _on_object_add(self, op: QueueOperation) -> Answer:
        new = self._list(value_of(op.kind, op.object))
        return self._send([(_of_kind(op.kind, Action.ADD), None, new)])

    def _on_object_update(self, op: QueueOperation) -> Answer:
        value = value_of(op.kind, op.object)
        old, new = self.object_store.find(type(value), key_of(value)), self._list(value)
        if isinstance(old, Node) and isinstance(new, Node):
            return self._send([(event, old, new) for event in node_update_events(old, new)])
        return self._send([(_of_kind(op.kind, Action.UPDATE), old, new)])

    def _on_object_delete(self, op: QueueOperation) -> Answer:
        value = value_of(op.kind, op.object)
        old = self.object_store.find(type(value), key_of(value))
        if old is None:
            raise ValueError(f"{op.kind} {key_of(value)!r} not found")
        self.object_store.drop(type(value), key_of(value))
        return self._send([(_of_kind(op.kind, Action.DELETE), old, None)])

    def _on_bound_pod_add(self, op: QueueOperation) -> Answer:
        return self._send([(ASSIGNED_POD_ADD, None, self._listed(op))])

    def _on_bound_pod_update(self, op: QueueOperation) -> Answer:
        old, new = self._known(_pod(op).key), self._listed(op)
        return self._send([(event, old, new) for event in pod_update_events(old, new)])

    def _on_bound_pod_delete(self, op: QueueOperation) -> Answer:
        return self._send([(ASSIGNED_POD_DELETE, self._unlisted(op.pod), None)])

    def _on_bound(self, op: QueueOperation) -> Answer:
        old, new = self._known(_pod(op).key), self._listed(op)
        result = self._send([(ASSIGNED_POD_ADD, None, new)])
        self.queue.delete(old)
        return result

    def _on_assigned_pod_added(self, op: QueueOperation) -> None:
        pod = self._listed(op)
        self._ask_unschedulable(ASSIGNED_POD_ADD, None, pod)
        self.queue.assigned_pod_added(pod, self.now)

    def _on_assigned_pod_updated(self, op: QueueOperation) -> Answer:
        old, new = self._known(_pod(op).key), self._listed(op)
        events = pod_update_events(old, new)
        for event in events:
            self._ask_unschedulable(event, old, new)
            self.queue.assigned_pod_updated(old, new, event, self.now)
        return {"events": event_labels(events)}

    def _send(
        self, events: list[ScriptChange], only: Callable[[Pod], bool] | None = None
    ) -> Answer:
        for event, old, new in events:
            self._ask_unschedulable(event, old, new)
            self.queue.move(event, old, new, self.now, only)
        return {"events": event_labels([event for event, _, _ in events])}

    def _ask_unschedulable(self, event: ClusterEvent, old: Any, new: Any) -> None:
        """Ask for all unschedulable pods; gated ones only when their gate registers the event."""
        opens = self.queue.hints.opens
        entries = [
            e for e in self.queue.unschedulable_pods if not e.gated_by or opens(e.gated_by, event)
        ]
        self._ask(entries, [(event, old, new)])

    def _ask(self, entries: Iterable[PodRecord], events: Iterable[ScriptChange]) -> None:
        """Record the queueing hints of these entries for each event."""
        hints = self.queue.hints
        waiting = sorted(entries, key=lambda entry: entry.key)
        for event, old, new in events:
            for entry in waiting:
                answers = hints.answers(entry, event, old, new)
                if answers:
                    self.hints.append(_hint(event, entry.key, answers))

    # Time.

    def _on_flush_backoff(self, op: QueueOperation) -> None:
        self.queue.flush_backoff(self.now)

    def _on_flush_leftover(self, op: QueueOperation) -> None:
        self.queue.flush_unschedulable(self.now)

    # Nominations.

    def _on_nominate(self, op: QueueOperation) -> None:
        pod = self._known(op.pod) if op.object is None else _pod(op)
        self.queue.nominator.nominate(pod, op.nominate.override)

    def _on_denominate(self, op: QueueOperation) -> None:
        self.queue.nominator.drop(self._known(op.pod).uid)

    def _on_update_nominated(self, op: QueueOperation) -> None:
        old, new = self._known(_pod(op).key), self._listed(op)
        self.queue.nominator.follow(old, new)

    def _on_nominated_pods_for_node(self, op: QueueOperation) -> Answer:
        return {"pods": [info.pod.key for info in self.queue.nominator.on(op.node)]}

    # Changes of listers only.

    def _on_set_listed(self, op: QueueOperation) -> None:
        self._listed(op)

    def _on_unlist(self, op: QueueOperation) -> None:
        self._unlisted(op.pod)

    def _on_preempting(self, op: QueueOperation) -> None:
        uid = self._known(op.pod).uid
        if op.value:
            self.preempting.add(uid)
        else:
            self.preempting.discard(uid)

    def _listed(self, op: QueueOperation) -> Pod:
        pod = _pod(op)
        self._list(pod)
        return pod

    def _known(self, key: str) -> Pod:
        """The pod as listed, or as last listed."""
        if key not in self._brought:
            raise ValueError(f"pod {key!r} not found")
        return self.pods.get(key) or self._brought[key]

    def _unlisted(self, key: str) -> Pod:
        """The pod, removed from the lister."""
        pod = self._known(key)
        self.pods.pop(key, None)
        return pod

    def _list(self, value: Object) -> Object:
        if isinstance(value, Pod):
            self.pods[value.key] = self._brought[value.key] = value
        else:
            self.object_store.put(value)
        return value

    # State.

    def _changes(self) -> Answer:
        """Changes since the previous step."""
        state = self._state()
        changes: Answer = {}
        for name, now in state.items():
            before = self._seen[name]
            if now == before:
                continue
            changes[name] = _map_changes(before, now) if name in ("pods", "popped") else now
        self._seen = state
        return changes

    def _state(self) -> Answer:
        queue = self.queue
        in_flight = {uid: self._entry_in_flight(uid) for uid in queue.in_flight.pods()}
        return {
            "t": self.now // _MS,
            "active": [entry.key for entry in queue.active.in_order()],
            "backoff": [entry.key for entry in queue.backoff.refused.in_order()],
            "errorBackoff": self._failed(),
            "unschedulable": sorted(e.key for e in queue.unschedulable_pods if not e.gated_by),
            "gated": {e.key: e.gated_by for e in queue.unschedulable_pods if e.gated_by},
            "inFlight": [_log_entry(entry) for entry in queue.in_flight.log()],
            "pods": {entry.key: self._of_queued(entry) for entry in queue},
            "popped": {uid: {"pod": e.key, **_common(e)} for uid, e in in_flight.items()},
            "nominated": {
                node: [info.pod.key for info in queue.nominator.on(node)]
                for node in queue.nominator.nodes()
            },
            "cycle": queue.cycle,
            "moveCycle": queue.move_request_cycle,
        }

    def _failed(self) -> list[str | list[str]]:
        """Pods in error backoff; several of equal expiry as a list."""
        by_expiry: dict[int | None, list[str]] = {}
        for entry in self.queue.backoff.failed.in_order():
            by_expiry.setdefault(self.queue.backoff.expiry(entry), []).append(entry.key)
        return [sorted(keys) if len(keys) > 1 else keys[0] for keys in by_expiry.values()]

    def _entry_in_flight(self, uid: str) -> PodRecord:
        found = [e for entries in self.attempts.values() for e in entries if e.uid == uid]
        return found[-1]

    def _of_queued(self, entry: PodRecord) -> Answer:
        expiry = self.queue.backoff.expiry(entry)
        return {
            "uid": entry.uid,
            "backoffExpiry": None if expiry is None else expiry // _MS,
            **_common(entry),
        }


@lru_cache(maxsize=1)
def _defaults() -> tuple[Profile, Registry]:
    """The default profile and its registry."""
    full = registry()
    (profile,) = config.default(full, DEFAULT_PLUGINS).profiles.values()
    return profile, full


def _common(entry: PodRecord) -> Answer:
    first = entry.initial_attempt
    return {
        "attempts": entry.attempts,
        "unschedulableCount": entry.refusals,
        "consecutiveErrors": entry.errors,
        "timestamp": int(entry.added_at) // _MS,
        "initialAttempt": None if first is None else first // _MS,
        "unschedulablePlugins": sorted(entry.refused_by),
        "pendingPlugins": sorted(entry.pending_on),
        "flushed": entry.flushed,
        "priority": entry.pod.priority,
        "resourceVersion": entry.pod.metadata.resource_version,
    }


def _empty() -> Answer:
    lists = ("active", "backoff", "errorBackoff", "unschedulable", "inFlight")
    maps = ("gated", "pods", "popped", "nominated")
    return {
        "t": 0,
        **{name: [] for name in lists},
        **{name: {} for name in maps},
        "cycle": 0,
        "moveCycle": -1,
    }


def _map_changes(before: Answer, now: Answer) -> Answer:
    """Per key: None if removed, else the changed fields."""
    changes: Answer = {key: None for key in before if key not in now}
    for key, fields in now.items():
        known = before.get(key, {})
        changed = {name: v for name, v in fields.items() if name not in known or known[name] != v}
        if changed:
            changes[key] = changed
    return changes


def _log_entry(entry: str | InFlightEvent) -> str:
    return f"event {entry.event.label}" if isinstance(entry, InFlightEvent) else f"pod {entry}"


def _hint(event: ClusterEvent, key: str, answers: dict[str, QueueingHint]) -> Answer:
    plugins = {plugin: hint.title for plugin, hint in sorted(answers.items())}
    return {"event": event.label, "pod": key, "plugins": plugins}


def _copy(entry: PodRecord, pod: Pod) -> PodRecord:
    return msgspec.structs.replace(entry, pod=pod)


def _event(text: str) -> ClusterEvent:
    """`RESOURCE/ACTION`; the resource may contain a slash."""
    resource, _, action = text.rpartition("/")
    if action not in ACTION_OF_TITLE:
        raise ValueError(f"event: {mismatch(repr(text), 'RESOURCE/ACTION, such as Node/Add')}")
    return ClusterEvent(resource, ACTION_OF_TITLE[action])


def _of_kind(kind: str, action: Action) -> ClusterEvent:
    return ClusterEvent(RESOURCE_OF_KIND.get(kind, kind), action)


def _pod(op: QueueOperation) -> Pod:
    return convert(op.object, Pod)


def _unknown(key: str) -> Pod:
    namespace, _, name = key.partition("/")
    return Pod(metadata=ObjectMeta(name=name, namespace=namespace))


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name)
