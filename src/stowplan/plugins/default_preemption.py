"""DefaultPreemption: when no node fits, find the node where evicting least makes room.

A dry run per node that refused for a reason that evictions can change: take away every pod of
lower priority, see whether the pod fits, then give back as many as possible, the important ones
first and those that a disruption budget protects before all. Among the nodes where that works
one is nominated; the pod is placed there by a later attempt, when its victims are gone.

Source: kube-scheduler v1.36, plugins/defaultpreemption and framework/preemption.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from stowplan.framework import (
    OK,
    Code,
    CycleState,
    Handle,
    NodeInfo,
    PodInfo,
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
from stowplan.framework.verdicts import Verdicts
from stowplan.objects.pod import Pod
from stowplan.objects.selectors import SelectorError, label_selector_matches
from stowplan.objects.workload import PodDisruptionBudget

NEVER = "not eligible due to preemptionPolicy=Never."
TERMINATING = "not eligible due to a terminating pod on the nominated node."
NO_VICTIMS = unresolvable("No preemption victims found for incoming pod")
RUNNING = unresolvable("waiting for the preemption for this pod to be finished")
NOT_HELPFUL = "Preemption is not helpful for scheduling"
MESSAGE_PREFIX = "preemption: "

PERCENTAGE_DEFAULT = 10
ABSOLUTE_DEFAULT = 100
_PRIORITY_OFFSET = 2**31
_NOT_STARTED = float("inf")


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


class Candidate(msgspec.Struct, frozen=True):
    """A node where eviction helps. victims: the most important first."""

    node_name: str
    victims: tuple[PodInfo, ...]
    pdb_violations: int


class PreemptionReport(msgspec.Struct, frozen=True):
    """What the dry runs found, for explain and bulk answers.

    statuses: node -> why eviction does not help there. best: the candidates left after all
    criteria, in the order of the snapshot; the first of them is nominated.
    """

    candidates: tuple[Candidate, ...]
    statuses: dict[str, Status]
    best: tuple[Candidate, ...]


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

    def post_filter(
        self, pod: Pod, snapshot: Snapshot, diagnosis: Diagnosis, state: CycleState
    ) -> PostFilterResult:
        """Nominate the node where evicting least makes room for `pod`."""
        refusal = ineligible(pod, snapshot, diagnosis)
        if refusal:
            return PostFilterResult(unschedulable(MESSAGE_PREFIX + refusal))
        rows = in_snapshot_order(diagnosis.rows_with(Code.UNSCHEDULABLE), snapshot)
        report = self.dry_runs(pod, snapshot, rows, state)
        state.write(self.name, report)
        failures = [s for s in report.statuses.values() if s.code == Code.ERROR]
        # Differs: of several dry runs that fail, the first is told; the original joins them.
        if failures and not report.candidates:
            return PostFilterResult(error(MESSAGE_PREFIX + failures[0].message))
        if not report.candidates:
            text = no_candidate_text(report.statuses, snapshot)
            return PostFilterResult(unschedulable(MESSAGE_PREFIX + text), nominated_node="")
        # Differs: the original draws among equally good nodes by the order of a Go map.
        chosen = report.best[0]
        return PostFilterResult(OK, chosen.node_name, chosen.victims)

    def dry_runs(
        self, pod: Pod, snapshot: Snapshot, rows: Sequence[int], state: CycleState
    ) -> PreemptionReport:
        """Try eviction on each of `rows` until enough candidates are found."""
        wanted = self.args.candidates_wanted(len(rows))
        start = zlib.crc32(pod.uid.encode()) % len(rows) if wanted < len(rows) else 0
        budgets = list(snapshot.world.all(PodDisruptionBudget))
        kind: dict[bool, list[Candidate]] = {False: [], True: []}
        statuses: dict[str, Status] = {}
        for row in [*rows[start:], *rows[:start]]:
            node = snapshot.nodes.info(row).copy()
            found = self.dry_run(pod, node, snapshot, state.clone(), budgets)
            if isinstance(found, Status):
                statuses[node.name] = found
                continue
            kind[found.pdb_violations > 0].append(found)
            if kind[False] and len(kind[False]) + len(kind[True]) >= wanted:
                break
        candidates = (*kind[False], *kind[True])
        return PreemptionReport(candidates, statuses, best_of(candidates, snapshot))

    def dry_run(
        self,
        pod: Pod,
        node: NodeInfo,
        snapshot: Snapshot,
        state: CycleState,
        budgets: Sequence[PodDisruptionBudget],
    ) -> Candidate | Status:
        """The smallest set of victims on one node, or why there is none. Changes node and state."""
        framework = self.handle.framework
        evictable = [info for info in node.pods if info.pod.priority < pod.priority]
        if not evictable:
            return NO_VICTIMS
        for info in evictable:
            node.remove_pod(info.uid)
            status = framework.run_remove_pod(pod, info, node, state)
            if not status.is_success:
                return status
        status = framework.filter_with_nominated(pod, node, snapshot, state)
        if not status.is_success:
            return status
        return self._reprieve(pod, node, snapshot, state, split(evictable, budgets))

    def _reprieve(
        self,
        pod: Pod,
        node: NodeInfo,
        snapshot: Snapshot,
        state: CycleState,
        groups: tuple[list[PodInfo], list[PodInfo]],
    ) -> Candidate | Status:
        """Give back as many of the two groups (protected, free) as the pod leaves room for."""
        framework = self.handle.framework
        protected, free = groups
        victims: list[PodInfo] = []
        violations = 0
        for index, info in enumerate([*protected, *free]):
            node.add_pod(info)
            status = framework.run_add_pod(pod, info, node, state)
            if not status.is_success:
                return status
            if framework.filter_with_nominated(pod, node, snapshot, state).is_success:
                continue
            node.remove_pod(info.uid)
            status = framework.run_remove_pod(pod, info, node, state)
            if not status.is_success:
                return status
            victims.append(info)
            violations += index < len(protected)
        if not victims:
            return error(f'expected at least one victim pod on node "{node.name}"')
        if protected and free:
            victims.sort(key=importance)
        return Candidate(node.name, tuple(victims), violations)


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


def started(pod: Pod) -> float:
    """Seconds since the epoch; a pod that has not started counts as the youngest of all."""
    start = pod.status.start_time
    return _NOT_STARTED if start is None else start.timestamp()


def importance(info: PodInfo) -> tuple[int, float]:
    """Sort key, the most important first: higher priority, then the earlier start."""
    return -info.pod.priority, started(info.pod)


def split(
    evictable: Sequence[PodInfo], budgets: Sequence[PodDisruptionBudget]
) -> tuple[list[PodInfo], list[PodInfo]]:
    """(protected, free), each the most important first.

    Protected are those whose eviction takes a budget below zero, when all are evicted in order.
    """
    allowed = [budget.status.disruptions_allowed for budget in budgets]
    protected: list[PodInfo] = []
    free: list[PodInfo] = []
    for info in sorted(evictable, key=importance):
        violates = False
        for index, budget in enumerate(budgets):
            if covers(budget, info.pod):
                allowed[index] -= 1
                violates |= allowed[index] < 0
        (protected if violates else free).append(info)
    return protected, free


def covers(budget: PodDisruptionBudget, pod: Pod) -> bool:
    """True when evicting `pod` counts against `budget`.

    An empty selector covers nothing, nor does one that cannot be read; a pod that the API server
    has already counted as disrupted does not count again.
    """
    selector = budget.spec.selector
    if budget.namespace != pod.namespace or not pod.labels or selector is None:
        return False
    if not (selector.match_labels or selector.match_expressions):
        return False
    if pod.name in budget.status.disrupted_pods:
        return False
    try:
        return label_selector_matches(selector, pod.labels)
    except SelectorError:
        return False


def best_of(candidates: Sequence[Candidate], snapshot: Snapshot) -> tuple[Candidate, ...]:
    """The candidates that evict least, by the original's five criteria, in snapshot order."""
    if not candidates:
        return ()
    rank, nodes = snapshot.nodes.rank, snapshot.nodes
    least = min(cost(candidate) for candidate in candidates)
    best = [c for c in candidates if cost(c) == least]
    return tuple(sorted(best, key=lambda c: int(rank[nodes.row(c.node_name)])))


def cost(candidate: Candidate) -> tuple[int, int, int, int, float]:
    """Smaller is better: violations, highest priority, sum of priorities, number, start time.

    The start time is the earliest among the victims of highest priority; later is better. The
    sum counts priorities from the lowest possible, so that fewer victims beat more of them.
    """
    pods = [info.pod for info in candidate.victims]
    highest = max(pod.priority for pod in pods)
    earliest = min(started(pod) for pod in pods if pod.priority == highest)
    return (
        candidate.pdb_violations,
        pods[0].priority,
        sum(pod.priority + _PRIORITY_OFFSET for pod in pods),
        len(pods),
        -earliest,
    )


def in_snapshot_order(rows: np.ndarray, snapshot: Snapshot) -> list[int]:
    """The same rows as a list, in the order of the snapshot."""
    ordered: list[int] = rows[np.argsort(snapshot.nodes.rank[rows])].tolist()
    return ordered


def no_candidate_text(statuses: dict[str, Status], snapshot: Snapshot) -> str:
    """The message when eviction helps nowhere: the dry runs' refusals, node by node."""
    diagnosis = Diagnosis(snapshot.nodes.n_nodes, unresolvable(NOT_HELPFUL))
    rows = np.array([snapshot.nodes.row(name) for name in statuses], dtype=np.int64)
    diagnosis.verdicts = Verdicts.given(rows, list(statuses.values()))
    return diagnosis.text()
