"""Group batches: groups at the head of the queue that one kernel call places, one after the other.

The result is that of a cycle for each of them. A batch therefore takes only groups of which all
members are ready, and ends before the first group that has no place for all of them: its members,
and those of the groups after it, go back to where they were in the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stowplan.columns.engine.tie_break import NO_TIE_BREAKS
from stowplan.framework.deciders.decider import Decider, KernelPlacer
from stowplan.framework.pod_groups.placements import PodGroupCycle
from stowplan.framework.pod_groups.pod_group_states import PodGroupState
from stowplan.framework.snapshot import Snapshot
from stowplan.objects.scheduling_group import SchedulingGroup
from stowplan.queue import PodRecord
from stowplan.queue.heap import HeapItem
from stowplan.queue.member_passages import pop_active, undo_pop_active
from stowplan.queue.pod_record import PodState
from stowplan.scheduler.context import SchedulerContext
from stowplan.scheduler.pod_groups.group_run import GroupInCycle, GroupRuns, PlacedGroup
from stowplan.scheduler.pod_groups.member_orders import in_order
from stowplan.scheduler.tie_breaks import TieBreaks

BATCH_PODS = 1000
"""A batch with so many pods takes no more groups."""
GROUPS_MAX = 512

_ACTIVE = PodState.ACTIVE


class GroupBatches:
    """Places batches of groups. decider: has the kernels. rng: breaks ties; None takes the first of
    them."""

    def __init__(
        self,
        context: SchedulerContext,
        runs: GroupRuns,
        decider: Callable[[], Decider],
        rng: np.random.Generator | None,
    ) -> None:
        self._context = context
        self._runs = runs
        self._decider = decider
        self._rng = rng
        # The latest batch that ended early tells how many groups may be worth taking.
        self._n_next = GROUPS_MAX

    def run(self, first: GroupInCycle, n_max: int) -> list[GroupInCycle]:
        """Place a group, whose members are in flight, with at most `n_max - 1` that follow it, and
        start their binding; those that were placed. Without any of them nothing has changed."""
        context, engine = self._context, self._decider().engine()
        n_max = min(n_max, self._n_next)
        if engine is None or n_max < 2 or not self._may_follow(first):
            return []
        groups, snapshot = [first], first.cycle.snapshot
        classes: list[Any] = []
        items: list[list[HeapItem]] = []
        n_pods = len(first.records)
        while len(groups) < n_max and n_pods < BATCH_PODS:
            group = self._next(snapshot)
            if group is not None and not classes:
                # Not asked for before, since a group that nothing follows is decided alone.
                classes = self._classes(first, engine)
            of_group = self._classes(group, engine) if classes and group is not None else []
            if group is None or not of_group:
                break
            others = [one for one in group.records if one is not group.popped]
            items.append(pop_active(context.queue, [group.popped, *others]))
            groups.append(group)
            classes += of_group
            n_pods += len(group.records)
        if len(groups) < 2:
            return []
        n_placed = self._place(groups, classes, engine)
        if n_placed == len(groups):
            self._n_next = min(2 * self._n_next, GROUPS_MAX)
        else:
            self._n_next = max(n_placed, 1)
            left = items[max(n_placed - 1, 0) :]
            undo_pop_active(context.queue, [item for some in left for item in some])
        return groups[:n_placed]

    def _place(
        self, groups: Sequence[GroupInCycle], classes: Sequence[Any], engine: KernelPlacer
    ) -> int:
        """Place the groups and start their binding up to the first that has no place for all of its
        members; returns how many."""
        snapshot = groups[0].cycle.snapshot
        records = [one for group in groups for one in group.records]
        tie_breaks = GroupTieBreaks(groups, self._rng)
        run = engine.run([one.pod for one in records], classes, tie_breaks.numbers)
        rows = run.place(0, snapshot)
        n_groups = n_pods = 0
        for group in groups:
            if n_pods + len(group.records) > len(rows):
                break
            n_groups, n_pods = n_groups + 1, n_pods + len(group.records)
        for record in records[n_pods : len(rows)]:
            snapshot.nodes.remove_pod(record.uid)
        tie_breaks.settle(n_pods)
        if n_groups:
            scores: list[int] = run.scores[:n_pods].tolist()
            placed = PlacedGroup(classes[:n_pods], rows[:n_pods], scores, run.annotations)
            self._runs.bind(groups[:n_groups], placed)
        return n_groups

    def placed_alone(self) -> None:
        """A group of its own was placed by a kernel: those after it may be, too."""
        self._n_next = min(2 * self._n_next, GROUPS_MAX)

    def _may_follow(self, first: GroupInCycle) -> bool:
        """True where nothing that happens between the cycles of groups matters to them."""
        shared = self._context.shared
        return (
            not first.framework.gates.topology_aware_workload_scheduling
            and not len(shared.waiting)
            and not shared.has_pending_requests
        )

    def _classes(self, group: GroupInCycle, engine: KernelPlacer) -> list[Any]:
        """The classes of the members; none where the group has to be decided alone."""
        if not self._runs.may_place(group.records, group.framework, group.cycle):
            return []
        return self._runs.classes(group.records, group.framework, group.cycle, engine) or []

    def _next(self, snapshot: Snapshot) -> GroupInCycle | None:
        """The group of the next pod; None where that has none, or where a member is not ready."""
        context = self._context
        states = context.shared.pod_groups
        head = context.queue.active.peek()
        if head is None or states is None or head.pod.spec.scheduling_group is None:
            return None
        framework = context.frameworks[head.pod.spec.scheduler_name]
        state = states.of(head.pod)
        if state is None or framework.gates.topology_aware_workload_scheduling:
            return None
        records = self._ready(head, state)
        if records is None:
            return None
        group = context.shared.object_store.find(SchedulingGroup, state.key)
        name = state.key.partition("/")[2]
        cycle = PodGroupCycle(group, name, state, snapshot, {})
        return GroupInCycle(head, records, framework, cycle)

    def _ready(self, head: PodRecord, state: PodGroupState) -> list[PodRecord] | None:
        """The members without a node, in the order of a cycle; None where one of them is not in the
        active queue."""
        of_uid, queue = self._context.table.records, self._context.queue
        spec, entered, arrived = head.pod.spec, head.initial_attempt, state.arrived
        is_ordered = len(state.unscheduled) == len(state.pods)
        uids = state.pods if is_ordered else state.unscheduled
        if head.uid not in uids or queue.in_flight.has_any(uids):
            return None
        records: list[PodRecord] = []
        for uid in uids:
            record = of_uid.get(uid)
            if record is None or record.state is not _ACTIVE:
                return None
            pod = record.pod
            if pod.metadata.deletion_timestamp is not None:
                return None
            if pod.spec is not spec:
                if pod.spec.scheduler_name != spec.scheduler_name:
                    return None
                is_ordered = False
            elif record.initial_attempt != entered or arrived[uid] != entered:
                is_ordered = False
            records.append(record)
        # Those that are alike and have come at one time are in the order of their arrival.
        return records if is_ordered else in_order(records, state)


class GroupTieBreaks:
    """Tie-break numbers of the members of groups, as their cycles draw them: of each group the
    first one for the member that was popped first. numbers: uint64, of the members in order; empty
    without an rng."""

    def __init__(self, groups: Sequence[GroupInCycle], rng: np.random.Generator | None) -> None:
        self.numbers: NDArray[np.uint64] = NO_TIE_BREAKS
        self._of_entries: TieBreaks | None = None
        if rng is None:
            return
        entries: list[PodRecord] = []
        places: list[int] = []
        for group in groups:
            first = len(entries)
            entries.append(group.popped)
            for record in group.records:
                if record is group.popped:
                    places.append(first)
                else:
                    places.append(len(entries))
                    entries.append(record)
        self._of_entries = TieBreaks(entries, rng)
        self.numbers = self._of_entries.numbers[places]

    def settle(self, n_tried: int) -> None:
        """Keep the numbers of the first members, which are those of whole groups."""
        if self._of_entries is not None:
            self._of_entries.settle(n_tried)
