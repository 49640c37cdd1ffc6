"""What keeps a pod from each node, as problems that an edit may solve."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache, cached_property
from itertools import combinations
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from stowplan.columns.array_types import Bools
from stowplan.cycle.attempt import Attempt, run_filters_independently
from stowplan.framework import Code, CycleState, Status
from stowplan.insight.changes import affinity_edits, node_edits, pod_edits
from stowplan.insight.changes.claim_problems import ClaimProblems
from stowplan.insight.changes.edits import Edit, PodEdit
from stowplan.objects.node import Node, Taint
from stowplan.objects.pod_requests import fit_requests
from stowplan.objects.selectors import (
    NodeSelectorRequirement,
    requirement_admits,
    term_matches,
)
from stowplan.objects.taints import HARD_EFFECTS, UNSCHEDULABLE_TAINT, is_untolerated
from stowplan.plugins.devices.claim_search import CANNOT_ALLOCATE
from stowplan.plugins.topology_spread.pod_topology_spread import TopologySpreadPreFilterState
from stowplan.plugins.topology_spread.spread_constraint import HARD

FIT, PORTS, TAINTS = "NodeResourcesFit", "NodePorts", "TaintToleration"
CORDONED, NODE_AFFINITY = "NodeUnschedulable", "NodeAffinity"
POD_AFFINITY, SPREAD = "InterPodAffinity", "PodTopologySpread"
VOLUMES = "VolumeRestrictions"
DEVICES = "DynamicResources"
TOO_MANY_PODS, INSUFFICIENT = "Too many pods", "Insufficient "

Problem = tuple[object, ...]
"""A kind, and what distinguishes problems of the kind."""

SLOTS: Problem = ("slots",)


class Remedy(NamedTuple):
    """Edits that solve problems of a node. Most are one edit."""

    edits: tuple[Edit, ...]
    covers: frozenset[Problem]

    @property
    def cost(self) -> int:
        """Points."""
        return sum(edit.cost for edit in self.edits)


class NodeCase(NamedTuple):
    """A way to see what keeps the pod from a node: all problems are to be solved.

    freeable: problems that may be solved by freeing pods of the node.
    """

    row: int
    problems: frozenset[Problem]
    freeable: frozenset[Problem]
    remedies: tuple[Remedy, ...]


class NodeProblems:
    """The problems of every node of an attempt, and the edits that solve each.

    edits_spec: False where no patch of the pod is possible. edits_affinity: False for pods whose
    node affinity a controller writes.
    """

    def __init__(self, attempt: Attempt, *, edits_spec: bool, edits_affinity: bool) -> None:
        self.attempt = attempt
        self.pod = attempt.pod
        self.nodes = attempt.snapshot.nodes
        self.edits_spec = edits_spec
        self.edits_affinity = edits_spec and edits_affinity
        verdicts = attempt.verdicts
        self.rows: list[int] = [] if verdicts is None else verdicts.rows.tolist()
        apart = run_filters_independently(attempt)
        self._refusing = [(n, v.codes.tolist(), cache(v.explain)) for n, v in apart.items()]
        self._refusing = [one for one in self._refusing if any(one[1])]
        self._requests = fit_requests(self.pod)
        self._comparisons = attempt.framework.gates.taint_toleration_comparison_operators
        self._columns: dict[str, tuple[list[int], list[int]]] = {}
        self._lowered: dict[tuple[str, int], Remedy | None] = {}
        self._tolerations: dict[Taint, PodEdit] = {}
        self._place = {row: place for place, row in enumerate(self.rows)}
        terms = affinity_edits.required_terms(self.pod.spec)
        self._asks_labels = bool(self.pod.spec.node_selector or terms)
        self._short: dict[Status, list[tuple[Problem, str]]] = {}
        self.claim_problems = ClaimProblems(attempt, attempt.state.find(DEVICES))

    def cases(self, row: int, *, pairs: bool) -> list[NodeCase]:
        """The cases of one node. pairs: include remedies of two edits."""
        place = self._place[row]
        problems: set[Problem] = set()
        freeable: set[Problem] = set()
        remedies: list[Remedy] = []
        variants: list[tuple[frozenset[Problem], list[Remedy]]] = [(frozenset(), [])]
        for name, codes, explain in self._refusing:
            if codes[place] == 0:
                continue
            status = explain(codes[place])
            if name == FIT:
                found = self._fit(row, status, remedies, freeable)
            elif name == TAINTS:
                found = self._taints(self.nodes.nodes[row], remedies)
            elif name == CORDONED:
                found = [(CORDONED,)]
                remedies.append(_remedy(node_edits.uncordon(self.nodes.nodes[row]), (CORDONED,)))
            elif name == SPREAD and self._own_constraints:
                found = self._spread(row, remedies)
            elif name == POD_AFFINITY:
                found = [(POD_AFFINITY,)]
                remedies += self._pod_affinity(row, pairs=pairs)
            elif name == NODE_AFFINITY:
                found = self._selector(self.nodes.nodes[row], remedies)
                terms = self._terms(self.nodes.nodes[row])
                variants = terms or variants
                if not found and not terms:
                    found = [("other", name)]
            elif name == DEVICES and status.message == CANNOT_ALLOCATE.message:
                found = [(DEVICES,)]
            else:
                found = [(name,) if name == PORTS else ("other", name)]
            problems.update(found)
            if status.code == Code.UNSCHEDULABLE and name != FIT:
                freeable.update(found)
        if not problems and variants == [(frozenset(), [])]:
            # Refused with nominated pods counted, or only with a tolerated condition's taint.
            problems.add(("other", "nominated pods"))
        is_all = problems == {(DEVICES,)} and variants == [(frozenset(), [])]
        if is_all or (pairs and (DEVICES,) in problems):
            edits = self.claim_problems.edits_for(row, is_all=is_all)
            remedies += (_remedy(edit, (DEVICES,)) for edit in edits)
        found_cases = []
        for more, extra in variants:
            every = frozenset(problems) | more
            if self._asks_labels:
                extra = extra + self._shared_labels(self.nodes.nodes[row], every)
            found_cases.append(NodeCase(row, every, frozenset(freeable), (*remedies, *extra)))
        return found_cases

    # One rule each.

    def _fit(
        self, row: int, status: Status, remedies: list[Remedy], freeable: set[Problem]
    ) -> list[Problem]:
        short = self._short.get(status)
        if short is None:
            short = self._short[status] = [_shortage(reason) for reason in status.reasons]
        for problem, resource in short:
            if problem is SLOTS:
                freeable.add(SLOTS)
                continue
            offered, used = self._amounts(resource)
            free = offered[row] - used[row]
            if self._requests.get(resource, 0) <= offered[row]:
                freeable.add(problem)
            remedy = self._lower(resource, free)
            if remedy is not None:
                remedies.append(remedy)
        return [problem for problem, _ in short]

    def _amounts(self, resource: str) -> tuple[list[int], list[int]]:
        """Allocatable and requested amounts by row."""
        if resource not in self._columns:
            allocatable = self.nodes.allocatable(resource).tolist()
            self._columns[resource] = allocatable, self.nodes.requested(resource).tolist()
        return self._columns[resource]

    def _lower(self, resource: str, free: int) -> Remedy | None:
        if not self.edits_spec:
            return None
        key = resource, free
        if key not in self._lowered:
            edit = pod_edits.lower_request(self.pod, resource, free)
            self._lowered[key] = None if edit is None else _remedy(edit, (FIT, resource))
        return self._lowered[key]

    def _taints(self, node: Node, remedies: list[Remedy]) -> list[Problem]:
        found: list[Problem] = []
        for taint in node.taints:
            if not is_untolerated(taint, self.pod.tolerations, HARD_EFFECTS, self._comparisons):
                continue
            if node.spec.unschedulable and taint.key == UNSCHEDULABLE_TAINT.key:
                # Uncordoning removes it.
                continue
            problem = (TAINTS, taint)
            found.append(problem)
            if node_edits.is_of_condition(taint) and taint.key != UNSCHEDULABLE_TAINT.key:
                found.append(("other", f"taint {taint.key}"))
                continue
            remedies.append(_remedy(node_edits.remove_taint(node, taint), problem))
            if self.edits_spec and taint.key != UNSCHEDULABLE_TAINT.key:
                if taint not in self._tolerations:
                    self._tolerations[taint] = pod_edits.add_toleration(taint)
                remedies.append(_remedy(self._tolerations[taint], problem))
        return found

    @cached_property
    def _own_constraints(self) -> list[int]:
        """Indexes of the pod's hard constraints, in the order of the plugin's state."""
        own = self.pod.spec.topology_spread_constraints
        return [i for i, constraint in enumerate(own) if constraint.when_unsatisfiable == HARD]

    def _spread(self, row: int, remedies: list[Remedy]) -> list[Problem]:
        state = self.attempt.state.read(SPREAD, TopologySpreadPreFilterState)
        labels = self.nodes.nodes[row].labels
        found: list[Problem] = []
        for position, index in enumerate(self._own_constraints):
            constraint = state.constraints[position]
            value = labels.get(constraint.topology_key)
            skew = None if value is None else state.skew(position, self.pod.labels, value)
            if skew is not None and skew <= constraint.max_skew:
                continue
            problem = (SPREAD, index)
            found.append(problem)
            if not self.edits_spec:
                continue
            spec = self.pod.spec
            remedies.append(_remedy(pod_edits.schedule_anyway(spec, index), problem))
            if skew is not None:
                remedies.append(_remedy(pod_edits.raise_max_skew(spec, index, skew), problem))
        return found

    def _selector(self, node: Node, remedies: list[Remedy]) -> list[Problem]:
        found: list[Problem] = []
        for key, value in (self.pod.spec.node_selector or {}).items():
            if node.labels.get(key) == value:
                continue
            problem = ("selector", key)
            found.append(problem)
            if self.edits_spec:
                remedies.append(_remedy(affinity_edits.drop_selector(key, value), problem))
            if not node_edits.is_of_fact(key):
                remedies.append(_remedy(node_edits.set_label(node, key, value), problem))
        return found

    def _terms(self, node: Node) -> list[tuple[frozenset[Problem], list[Remedy]]]:
        """A variant for each term of required node affinity that could be met; none if one is."""
        terms = affinity_edits.required_terms(self.pod.spec)
        if terms is None or any(term_matches(term, node.labels, node.name) for term in terms):
            return []
        whole: Problem = ("terms",)
        dropping = [_remedy(affinity_edits.drop_required(), whole)] if self.edits_affinity else []
        variants = [(frozenset([whole]), dropping)]
        for number, term in enumerate(terms):
            if term.is_empty or term.faults:
                continue
            fields_only = replace(term, match_expressions=())
            if term.match_fields and not term_matches(fields_only, node.labels, node.name):
                continue
            problems: set[Problem] = set()
            remedies: list[Remedy] = []
            for at, requirement in enumerate(term.match_expressions):
                have = node.labels.get(requirement.key)
                if requirement_admits(requirement, have):
                    continue
                problem = ("term", number, at)
                problems.add(problem)
                remedies += self._relaxed(node, number, at, problem)
            variants.append((frozenset(problems), remedies))
        return variants

    def _relaxed(self, node: Node, term: int, at: int, problem: Problem) -> Iterator[Remedy]:
        terms = affinity_edits.required_terms(self.pod.spec) or ()
        requirement = terms[term].match_expressions[at]
        have = node.labels.get(requirement.key)
        if self.edits_affinity:
            if requirement.operator == "In" and have is not None:
                yield _remedy(affinity_edits.add_value(self.pod.spec, term, at, have), problem)
            dropped = affinity_edits.drop_expression(self.pod.spec, term, at)
            if dropped is not None:
                yield _remedy(dropped, problem)
        can_label, value = node_edits.label_for(requirement)
        if can_label and not node_edits.is_of_fact(requirement.key):
            yield _remedy(node_edits.set_label(node, requirement.key, value), problem)

    def _shared_labels(self, node: Node, problems: frozenset[Problem]) -> list[Remedy]:
        """Labels of the node that meet more than one requirement."""
        by_key: dict[str, list[tuple[Problem, NodeSelectorRequirement]]] = {}
        for problem in problems:
            requirement = self._requirement_of(problem)
            if requirement is not None and not node_edits.is_of_fact(requirement.key):
                by_key.setdefault(requirement.key, []).append((problem, requirement))
        found = []
        for key, asked in by_key.items():
            if len(asked) < 2:
                continue
            for value in (*sorted(_label_values(one for _, one in asked)), None):
                met = [problem for problem, one in asked if requirement_admits(one, value)]
                if len(met) > 1:
                    found.append(Remedy((node_edits.set_label(node, key, value),), frozenset(met)))
        return found

    def _requirement_of(self, problem: Problem) -> NodeSelectorRequirement | None:
        """The requirement on a node's labels that a problem is about."""
        match problem:
            case ("selector", str(key)):
                values = ((self.pod.spec.node_selector or {})[key],)
                return NodeSelectorRequirement(key, "In", values)
            case ("term", int(term), int(at)):
                terms = affinity_edits.required_terms(self.pod.spec) or ()
                return terms[term].match_expressions[at]
        return None

    # Pod affinity: the rule is asked again without each term.

    def _pod_affinity(self, row: int, *, pairs: bool) -> list[Remedy]:
        place = self._place[row]
        found = list(self._without_one)
        if pairs:
            found += self._without_two
        return [
            Remedy(edits, frozenset([(POD_AFFINITY,)])) for edits, passes in found if passes[place]
        ]

    @cached_property
    def _without_one(self) -> list[tuple[tuple[PodEdit, ...], Bools]]:
        if not self.edits_spec:
            return []
        edits = affinity_edits.pod_term_edits(self.pod.spec)
        return [((edit,), self._passes_without(edit)) for edit in edits]

    @cached_property
    def _without_two(self) -> list[tuple[tuple[PodEdit, ...], Bools]]:
        edits = [one[0] for one, _ in self._without_one]
        return [
            (two, self._passes_without(*sorted(two, key=lambda edit: -edit.position)))
            for two in combinations(edits, 2)
        ]

    def _passes_without(self, *edits: PodEdit) -> Bools:
        """bool (n_rows,): places where InterPodAffinity takes the pod after these edits."""
        attempt = self.attempt
        pod = self.pod
        for edit in edits:
            pod = replace(pod, spec=edit.change(pod.spec)[0])
        state = CycleState()
        rows = np.array(self.rows, dtype=np.int64)
        attempt.framework.run_pre_filter(pod, attempt.snapshot, state)
        if POD_AFFINITY in state.skip_filter:
            return np.ones(rows.shape[0], dtype=np.bool_)
        member = attempt.framework.members[POD_AFFINITY]
        codes = member.verdicts(pod, self.nodes, rows, state).codes
        return np.equal(codes, 0)


def _shortage(reason: str) -> tuple[Problem, str]:
    """The problem that a reason is about, and its resource."""
    if reason == TOO_MANY_PODS:
        return SLOTS, ""
    resource = reason.removeprefix(INSUFFICIENT)
    return (FIT, resource), resource


def _label_values(requirements: Iterable[NodeSelectorRequirement]) -> set[str]:
    """Values that some of the requirements admit."""
    found: set[str] = set()
    for requirement in requirements:
        found.update(requirement.values if requirement.operator == "In" else ())
        can_label, value = node_edits.label_for(requirement)
        if can_label and value is not None:
            found.add(value)
    return found


def _remedy(edit: Edit, problem: Problem) -> Remedy:
    return Remedy((edit,), frozenset([problem]))
