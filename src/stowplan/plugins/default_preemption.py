"""DefaultPreemption: when no node fits, find the node where evicting least makes room.

A dry run per node that refused for a reason that evictions can change: take away every pod of
lower priority, see whether the pod fits, then give back as many as possible, the important ones
first and those that a disruption budget protects before all. Among the nodes where that works
one is nominated; the pod is placed there by a later attempt, when its victims are gone.

Source: kube-scheduler v1.36, plugins/defaultpreemption and framework/preemption.
"""

from __future__ import annotations

import zlib
from collections.abc import Hashable, Iterator
from functools import lru_cache

import msgspec
import numpy as np
from numpy.typing import NDArray

from stowplan.framework import (
    OK,
    Code,
    CycleState,
    Handle,
    PostFilterResult,
    Problem,
    Snapshot,
    Status,
    error,
    unresolvable,
    unschedulable,
)
from stowplan.framework.clusterevents import POD, SKIP_POD, Action, EventWithHint, on
from stowplan.framework.diagnosis import Diagnosis
from stowplan.framework.review import Candidate, Review
from stowplan.framework.verdicts import Verdicts
from stowplan.objects.pod import Pod
from stowplan.objects.workload import PodDisruptionBudget
from stowplan.plugins.preemption_arithmetic import Arithmetic
from stowplan.plugins.preemption_gangs import Gangs
from stowplan.plugins.preemption_kept import KeptDryRuns
from stowplan.plugins.preemption_pods import RankedPods
from stowplan.plugins.preemption_priorities import PlacedPriorities
from stowplan.plugins.preemption_runs import NO_VICTIMS, DryRuns, PreemptionReport, costs_of
from stowplan.plugins.preemption_trial import Trial

__all__ = [
    "NO_VICTIMS",
    "Candidate",
    "DefaultPreemption",
    "DefaultPreemptionArgs",
    "PreemptionReport",
]

NEVER = "not eligible due to preemptionPolicy=Never."
TERMINATING = "not eligible due to a terminating pod on the nominated node."
RUNNING = unresolvable("waiting for the preemption for this pod to be finished")
NOT_HELPFUL = "Preemption is not helpful for scheduling"
NO_CANDIDATE = "no candidate node for preemption"
REFUSALS_KEPT = 4096
BREAKS_GANGS = "pods that are needed by their gangs would have to go"
MESSAGE_PREFIX = "preemption: "

PERCENTAGE_DEFAULT = 10
ABSOLUTE_DEFAULT = 100
MANY = 6
"""From so many rows on, dry runs by arithmetic cost less than one by one."""

Ints = NDArray[np.int64]


class DefaultPreemptionArgs(
    msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True
):
    """How many candidate nodes are looked for.

    Differs: the original looks for 10 % of the nodes and at least 100, from a random start.
    Here every node is tried, so the outcome is the best and the same every time; the two numbers
    are honoured when a configuration sets either of them.
    """

    min_candidate_nodes_percentage: int | None = None
    min_candidate_nodes_absolute: int | None = None

    def problems(self, path: str) -> Iterator[Problem]:
        """What is out of range."""
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
        """How many candidates end the search among `n_nodes` potential nodes."""
        percentage, absolute = (
            self.min_candidate_nodes_percentage,
            self.min_candidate_nodes_absolute,
        )
        if percentage is None and absolute is None:
            return n_nodes
        share = n_nodes * (PERCENTAGE_DEFAULT if percentage is None else percentage) // 100
        return min(n_nodes, max(share, ABSOLUTE_DEFAULT if absolute is None else absolute))


class DefaultPreemption:
    """PostFilter: make room by evicting pods of lower priority."""

    name = "DefaultPreemption"
    Args = DefaultPreemptionArgs

    def __init__(self, args: DefaultPreemptionArgs, handle: Handle) -> None:
        self.args = args
        self.handle = handle

    def pre_enqueue(self, pod: Pod) -> Status:
        """Hold the pod back while the pods that it evicts are on their way out."""
        return RUNNING if pod.uid in self.handle.shared.preempting else OK

    def events_to_register(self) -> tuple[EventWithHint, ...]:
        """A pod that goes may end a preemption, but never makes one of these refusals untrue."""
        return (on(POD, Action.DELETE, lambda pod, old, new: SKIP_POD),)

    def may_help(self, pod: Pod, snapshot: Snapshot) -> bool:
        """False where no node has a pod of lower priority. What `post_filter` says then goes by
        the filters' refusals alone."""
        return PlacedPriorities.on(snapshot.nodes).lowest < pod.priority

    def post_filter(
        self, pod: Pod, snapshot: Snapshot, diagnosis: Diagnosis, state: CycleState
    ) -> PostFilterResult:
        """Nominate the node where evicting least makes room for `pod`.

        Where extenders have a say in that, they are offered the candidates first.
        """
        review = Review.of(state)
        if review is not None and review.answer is not None:
            return self._reviewed(review.answer, snapshot)
        refusal = ineligible(pod, snapshot, diagnosis)
        if refusal:
            return PostFilterResult(unschedulable(MESSAGE_PREFIX + refusal))
        rows = diagnosis.rows_with(Code.UNSCHEDULABLE)
        if not self.may_help(pod, snapshot):
            state.write(self.name, PreemptionReport(None, rows, snapshot))
            return _nobody_to_evict(rows.shape[0], snapshot.nodes.n_nodes)
        runs, tried = self.dry_runs(pod, snapshot, rows, state)
        state.write(self.name, PreemptionReport(runs, tried, snapshot))
        helped = runs.candidates_in(tried)
        if helped.shape[0] == 0:
            return self._no_help(runs, tried, snapshot)
        gangs = Gangs(pod, snapshot)
        if gangs:
            all_helped, helped = helped, _without_breaks(gangs, runs, helped, snapshot)
            if helped.shape[0] == 0:
                return self._among_gangs(gangs, runs, all_helped, pod, snapshot, state)
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

    def _among_gangs(
        self,
        gangs: Gangs,
        runs: DryRuns,
        rows: Ints,
        pod: Pod,
        snapshot: Snapshot,
        state: CycleState,
    ) -> PostFilterResult:
        """The best node where every choice breaks some gang up: others go in place of its pods, or
        if that does not help all of its pods do.

        rows: the candidates.
        Differs: the original does not know of gangs, and evicts any pod of lower priority.
        """
        names, rank = snapshot.nodes.names, snapshot.nodes.rank
        budgets = list(snapshot.world.all(PodDisruptionBudget))
        spared, whole = [], []
        for row in rows.tolist():
            candidate = runs.candidate_of(row, names[row])
            keep = gangs.spared(gangs.broken(candidate))
            trial = Trial(pod, snapshot, state, self.handle.framework, budgets, keep)
            found = trial.at(row)
            if isinstance(found, Candidate) and not gangs.broken(found):
                spared.append(((*costs_of(found), int(rank[row])), found))
            all_of_it = gangs.whole(candidate)
            if all_of_it is not None:
                n_more = len(all_of_it.victims) - len(candidate.victims)
                whole.append(((n_more, *costs_of(candidate), int(rank[row])), all_of_it))
        chosen = spared or whole
        if not chosen:
            return PostFilterResult(unschedulable(MESSAGE_PREFIX + BREAKS_GANGS), nominated_node="")
        best = min(chosen, key=lambda one: one[0])[1]
        return PostFilterResult(OK, best.node_name, best.victims)

    def _reviewed(
        self, answer: tuple[Candidate, ...] | Status, snapshot: Snapshot
    ) -> PostFilterResult:
        """The best of the candidates that extenders have left."""
        if isinstance(answer, Status):
            return PostFilterResult(error(MESSAGE_PREFIX + answer.message))
        if not answer:
            return PostFilterResult(unschedulable(MESSAGE_PREFIX + NO_CANDIDATE))
        nodes = snapshot.nodes
        rank = {one.node_name: int(nodes.rank[nodes.row(one.node_name)]) for one in answer}
        best = min(answer, key=lambda one: (*costs_of(one), rank[one.node_name]))
        return PostFilterResult(OK, best.node_name, best.victims)

    def _no_help(self, runs: DryRuns, rows: Ints, snapshot: Snapshot) -> PostFilterResult:
        """The refusal when eviction helps nowhere: the dry runs' refusals, node by node."""
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
    ) -> tuple[DryRuns, Ints]:
        """Try eviction on each of `rows` until enough candidates are found: (outcomes, tried)."""
        wanted = self.args.candidates_wanted(rows.shape[0])
        if wanted < rows.shape[0]:
            ordered = rows[np.argsort(snapshot.nodes.rank[rows])]
            start = zlib.crc32(pod.uid.encode()) % rows.shape[0]
            rows = np.roll(ordered, -start)
        key = self.handle.framework.row_key(pod, state)
        if key is None:
            return self._tried_one_by_one(pod, snapshot, rows, state, wanted)
        if wanted == rows.shape[0]:
            return self._kept_runs(key, pod, snapshot, rows, state), rows
        runs = self._kept_runs(key, pod, snapshot, np.sort(rows), state)
        return runs, runs.enough(rows, wanted)

    def _tried_one_by_one(
        self, pod: Pod, snapshot: Snapshot, rows: Ints, state: CycleState, wanted: int
    ) -> tuple[DryRuns, Ints]:
        """Dry runs that hold for this attempt only."""
        budgets = list(snapshot.world.all(PodDisruptionBudget))
        trial = Trial(pod, snapshot, state, self.handle.framework, budgets)
        runs = DryRuns(RankedPods())
        runs.make_room(snapshot.nodes.n_nodes)
        n_candidates = n_free = 0
        for n_tried, row in enumerate(rows.tolist(), 1):
            found = trial.at(row)
            runs.put(row, found)
            if isinstance(found, Candidate):
                n_candidates += 1
                n_free += found.pdb_violations == 0
                if n_free and n_candidates >= wanted:
                    return runs, rows[:n_tried]
        return runs, rows

    def _kept_runs(
        self, key: Hashable, pod: Pod, snapshot: Snapshot, rows: Ints, state: CycleState
    ) -> DryRuns:
        """Dry runs that are kept per class, true of `rows` (ascending) for this pod."""
        store = KeptDryRuns.of(snapshot.nodes)
        kept = store.of_class(key, snapshot, rows)
        # A pod does not count itself where it is nominated.
        own = snapshot.nodes.row(snapshot.nominations.node_of(pod.uid))
        stale = kept.stale(rows, snapshot, store.budgets, own)
        trial = Trial(pod, snapshot, state, self.handle.framework, store.budgets.budgets)
        is_by_room = trial.is_by_room(stale)
        for row in stale[~is_by_room].tolist():
            kept.runs.put(row, trial.at(row))
        by_room = stale[is_by_room]
        if by_room.shape[0] >= MANY:
            arithmetic, others = Arithmetic(trial, store.budgets), by_room[by_room != own]
            if arithmetic.can_do(others, kept.runs.ranked):
                arithmetic.run(others, kept.runs)
                by_room = by_room[by_room == own]
        for row in by_room.tolist():
            kept.runs.put(row, trial.by_room_at(row))
        kept.settle(stale, own)
        return kept.runs


@lru_cache(REFUSALS_KEPT)
def _nobody_to_evict(n_tried: int, n_nodes: int) -> PostFilterResult:
    """The refusal when no node has a pod of lower priority.

    n_tried: nodes where room is what is short; on the others eviction would be of no use anyway.
    """
    diagnosis = Diagnosis(n_nodes, unresolvable(NOT_HELPFUL))
    rows = np.arange(n_tried)
    diagnosis.verdicts = Verdicts.given(rows, (NO_VICTIMS,) * n_tried)
    text = MESSAGE_PREFIX + diagnosis.text()
    return PostFilterResult(unschedulable(text), nominated_node="")


def _without_breaks(gangs: Gangs, runs: DryRuns, rows: Ints, snapshot: Snapshot) -> Ints:
    """int64: those of `rows`, all of them candidates, that leave every gang as many as it needs."""
    names = snapshot.nodes.names
    with_members = np.isin(rows, gangs.rows())
    safe = ~with_members
    for place in np.flatnonzero(with_members).tolist():
        row = int(rows[place])
        safe[place] = not gangs.broken(runs.candidate_of(row, names[row]))
    return rows[safe]


def ineligible(pod: Pod, snapshot: Snapshot, diagnosis: Diagnosis) -> str:
    """Why the pod may not preempt; "" when it may."""
    if pod.spec.preemption_policy == "Never":
        return NEVER
    row = snapshot.nodes.row(pod.status.nominated_node_name)
    if row < 0 or diagnosis.status_of(row).code == Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
        return ""
    for info in snapshot.nodes.pods[row]:
        if info.pod.priority < pod.priority and is_being_preempted(info.pod):
            return TERMINATING
    return ""


def is_being_preempted(pod: Pod) -> bool:
    """True for a victim of an earlier preemption that is still shutting down."""
    if pod.metadata.deletion_timestamp is None:
        return False
    condition = next((c for c in pod.status.conditions if c.type == "DisruptionTarget"), None)
    if condition is None:
        return False
    return condition.status == "True" and condition.reason == "PreemptionByScheduler"
