"""Check of registered events: a change that helps a refused pod is among them.

Where a change of the cluster turns the plugin's refusal, one of the events of that change has to be
registered, and its hint must not answer Skip; else the pod would stay unschedulable until the
periodic flush.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from stowplan.framework import CycleState, Framework, ObjectStore, Pod
from stowplan.framework.clusterevents import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    NODE,
    RESOURCE_OF_KIND,
    RESOURCES,
    WILDCARD,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    QueueingHint,
    event_matches,
    node_update_events,
    pod_update_events,
    with_node_taint_events,
)
from stowplan.framework.object_store import key_of
from stowplan.testing.generators.choices import pick, random_int
from stowplan.testing.generators.scenes import GeneratedCluster, generate_cluster, node
from stowplan.testing.plugin_trial import PluginTrial

N_ROUNDS = 2
"""Generated clusters per seed; a single change rarely turns a refusal."""


class ClusterChange(NamedTuple):
    """A change of a cluster, its events, and the object before and after."""

    what: str
    events: tuple[ClusterEvent, ...]
    before: GeneratedCluster
    after: GeneratedCluster
    old: Any
    new: Any


def events_to_register_are_complete(trial: PluginTrial) -> Iterator[str]:
    """A change that turns a refusal is among the registered events, and its hint answers Queue."""
    framework = trial.framework()
    registered = trial.member(framework).call("events_to_register")
    yield from _registrations(registered)
    heard = with_node_taint_events(registered)
    for _ in range(N_ROUNDS):
        small = generate_cluster(trial.rng, n_nodes=random_int(trial.rng, 1, 2), n_pods=3)
        for change in _changes(trial, small):
            pods = zip(change.before.pending, change.after.pending, strict=True)
            for refused, pod in pods:
                if _is_schedulable(framework, refused, change.before):
                    continue
                if not _is_schedulable(framework, pod, change.after):
                    continue
                if not _is_queued_by(heard, change, pod):
                    labels = ", ".join(event.label for event in change.events) or "no event"
                    details = (
                        f"{change.what} helps, but {labels} is not registered, or its hint is Skip"
                    )
                    yield f"pod {pod.key!r}: {details}"


def _registrations(registered: Any) -> Iterator[str]:
    for one in registered:
        if not isinstance(one, ClusterEventWithHint):
            yield f"events_to_register gave {one!r}; expected on(RESOURCE, ACTION, hint)"
            return
        name = one.event.resource
        # Custom resources are written PLURAL.VERSION.GROUP.
        if name not in (*RESOURCES, WILDCARD) and name.count(".") < 2:
            yield f"events_to_register names the unknown resource {name!r}"
        if not one.event.action:
            yield f"events_to_register: no action for resource {name!r}; expected one"


def _is_queued_by(heard: tuple[ClusterEventWithHint, ...], change: ClusterChange, pod: Pod) -> bool:
    for event in change.events:
        for one in heard:
            if not event_matches(one.event, event):
                continue
            if one.hint is None or one.hint(pod, change.old, change.new) == QueueingHint.QUEUE:
                return True
    return False


def _is_schedulable(framework: Framework, pod: Pod, cluster: GeneratedCluster) -> bool:
    """True when the plugin admits the pod to the queue, and to some node if there is any.

    Plugins read between attempts the objects of the last cluster that was evaluated.
    """
    snapshot, state = cluster.snapshot(), CycleState()
    framework.shared.object_store = snapshot.object_store
    if framework.at("preEnqueue") and not framework.run_pre_enqueue(pod).is_success:
        return False
    outcome = framework.run_pre_filter(pod, snapshot, state)
    if not outcome.status.is_success:
        return False
    nodes = snapshot.nodes
    if not nodes.n_nodes:
        return True
    rows = np.arange(nodes.n_nodes)
    if outcome.restrict is not None:
        allowed = [row for row, name in enumerate(nodes.names) if name in outcome.restrict]
        rows = np.array(allowed, dtype=np.int64)
    return bool(len(framework.run_filters(pod, snapshot, state, rows).passed()))


# Changes, in both directions: `cluster` is before or after each of them.


def _changes(trial: PluginTrial, cluster: GeneratedCluster) -> Iterator[ClusterChange]:
    yield from _node_changes(trial, cluster)
    yield from _pod_changes(trial, cluster)
    yield _pending_pod_changes(trial, cluster)
    yield from _object_changes(trial, cluster)


def _node_changes(trial: PluginTrial, cluster: GeneratedCluster) -> Iterator[ClusterChange]:
    nodes = cluster.nodes
    one = pick(trial.rng, nodes)
    fewer = replace(cluster, nodes=tuple(n for n in nodes if n is not one))
    added = (ClusterEvent(NODE, Action.ADD),)
    yield ClusterChange(f"node {one.name!r} that is added", added, fewer, cluster, None, one)
    other = node(trial.rng, one.name)
    changed = replace(cluster, nodes=tuple(other if n is one else n for n in nodes))
    what = f"node {one.name!r} that is updated"
    yield ClusterChange(what, node_update_events(one, other), cluster, changed, one, other)
    yield ClusterChange(what, node_update_events(other, one), changed, cluster, other, one)


def _pod_changes(trial: PluginTrial, cluster: GeneratedCluster) -> Iterator[ClusterChange]:
    pods = cluster.pods
    one = pick(trial.rng, pods)
    fewer = replace(cluster, pods=tuple(p for p in pods if p is not one))
    yield ClusterChange(
        f"pod {one.key!r} that is deleted", (ASSIGNED_POD_DELETE,), cluster, fewer, one, None
    )
    yield ClusterChange(
        f"pod {one.key!r} that is added", (ASSIGNED_POD_ADD,), fewer, cluster, None, one
    )
    labels = pick(trial.rng, cluster.pending).labels
    other = replace(one, metadata=replace(one.metadata, labels=labels))
    changed = replace(cluster, pods=tuple(other if p is one else p for p in pods))
    what = f"pod {one.key!r} with other labels"
    yield ClusterChange(what, pod_update_events(one, other), cluster, changed, one, other)


def _pending_pod_changes(trial: PluginTrial, cluster: GeneratedCluster) -> ClusterChange:
    """A pending pod is updated: labels, more tolerations, or no gates any more."""
    place = random_int(trial.rng, 0, len(cluster.pending) - 1)
    one, like = cluster.pending[place], pick(trial.rng, cluster.pending)
    more = (*one.spec.tolerations, *like.spec.tolerations)
    other = pick(
        trial.rng,
        (
            replace(one, metadata=replace(one.metadata, labels=like.labels)),
            replace(one, spec=replace(one.spec, tolerations=more)),
            replace(one, spec=replace(one.spec, scheduling_gates=())),
        ),
    )
    pending = (*cluster.pending[:place], other, *cluster.pending[place + 1 :])
    changed = replace(cluster, pending=pending)
    what = "an update of the pod"
    return ClusterChange(what, pod_update_events(one, other), cluster, changed, one, other)


def _object_changes(trial: PluginTrial, cluster: GeneratedCluster) -> Iterator[ClusterChange]:
    """An object of a kind with events is added, deleted, or replaced by one of another cluster."""
    objects = [o for o in cluster.objects if type(o).__name__ in RESOURCE_OF_KIND]
    if not objects:
        return
    one = pick(trial.rng, objects)
    resource = RESOURCE_OF_KIND[type(one).__name__]
    others = tuple(o for o in cluster.objects if o is not one)
    fewer = replace(cluster, objects=others)
    what = f"{type(one).__name__} {key_of(one)!r} that"
    came, went = ((ClusterEvent(resource, a),) for a in (Action.ADD, Action.DELETE))
    yield ClusterChange(f"{what} comes", came, fewer, cluster, None, one)
    yield ClusterChange(f"{what} goes", went, cluster, fewer, one, None)
    elsewhere = ObjectStore(generate_cluster(trial.rng, n_nodes=len(cluster.nodes)).objects)
    other = elsewhere.find(type(one), key_of(one))
    if other is not None:
        changed = replace(cluster, objects=(*others, other))
        updated = (ClusterEvent(resource, Action.UPDATE),)
        yield ClusterChange(f"{what} changes", updated, cluster, changed, one, other)
