"""A group placed by kernels: all members in one run, which is kept if all of them have a node.
With a topology constraint there is a run for each domain, and one in the best of them.

The result is that of the group algorithm followed by the binding cycles. A group with a member that
does not fit, or that only the walk can decide, is left to the algorithm, as if nothing had been
tried.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stowplan.columns import PodInfo
from stowplan.columns.engine.tie_break import NO_TIE_BREAKS
from stowplan.framework import Framework
from stowplan.framework.deciders.decider import Decider, KernelPlacer
from stowplan.framework.pod_groups.placement_plugins import (
    best_placement,
    run_placement_generate,
)
from stowplan.framework.pod_groups.placements import (
    GroupPlacement,
    PodGroupCycle,
    ProposedPlacement,
)
from stowplan.framework.status import Status
from stowplan.objects.pod import Pod
from stowplan.queue import PodRecord
from stowplan.scheduler.binding.binding_cycles import BindingCycles
from stowplan.scheduler.context import SchedulerContext


class PlacedGroup(msgspec.Struct, frozen=True, eq=False):
    """Members that the columns already count. classes, rows, scores: of each member. annotations:
    by index, what bindings carry."""

    classes: Sequence[Any]
    rows: list[int]
    scores: list[int]
    annotations: Mapping[int, dict[str, str]]


class GroupInCycle(msgspec.Struct, frozen=True, eq=False):
    """A group in its cycle. popped: the member that was popped first. records: all of them, in
    order."""

    popped: PodRecord
    records: Sequence[PodRecord]
    framework: Framework
    cycle: PodGroupCycle


class GroupMembers(msgspec.Struct, frozen=True, eq=False):
    """Members in the order in which they are placed, with their classes. tie_breaks: uint64
    (n_pods,), or empty."""

    pods: Sequence[Pod]
    classes: Sequence[Any]
    tie_breaks: NDArray[np.uint64]


class GroupRuns:
    """Places groups by kernels. decider: has the kernels."""

    def __init__(
        self, context: SchedulerContext, bindings: BindingCycles, decider: Callable[[], Decider]
    ) -> None:
        self._context = context
        self._bindings = bindings
        self._decider = decider

    def place(
        self,
        records: Sequence[PodRecord],
        framework: Framework,
        cycle: PodGroupCycle,
        draws: Mapping[str, int],
    ) -> PlacedGroup | None:
        """Place all members, or none: then the table is as before, and the answer is None."""
        engine = self._decider().engine()
        if engine is None or not self.may_place(records, framework, cycle):
            return None
        classes = self.classes(records, framework, cycle, engine)
        if classes is None:
            return None
        tie_breaks = NO_TIE_BREAKS
        if draws:
            tie_breaks = np.array([draws[record.uid] for record in records], dtype=np.uint64)
        members = GroupMembers([one.pod for one in records], classes, tie_breaks)
        if not framework.gates.topology_aware_workload_scheduling:
            return self._place_all(members, cycle, engine)
        placements = run_placement_generate(framework, cycle.snapshot.nodes.order, cycle)
        if isinstance(placements, Status):
            return None
        if len(placements) == 1 and placements[0].rows is cycle.snapshot.nodes.order:
            return self._place_all(members, cycle, engine)
        return self._place_in_best(members, placements, framework, cycle, engine)

    def _place_all(
        self, members: GroupMembers, cycle: PodGroupCycle, engine: KernelPlacer
    ) -> PlacedGroup | None:
        """Place all members on the rows that are open, or none."""
        run = engine.run(members.pods, members.classes, members.tie_breaks)
        rows = run.place(0, cycle.snapshot)
        if len(rows) < len(members.pods):
            for pod in members.pods[: len(rows)]:
                cycle.snapshot.nodes.remove_pod(pod.uid)
            return None
        return PlacedGroup(members.classes, rows, run.scores.tolist(), run.annotations)

    def _place_in_best(
        self,
        members: GroupMembers,
        placements: Sequence[GroupPlacement],
        framework: Framework,
        cycle: PodGroupCycle,
        engine: KernelPlacer,
    ) -> PlacedGroup | None:
        """Try members of one template on each placement, and place all of them on the best one;
        None where that has no place for some."""
        one, pods = members.classes[0], members.pods
        if any(other is not one for other in members.classes):
            # Those after a member that does not fit may fit.
            return None
        if not all(plugin.in_tree for plugin in framework.at("placementScore")):
            # They might count pods on closed nodes.
            return None
        run = engine.run(pods, members.classes, members.tie_breaks)
        subsets = engine.row_subsets(run, cycle.snapshot)
        trials = None if subsets is None else subsets.trials([one.rows for one in placements])
        if subsets is None or trials is None:
            return None
        if min(len(one.rows) for one in trials) < len(pods) and self._may_preempt(framework, cycle):
            return None
        n_needed = _n_needed(framework, cycle)
        proposed = [
            ProposedPlacement(placement, list(zip(pods, trial.rows, strict=False)), trial.scores)
            for placement, trial in zip(placements, trials, strict=True)
            if len(trial.rows) >= n_needed
        ]
        if not proposed:
            return None
        place = best_placement(framework, proposed, cycle) if len(proposed) > 1 else 0
        if isinstance(place, Status) or len(proposed[place].assignments) < len(pods):
            return None
        best = proposed[place]
        rows = subsets.place(best.placement.rows, cycle.snapshot.nodes)
        if rows is None:
            return None
        return PlacedGroup(members.classes, rows, run.scores.tolist(), run.annotations)

    def may_place(
        self, records: Sequence[PodRecord], framework: Framework, cycle: PodGroupCycle
    ) -> bool:
        """True where the group is scheduled if all members fit, on whatever nodes."""
        if not cycle.snapshot.nominations.is_empty or len(self._context.extenders):
            return False
        if not framework.group_permit:
            return True
        if cycle.group is None:
            return False
        return cycle.state.n_scheduled + len(records) >= (cycle.group.min_count or 0)

    def _may_preempt(self, framework: Framework, cycle: PodGroupCycle) -> bool:
        """True where a member that does not fit may make room for itself: with scheduling
        constraints the plugins that ship do not."""
        constraints = None if cycle.group is None else cycle.group.spec.scheduling_constraints
        if constraints is None or not (self._context.has_defects or constraints.topology):
            return True
        return not all(one.in_tree for one in framework.at("postFilter"))

    def classes(
        self,
        records: Sequence[PodRecord],
        framework: Framework,
        cycle: PodGroupCycle,
        engine: KernelPlacer,
    ) -> list[Any] | None:
        """The classes of the members; None where one has none, or is known not to fit."""
        classes, has_defects = [], self._context.has_defects
        for record in records:
            one = engine.class_of(record.pod, framework)
            if one is None:
                return None
            # Terms of members are seen in part only by the original.
            if has_defects and PodInfo.of(record.pod).footprint.has_affinity:
                return None
            classes.append(one)
        for one in dict.fromkeys(classes):
            if one.refusal_in(cycle.snapshot) is not None:
                return None
        return classes

    def bind(self, groups: Sequence[GroupInCycle], placed: PlacedGroup) -> None:
        """Start the binding of groups whose members are placed, one group after the other. Members
        that would wait at Permit for the ones after them get a nomination, as if they had waited.
        """
        context, names = self._context, self._context.cache.nodes.names
        nodes = [names[row] for row in placed.rows]
        members: list[PodRecord] = []
        announced: list[tuple[PodRecord, str]] = []
        for group in groups:
            records, first = group.records, len(members)
            some = nodes[first : first + len(records)]
            n_waiting = self._waiting_members(group.framework, group.cycle)
            announced += [
                (record, node)
                for record, node in zip(records[:n_waiting], some, strict=False)
                if record.pod.status.nominated_node_name != node
            ]
            group.cycle.state.place_all([one.pod.metadata.uid or one.key for one in records], some)
            members += records
        context.outbox.nominate_all(
            [record.pod for record, _ in announced], [node for _, node in announced]
        )
        self._bindings.begin_run(
            members, list(placed.classes), 0, placed.rows, placed.scores, placed.annotations
        )
        for record, _ in announced:
            record.binding.announced = True
        if len(context.shared.waiting):
            for group in groups:
                self._allow_waiting(group)

    def _allow_waiting(self, group: GroupInCycle) -> None:
        """Let members of earlier cycles that wait at Permit go on."""
        permit, waiting = group.framework.group_permit, self._context.shared.waiting
        if not permit:
            return
        for uid in group.cycle.state.assumed:
            one = waiting.get(uid)
            if one is not None:
                one.allow(permit)

    def _waiting_members(self, framework: Framework, cycle: PodGroupCycle) -> int:
        """Number of members, from the first one on, that are short of `minCount` when their turn
        comes."""
        group = cycle.group
        if group is None or group.min_count is None or not framework.group_permit:
            return 0
        if not framework.gates.nominated_node_name_for_expectation:
            return 0
        return max(0, group.min_count - cycle.state.n_scheduled - 1)


def _n_needed(framework: Framework, cycle: PodGroupCycle) -> int:
    """How many members must have a place for the group to be schedulable."""
    if cycle.group is None or not framework.group_permit:
        return 1
    return max(1, (cycle.group.min_count or 0) - cycle.state.n_scheduled)
