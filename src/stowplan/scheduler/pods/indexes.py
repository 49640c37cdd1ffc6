"""The indexes equal the pod table: which index holds a pod follows from its state.

sub-queues of the queue       gated, active, backoff, unschedulable
in-flight pods (with hints)   awaiting extender, waiting on permit; not pods of sessions
extender attempts             awaiting extender
binding cycles                waiting on permit, prebinding, binding, bind unknown, assumed
assumed pods of the cache     the same, but a pod that is being deleted may have been released
pods on nodes                 the same, and bound
waiting pods of the plugins   waiting on permit
"""

from __future__ import annotations

from collections.abc import Iterable

from stowplan.framework.status import OK
from stowplan.objects.pod import Pod
from stowplan.queue import PodRecord, SchedulingQueue
from stowplan.queue.pod_record import NO_BINDING, PodState
from stowplan.scheduler.binding.binding_cycles import BindingCycles
from stowplan.scheduler.context import SchedulerContext
from stowplan.scheduler.extenders.extender_attempts import ExtenderAttempts
from stowplan.scheduler.pods.transitions import (
    ACTIVE,
    AWAITING_EXTENDER,
    BACKOFF,
    BIND_UNKNOWN,
    GATED,
    IN_BINDING_CYCLE,
    PREBINDING,
    QUEUED,
    SKIPPED,
    UNSCHEDULABLE,
    WAITING_ON_PERMIT,
)

AT_REST = (*QUEUED, AWAITING_EXTENDER, *IN_BINDING_CYCLE, SKIPPED)
"""States of records between two calls of `handle`."""


def check_indexes(
    context: SchedulerContext, bindings: BindingCycles, attempts: ExtenderAttempts
) -> None:
    """Compare the indexes with the table between two calls of `handle`; raises InvariantBroken."""
    _check_table(context)
    _check_holders(context, bindings, attempts)
    _check_nodes(context)
    for record in context.table.records.values():
        _check_record(context, attempts, record)
    _check_plugin_state(context)


def _check_table(context: SchedulerContext) -> None:
    """Every pending pod of a queued lane has a record, and every record a pending pod."""
    table = context.table
    pending = {pod.uid: pod for pod in context.pods.values() if not pod.node_name}
    for uid, record in table.records.items():
        pod = pending.get(uid)
        if pod is None or pod.key != record.key or record.pod.uid != uid:
            raise context.invariant_broken(f"{record.state.label}: record of an unknown pod", uid)
        if record.state not in AT_REST:
            raise context.invariant_broken(f"{record.state.label}: between calls", uid)
        is_queued = context.lanes.is_queued(pod)
        if record.state in (*QUEUED, AWAITING_EXTENDER, SKIPPED) and not is_queued:
            raise context.invariant_broken(f"{record.state.label}: no pod of the pod lane", uid)
        if record.state is SKIPPED and pod.metadata.deletion_timestamp is None:
            raise context.invariant_broken("skipped, but not being deleted", uid)
    for uid, pod in pending.items():
        if uid not in table.records and context.lanes.is_queued(pod):
            raise context.invariant_broken("pending pod without a record", uid)


def _check_holders(
    context: SchedulerContext, bindings: BindingCycles, attempts: ExtenderAttempts
) -> None:
    """Each index holds the records of its states, and nothing else."""
    queue, records = context.queue, context.table.records
    indexes: list[tuple[str, Iterable[PodRecord], tuple[PodState, ...]]] = [
        ("the active queue", queue.active, (ACTIVE,)),
        ("the backoff queue", queue.backoff, (BACKOFF,)),
        ("the unschedulable pods", queue.unschedulable_pods, (UNSCHEDULABLE, GATED)),
        ("a binding cycle", [record for _, record in bindings], IN_BINDING_CYCLE),
        ("extender attempts", [one.entry for _, one in attempts], (AWAITING_EXTENDER,)),
    ]
    for name, index, states in indexes:
        held = {id(record): record for record in index}
        for record in held.values():
            if records.get(record.uid) is not record:
                raise context.invariant_broken(f"unknown record in {name}", record.uid)
            if record.state not in states:
                raise context.invariant_broken(f"{record.state.label}: in {name}", record.uid)
        for record in records.values():
            if record.state in states and id(record) not in held:
                raise context.invariant_broken(f"{record.state.label}: not in {name}", record.uid)
    for record in queue.unschedulable_pods:
        if (record.state is GATED) != bool(record.gated_by):
            raise context.invariant_broken(
                f"{record.state.label}: gated by {record.gated_by!r}", record.uid
            )
    _check_in_flight(context, queue)


def _check_in_flight(context: SchedulerContext, queue: SchedulingQueue) -> None:
    flying = {
        uid
        for uid, record in context.table.records.items()
        if record.state in (AWAITING_EXTENDER, WAITING_ON_PERMIT) and _was_queued(context, record)
    }
    found = set(queue.in_flight.pods())
    for uid in sorted(found ^ (flying if queue.options.hints else set())):
        raise context.invariant_broken(f"in flight is {uid in found}", uid)


def _was_queued(context: SchedulerContext, record: PodRecord) -> bool:
    """True for a pod that came from the queue; its scheduler name may be removed meanwhile."""
    lane = context.lanes.of(record.pod)
    return lane is None or lane.is_queued


def _check_nodes(context: SchedulerContext) -> None:
    """Bound pods and those in a binding cycle are on nodes, and no others."""
    nodes, records = context.cache.nodes, context.table.records
    uids: dict[str, Pod] = {pod.uid: pod for pod in context.pods.values()}
    for uid, pod in uids.items():
        if pod.node_name and (not nodes.knows_pod(uid) or context.cache.is_assumed(uid)):
            raise context.invariant_broken("bound pod is on no node, or only assumed", uid)
    for uid in sorted({info.uid for pods in nodes.pods for info in pods}):
        if uid not in uids:
            raise context.invariant_broken("unknown pod in the cache", uid)
        if not uids[uid].node_name and not context.cache.is_assumed(uid):
            raise context.invariant_broken("pending pod on a node, and not assumed", uid)
    for uid in sorted(context.cache.assumed()):
        record = records.get(uid)
        if record is None or record.state not in IN_BINDING_CYCLE:
            raise context.invariant_broken("assumed pod without a binding cycle", uid)
    for uid, record in records.items():
        is_leaving = uids[uid].metadata.deletion_timestamp is not None
        if (
            record.state in IN_BINDING_CYCLE
            and not context.cache.is_assumed(uid)
            and not is_leaving
        ):
            raise context.invariant_broken(f"{record.state.label}: pod is not assumed", uid)


def _check_record(context: SchedulerContext, attempts: ExtenderAttempts, record: PodRecord) -> None:
    """What a record awaits suits its state."""
    uid, state, label = record.uid, record.state, record.state.label
    if (context.shared.waiting.get(uid) is not None) != (state is WAITING_ON_PERMIT):
        raise context.invariant_broken(f"{label}: waiting at Permit is the opposite", uid)
    awaits_outcome = state in IN_BINDING_CYCLE[1:-1]
    # Pods of sessions may have to wait until they are read.
    if record.binding.is_busy != awaits_outcome and state is not BIND_UNKNOWN:
        raise context.invariant_broken(f"{label}: awaits {record.binding.awaits}", uid)
    if record.binding.waits and state is not PREBINDING:
        raise context.invariant_broken(f"{label}: waits for {record.binding.waits}", uid)
    if (record.binding is NO_BINDING) == (state in IN_BINDING_CYCLE):
        raise context.invariant_broken(f"{label}: node is {record.binding.node!r}", uid)
    if state is AWAITING_EXTENDER and not attempts.calls_of(uid):
        raise context.invariant_broken(f"{label}: no pending calls", uid)


def _check_plugin_state(context: SchedulerContext) -> None:
    """State that plugins share names pending pods only."""
    records = context.table.records
    for waiting in context.shared.waiting:
        if waiting.verdict not in (None, OK) or not waiting.pending:
            raise context.invariant_broken("settled pod still waits at Permit", waiting.pod.uid)
        if waiting.pod.uid not in records:
            raise context.invariant_broken("unknown pod waits at Permit", waiting.pod.uid)
    pending = {pod.uid for pod in context.pods.values() if not pod.node_name}
    for uid in sorted(context.shared.preempting - pending):
        raise context.invariant_broken("preempting pod is not pending", uid)
