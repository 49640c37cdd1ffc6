"""Failure handler: requeues a pod after a failed attempt and reports the failure.

Source: kube-scheduler v1.36, schedule_one.go handleSchedulingFailure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from stowplan.framework.deciders.lane import BindingCycleFailed
from stowplan.framework.diagnosis import single_node_diagnosis
from stowplan.framework.status import Status
from stowplan.objects.pod import Pod
from stowplan.queue import PodRecord
from stowplan.queue.pod_record import PodState
from stowplan.scheduler.context import SchedulerContext
from stowplan.scheduler.outbox import RequestedStatus, condition_of

UNSCHEDULABLE = "Unschedulable"
SCHEDULER_ERROR = "SchedulerError"


class FailedAttempt(msgspec.Struct, frozen=True):
    """A pod that returns to the queue. nominated_node: see `FailureHandler.attempt_failed`."""

    key: str
    reason: str
    message: str
    plugins: frozenset[str]
    nominated_node: str | None


class FailureHandler:
    """Handles failed scheduling attempts and binding cycles. on_failure: called with each."""

    def __init__(self, context: SchedulerContext) -> None:
        self._context = context
        self.on_failure: Callable[[FailedAttempt], None] = _ignore_failure

    def attempt_failed(
        self,
        entry: PodRecord,
        message: str,
        *,
        reason: str,
        refused_by: Iterable[str] = (),
        pending_on: Iterable[str] = (),
        nominated_node: str | None = "",
        announced: bool = False,
    ) -> None:
        """Requeue the pod, report the failure and keep (None), set or clear ("") its nomination.

        reason: of the PodScheduled condition. announced: its nomination was written, and the watch
        may not have shown that yet. The pod is pending; a pod that was deleted or bound is not
        requeued. Differs: the original leaves a nomination in place that it has not observed
        itself.
        """
        context = self._context
        lane = context.lanes.of(entry.pod)
        if lane is None:
            self._leave_alone(entry, announced=announced)
            return
        if not lane.is_queued:
            context.table.drop(entry.uid, PodState.AWAITING_SESSION)
            lane.on_outcome(BindingCycleFailed(entry.pod, message, reason))
            return
        pod = context.pods[entry.key]
        plugins = frozenset(refused_by) | frozenset(pending_on)
        self.on_failure(FailedAttempt(entry.key, reason, message, plugins, nominated_node))
        if context.has_defects and pod.spec.scheduling_group is not None:
            # Differs: in the original a member of a group that was refused is retried again and
            # again, with no event; here with `compat` only.
            context.queue.done(entry.uid)
        context.queue.add_unschedulable_if_not_present(
            entry, context.now, refused_by=refused_by, pending_on=pending_on, pod=pod
        )
        nominator = context.queue.nominator
        before = nominator.node_of(entry.uid)
        nominator.nominate(pod, nominated_node)
        if before and before != pod.status.nominated_node_name:
            # The watch may never show that it ended.
            context.nomination_ended(pod, before, nominator.node_of(entry.uid))
        context.outbox.record(pod, "Warning", "FailedScheduling", "Scheduling", message)
        if context.has_defects:
            self._patch_observed(pod, reason, message, nominated_node)
            return
        requested_status = context.outbox.requested_status.get(pod.uid)
        if announced or is_condition_new(pod, reason, message, nominated_node, requested_status):
            context.outbox.patch_status(pod, nominated_node, reason, message)

    def _patch_observed(
        self, pod: Pod, reason: str, message: str, nominated_node: str | None
    ) -> None:
        """Write what differs from the status that the watch has shown, as the original does."""
        if nominated_node == pod.status.nominated_node_name:
            nominated_node = None
        if nominated_node is not None or condition_of(pod) != ("False", reason, message):
            self._context.outbox.patch_status(pod, nominated_node, reason, message)

    def _leave_alone(self, entry: PodRecord, *, announced: bool) -> None:
        """The configuration has changed since the attempt began: the pod is no lane's any more."""
        self._context.queue.done(entry.uid)
        self._context.table.drop(entry.uid, PodState.LEFT_ALONE)
        if announced:
            self._context.outbox.patch_status(self._context.pods[entry.key], "")

    def failed(self, entry: PodRecord, status: Status, *, announced: bool = False) -> None:
        """Requeue with backoff after a failure that no cluster event can resolve."""
        reason = UNSCHEDULABLE if status.is_rejected else SCHEDULER_ERROR
        self.attempt_failed(entry, status.message, reason=reason, announced=announced)

    def refused_on_node(self, entry: PodRecord, status: Status, *, announced: bool = False) -> None:
        """Requeue after a refusal on the chosen node, reported as if the cluster had only that
        node."""
        if not status.is_rejected:
            self.failed(entry, status, announced=announced)
            return
        diagnosis = single_node_diagnosis(status)
        # No plugin refused a pod that is being deleted; it is requeued like a refused one.
        self.attempt_failed(
            entry,
            diagnosis.text(),
            reason=UNSCHEDULABLE,
            refused_by=diagnosis.plugins or {status.plugin},
            pending_on=diagnosis.pending,
            announced=announced,
        )

    def report_deleted(self, pod: Pod, status: Status) -> None:
        """Report the refusal of a pod that was deleted meanwhile, as the original does."""
        message = single_node_diagnosis(status).text()
        plugins = frozenset((status.plugin,))
        self.on_failure(FailedAttempt(pod.key, UNSCHEDULABLE, message, plugins, ""))
        self._context.outbox.record(pod, "Warning", "FailedScheduling", "Scheduling", message)


def _ignore_failure(failure: FailedAttempt) -> None:
    """Default of `on_failure`."""


def is_condition_new(
    pod: Pod,
    reason: str,
    message: str,
    nominated_node: str | None,
    requested_status: RequestedStatus | None = None,
) -> bool:
    """True if the condition or nomination differs from what the pod's status shows or will show.

    requested_status: what was requested and not observed yet. Differs: the original compares with
    the status that it has observed, which may be older than what it has written itself.
    """
    if (
        requested_status is not None
        and requested_status.reason
        and (requested_status.reason, requested_status.message) != (reason, message)
    ):
        return True
    if nominated_node is not None:
        if requested_status is not None and requested_status.nominated_node not in (
            None,
            nominated_node,
        ):
            return True
        if nominated_node != pod.status.nominated_node_name:
            return True
    return condition_of(pod) != ("False", reason, message)
