"""Invariants between two calls of `handle`: every pod is in exactly one place."""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.framework.status import OK
from stowplan.objects.pod import Pod
from stowplan.scheduler.binding.binding_cycle import BindingStage
from stowplan.scheduler.binding.binding_cycles import BindingCycles
from stowplan.scheduler.context import SchedulerContext
from stowplan.scheduler.extenders.extender_attempts import AWAITING, ExtenderAttempts
from stowplan.scheduler.session_lane import SessionLane


def check_pods(
    context: SchedulerContext, bindings: BindingCycles, extender_attempts: ExtenderAttempts
) -> None:
    """Check that every known pod is in its place and no other pod is anywhere; raises
    InvariantBroken.

    A pending pod of ours is in the queue, in a binding cycle or awaiting extenders; one that is
    being deleted may be in none of them. A bound pod is on its node; no other pod is, except in a
    binding cycle.
    """
    for key, pod in context.pods.items():
        found = list(_places(context, bindings, extender_attempts, key, pod))
        expected = _expected_places(context, pod)
        if found not in expected:
            raise context.invariant_broken(
                f"pod {key} is in {found}; expected one of {expected}", pod.uid
            )
    uids = {pod.uid for pod in context.pods.values()}
    for place, orphans in (
        ("the queue", {entry.uid for entry in context.queue} - uids),
        ("flight", set(context.queue.in_flight.pods()) - uids),
        ("a binding cycle", {uid for uid, _ in bindings} - uids),
        ("extender attempts", {uid for uid, _ in extender_attempts} - uids),
        ("the cache", {info.uid for pods in context.cache.nodes.pods for info in pods} - uids),
    ):
        for uid in sorted(orphans):
            raise context.invariant_broken(f"unknown pod in {place}", uid)


def _places(
    context: SchedulerContext,
    bindings: BindingCycles,
    extender_attempts: ExtenderAttempts,
    key: str,
    pod: Pod,
) -> Iterator[str]:
    entry = context.queue.get(key)
    if entry is not None:
        yield "queue" if entry.uid == pod.uid else "another pod's entry"
    if pod.uid in bindings:
        yield "binding cycle"
    if pod.uid in extender_attempts:
        yield AWAITING
    if context.cache.nodes.knows_pod(pod.uid) and not context.cache.is_assumed(pod.uid):
        yield "node"


def _expected_places(context: SchedulerContext, pod: Pod) -> tuple[list[str], ...]:
    if pod.node_name:
        return (["node"],)
    if not context.is_ours(pod):
        return ([],)
    if context.is_session_pod(pod):
        return (["binding cycle"], [])
    if pod.metadata.deletion_timestamp is not None:
        return (["queue"], ["binding cycle"], [])
    return (["queue"], ["binding cycle"], [AWAITING])


def check_sessions(
    context: SchedulerContext, bindings: BindingCycles, sessions: SessionLane
) -> None:
    """Check that sessions know the same pods as the context; raises InvariantBroken."""
    known = set(sessions.decider.known())
    for pod in context.pods.values():
        if pod.uid not in known:
            raise context.invariant_broken("pod is unknown to sessions", pod.uid)
    for uid, node in sessions.nominations.items():
        if context.queue.nominator.node_of(uid) != node or uid in bindings:
            raise context.invariant_broken(
                f"nominated to {node} by sessions, but not in the queue", uid
            )
    sessions.decider.validate()


def check_pending(
    context: SchedulerContext, bindings: BindingCycles, extender_attempts: ExtenderAttempts
) -> None:
    """Check binding cycles and waiting attempts against cache, queue and plugins; raises
    InvariantBroken."""
    shared, in_flight = context.shared, context.queue.in_flight
    assumed = context.cache.assumed()
    for uid, binding_cycle in bindings:
        waits = shared.waiting.get(uid) is not None
        if waits != (binding_cycle.stage is BindingStage.WAITING):
            raise context.invariant_broken(
                f"{binding_cycle.stage}: waiting at Permit is {waits}", uid
            )
        flies = waits and not context.is_session_pod(binding_cycle.pod)
        if context.queue.options.hints and flies != (uid in in_flight):
            raise context.invariant_broken(
                f"{binding_cycle.stage}: in flight is {uid in in_flight}", uid
            )
        leaves = context.pods[binding_cycle.entry.key].metadata.deletion_timestamp is not None
        if uid not in assumed and not leaves:
            raise context.invariant_broken(f"{binding_cycle.stage}: pod is not assumed", uid)
        idles = binding_cycle.stage in (BindingStage.WAITING, BindingStage.BOUND)
        # Pods of sessions may have to wait until they are read.
        if binding_cycle.is_busy == idles and binding_cycle.stage is not BindingStage.BIND_UNKNOWN:
            raise context.invariant_broken(
                f"{binding_cycle.stage}: awaits {binding_cycle.awaits}", uid
            )
        if binding_cycle.waits and binding_cycle.stage is not BindingStage.PREBIND:
            raise context.invariant_broken(
                f"{binding_cycle.stage}: waits for {binding_cycle.waits}", uid
            )
    for uid in sorted(assumed - {uid for uid, _ in bindings}):
        raise context.invariant_broken("assumed pod without a binding cycle", uid)
    for uid, attempt in extender_attempts:
        if context.queue.options.hints and uid not in in_flight:
            raise context.invariant_broken(f"{AWAITING}: not in flight", uid)
        if not attempt.calls:
            raise context.invariant_broken(f"{AWAITING}: no pending calls", uid)
    if len(in_flight) > len(shared.waiting) + len(extender_attempts):
        raise context.invariant_broken(
            f"unexpected pods in flight between calls: {in_flight.pods()[:5]}", ""
        )
    for waiting in shared.waiting:
        if waiting.verdict not in (None, OK) or not waiting.pending:
            raise context.invariant_broken("settled pod still waits at Permit", waiting.pod.uid)
    pending = {pod.uid for pod in context.pods.values() if not pod.node_name}
    for uid in sorted(shared.preempting - pending):
        raise context.invariant_broken("preempting pod is not pending", uid)
