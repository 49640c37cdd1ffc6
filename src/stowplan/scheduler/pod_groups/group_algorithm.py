"""Group algorithm: find nodes for all members of a group on one snapshot, changing nothing.

Members are assumed on an overlay of the node table, one after the other; all of it is undone.

Source: kube-scheduler v1.36, schedule_one_podgroup.go podGroupSchedulingAlgorithm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from stowplan.columns import NodeTable, PodInfo
from stowplan.columns.array_types import Ints
from stowplan.columns.overlay import Overlay
from stowplan.columns.pods.podterms import terms_of
from stowplan.framework import Code, ContractError, CycleState, Framework
from stowplan.framework.deciders.decider import Decider, Decision, MemberTrial
from stowplan.framework.plugin import PermitWait
from stowplan.framework.pod_groups.placement_plugins import best_placement, run_placement_generate
from stowplan.framework.pod_groups.placements import (
    N_ASSUMED,
    PodGroupCycle,
    ProposedPlacement,
)
from stowplan.framework.status import Status, error
from stowplan.objects.pod import Pod
from stowplan.queue import PodRecord
from stowplan.scheduler.context import SchedulerContext
from stowplan.scheduler.pod_groups.group_results import (
    ASKED_TO_WAIT,
    SCHEDULED,
    TO_PREEMPT,
    UNSCHEDULED,
    GroupResult,
    GroupStatus,
    MemberResult,
    refused_on_node,
)
from stowplan.scheduler.pod_groups.member_orders import MemberOrders, has_extensions

Undo = Callable[[], None]


class AffinityNodes:
    """Nodes that have pods with terms of affinity at the start of a cycle.

    Differs: the original looks for terms of existing pods on these only, so that it does not see
    those of a member that is assumed on another node; here with `compat` only.
    """

    def __init__(self, nodes: NodeTable) -> None:
        self._with_terms: set[str] = set()
        self._with_required_anti: set[str] = set()
        for name, pods in zip(nodes.names, nodes.pods, strict=True):
            for info in pods:
                if info.footprint.has_affinity:
                    self._with_terms.add(name)
                    if terms_of(info.pod).required_anti_affinity:
                        self._with_required_anti.add(name)

    def has(self, pod: Pod, node: str) -> bool:
        """True where the terms of a member that is assumed on a node are seen."""
        has_anti = bool(terms_of(pod).required_anti_affinity)
        return node in (self._with_required_anti if has_anti else self._with_terms)


class GroupAttempt(msgspec.Struct, frozen=True, eq=False):
    """One group in a cycle. records: its members, in the order in which they are tried. draws:
    tie-break number of each member by uid, none where the first of ties is taken. affinity: None:
    all terms of affinity of assumed members count."""

    records: Sequence[PodRecord]
    framework: Framework
    cycle: PodGroupCycle
    overlay: Overlay
    draws: Mapping[str, int]
    affinity: AffinityNodes | None = None

    def visible(self, pod: Pod, node: str) -> PodInfo:
        """An assumed member as the members after it see it on its node."""
        info = PodInfo.of(pod)
        if self.affinity is None or not info.footprint.has_affinity:
            return info
        is_seen = self.affinity.has(pod, node)
        return PodInfo(pod, msgspec.structs.replace(info.footprint, has_affinity=is_seen))


class GroupAlgorithm:
    """Tries groups. decider: chooses nodes."""

    def __init__(self, context: SchedulerContext, decider: Callable[[], Decider]) -> None:
        self._context = context
        self._decider = decider

    def run(self, group: GroupAttempt, *, has_post_filter: bool) -> GroupResult:
        """Try the group on its placements, or on all nodes. has_post_filter: False asks only
        whether it is schedulable."""
        if group.framework.gates.topology_aware_workload_scheduling:
            return self._run_placements(group, has_post_filter=has_post_filter)
        return self._run_within(group, None, has_post_filter=has_post_filter)

    def _run_placements(self, group: GroupAttempt, *, has_post_filter: bool) -> GroupResult:
        rows = group.cycle.snapshot.nodes.order
        placements = run_placement_generate(group.framework, rows, group.cycle)
        if isinstance(placements, Status):
            return GroupResult([], GroupStatus(placements.code, "", placements.reasons))
        first: GroupResult | None = None
        found: list[tuple[ProposedPlacement, GroupResult]] = []
        for placement in placements:
            result = self._run_within(group, placement.rows, has_post_filter=has_post_filter)
            if result.status.is_error:
                return result
            first = first or result
            if result.status.code == Code.SUCCESS or result.is_waiting:
                row = group.cycle.snapshot.nodes.row
                taken = [(one.record.pod, row(one.node)) for one in result.members if one.node]
                found.append((ProposedPlacement(placement, taken), result))
        if not found:
            assert first is not None, "no placements are refused before"
            text = (
                f"0/{len(placements)} placements are available, "
                f"first placement status: {first.status.text}"
            )
            first.status = GroupStatus(Code.UNSCHEDULABLE, "", (text,))
            return first
        if len(found) == 1:
            return found[0][1]
        best = best_placement(group.framework, [one for one, _ in found], group.cycle)
        if isinstance(best, Status):
            return GroupResult([], GroupStatus(best.code, "", best.reasons))
        return found[best][1]

    def _run_within(
        self, group: GroupAttempt, rows: Ints | None, *, has_post_filter: bool
    ) -> GroupResult:
        """Try the members on these rows, in their order, and in others where that fails."""
        result = self._run_in_order(group, rows, has_post_filter=has_post_filter)
        if not has_extensions(group.framework, has_defects=self._context.has_defects):
            return result
        orders, again = MemberOrders(group.records), result
        while again.status.code == Code.UNSCHEDULABLE and not again.is_waiting:
            records = next(orders.after(again), None)
            if records is None:
                break
            # Only whether they fit is new; what preemption found is kept.
            other = msgspec.structs.replace(group, records=records)
            again = self._run_in_order(other, rows, has_post_filter=False)
            if again.status.code == Code.SUCCESS:
                found = {one.record.uid: one for one in again.members}
                again.members = [found[record.uid] for record in group.records]
                return again
        return result

    def _run_in_order(
        self, group: GroupAttempt, rows: Ints | None, *, has_post_filter: bool
    ) -> GroupResult:
        """Try the members in order on these rows."""
        result = GroupResult([], UNSCHEDULED)
        undo: list[Undo] = []
        needs_preemption = False
        for record in group.records:
            draw = group.draws.get(record.uid)
            trial = MemberTrial(rows, draw, has_post_filter, group.cycle.values)
            member = self._try(group, record, trial, undo)
            result.members.append(member)
            if not member.node:
                if not member.is_error:
                    continue
                assert member.decision.refusal is not None
                text = f"failed to schedule other pod from a pod group: {member.decision.message}"
                result.status, result.is_waiting = GroupStatus(Code.ERROR, text), False
                break
            needs_preemption |= member.needs_preemption
            if member.is_allowed:
                result.status = TO_PREEMPT if needs_preemption else SCHEDULED
                result.is_waiting = needs_preemption
        for step in reversed(undo):
            step()
        return result

    def _try(
        self, group: GroupAttempt, record: PodRecord, trial: MemberTrial, undo: list[Undo]
    ) -> MemberResult:
        """Choose the node of a member and assume it there."""
        pod, framework = record.pod, group.framework
        try:
            decision = self._decider().decide_member(pod, group.cycle.snapshot, framework, trial)
        except ContractError as fault:
            decision = Decision(refusal=error(str(fault)), message=str(fault), nominated_node="")
        self._context.write_requested(pod.uid)
        node = decision.node_name or decision.nominated_node or ""
        if not node:
            return MemberResult(record, decision)
        assert decision.state is not None, "members keep their state"
        mark = group.overlay.mark()
        if not self._context.has_defects:
            # Differs: the original leaves victims where they are, so that a later member finds them
            # again, and evicts them again; here with `compat` only.
            for victim in decision.victims:
                group.overlay.take(victim.uid, group.cycle.snapshot.nodes.row(node))
        back = self._assume(group, record, node, decision.state, mark)
        try:
            answer = framework.run_reserve(pod, node, decision.state)
            permit = (
                framework.run_permit(pod, node, decision.state) if answer.is_success else answer
            )
        except ContractError as fault:
            permit = error(str(fault))
        self._context.activate(self._context.shared.to_activate)
        if isinstance(permit, Status) and not permit.is_success:
            back()
            return MemberResult(record, refused_on_node(permit))
        undo.append(back)
        needs_preemption = decision.node_name == ""
        if isinstance(permit, Status):
            return MemberResult(record, decision, node, "", True, needs_preemption)
        return MemberResult(record, decision, node, _waits_for(permit), False, needs_preemption)

    def _assume(
        self, group: GroupAttempt, record: PodRecord, node: str, state: CycleState, mark: int
    ) -> Undo:
        """Count a member on a node for the rest of the cycle. mark: of the overlay, before its
        victims were taken from it."""
        pod, overlay, members = record.pod, group.overlay, group.cycle.state
        nominator = self._context.queue.nominator
        overlay.place(group.visible(pod, node), group.cycle.snapshot.nodes.row(node))
        members.place(pod.uid, node)
        values = group.cycle.values
        values[N_ASSUMED] = values.get(N_ASSUMED, 0) + 1
        nominator.drop(pod.uid)

        def back() -> None:
            group.framework.run_unreserve(pod, node, state)
            overlay.rollback(mark)
            members.unplace(pod.uid)
            values[N_ASSUMED] -= 1
            if pod.status.nominated_node_name:
                nominator.nominate(pod, pod.status.nominated_node_name)
                nominator.popped(pod)

        return back


def _waits_for(permit: Mapping[str, PermitWait]) -> str:
    """The text of Permit plugins that wait: that of the last one counts."""
    last = list(permit.values())[-1].reason
    return f"{last}, {ASKED_TO_WAIT}" if last else ASKED_TO_WAIT
