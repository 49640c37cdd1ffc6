"""Transitions of pod records: (state, event) -> method and the states it may lead to.

The table is read in three ways. Events about one pod (what the watch shows, outcomes of effects,
expired deadlines) are dispatched by it: `PodTable.transition` calls the method. An event without an
entry changes nothing, such as a late outcome. Operations on many pods at once (the queue's, and the
choice of nodes by a kernel) are not dispatched pod by pod; tests observe that they make exactly
the transitions that are listed. The diagram in docs/images is drawn from the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

import msgspec

from stowplan.queue.pod_record import PodState

NEW, GATED, ACTIVE, BACKOFF = PodState.NEW, PodState.GATED, PodState.ACTIVE, PodState.BACKOFF
UNSCHEDULABLE, IN_FLIGHT = PodState.UNSCHEDULABLE, PodState.IN_FLIGHT
AWAITING_EXTENDER, WAITING_ON_PERMIT = PodState.AWAITING_EXTENDER, PodState.WAITING_ON_PERMIT
PREBINDING, BINDING, BIND_UNKNOWN = PodState.PREBINDING, PodState.BINDING, PodState.BIND_UNKNOWN
ASSUMED, SKIPPED = PodState.ASSUMED, PodState.SKIPPED
AWAITING_SESSION, BOUND, DELETED = PodState.AWAITING_SESSION, PodState.BOUND, PodState.DELETED
LEFT_ALONE = PodState.LEFT_ALONE

QUEUED = (GATED, ACTIVE, BACKOFF, UNSCHEDULABLE)
"""In a sub-queue of the scheduling queue."""
IN_BINDING_CYCLE = (WAITING_ON_PERMIT, PREBINDING, BINDING, BIND_UNKNOWN, ASSUMED)
"""A node is chosen, and its resources are taken."""
REQUEUED = (*QUEUED, AWAITING_SESSION, LEFT_ALONE)
"""Where a pod may be after a failed attempt. A pod of a session waits for the next session."""


class PodEvent(IntEnum):
    """What happens to a pod.

    Shown by the watch: ADDED; UPDATED; TERMINATING, being deleted from now on; BOUND, to any node;
    DELETED. Of the queue: CLUSTER_CHANGED, an event that may make the pod schedulable; ACTIVATED,
    on request of a plugin; BACKOFF_OVER; FLUSHED, unschedulable for too long; POPPED; UNPOPPED, not
    attempted after all. Decisions: PLACED, also BULK_PLACED by a kernel; REFUSED; SKIPPED since it
    is being deleted; EXTENDERS_CALLED; RESUMED with their responses. Of the configuration:
    NAME_REMOVED, no lane has the pod's scheduler name any more; GATES_CHANGED. The others are named
    after the message, or the deadline, that ends a stage of the binding cycle.
    """

    ADDED = 0
    UPDATED = 1
    TERMINATING = 2
    BOUND = 3
    DELETED = 4
    CLUSTER_CHANGED = 5
    ACTIVATED = 6
    BACKOFF_OVER = 7
    FLUSHED = 8
    POPPED = 9
    UNPOPPED = 10
    PLACED = 11
    BULK_PLACED = 12
    REFUSED = 13
    SKIPPED = 14
    EXTENDERS_CALLED = 15
    RESUMED = 16
    EXTENDER_REPLIED = 17
    ALLOWED = 18
    REJECTED = 19
    PERMIT_SETTLED = 20
    PERMIT_TIMED_OUT = 21
    PREPARE_DONE = 22
    PREPARE_FAILED = 23
    WRITE_DONE = 24
    WRITE_FAILED = 25
    PREBIND_TIMED_OUT = 26
    BIND_DONE = 27
    BIND_FAILED = 28
    READ_DUE = 29
    POD_READ = 30
    ASSUMPTION_EXPIRED = 31
    PREEMPTED = 32
    LEADER_LOST = 33
    NAME_REMOVED = 34
    GATES_CHANGED = 35

    @property
    def label(self) -> str:
        """The event in lower case, with spaces."""
        return self.name.lower().replace("_", " ")


class Transition(msgspec.Struct, frozen=True):
    """method: `OWNER.NAME` of what is called. targets: states in which it may leave the pod."""

    method: str
    targets: tuple[PodState, ...]


_Rows = dict[PodState, tuple[str, tuple[PodState, ...]]]


def _by_event() -> Iterator[tuple[PodEvent, _Rows]]:
    yield from _watch_rows()
    yield from _queue_rows()
    yield from _decision_rows()
    yield from _binding_rows()


def _watch_rows() -> Iterator[tuple[PodEvent, _Rows]]:
    updated = ("handlers.queued_pod_updated", QUEUED)
    yield PodEvent.ADDED, {NEW: ("queue.enter", (ACTIVE, GATED))}
    yield (
        PodEvent.UPDATED,
        {
            **dict.fromkeys(QUEUED, updated),
            AWAITING_EXTENDER: ("handlers.attempted_pod_updated", (AWAITING_EXTENDER,)),
            SKIPPED: ("handlers.skipped_pod_updated", (ACTIVE, GATED)),
        },
    )
    yield (
        PodEvent.TERMINATING,
        {
            **dict.fromkeys(QUEUED, updated),
            AWAITING_EXTENDER: ("attempts.pod_terminating", (SKIPPED,)),
            WAITING_ON_PERMIT: ("bindings.reject_terminating", (WAITING_ON_PERMIT,)),
            PREBINDING: ("bindings.prebind_terminating", REQUEUED),
            BINDING: ("bindings.release_terminating", (BINDING,)),
            BIND_UNKNOWN: ("bindings.release_terminating", (BIND_UNKNOWN,)),
        },
    )
    yield (
        PodEvent.BOUND,
        {
            **dict.fromkeys((*QUEUED, SKIPPED), ("handlers.queued_pod_bound", (BOUND,))),
            **dict.fromkeys(IN_BINDING_CYCLE, ("bindings.pod_bound", (BOUND,))),
            AWAITING_EXTENDER: ("attempts.pod_bound", (BOUND,)),
        },
    )
    yield (
        PodEvent.DELETED,
        {
            **dict.fromkeys((*QUEUED, SKIPPED), ("handlers.queued_pod_deleted", (DELETED,))),
            **dict.fromkeys(IN_BINDING_CYCLE, ("bindings.pod_deleted", (DELETED,))),
            AWAITING_EXTENDER: ("attempts.pod_deleted", (DELETED,)),
        },
    )


def _queue_rows() -> Iterator[tuple[PodEvent, _Rows]]:
    moved = ("queue.move", QUEUED)
    yield (
        PodEvent.CLUSTER_CHANGED,
        {
            GATED: moved,
            UNSCHEDULABLE: moved,
            PREBINDING: ("prebind.poll", (PREBINDING, BINDING, *REQUEUED)),
        },
    )
    activated = ("queue.activate", (ACTIVE, GATED))
    yield PodEvent.ACTIVATED, dict.fromkeys((GATED, BACKOFF, UNSCHEDULABLE), activated)
    yield PodEvent.BACKOFF_OVER, {BACKOFF: ("queue.flush_backoff", (ACTIVE, GATED))}
    yield PodEvent.FLUSHED, {UNSCHEDULABLE: ("queue.flush_unschedulable", (ACTIVE, BACKOFF, GATED))}
    popped = ("queue.pop", (IN_FLIGHT,))
    yield (
        PodEvent.POPPED,
        {
            ACTIVE: popped,
            BACKOFF: popped,
            UNSCHEDULABLE: ("queue.pop_unschedulable", (IN_FLIGHT,)),
        },
    )
    gate = ("queue.gate", (GATED,))
    yield PodEvent.GATES_CHANGED, {ACTIVE: gate, BACKOFF: gate}
    left = ("handlers.queued_pod_left_alone", (LEFT_ALONE,))
    yield (
        PodEvent.NAME_REMOVED,
        {
            **dict.fromkeys((*QUEUED, SKIPPED), left),
            AWAITING_EXTENDER: ("attempts.pod_left_alone", (LEFT_ALONE,)),
        },
    )
    yield PodEvent.UNPOPPED, {IN_FLIGHT: ("queue.undo_pops", (ACTIVE,))}


def _decision_rows() -> Iterator[tuple[PodEvent, _Rows]]:
    placed = ("bindings.begin", (WAITING_ON_PERMIT, PREBINDING, BINDING, *REQUEUED))
    yield PodEvent.PLACED, {IN_FLIGHT: placed, AWAITING_SESSION: placed}
    yield PodEvent.BULK_PLACED, {IN_FLIGHT: ("bindings.begin_run", (BINDING, *REQUEUED))}
    yield PodEvent.REFUSED, {IN_FLIGHT: ("lane.refuse", QUEUED)}
    yield PodEvent.SKIPPED, {IN_FLIGHT: ("lane.skip_terminating", (SKIPPED,))}
    yield PodEvent.EXTENDERS_CALLED, {IN_FLIGHT: ("attempts.wait", (AWAITING_EXTENDER,))}
    yield PodEvent.RESUMED, {AWAITING_EXTENDER: ("attempts.pop_ready", (IN_FLIGHT,))}
    yield (
        PodEvent.LEADER_LOST,
        {
            AWAITING_EXTENDER: ("attempts.leader_lost", QUEUED),
            WAITING_ON_PERMIT: ("bindings.leader_lost", REQUEUED),
            PREBINDING: ("bindings.leader_lost", REQUEUED),
            BINDING: ("bindings.leader_lost_with_bind_sent", (BIND_UNKNOWN,)),
        },
    )


def _binding_rows() -> Iterator[tuple[PodEvent, _Rows]]:
    prebind_step = (PREBINDING, BINDING, *REQUEUED)
    waits = (WAITING_ON_PERMIT,)
    yield (
        PodEvent.EXTENDER_REPLIED,
        {
            AWAITING_EXTENDER: ("attempts.replied", (AWAITING_EXTENDER,)),
            BINDING: (
                "bindings.extender_replied",
                (ASSUMED, BIND_UNKNOWN, BINDING, *REQUEUED),
            ),
        },
    )
    yield PodEvent.ALLOWED, {WAITING_ON_PERMIT: ("bindings.allow", waits)}
    yield PodEvent.REJECTED, {WAITING_ON_PERMIT: ("bindings.reject", waits)}
    yield PodEvent.PERMIT_TIMED_OUT, {WAITING_ON_PERMIT: ("bindings.permit_timed_out", waits)}
    yield PodEvent.PERMIT_SETTLED, {WAITING_ON_PERMIT: ("bindings.permit_settled", prebind_step)}
    yield (
        PodEvent.PREPARE_DONE,
        {
            PREBINDING: ("bindings.prebind_io_done", prebind_step),
            BINDING: ("bindings.bind_accepted", (ASSUMED,)),
        },
    )
    yield (
        PodEvent.PREPARE_FAILED,
        {
            PREBINDING: ("bindings.prebind_failed", REQUEUED),
            BINDING: ("bindings.bind_io_failed", (BIND_UNKNOWN,)),
        },
    )
    yield PodEvent.WRITE_DONE, {PREBINDING: ("prebind.written", prebind_step)}
    yield PodEvent.WRITE_FAILED, {PREBINDING: ("bindings.prebind_failed", REQUEUED)}
    yield PodEvent.PREBIND_TIMED_OUT, {PREBINDING: ("bindings.prebind_failed", REQUEUED)}
    yield PodEvent.BIND_DONE, {BINDING: ("bindings.bind_accepted", (ASSUMED,))}
    yield PodEvent.BIND_FAILED, {BINDING: ("bindings.bind_refused", (BIND_UNKNOWN, *REQUEUED))}
    yield PodEvent.READ_DUE, {BIND_UNKNOWN: ("bindings.read", (BIND_UNKNOWN,))}
    yield PodEvent.POD_READ, {BIND_UNKNOWN: ("bindings.settle", (ASSUMED, BIND_UNKNOWN, *REQUEUED))}
    yield PodEvent.ASSUMPTION_EXPIRED, {ASSUMED: ("bindings.assumption_expired", REQUEUED)}
    yield (
        PodEvent.PREEMPTED,
        {
            WAITING_ON_PERMIT: ("bindings.preempt_waiting", waits),
            PREBINDING: ("bindings.preempt_prebinding", REQUEUED),
        },
    )


TRANSITIONS: dict[tuple[PodState, PodEvent], Transition] = {
    (state, event): Transition(method, targets)
    for event, rows in _by_event()
    for state, (method, targets) in rows.items()
}
"""(state, event) -> transition, grouped by event."""

BULK_METHODS: dict[str, PodEvent] = {
    **{
        row.method: event
        for (_, event), row in TRANSITIONS.items()
        if row.method.startswith("queue.")
    },
    # The queue's entry points of releases without hints, and of counted refusals.
    "queue.assigned_pod_added": PodEvent.CLUSTER_CHANGED,
    "queue.assigned_pod_updated": PodEvent.CLUSTER_CHANGED,
    "queue.try_again": PodEvent.CLUSTER_CHANGED,
    # Those for many pods.
    "queue.enter_all": PodEvent.ADDED,
    "queue.start_attempts": PodEvent.POPPED,
    "prebind.poll": PodEvent.CLUSTER_CHANGED,
    "bindings.begin": PodEvent.PLACED,
    "bindings.begin_placed": PodEvent.PLACED,
    "bindings.begin_run": PodEvent.BULK_PLACED,
    "attempts.wait": PodEvent.EXTENDERS_CALLED,
    "attempts.pop_ready": PodEvent.RESUMED,
    "lane.refuse": PodEvent.REFUSED,
    "lane.skip_terminating": PodEvent.SKIPPED,
}
"""Method that is called with the pods, not dispatched by the table -> event of its transitions."""
