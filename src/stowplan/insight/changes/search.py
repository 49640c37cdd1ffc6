"""The search for the smallest changes that let a pending pod run.

What keeps the pod from each node gives candidates: edits, alone or two together, that solve all of
a node's problems. They are tried cheapest first, so that the first that lets the pod run is the
cheapest of its kind. Candidates are only guesses: nothing is returned that a dry run has not
confirmed.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import combinations, count
from typing import NamedTuple

from stowplan.cycle.attempt import Attempt
from stowplan.cycle.change import Change, PodChanges
from stowplan.cycle.explanation import pending_form
from stowplan.framework import Framework, Snapshot
from stowplan.inputs.counts import count_of
from stowplan.insight.changes import affinity_edits
from stowplan.insight.changes.changed_objects import changed_objects, source_of
from stowplan.insight.changes.dry_run import DryRun
from stowplan.insight.changes.edits import (
    PREEMPTIBLE,
    Edit,
    FreeEdit,
    NodeEdit,
    PodEdit,
    can_be_combined,
    cost_of,
    is_of_slice,
)
from stowplan.insight.changes.freeing import Freeing
from stowplan.insight.changes.node_edits import new_nodes
from stowplan.insight.changes.node_problems import NodeCase, NodeProblems, Problem, Remedy
from stowplan.objects.meta import Object
from stowplan.objects.pod import Pod
from stowplan.objects.pod_requests import fit_requests

KINDS = (
    "request", "toleration", "affinity", "spread",
    "device-toleration", "device-selector", "device-constraint", "device-count", "device-capacity",
    "uncordon", "label", "taint", "device-taint", "counter", "free", "add-device", "add-node",
    "combined",
)  # fmt: skip
"""In the order of equally expensive changes."""
PAIRS_LEFT_OUT = "pairs of changes that solve one problem together, or that change two nodes"
"""Each of two edits solves problems of its own, of one node."""
TRIALS_MAX = 24
"""Candidates of one kind that are tried."""
POOLS_MAX = 48
"""Kinds of new nodes that are tried."""


class Candidate(NamedTuple):
    """Edits that may let the pod run. freed: the node's problems that freeing pods is to solve,
    while the pods are not chosen yet; None once they are: until then `cost` is a lower bound, a
    better one where is_bounded. Ordered by cost, then order of nodes."""

    cost: int
    rank: int
    number: int
    row: int
    edits: tuple[Edit, ...]
    freed: frozenset[Problem] | None = None
    is_bounded: bool = False


def find_changes(
    pod: Pod,
    snapshot: Snapshot,
    framework: Framework,
    origins: Mapping[str, Object | None] | None = None,
) -> PodChanges:
    """The cheapest change of each kind that lets a pending pod run; none if it can run as it is.

    snapshot: the caller's own; it is changed and restored. origins: pods that are no objects of the
    input -> the object that they were made for, see `Cluster.origins`.
    """
    if pod.node_name or not framework.run_pre_enqueue(pod).is_success:
        return PodChanges(pod.key, ())
    return _ChangeSearch(pending_form(pod), snapshot, framework, origins or {}).run()


class _ChangeSearch:
    """One search."""

    def __init__(
        self,
        pod: Pod,
        snapshot: Snapshot,
        framework: Framework,
        origins: Mapping[str, Object | None],
    ) -> None:
        self.pod = pod
        self.nodes = snapshot.nodes
        self.origins = origins
        self.dry = DryRun(pod, snapshot, framework)
        self.source = source_of(pod, origins)
        self.attempt = self.dry.attempt(pod)
        self.freeing = Freeing(self.attempt, self.dry, origins)
        self.problems = self._problems_of(self.attempt)
        self.found: dict[str, tuple[Edit, ...]] = {}
        self.not_searched: list[str] = []
        self._rules: Counter[str] = Counter()
        self._numbers = count()

    def run(self) -> PodChanges:
        """Search one edit, then two together where no single one helps."""
        if self.dry.fits(self.attempt) or self.attempt.failure is not None:
            return PodChanges(self.pod.key, ())
        if self.attempt.verdicts is None:
            self._whole_pod()
        else:
            self._single_edits()
        self._new_node()
        if not self.found:
            self._two_edits()
            self.not_searched.append(PAIRS_LEFT_OUT)
        if not self.found:
            self.not_searched.append("three or more changes together")
        self._note_the_rest()
        changes = sorted(
            (self._change(kind, edits) for kind, edits in self.found.items()),
            key=lambda change: (change.cost, KINDS.index(change.kind)),
        )
        return PodChanges(self.pod.key, tuple(changes), tuple(self.not_searched))

    # One edit.

    def _single_edits(self) -> None:
        by_kind: dict[str, dict[str, Candidate]] = {}
        free: list[Candidate] = []
        for rank, row in enumerate(self._ordered_rows()):
            for case in self.problems.cases(row, pairs=False):
                for remedy in case.remedies:
                    if len(remedy.edits) == 1 and remedy.covers >= case.problems:
                        edit = remedy.edits[0]
                        candidate = self._candidate(rank, row, remedy.edits)
                        by_kind.setdefault(edit.kind, {}).setdefault(edit.text, candidate)
                self._rules.update(
                    str(problem[1])
                    for problem in case.problems - case.freeable
                    if problem[0] == "other"
                )
                if case.problems <= case.freeable:
                    free.append(self._to_free(rank, case, ()))
        if self._restricting is not None:
            candidate = self._candidate(self.nodes.n_nodes, -1, (self._restricting,))
            by_kind.setdefault("affinity", {}).setdefault(self._restricting.text, candidate)
        for kind, candidates in by_kind.items():
            self._try(kind, list(candidates.values()))
        self._try("free", free)

    def _whole_pod(self) -> None:
        """A PreFilter refuses the pod: only without its required node affinity nodes may do."""
        if self._restricting is not None:
            self._try("affinity", [self._candidate(0, -1, (self._restricting,))])

    @property
    def _restricting(self) -> PodEdit | None:
        """The edit without which nodes were not looked at; None if all were."""
        if len(self.problems.rows) == self.nodes.n_nodes or not self._edits_affinity:
            return None
        if affinity_edits.required_terms(self.pod.spec) is None:
            return None
        return affinity_edits.drop_required()

    def _new_node(self) -> None:
        requests = fit_requests(self.pod).items()
        kinds = [
            edit
            for edit in new_nodes(self.nodes.nodes)
            if all(edit.offered.get(name, 0) >= amount for name, amount in requests)
        ]
        if len(kinds) > POOLS_MAX:
            self.not_searched.append(
                f"{count_of(len(kinds) - POOLS_MAX, 'kind')} of new nodes of {len(kinds)}"
            )
        for edit in kinds[:POOLS_MAX]:
            edit = self.problems.claim_problems.with_devices(edit)
            if self.dry.lets_run([edit]):
                self.found["add-node"] = (edit,)
                return

    # Two edits.

    def _two_edits(self) -> None:
        candidates: list[Candidate] = []
        for rank, row in enumerate(self._ordered_rows()):
            for case in self.problems.cases(row, pairs=True):
                candidates += self._pairs(rank, case)
        candidates += self._with_new_node()
        candidates += self._without_restriction()
        self._try("combined", candidates)

    def _pairs(self, rank: int, case: NodeCase) -> Iterator[Candidate]:
        covered = frozenset[Problem]().union(*(remedy.covers for remedy in case.remedies))
        if not case.problems <= covered | case.freeable:
            return
        for remedy in case.remedies:
            if len(remedy.edits) == 2 and remedy.covers >= case.problems:
                yield self._candidate(rank, case.row, remedy.edits)
            left = case.problems - remedy.covers
            if len(remedy.edits) == 1 and left and left <= case.freeable:
                yield self._to_free(rank, case._replace(problems=left), remedy.edits)
        single = [remedy for remedy in case.remedies if len(remedy.edits) == 1]
        for one, other in combinations(single, 2):
            if one.covers | other.covers >= case.problems and can_be_combined(
                one.edits[0], other.edits[0]
            ):
                yield self._candidate(rank, case.row, one.edits + other.edits)

    def _with_new_node(self) -> Iterator[Candidate]:
        """A new node, and an edit of the pod that lets it run there."""
        for edit in new_nodes(self.nodes.nodes)[:POOLS_MAX]:
            edit = self.problems.claim_problems.with_devices(edit)
            remedies: list[Remedy] = []
            with self.dry.applied([edit]) as pod:
                attempt = self.dry.attempt(pod)
                row = self.nodes.row(edit.node.name)
                problems = self._problems_of(attempt)
                if row in problems.rows:
                    for case in problems.cases(row, pairs=False):
                        remedies += [one for one in case.remedies if one.covers >= case.problems]
            for remedy in remedies:
                if not isinstance(remedy.edits[0], NodeEdit) and not is_of_slice(remedy.edits[0]):
                    yield self._candidate(self.nodes.n_nodes, -1, (edit, *remedy.edits))

    def _without_restriction(self) -> Iterator[Candidate]:
        """The edit without which nodes were not looked at, and one for such a node."""
        if self._restricting is None:
            return
        found: list[tuple[int, NodeCase]] = []
        with self.dry.applied([self._restricting]) as pod:
            problems = self._problems_of(self.dry.attempt(pod))
            for row in sorted(set(problems.rows) - set(self.problems.rows)):
                found += [(row, case) for case in problems.cases(row, pairs=False)]
        for row, case in found:
            if case.problems <= case.freeable:
                yield self._to_free(row, case, (self._restricting,))
            for remedy in case.remedies:
                if remedy.covers >= case.problems:
                    yield self._candidate(row, row, (self._restricting, *remedy.edits))

    # Candidates.

    def _candidate(self, rank: int, row: int, edits: tuple[Edit, ...]) -> Candidate:
        return Candidate(cost_of(edits), rank, next(self._numbers), row, edits)

    def _to_free(self, rank: int, case: NodeCase, others: tuple[Edit, ...]) -> Candidate:
        """The candidate that frees pods for the case's problems, at the lowest cost there is."""
        cost = PREEMPTIBLE + cost_of(others)
        return Candidate(cost, rank, next(self._numbers), case.row, others, case.problems)

    def _next_step(self, candidate: Candidate) -> Candidate | None:
        """A candidate that frees pods with a better bound, then with its pods; None if none do."""
        freed = candidate.freed
        assert freed is not None
        if not candidate.is_bounded:
            bound = self.freeing.bound(candidate.row, freed)
            if bound is None:
                return None
            return candidate._replace(cost=bound + cost_of(candidate.edits), is_bounded=True)
        chosen = self.freeing.cheapest(candidate.row, freed)
        if chosen is None:
            return None
        edits = (*candidate.edits, chosen)
        return candidate._replace(cost=cost_of(edits), edits=edits, freed=None)

    def _try(self, kind: str, candidates: list[Candidate]) -> None:
        """Keep the cheapest candidate that lets the pod run."""
        heapq.heapify(candidates)
        n_tried = 0
        tried: set[str] = set()
        while candidates:
            if n_tried == TRIALS_MAX:
                left = count_of(len(candidates), "candidate")
                self.not_searched.append(f"{left} of kind {kind}, each of a higher or equal cost")
                return
            candidate = heapq.heappop(candidates)
            if candidate.freed is not None:
                step = self._next_step(candidate)
                if step is not None:
                    heapq.heappush(candidates, step)
                continue
            name = " ".join(edit.text for edit in candidate.edits)
            if name in tried:
                continue
            tried.add(name)
            n_tried += 1
            confirmed = self._confirmed(candidate.edits)
            if confirmed:
                self.found[kind] = confirmed
                return

    def _confirmed(self, edits: tuple[Edit, ...]) -> tuple[Edit, ...]:
        """The edits where they let the pod run, with pods moved rather than ended; else none."""
        moved = tuple(
            self.freeing.with_moves(edit) if isinstance(edit, FreeEdit) else edit for edit in edits
        )
        if self.dry.lets_run(moved):
            return moved
        if moved != edits and self.dry.lets_run(edits):
            return edits
        return ()

    # Results.

    def _change(self, kind: str, edits: tuple[Edit, ...]) -> Change:
        names = {edit.node for edit in edits if isinstance(edit, NodeEdit)}
        nodes = {name: self.nodes.nodes[self.nodes.row(name)] for name in names}
        text = " and ".join(edit.text for edit in edits)
        return Change(kind, cost_of(edits), text, changed_objects(edits, self.source, nodes))

    def _note_the_rest(self) -> None:
        self.not_searched += self.problems.claim_problems.not_searched
        if self.freeing.is_cut:
            self.not_searched.append("larger sets of pods to free")
        if self.source is None:
            self.not_searched.append("changes of the pod: the object that it was made from")
        if self.attempt.verdicts is None:
            refused = self.attempt.pre_filter.status
            self.not_searched.append(f"what {refused.plugin} refuses for every node")
            return
        for rule, n_nodes in self._rules.most_common():
            self.not_searched.append(f"what {rule} refuses, on {count_of(n_nodes, 'node')}")

    # Helpers.

    @property
    def _edits_affinity(self) -> bool:
        return self.source is not None and not self.source.is_daemon_set

    def _problems_of(self, attempt: Attempt) -> NodeProblems:
        return NodeProblems(
            attempt, edits_spec=self.source is not None, edits_affinity=self._edits_affinity
        )

    def _ordered_rows(self) -> list[int]:
        """The rows that the attempt looked at, in the snapshot's order."""
        known = set(self.problems.rows)
        return [row for row in self.nodes.order.tolist() if row in known]
