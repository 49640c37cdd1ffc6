"""DefaultPreemption: when no node fits, find the node where eviction costs least.

A dry run per node that refused for a reason that evictions can change: remove every pod of lower
priority, check whether the pod fits, then reprieve as many as possible, the important ones first
and those that a disruption budget protects before all. One of the candidate nodes is nominated; the
pod is placed there by a later attempt, when its victims are gone.

Source: kube-scheduler v1.36, plugins/defaultpreemption and framework/preemption.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Hashable, Iterator
from functools import lru_cache
from itertools import chain

import numpy as np

from stowplan.columns import PodInfo
from stowplan.columns.array_types import Ints
from stowplan.columns.nodetable import NodeTable
from stowplan.columns.pods.table_watcher import TableWatcher
from stowplan.framework import (
    OK,
    Code,
    CycleState,
    Framework,
    Handle,
    PostFilterResult,
    Problem,
    Snapshot,
    Status,
    error,
    unresolvable,
    unschedulable,
)
from stowplan.framework.clusterevents import POD, QUEUE_SKIP, Action, RegisteredEvents, on
from stowplan.framework.deciders.extender_review import ExtenderReview, PreemptionCandidate
from stowplan.framework.deciders.preemptor_search import PreemptorSearch
from stowplan.framework.diagnosis import Diagnosis
from stowplan.framework.node_to_status import NodeToStatus
from stowplan.framework.plugin import Plugin
from stowplan.framework.pod_groups.placements import PodGroupPostFilterPlugin, PodGroupTrial
from stowplan.framework.pod_groups.pod_group_states import group_key_of
from stowplan.objects.pod import Pod
from stowplan.objects.scheduling_group import SchedulingGroup
from stowplan.objects.workload import PodDisruptionBudget
from stowplan.plugins.args_base import PluginArgs
from stowplan.plugins.preemption.dry_run_cache import DryRunCache
from stowplan.plugins.preemption.dry_runs import (
    NO_VICTIMS,
    DryRunResults,
    PreemptionReport,
    candidate_costs,
)
from stowplan.plugins.preemption.group_preemption import find_group_victims
from stowplan.plugins.preemption.kept_candidates import DryRuns, search_of
from stowplan.plugins.preemption.pod_groups import PreemptedPodGroups
from stowplan.plugins.preemption.ranked_pods import RankedPods
from stowplan.plugins.preemption.vector_dry_run import VectorDryRun
from stowplan.plugins.preemption.victim_selector import VictimSelector

__all__ = [
    "NO_VICTIMS",
    "DefaultPreemption",
    "DefaultPreemptionArgs",
    "PreemptionCandidate",
    "PreemptionReport",
]

NOT_ELIGIBLE_POLICY_NEVER = "not eligible due to preemptionPolicy=Never."
NOT_ELIGIBLE_TERMINATING = "not eligible due to a terminating pod on the nominated node."
WAITING_FOR_PREEMPTION = unresolvable("waiting for the preemption for this pod to be finished")
WAITING_FOR_GROUP_PREEMPTION = unresolvable(
    "waiting for the preemption for this pod group to be finished"
)
NOT_HELPFUL = "Preemption is not helpful for scheduling"
NO_CANDIDATE = "no candidate node for preemption"
CACHED_REFUSALS_MAX = 4096
BREAKS_GANGS = "pods that are needed by their gangs would have to go"
MESSAGE_PREFIX = "preemption: "

PERCENTAGE_DEFAULT = 10
ABSOLUTE_DEFAULT = 100
VECTOR_DRY_RUN_MIN = 6
"""With this many rows or more, vectorized dry runs cost less than one by one."""


NO_PODS = float("inf")


class AssignedPodPriorities(TableWatcher):
    """Number of pods on nodes by priority; updated by delta beside a table.

    lowest: the lowest priority of a pod on any node, NO_PODS where there is no pod.
    """

    def __init__(self, table: NodeTable) -> None:
        super().__init__(table)
        self._counts: dict[int, int] = {}
        self.lowest: float = NO_PODS

    def begin(self) -> None:
        """Count the pods of the table and follow its changes."""
        pods = chain.from_iterable(self._table.pods)
        self._counts = dict(Counter([info.footprint.priority for info in pods]))
        self.lowest = min(self._counts, default=NO_PODS)
        self._table.watch_changes(self)

    def pod_added(self, row: int, info: PodInfo) -> None:
        """A pod was added to a row."""
        priority = info.pod.priority
        self._counts[priority] = self._counts.get(priority, 0) + 1
        if priority < self.lowest:
            self.lowest = priority

    def pod_removed(self, row: int, info: PodInfo) -> None:
        """A pod was removed from a row."""
        priority = info.pod.priority
        self._counts[priority] -= 1
        if not self._counts[priority]:
            del self._counts[priority]
            if priority == self.lowest:
                self.lowest = min(self._counts, default=NO_PODS)


class DefaultPreemptionArgs(PluginArgs, frozen=True):
    """How many candidate nodes are searched.

    Differs: the original searches 10 % of the nodes and at least 100, from a random start. Here
    every node is tried, so the outcome is the best and the same every time; both numbers are
    honoured when a configuration sets either of them.
    """

    min_candidate_nodes_percentage: int | None = None
    min_candidate_nodes_absolute: int | None = None

    def problems(self, path: str) -> Iterator[Problem]:
        """Problems of the arguments."""
        percentage, absolute = (
            self.min_candidate_nodes_percentage,
            self.min_candidate_nodes_absolute,
        )
        if percentage is not None and not 0 <= percentage <= 100:
            yield Problem(f"{path}.minCandidateNodesPercentage", str(percentage), "0 to 100")
        if absolute is not None and absolute < 0:
            yield Problem(f"{path}.minCandidateNodesAbsolute", str(absolute), "0 or more")
        if percentage == 0 and absolute == 0:
            yield Problem(
                path,
                "0 for both",
                "minCandidateNodesPercentage or minCandidateNodesAbsolute above 0",
            )

    def candidates_wanted(self, n_nodes: int) -> int:
        """Number of candidates that ends the search among `n_nodes` potential nodes."""
        percentage, absolute = (
            self.min_candidate_nodes_percentage,
            self.min_candidate_nodes_absolute,
        )
        if percentage is None and absolute is None:
            return n_nodes
        share = n_nodes * (PERCENTAGE_DEFAULT if percentage is None else percentage) // 100
        return min(n_nodes, max(share, ABSOLUTE_DEFAULT if absolute is None else absolute))


class DefaultPreemption(PodGroupPostFilterPlugin):
    """PostFilter: make room by evicting pods of lower priority."""

    name = "DefaultPreemption"
    declaration = Plugin(
        name=name, reads=(PodDisruptionBudget,), repeatable=True, gates_preempting=True
    )
    Args = DefaultPreemptionArgs

    def __init__(self, args: DefaultPreemptionArgs, handle: Handle) -> None:
        self.args = args
        self.handle = handle

    def pre_enqueue(self, pod: Pod) -> Status:
        """Keep the pod out of the queue while its victims, or those of its group, are
        terminating."""
        shared = self.handle.shared
        if not shared.preempting:
            return OK
        if pod.spec.scheduling_group is not None and self.handle.gates.workload_aware_preemption:
            group = shared.object_store.find(SchedulingGroup, group_key_of(pod))
            is_preempting = group is not None and group.uid in shared.preempting
            return WAITING_FOR_GROUP_PREEMPTION if is_preempting else OK
        return WAITING_FOR_PREEMPTION if pod.uid in shared.preempting else OK

    def pod_group_post_filter(self, group: SchedulingGroup, trial: PodGroupTrial) -> Status:
        """Find the pods and groups whose eviction makes room for a group."""
        has_defects = self.handle.shared.has_group_defects
        return find_group_victims(group, trial, has_defects=has_defects)

    def events_to_register(self) -> RegisteredEvents:
        """A deleted pod may end a preemption, but never turns one of these refusals."""
        if not self.handle.gates.scheduler_async_preemption:
            return ()
        return (on(POD, Action.DELETE, lambda pod, old, new: QUEUE_SKIP),)

    def may_help(self, pod: Pod, snapshot: Snapshot) -> bool:
        """False where no node has a pod of lower priority. `post_filter` then refuses for reasons
        that the filters gave."""
        return AssignedPodPriorities.of(snapshot.nodes).lowest < pod.priority

    def post_filter(
        self, pod: Pod, snapshot: Snapshot, diagnosis: Diagnosis, state: CycleState
    ) -> PostFilterResult:
        """Nominate the node where eviction costs least.

        Extenders that take part in preemption are called with the candidates first.
        """
        review = ExtenderReview.of(state)
        if review is not None and review.answer is not None:
            return self._reviewed(review.answer, snapshot)
        if pod.spec.scheduling_group is not None:
            refusal = self._group_refusal(pod, snapshot)
            if refusal:
                return PostFilterResult(unschedulable(MESSAGE_PREFIX + refusal))
        refusal = ineligible_reason(pod, snapshot, diagnosis)
        if refusal:
            return PostFilterResult(unschedulable(MESSAGE_PREFIX + refusal))
        rows = diagnosis.rows_with(Code.UNSCHEDULABLE)
        if not self.may_help(pod, snapshot):
            state.write(self.name, PreemptionReport(None, rows, snapshot))
            return _no_lower_priority_status(rows.shape[0], snapshot.nodes.n_nodes)
        runs, tried = self.dry_runs(pod, snapshot, rows, state)
        state.write(self.name, PreemptionReport(runs, tried, snapshot))
        helped = runs.candidates_in(tried)
        if helped.shape[0] == 0:
            return self._not_helpful_status(runs, tried, snapshot)
        pod_groups = PreemptedPodGroups(pod, snapshot)
        if pod_groups:
            all_helped, helped = (
                helped,
                _rows_keeping_pod_groups(pod_groups, runs, helped, snapshot),
            )
            if helped.shape[0] == 0:
                return self._evict_whole_pod_groups(
                    pod_groups, runs, all_helped, pod, snapshot, state
                )
        if review is not None:
            names, rank = snapshot.nodes.names, snapshot.nodes.rank
            rows = helped[np.argsort(rank[helped])]
            review.offered = tuple(runs.candidate_of(row, names[row]) for row in rows.tolist())
            return PostFilterResult(Status(Code.WAIT))
        best = runs.cheapest(helped)
        # Differs: the original draws among equally good nodes by the order of a Go map.
        row = int(best[np.argmin(snapshot.nodes.rank[best])])
        chosen = runs.candidate_of(row, snapshot.nodes.names[row])
        return PostFilterResult(OK, chosen.node_name, chosen.victims)

    def _group_refusal(self, pod: Pod, snapshot: Snapshot) -> str:
        """Why a member of a group may not preempt for itself, "" when it may.

        Differs: in the original an empty `schedulingConstraints` is a reason, too; here with
        `compat` only.
        """
        gates = self.handle.gates
        if gates.topology_aware_workload_scheduling:
            group = snapshot.object_store.find(SchedulingGroup, group_key_of(pod))
            if group is None:
                return "pod group for pod not found"
            constraints = group.spec.scheduling_constraints
            has_defects = self.handle.shared.has_group_defects
            if constraints is not None and (has_defects or constraints.topology):
                return "not eligible due to placement-based pod group scheduling limitation"
        if gates.workload_aware_preemption:
            return "not eligible due to workload aware preemption enabled"
        return ""

    def _evict_whole_pod_groups(
        self,
        pod_groups: PreemptedPodGroups,
        runs: DryRunResults,
        rows: Ints,
        pod: Pod,
        snapshot: Snapshot,
        state: CycleState,
    ) -> PostFilterResult:
        """The best node where every candidate breaks up a gang: other pods are evicted in place of
        its pods, or if that does not help all of its pods.

        rows: the candidates.

        Differs: the original does not know of gangs, and evicts any pod of lower priority.
        """
        names, rank = snapshot.nodes.names, snapshot.nodes.rank
        budgets = list(snapshot.object_store.all(PodDisruptionBudget))
        spared, whole = [], []
        for row in rows.tolist():
            candidate = runs.candidate_of(row, names[row])
            keep = pod_groups.protected_uids(pod_groups.below_min_member(candidate))
            trial = VictimSelector(pod, snapshot, state, self.handle.framework, budgets, keep)
            found = trial.at(row)
            if isinstance(found, PreemptionCandidate) and not pod_groups.below_min_member(found):
                spared.append(((*candidate_costs(found), int(rank[row])), found))
            all_of_it = pod_groups.whole(candidate)
            if all_of_it is not None:
                n_more = len(all_of_it.victims) - len(candidate.victims)
                whole.append(((n_more, *candidate_costs(candidate), int(rank[row])), all_of_it))
        chosen = spared or whole
        if not chosen:
            return PostFilterResult(unschedulable(MESSAGE_PREFIX + BREAKS_GANGS), nominated_node="")
        best = min(chosen, key=lambda one: one[0])[1]
        return PostFilterResult(OK, best.node_name, best.victims)

    def _reviewed(
        self, answer: tuple[PreemptionCandidate, ...] | Status, snapshot: Snapshot
    ) -> PostFilterResult:
        """The best of the candidates that extenders accepted."""
        if isinstance(answer, Status):
            return PostFilterResult(error(MESSAGE_PREFIX + answer.message))
        if not answer:
            return PostFilterResult(unschedulable(MESSAGE_PREFIX + NO_CANDIDATE))
        nodes = snapshot.nodes
        rank = {one.node_name: int(nodes.rank[nodes.row(one.node_name)]) for one in answer}
        best = min(answer, key=lambda one: (*candidate_costs(one), rank[one.node_name]))
        return PostFilterResult(OK, best.node_name, best.victims)

    def _not_helpful_status(
        self, runs: DryRunResults, rows: Ints, snapshot: Snapshot
    ) -> PostFilterResult:
        """The refusal when eviction helps nowhere: the refusals of the dry runs by node."""
        diagnosis = Diagnosis(snapshot.nodes.n_nodes, unresolvable(NOT_HELPFUL))
        diagnosis.verdicts = verdicts = runs.refusals(rows)
        if verdicts.errors:
            # Differs: in the snapshot's order; the original's is that of its workers.
            ordered = rows[np.argsort(snapshot.nodes.rank[rows])].tolist()
            statuses = dict.fromkeys(runs.status_of(row) for row in ordered)
            texts = [status.message for status in statuses if not status.is_rejected]
            text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
            return PostFilterResult(error(MESSAGE_PREFIX + text))
        text = diagnosis.text()
        return PostFilterResult(unschedulable(MESSAGE_PREFIX + text), nominated_node="")

    def dry_runs(
        self, pod: Pod, snapshot: Snapshot, rows: Ints, state: CycleState
    ) -> tuple[DryRunResults, Ints]:
        """Dry-run evictions on `rows` until enough candidates are found: (outcomes, tried rows)."""
        wanted = self.args.candidates_wanted(rows.shape[0])
        if wanted < rows.shape[0]:
            ordered = rows[np.argsort(snapshot.nodes.rank[rows])]
            start = zlib.crc32(pod.uid.encode()) % rows.shape[0]
            rows = np.roll(ordered, -start)
        key = self.handle.framework.row_key(pod, state)
        if key is None:
            return self._dry_run_per_node(pod, snapshot, rows, state, wanted)
        if wanted == rows.shape[0]:
            return self._cached_dry_runs(key, pod, snapshot, rows, state), rows
        runs = self._cached_dry_runs(key, pod, snapshot, np.sort(rows), state)
        return runs, runs.enough(rows, wanted)

    def preemptor_search(
        self, pod: Pod, snapshot: Snapshot, framework: Framework, state: CycleState
    ) -> PreemptorSearch | None:
        """See `SearchesForPreemptors`. None also where gangs may lose pods, and for a pod that may
        not preempt for itself."""
        spec, n_nodes = pod.spec, snapshot.nodes.n_nodes
        if (
            type(self) is not DefaultPreemption
            or spec.scheduling_group is not None
            or spec.preemption_policy == "Never"
            or self.args.candidates_wanted(n_nodes) != n_nodes
        ):
            return None

        def dry_runs(key: Hashable) -> DryRuns:
            return lambda *given: self._cached_dry_runs(key, *given)

        pods = DryRunCache.of(snapshot.nodes).pods
        return search_of(pod, snapshot, framework, state, pods, dry_runs)

    def _dry_run_per_node(
        self, pod: Pod, snapshot: Snapshot, rows: Ints, state: CycleState, wanted: int
    ) -> tuple[DryRunResults, Ints]:
        """Dry runs that are valid for this attempt only."""
        budgets = list(snapshot.object_store.all(PodDisruptionBudget))
        trial = VictimSelector(pod, snapshot, state, self.handle.framework, budgets)
        runs = DryRunResults(RankedPods())
        runs.make_room(snapshot.nodes.n_nodes)
        n_candidates = n_free = 0
        for n_tried, row in enumerate(rows.tolist(), 1):
            found = trial.at(row)
            runs.put(row, found)
            if isinstance(found, PreemptionCandidate):
                n_candidates += 1
                n_free += found.pdb_violations == 0
                if n_free and n_candidates >= wanted:
                    return runs, rows[:n_tried]
        return runs, rows

    def _cached_dry_runs(
        self, key: Hashable, pod: Pod, snapshot: Snapshot, rows: Ints, state: CycleState
    ) -> DryRunResults:
        """Dry runs that are cached per class, up to date on `rows` (ascending) for this pod."""
        store = DryRunCache.of(snapshot.nodes)
        kept = store.of_class(key, snapshot, rows)
        # A pod does not count itself where it is nominated.
        own = snapshot.nodes.row(snapshot.nominations.node_of(pod.uid))
        stale = kept.stale(rows, snapshot, store.budgets, own)
        trial = VictimSelector(pod, snapshot, state, self.handle.framework, store.budgets.budgets)
        is_resource_only = trial.is_resource_only(stale)
        for row in stale[~is_resource_only].tolist():
            kept.runs.put(row, trial.at(row))
        resource_only = stale[is_resource_only]
        if resource_only.shape[0] >= VECTOR_DRY_RUN_MIN:
            arithmetic, others = (
                VectorDryRun(trial, store.budgets),
                resource_only[resource_only != own],
            )
            if arithmetic.is_applicable(others, kept.runs.ranked):
                arithmetic.run(others, kept.runs)
                resource_only = resource_only[resource_only == own]
        for row in resource_only.tolist():
            kept.runs.put(row, trial.select_resource_only(row))
        kept.settle(stale, own)
        return kept.runs


@lru_cache(CACHED_REFUSALS_MAX)
def _no_lower_priority_status(n_tried: int, n_nodes: int) -> PostFilterResult:
    """The refusal when no node has a pod of lower priority.

    n_tried: nodes that lack resources; on the others eviction would not help anyway.
    """
    diagnosis = Diagnosis(n_nodes, unresolvable(NOT_HELPFUL))
    rows = np.arange(n_tried)
    diagnosis.verdicts = NodeToStatus.given(rows, (NO_VICTIMS,) * n_tried)
    text = MESSAGE_PREFIX + diagnosis.text()
    return PostFilterResult(unschedulable(text), nominated_node="")


def _rows_keeping_pod_groups(
    pod_groups: PreemptedPodGroups, runs: DryRunResults, rows: Ints, snapshot: Snapshot
) -> Ints:
    """int64: those of the candidate `rows` that leave every gang its minimum of members."""
    names = snapshot.nodes.names
    with_members = np.isin(rows, pod_groups.rows())
    safe = ~with_members
    for place in np.flatnonzero(with_members).tolist():
        row = int(rows[place])
        safe[place] = not pod_groups.below_min_member(runs.candidate_of(row, names[row]))
    return rows[safe]


def ineligible_reason(pod: Pod, snapshot: Snapshot, diagnosis: Diagnosis) -> str:
    """Why the pod may not preempt; "" when it may."""
    if pod.spec.preemption_policy == "Never":
        return NOT_ELIGIBLE_POLICY_NEVER
    row = snapshot.nodes.row(pod.status.nominated_node_name)
    if row < 0 or diagnosis.status_of(row).code == Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
        return ""
    for info in snapshot.nodes.pods[row]:
        if info.pod.priority < pod.priority and is_terminating_by_preemption(info.pod):
            return NOT_ELIGIBLE_TERMINATING
    return ""


def is_terminating_by_preemption(pod: Pod) -> bool:
    """True for a victim of an earlier preemption that is still terminating."""
    if pod.metadata.deletion_timestamp is None:
        return False
    condition = next((c for c in pod.status.conditions if c.type == "DisruptionTarget"), None)
    if condition is None:
        return False
    return condition.status == "True" and condition.reason == "PreemptionByScheduler"
