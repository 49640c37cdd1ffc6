"""What must hold between two calls of `handle`: every pod in exactly one place."""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.framework.status import OK
from stowplan.objects.pod import Pod
from stowplan.scheduler.binding import Bindings
from stowplan.scheduler.context import Context
from stowplan.scheduler.extending import AWAITING, Extending
from stowplan.scheduler.journey import Stage
from stowplan.scheduler.sessions import Sessions


def check_pods(context: Context, bindings: Bindings, extending: Extending) -> None:
    """Every known pod is where it belongs, and nothing else is anywhere; raises InvariantBroken.

    A pending pod of ours is in the queue, on a journey or waiting for extenders; one that is being
    deleted may be nowhere. A bound pod is on its node, and no other is but one on a journey.
    """
    for key, pod in context.known.items():
        found = list(_places(context, bindings, extending, key, pod))
        wanted = _wanted(context, pod)
        if found not in wanted:
            raise context.broken(f"pod {key} is in {found}, wanted one of {wanted}", pod.uid)
    uids = {pod.uid for pod in context.known.values()}
    for place, strays in (
        ("the queue", {entry.uid for entry in context.queue} - uids),
        ("flight", set(context.queue.in_flight.pods()) - uids),
        ("a journey", {uid for uid, _ in bindings} - uids),
        ("an attempt", {uid for uid, _ in extending} - uids),
        ("the cache", {info.uid for pods in context.cache.nodes.pods for info in pods} - uids),
    ):
        for uid in sorted(strays):
            raise context.broken(f"a pod that is not known is in {place}", uid)


def _places(
    context: Context, bindings: Bindings, extending: Extending, key: str, pod: Pod
) -> Iterator[str]:
    entry = context.queue.get(key)
    if entry is not None:
        yield "queue" if entry.uid == pod.uid else "another pod's entry"
    if pod.uid in bindings:
        yield "journey"
    if pod.uid in extending:
        yield AWAITING
    if context.cache.nodes.knows_pod(pod.uid) and not context.cache.is_assumed(pod.uid):
        yield "node"


def _wanted(context: Context, pod: Pod) -> tuple[list[str], ...]:
    if pod.node_name:
        return (["node"],)
    if not context.is_ours(pod):
        return ([],)
    if context.is_batch(pod):
        return (["journey"], [])
    if pod.metadata.deletion_timestamp is not None:
        return (["queue"], ["journey"], [])
    return (["queue"], ["journey"], [AWAITING])


def check_sessions(context: Context, bindings: Bindings, sessions: Sessions) -> None:
    """Sessions know the pods that are there and count them right; raises InvariantBroken."""
    known = set(sessions.decider.known())
    for pod in context.known.values():
        if pod.uid not in known:
            raise context.broken("sessions do not know the pod", pod.uid)
    for uid, node in sessions.promised.items():
        if context.queue.nominator.node_of(uid) != node or uid in bindings:
            raise context.broken(f"is promised {node} and not nominated to it", uid)
    sessions.decider.validate()


def check_waiting(context: Context, bindings: Bindings, extending: Extending) -> None:
    """Journeys and attempts under way agree with what cache, queue and plugins know of them;
    raises InvariantBroken."""
    shared, in_flight = context.shared, context.queue.in_flight
    assumed = context.cache.assumed()
    for uid, journey in bindings:
        waits = shared.waiting.get(uid) is not None
        if waits != (journey.stage is Stage.WAITING):
            raise context.broken(f"{journey.stage}: waits at Permit {waits}", uid)
        flies = waits and not context.is_batch(journey.pod)
        if context.queue.options.hints and flies != (uid in in_flight):
            raise context.broken(f"{journey.stage}: in flight {uid in in_flight}", uid)
        leaves = context.known[journey.entry.key].metadata.deletion_timestamp is not None
        if uid not in assumed and not leaves:
            raise context.broken(f"{journey.stage}: no room is held", uid)
        idles = journey.stage in (Stage.WAITING, Stage.BOUND)
        # One of sessions may have to wait until it is read.
        if journey.is_busy == idles and journey.stage is not Stage.DOUBTFUL:
            raise context.broken(f"{journey.stage}: awaits {journey.awaits}", uid)
        if journey.waits and journey.stage is not Stage.PREPARING:
            raise context.broken(f"{journey.stage}: waits for {journey.waits}", uid)
    for uid in sorted(assumed - {uid for uid, _ in bindings}):
        raise context.broken("room is held for no journey", uid)
    for uid, attempt in extending:
        if context.queue.options.hints and uid not in in_flight:
            raise context.broken(f"{AWAITING}: not in flight", uid)
        if not attempt.calls:
            raise context.broken(f"{AWAITING}: nothing is under way", uid)
    if len(in_flight) > len(shared.waiting) + len(extending):
        raise context.broken(f"in flight between calls: {in_flight.pods()[:5]}", "")
    for waiting in shared.waiting:
        if waiting.verdict not in (None, OK) or not waiting.pending:
            raise context.broken("has a verdict and still waits", waiting.pod.uid)
    pending = {pod.uid for pod in context.known.values() if not pod.node_name}
    for uid in sorted(shared.preempting - pending):
        raise context.broken("preempts and is not pending", uid)
