"""Group cycle: attempt all pending pods of a group together.

The first member that leaves the queue takes the others with it. They are tried on one snapshot, and
bound if enough of them have a node at the same time; else all of them return to the queue.

Source: kube-scheduler v1.36, schedule_one_podgroup.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from stowplan.columns.engine.tie_break import draw_tie_break
from stowplan.columns.overlay import Overlay
from stowplan.framework import Code, ContractError, Framework
from stowplan.framework.deciders.decider import Decider, Decision
from stowplan.framework.pod_groups.placements import PodGroupCycle, PodGroupTrial
from stowplan.framework.pod_groups.pod_group_states import group_key_of
from stowplan.framework.runtime.registered_plugin import RegisteredPlugin
from stowplan.framework.status import error
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import PodGroupCondition
from stowplan.objects.scheduling_group import POD_GROUP_SCHEDULED, SchedulingGroup
from stowplan.queue import PodRecord
from stowplan.queue.member_passages import pop_members
from stowplan.queue.pod_record import PodState
from stowplan.scheduler.binding.binding_cycles import BindingCycles
from stowplan.scheduler.context import SchedulerContext
from stowplan.scheduler.evictions import Evictions
from stowplan.scheduler.failure_handler import SCHEDULER_ERROR, UNSCHEDULABLE, FailureHandler
from stowplan.scheduler.pod_groups.group_algorithm import (
    AffinityNodes,
    GroupAlgorithm,
    GroupAttempt,
)
from stowplan.scheduler.pod_groups.group_batches import GroupBatches
from stowplan.scheduler.pod_groups.group_results import (
    GROUP_UNSCHEDULABLE,
    SCHEDULED,
    GroupResult,
    GroupStatus,
    MemberResult,
)
from stowplan.scheduler.pod_groups.group_run import GroupInCycle, GroupRuns
from stowplan.scheduler.pod_groups.member_orders import has_extensions, in_order
from stowplan.scheduler.tie_breaks import tie_break_of

NO_PREEMPTION_PLUGIN = (
    "default preemption plugin is not registered, workload aware preemption is disabled"
)
NOT_WITH_CONSTRAINTS = (
    "workload aware preemption is not supported for pod groups with scheduling constraints"
)


SCHEDULED_RESULT = GroupResult([], SCHEDULED)
SCHEDULED_CONDITION = PodGroupCondition(POD_GROUP_SCHEDULED, "True", reason="Scheduled")


class GroupReport(msgspec.Struct, frozen=True):
    """A group cycle. key: of the group. pods: its members, in order. outcome: see `GroupResult`, ""
    where the group was not tried. n_tried: number of members that were tried, the first ones.
    profile: schedulerName of the first. n_together: number of groups that were placed together, all
    of which are bound when the first of them is reported."""

    key: str
    pods: tuple[str, ...]
    outcome: str = ""
    n_tried: int = 0
    profile: str = ""
    n_together: int = 1


class GroupCycles:
    """Runs group cycles. on_begin: called at the begin of one, or of several that are run together.
    on_group: called at the end of each."""

    def __init__(
        self,
        context: SchedulerContext,
        bindings: BindingCycles,
        evictions: Evictions,
        failures: FailureHandler,
        decider: Callable[[], Decider],
        rng: np.random.Generator | None,
    ) -> None:
        """decider: chooses nodes. rng: breaks ties; None takes the first of them."""
        self._context = context
        self._bindings = bindings
        self._evictions = evictions
        self._failures = failures
        self._algorithm = GroupAlgorithm(context, decider)
        self._runs = GroupRuns(context, bindings, decider)
        self._batches = GroupBatches(context, self._runs, decider, rng)
        self._rng = rng
        self.on_begin: Callable[[], None] = _ignore_begin
        self.on_group: Callable[[GroupReport], None] = _ignore_report

    def run(self, popped: PodRecord, n_max: int = 1) -> int:
        """Attempt the group of a pod that was popped, and those that follow it where kernels place
        them together, at most `n_max`; returns how many."""
        self.on_begin()
        key = group_key_of(popped.pod)
        records = self._members(popped)
        names = _mixed_names(records)
        if names:
            text = (
                "all pods in a single pod group should have the same .spec.schedulerName set, "
                f'got: "{names[1]}" and "{names[0]}"'
            )
            for record in records:
                self._failures.attempt_failed(record, text, reason=SCHEDULER_ERROR)
            self.on_group(GroupReport(key, tuple(one.key for one in records)))
            return 1
        records = [
            one
            for one in records
            if one.pod.metadata.deletion_timestamp is None or not self._skip(one)
        ]
        group = self._in_cycle(key, popped, records) if records else None
        together = [] if group is None else self._batches.run(group, n_max)
        for one in together:
            self._write_condition(one.cycle.group, SCHEDULED_RESULT, one.cycle.state.n_scheduled)
        for one in together:
            self._report(one, SCHEDULED_RESULT.outcome, len(one.records), len(together))
        if together:
            return len(together)
        if group is None:
            self.on_group(GroupReport(key, (), profile=popped.pod.spec.scheduler_name))
            return 1
        outcome, n_tried = self._attempt(group)
        self._report(group, outcome, n_tried)
        return 1

    def _report(self, group: GroupInCycle, outcome: str, n_tried: int, n_together: int = 1) -> None:
        if self.on_group is _ignore_report:
            return
        keys = tuple([one.key for one in group.records])
        name = group.popped.pod.spec.scheduler_name
        key = group.cycle.state.key
        self.on_group(GroupReport(key, keys, outcome, n_tried, name, n_together))

    def _in_cycle(self, key: str, popped: PodRecord, records: Sequence[PodRecord]) -> GroupInCycle:
        """The group of a key, on the current snapshot."""
        context = self._context
        framework = context.frameworks[records[0].pod.spec.scheduler_name]
        snapshot = context.cache.snapshot()
        states = context.shared.pod_groups
        state = None if states is None else states.get(key)
        assert state is not None, key
        group = snapshot.object_store.find(SchedulingGroup, key)
        cycle = PodGroupCycle(group, key.partition("/")[2], state, snapshot, {})
        return GroupInCycle(popped, records, framework, cycle)

    def _members(self, popped: PodRecord) -> list[PodRecord]:
        """The popped pod and all pending pods of its group that may be attempted, in order."""
        context = self._context
        states = context.shared.pod_groups
        assert states is not None, "pods are scheduled one by one"
        state = states.of(popped.pod)
        records = [popped]
        if state is None:
            return records
        others = [pod for pod in state.unscheduled_pods() if pod.uid != popped.uid]
        records += pop_members(context.queue, others, context.now)
        if len(context.queue.nominator):
            for record in records:
                context.queue.nominator.popped(record.pod)
        return in_order(records, state)

    def _skip(self, record: PodRecord) -> bool:
        """Leave out a pod that is being deleted; True."""
        self._context.record_skip_deleting(record.pod)
        self._context.queue.done(record.uid)
        record.state = PodState.SKIPPED
        return True

    def _attempt(self, group: GroupInCycle) -> tuple[str, int]:
        """Try a group alone and act on the result; returns the outcome, and how many members were
        tried."""
        context, records, rng = self._context, group.records, self._rng
        draws = {} if rng is None else {one.uid: _member_draw(one, rng) for one in records}
        placed = self._runs.place(records, group.framework, group.cycle, draws)
        if placed is not None:
            self._runs.bind([group], placed)
            self._batches.placed_alone()
            result = SCHEDULED_RESULT
            self._write_condition(group.cycle.group, result, group.cycle.state.n_scheduled)
            return result.outcome, len(records)
        result, victims = self._tried(group, draws)
        plugin = group_post_filter(group.framework)
        if victims and group.cycle.group is not None and plugin is not None:
            pods = [one.pod for one in records]
            self._evictions.start_for_group(group.cycle.group, pods, victims, plugin.name)
        # Differs: the original evicts for members of groups not schedulable even then, too;
        # here with `compat` only.
        if result.is_waiting or context.has_defects:
            for member in result.members:
                self._start_evictions(member)
        for place, record in enumerate(records):
            member_result = result.members[place] if place < len(result.members) else None
            self._apply(record, member_result, result, group.framework)
            context.activate(context.shared.to_activate)
        self._write_condition(group.cycle.group, result, group.cycle.state.n_scheduled)
        return result.outcome, len(result.members)

    def _tried(
        self, group: GroupInCycle, draws: Mapping[str, int]
    ) -> tuple[GroupResult, list[Pod]]:
        """Run the group algorithm; its result, and victims for the whole group."""
        framework, cycle = group.framework, group.cycle
        victims: list[Pod] = []
        with Overlay(cycle.snapshot.nodes) as overlay:
            affinity = AffinityNodes(cycle.snapshot.nodes) if self._context.has_defects else None
            attempt = GroupAttempt(group.records, framework, cycle, overlay, draws, affinity)
            result = self._algorithm.run(attempt, has_post_filter=True)
            is_refused = result.status.code == Code.UNSCHEDULABLE
            if framework.gates.workload_aware_preemption and is_refused:
                self._preempt(attempt, result, victims)
        return result, victims

    # Preemption.

    def _preempt(self, attempt: GroupAttempt, result: GroupResult, victims: list[Pod]) -> None:
        """Find victims for the whole group; adds to the status of the group why there are none."""
        refusal = self._preemption_refusal(attempt)
        plugin = group_post_filter(attempt.framework)
        if refusal is None and plugin is not None:
            run = self._algorithm.run

            def try_again() -> str:
                found = run(attempt, has_post_filter=False)
                return "" if found.status.code == Code.SUCCESS else found.status.message

            pods = [record.pod for record in attempt.records]
            trial = PodGroupTrial(pods, attempt.cycle.snapshot, attempt.overlay, try_again, victims)
            try:
                status = plugin.call("pod_group_post_filter", attempt.cycle.group, trial)
            except ContractError as fault:
                victims.clear()
                status = error(str(fault))
            refusal = GroupStatus(status.code, "", status.reasons)
        assert refusal is not None, "without a plugin it is refused"
        if refusal.code == Code.SUCCESS:
            result.is_waiting = True
        elif refusal.is_error:
            result.status = refusal
        else:
            result.status = result.status.with_reason(refusal.message)

    def _preemption_refusal(self, attempt: GroupAttempt) -> GroupStatus | None:
        """Why the group may not preempt; None when it may."""
        if group_post_filter(attempt.framework) is None:
            return GroupStatus(Code.UNSCHEDULABLE, "", (NO_PREEMPTION_PLUGIN,))
        group = attempt.cycle.group
        if group is None:
            name = attempt.cycle.name
            text = f'failed to get pod group object: podgroup.scheduling.k8s.io "{name}" not found'
            return GroupStatus(Code.ERROR, text)
        if group.topology_key is not None:
            return GroupStatus(Code.UNSCHEDULABLE, "", (NOT_WITH_CONSTRAINTS,))
        return None

    def _start_evictions(self, member: MemberResult) -> None:
        decision = member.decision
        if decision.nominated_node and decision.victims:
            self._evictions.start(
                member.record.pod, decision.nominated_node, decision.victims, decision.preempted_by
            )

    # Results.

    def _apply(
        self,
        record: PodRecord,
        member: MemberResult | None,
        result: GroupResult,
        framework: Framework,
    ) -> None:
        """Bind a member, or return it to the queue."""
        status = result.status
        if status.is_error or member is None:
            self._fail_with_group(record, member, status)
        elif member.is_placed and status.code == Code.SUCCESS:
            assert member.decision.state is not None, record.key
            member.decision.state.group_values = None
            self._bindings.begin(record, member.decision, framework)
        elif member.is_placed and result.is_waiting:
            self._failures.attempt_failed(
                record,
                status.message,
                reason=UNSCHEDULABLE,
                refused_by=self._waits_for(framework, result),
                nominated_node=member.node,
            )
        elif member.is_placed or (member.needs_preemption and not result.is_waiting):
            message = self._waiting_text(member, result, framework)
            waits_for = self._waits_for(framework, result)
            self._failures.attempt_failed(
                record, message, reason=UNSCHEDULABLE, refused_by=waits_for
            )
        else:
            self._fail_with_decision(record, member.decision)

    def _waiting_text(self, member: MemberResult, result: GroupResult, framework: Framework) -> str:
        """Why a member with a place is not bound.

        Differs: in the original the text is the same for every group; here with `compat`, and in
        other profiles than `stowplan`.
        """
        if not has_extensions(framework, has_defects=self._context.has_defects):
            return f"{GROUP_UNSCHEDULABLE}, {member.permit}"
        n_placed = sum(bool(one.node) for one in result.members)
        n_members = len(result.members)
        return (
            f"{GROUP_UNSCHEDULABLE}, {n_placed} of {n_members} pods have a node at once "
            f"({member.node} for this one), {member.permit}"
        )

    def _waits_for(self, framework: Framework, result: GroupResult) -> tuple[str, ...]:
        """The plugins whose events wake a member that has a place, while its group has not.

        Differs: in the original no plugin is responsible, so that it is retried after an error
        backoff; here with `compat` only. A mate that is woken takes it along.
        """
        if self._context.has_defects:
            return ()
        if framework.group_permit:
            return (framework.group_permit,)
        return tuple(dict.fromkeys(name for one in result.members for name in one.decision.plugins))

    def _fail_with_group(
        self, record: PodRecord, member: MemberResult | None, status: GroupStatus
    ) -> None:
        """Return a member to the queue for what happened to the group, unless its own attempt
        ended with an error."""
        message = status.message
        if status.is_error and member is not None and member.is_error:
            message = member.decision.message
        reason = SCHEDULER_ERROR if status.is_error else UNSCHEDULABLE
        nominated_node = "" if status.is_error else None
        self._failures.attempt_failed(record, message, reason=reason, nominated_node=nominated_node)

    def _fail_with_decision(self, record: PodRecord, decision: Decision) -> None:
        refusal = decision.refusal or error(decision.message)
        self._failures.attempt_failed(
            record,
            decision.message,
            reason=UNSCHEDULABLE if refusal.is_rejected else SCHEDULER_ERROR,
            refused_by=decision.plugins,
            pending_on=decision.pending,
            nominated_node=decision.nominated_node,
        )

    def _write_condition(
        self, group: SchedulingGroup | None, result: GroupResult, n_scheduled: int
    ) -> None:
        """Write the group's condition where it changes. n_scheduled: members that have a node."""
        if group is None:
            return
        status = result.status
        if status.code == Code.SUCCESS:
            found = SCHEDULED_CONDITION
        else:
            reason = SCHEDULER_ERROR if status.is_error else UNSCHEDULABLE
            message = status.text if status.is_error else status.message
            found = PodGroupCondition(POD_GROUP_SCHEDULED, "False", reason=reason, message=message)
        conditions = group.status.conditions
        before = None
        if conditions:
            before = next((one for one in conditions if one.type == found.type), None)
        if before is not None:
            is_kept = self._context.has_defects or n_scheduled >= max(group.min_count or 1, 1)
            # Differs: in the original a condition that is True stays so for good; here with
            # `compat`, or as long as enough members have a node.
            if before.status == "True" and found.status != "True" and is_kept:
                return
            if (before.status, before.reason, before.message) == (
                found.status,
                found.reason,
                found.message,
            ):
                return
            if before.status == found.status:
                found = replace(found, last_transition_time=before.last_transition_time)
        self._context.outbox.patch_scheduling_group(group, found)


def group_post_filter(framework: Framework) -> RegisteredPlugin | None:
    """The first PostFilter that makes room for whole groups."""
    members = framework.at("postFilter")
    return next((one for one in members if one.calls["pod_group_post_filter"] is not None), None)


def _mixed_names(records: list[PodRecord]) -> tuple[str, str] | None:
    """The scheduler names of the first member and of the first one that has another."""
    first = records[0].pod.spec.scheduler_name
    names = (record.pod.spec.scheduler_name for record in records)
    other = next((name for name in names if name != first), None)
    return None if other is None else (first, other)


def _member_draw(record: PodRecord, rng: np.random.Generator) -> int:
    """Tie-break number of a member."""
    number = draw_tie_break(tie_break_of(record, rng))
    assert number is not None, record.key
    return number


def _ignore_begin() -> None:
    """Default of `on_begin`."""


def _ignore_report(report: GroupReport) -> None:
    """Default of `on_group`."""
