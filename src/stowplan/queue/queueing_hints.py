"""Queueing hints: which plugins an event concerns, and whether it may make a pod schedulable.

Source: kube-scheduler v1.36, backend/queue/scheduling_queue.go isPodWorthRequeuing and
isEventOfInterest; framework/runtime fillEnqueueExtensions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any

from stowplan.framework.clusterevents import (
    EVERY_EVENT,
    ClusterEvent,
    ClusterEventWithHint,
    EventKeys,
    QueueingHint,
    QueueingHintFn,
    event_matches,
    with_node_taint_events,
)
from stowplan.framework.plugin_calls import wrap_hint
from stowplan.framework.problems import ContractError
from stowplan.framework.runtime.framework import Framework
from stowplan.framework.runtime.registered_plugin import RegisteredPlugin
from stowplan.objects.pod import Pod
from stowplan.queue.in_flight_pods import InFlightEvent
from stowplan.queue.pod_record import PodRecord
from stowplan.queue.pre_enqueue import PreEnqueueGates

REFUSING_POINTS = ("preEnqueue", "preFilter", "filter", "reserve", "permit")
"""Extension points at which a plugin can reject a pod until an event."""


class QueueingStrategy(IntEnum):
    """Where an event sends a pod; of several plugins' answers the greatest counts."""

    SKIP = 0
    AFTER_BACKOFF = 1
    IMMEDIATELY = 2


Registrations = Mapping[str, Sequence[ClusterEventWithHint]]
"""Plugin -> registered events with hints."""


class QueueingHintMap:
    """Registered events of all profiles, cached by event."""

    def __init__(
        self, by_profile: Mapping[str, Registrations], cross_node_plugins: Iterable[str] = ()
    ) -> None:
        """by_profile: scheduler name -> registrations, without the automatic taint rule.
        cross_node_plugins: those that declare `cross_node`."""
        self._by_profile = {
            profile: {plugin: with_node_taint_events(events) for plugin, events in plugins.items()}
            for profile, plugins in by_profile.items()
        }
        self._asked: dict[
            tuple[str, ClusterEvent], tuple[tuple[str, QueueingHintFn | None], ...]
        ] = {}
        self._listeners: dict[ClusterEvent, tuple[str, ...]] = {}
        self._keys: dict[ClusterEvent, dict[str, EventKeys]] = {}
        self.cross_node_plugins = frozenset(cross_node_plugins)
        self.faults: list[tuple[Pod, str]] = []

    @classmethod
    def of(cls, frameworks: Mapping[str, Framework], others: Iterable[str] = ()) -> QueueingHintMap:
        """The map of the profiles' plugins, without those that cannot reject a pod.

        others: names of rejecters that are not plugins (extenders); they match every event.
        """
        found: dict[str, dict[str, Sequence[ClusterEventWithHint]]] = {}
        cross_node: set[str] = set()
        for profile, framework in frameworks.items():
            refusing = {m.name: m for point in REFUSING_POINTS for m in framework.at(point)}
            cross_node |= {name for name, m in refusing.items() if m.declaration.cross_node}
            found[profile] = {
                name: _registered_events(member) for name, member in refusing.items()
            } | dict.fromkeys(others, EVERY_EVENT)
        return cls(found, cross_node)

    def always(self) -> QueueingHintMap:
        """The same registrations without hint functions: every registered event requeues."""
        return QueueingHintMap(
            {
                profile: {
                    plugin: tuple(ClusterEventWithHint(one.event) for one in events)
                    for plugin, events in registrations.items()
                }
                for profile, registrations in self._by_profile.items()
            },
            self.cross_node_plugins,
        )

    def listeners(self, event: ClusterEvent) -> tuple[str, ...]:
        """The plugins of any profile that registered for the event."""
        known = self._listeners.get(event)
        if known is None:
            known = self._listeners[event] = tuple(
                dict.fromkeys(
                    plugin
                    for registrations in self._by_profile.values()
                    for plugin, events in registrations.items()
                    if any(event_matches(one.event, event) for one in events)
                )
            )
        return known

    def keys(self, event: ClusterEvent) -> Mapping[str, EventKeys]:
        """Of the listeners those that have keys for the event."""
        known = self._keys.get(event)
        if known is None:
            found: dict[str, set[EventKeys | None]] = {}
            for registrations in self._by_profile.values():
                for plugin, events in registrations.items():
                    for one in events:
                        if event_matches(one.event, event):
                            found.setdefault(plugin, set()).add(one.keys)
            known = self._keys[event] = {
                plugin: keys
                for plugin, (keys, *others) in found.items()
                if keys is not None and not others
            }
        return known

    def concern(self, event: ClusterEvent) -> bool:
        """True for a wildcard event and for one that any plugin registered for."""
        return event.is_wildcard or bool(self.listeners(event))

    def opens(self, gate: str, event: ClusterEvent) -> bool:
        """True when the gating plugin registered for the event."""
        return gate in self.listeners(event)

    def queueing_strategy(
        self, entry: PodRecord, event: ClusterEvent, old: Any, new: Any
    ) -> QueueingStrategy:
        """Queueing strategy of a pod for an event, by the hints of the plugins that rejected it.

        A pod without rejecting plugins failed by an error and is retried. A wildcard event concerns
        every pod, or only the pod given as `new`.
        """
        refusers = entry.refusers
        if not refusers:
            return QueueingStrategy.AFTER_BACKOFF
        if event.is_wildcard:
            meant = new is None or (isinstance(new, Pod) and new.uid == entry.pod.uid)
            return QueueingStrategy.AFTER_BACKOFF if meant else QueueingStrategy.SKIP
        profile = entry.pod.spec.scheduler_name
        if profile not in self._by_profile:
            return QueueingStrategy.AFTER_BACKOFF
        queueing_strategy = QueueingStrategy.SKIP
        for plugin, hint in self._interested(profile, event):
            if plugin not in refusers:
                continue
            if hint is not None and self._call_hint(hint, entry.pod, old, new) == QueueingHint.SKIP:
                continue
            if plugin in entry.pending_on:
                return QueueingStrategy.IMMEDIATELY
            queueing_strategy = QueueingStrategy.AFTER_BACKOFF
            if not entry.pending_on:
                return queueing_strategy
        return queueing_strategy

    def _call_hint(self, hint: QueueingHintFn, pod: Pod, old: Any, new: Any) -> QueueingHint:
        """Call a hint. If it breaks its contract the pod is queued, as in the original, and the
        fault is added to `faults`."""
        try:
            return hint(pod, old, new)
        except ContractError as fault:
            self.faults.append((pod, str(fault)))
            return QueueingHint.QUEUE

    def answers(
        self, entry: PodRecord, event: ClusterEvent, old: Any, new: Any
    ) -> dict[str, QueueingHint]:
        """Hint results of all plugins that rejected the pod and registered for the event."""
        found: dict[str, QueueingHint] = {}
        if event.is_wildcard:
            return found
        for plugin, hint in self._interested(entry.pod.spec.scheduler_name, event):
            if plugin in entry.refusers:
                result = QueueingHint.QUEUE if hint is None else hint(entry.pod, old, new)
                found[plugin] = max(result, found.get(plugin, result))
        return found

    def _interested(
        self, profile: str, event: ClusterEvent
    ) -> tuple[tuple[str, QueueingHintFn | None], ...]:
        """(plugin, hint) of each matching registration of a profile."""
        known = self._asked.get((profile, event))
        if known is None:
            registrations = self._by_profile.get(profile, {})
            known = self._asked[profile, event] = tuple(
                (plugin, one.hint)
                for plugin, events in registrations.items()
                for one in events
                if event_matches(one.event, event)
            )
        return known


def common_strategy(
    entries: Sequence[PodRecord],
    hints: QueueingHintMap,
    gates: PreEnqueueGates,
    event: ClusterEvent,
    change: tuple[Any, Any],
) -> QueueingStrategy | None:
    """The strategy for unschedulable entries that all are members of one group, kept out by its
    gate and by nothing else: what that plugin answers for one of them it answers for all. None
    where they have to be asked one by one. change: the object before and after the event."""
    first = entries[0]
    gate, refusers, pod = first.gated_by, first.refused_by, first.pod
    if not gate or refusers != {gate} or gates.group_gate(pod) != gate:
        return None
    spec, namespace = pod.spec, pod.metadata.namespace
    for entry in entries:
        one = entry.pod
        if (
            one.spec is not spec
            or entry.gated_by != gate
            or entry.refused_by != refusers
            or entry.pending_on
            or entry.errors
            or entry.refusals
            or one.metadata.namespace != namespace
        ):
            return None
    if not hints.opens(gate, event) or gates.holds(first):
        return QueueingStrategy.SKIP
    return hints.queueing_strategy(first, event, *change)


def _registered_events(member: RegisteredPlugin) -> Sequence[ClusterEventWithHint]:
    """The events that a plugin registers; every event for a plugin without `events_to_register`."""
    if member.calls["events_to_register"] is None:
        return EVERY_EVENT
    events: Sequence[ClusterEventWithHint] = member.call("events_to_register")
    if member.in_tree:
        return events
    return tuple(
        one
        if one.hint is None
        else ClusterEventWithHint(one.event, wrap_hint(one.hint, member.name), one.keys)
        for one in events
    )


def strategy_after_flight(
    entry: PodRecord, hints: QueueingHintMap, missed: Iterable[InFlightEvent] | None
) -> QueueingStrategy:
    """Queueing strategy by all events that arrived while the pod was in flight. missed: these; None
    for a pod that is not."""
    if not entry.refusers or missed is None:
        return QueueingStrategy.AFTER_BACKOFF
    enough, queueing_strategy = QueueingStrategy.AFTER_BACKOFF, QueueingStrategy.SKIP
    if entry.pending_on:
        enough = QueueingStrategy.IMMEDIATELY
    for one in missed:
        found = hints.queueing_strategy(entry, one.event, one.old, one.new)
        queueing_strategy = max(queueing_strategy, found)
        if queueing_strategy >= enough:
            break
    return queueing_strategy
