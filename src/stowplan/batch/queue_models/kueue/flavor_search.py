"""The search for flavors: in order, until one is good enough by the queue's fungibility.

Source: Kueue, pkg/scheduler/flavorassigner/flavorassigner.go; KEP-582, KEP-79.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

from stowplan.batch.queue_models.kueue.admission_queue import AdmissionQueue, AdmissionSnapshot
from stowplan.batch.queue_models.kueue.admission_workload import (
    AdmissionWorkload,
    Requests,
    group_key,
)
from stowplan.batch.queue_models.kueue.flavor_assignment import (
    EXCEEDS_MAX_QUOTA,
    NO_MATCHING_FLAVOR,
    TOPOLOGY_FAILED,
    WAITING_FOR_QUOTA,
    FlavorAssignment,
    FlavorAttempt,
    FlavorChoice,
    Mode,
    PodSetChoice,
    most_severe,
)
from stowplan.batch.queue_models.kueue.kueue_objects import (
    NEVER,
    FlavorFungibility,
    KueueResourceGroup,
    ResourceFlavor,
)
from stowplan.batch.queue_models.kueue.quota.quota_amounts import (
    FlavorResource,
    in_request_order,
    plus,
)
from stowplan.batch.queue_models.kueue.quota.quota_tree import borrowing_height
from stowplan.batch.queue_models.kueue.topology_requests import (
    note_places,
    place,
    placement_requests,
    topology_mismatch,
)
from stowplan.objects.pod import PodSpec
from stowplan.objects.selectors import NodeSelector, NodeSelectorTerm, node_selector_matches
from stowplan.objects.taints import HARD_EFFECTS, is_untolerated

NOMINATED = Mapping[str, Mapping[str, str]]
"""Pod set -> resource -> flavor of a nomination; only these are tried."""


class Possibility(IntEnum):
    """How a resource could be had in a flavor, the worst first."""

    NO_FIT = 0
    NO_CANDIDATES = 1
    PREEMPT = 2
    RECLAIM = 3
    FIT = 4

    @property
    def mode(self) -> Mode:
        """As the mode of an assignment."""
        if self in (Possibility.NO_FIT, Possibility.FIT):
            return Mode.FIT if self is Possibility.FIT else Mode.NO_FIT
        return Mode.PREEMPT


class PreemptionOracle(Protocol):
    """Says whether preemption would help for one resource alone."""

    def simulate(
        self, workload: AdmissionWorkload, pair: FlavorResource, n: int
    ) -> tuple[Possibility, int]:
        """The possibility, and the height afterwards."""


Grade = tuple[Possibility, int]
"""Possibility and height of a flavor."""
_WORST: Grade = (Possibility.NO_FIT, 2**63)


def is_preferred(one: Grade, other: Grade, rules: FlavorFungibility) -> bool:
    """Whether one grade is better than another by the preference of the queue."""
    if one[0] is Possibility.NO_FIT or other[0] is Possibility.NO_FIT:
        return one[0] is not Possibility.NO_FIT
    lacks = [grade[0] is Possibility.NO_CANDIDATES for grade in (one, other)]
    if lacks[0] != lacks[1]:
        return lacks[1]
    if rules.preference == "PreemptionOverBorrowing":
        return (-one[1], one[0]) > (-other[1], other[0])
    return (one[0], -one[1]) > (other[0], -other[1])


def tries_next(grade: Grade, rules: FlavorFungibility) -> bool:
    """Whether the search goes on behind a flavor of this grade."""
    if grade[0] in (Possibility.NO_FIT, Possibility.NO_CANDIDATES):
        return True
    if grade[0] is not Possibility.FIT and rules.when_can_preempt == "TryNextFlavor":
        return True
    return grade[1] > 0 and rules.when_can_borrow == "TryNextFlavor"


@dataclass(slots=True)
class GroupFlavors:
    """Flavors of one resource group. flavors: None if none was found."""

    flavors: dict[str, FlavorChoice] | None = None
    attempts: dict[str, FlavorAttempt] = field(default_factory=dict)
    is_short: bool = False
    has_error: bool = False


class FlavorSearch:
    """Searches flavors for one workload of one queue."""

    def __init__(
        self,
        snapshot: AdmissionSnapshot,
        queue: AdmissionQueue,
        workload: AdmissionWorkload,
        oracle: PreemptionOracle,
        nominated: NOMINATED,
    ) -> None:
        self.snapshot = snapshot
        self.queue = queue
        self.workload = workload
        self.oracle = oracle
        self.nominated = nominated

    def assign(self, counts: Sequence[int] | None = None) -> FlavorAssignment:
        """The assignment. counts: pods per pod set; None for all."""
        assignment = FlavorAssignment()
        choices = self._choices(counts)
        groups: dict[str, list[int]] = {}
        for i in range(len(choices)):
            groups.setdefault(group_key(self.workload.pod_sets, i), []).append(i)
        for indexes in groups.values():
            if not self._assign_group(assignment, [(i, choices[i]) for i in indexes]):
                assignment.set_no_fit_reason(self.queue)
                return assignment
        if assignment.mode is not Mode.NO_FIT and (
            "TopologyAwareScheduling" in self.snapshot.options.gates
        ):
            self._place(assignment)
        assignment.set_no_fit_reason(self.queue)
        return assignment

    def _choices(self, counts: Sequence[int] | None) -> list[PodSetChoice]:
        demands = self.workload.demands
        if counts is not None:
            demands = [one.scaled_to(n) for one, n in zip(demands, counts, strict=True)]
        found = []
        for demand in demands:
            requests = dict(demand.requests)
            if self.queue.group_of("pods") is not None:
                requests["pods"] = demand.count
            choice = PodSetChoice(demand, requests, places=demand.places, delayed=demand.delayed)
            for resource, flavor in demand.flavors.items():
                choice.flavors[resource] = FlavorChoice(flavor, Mode.FIT)
            found.append(choice)
        return found

    def _assign_group(
        self, assignment: FlavorAssignment, members: Sequence[tuple[int, PodSetChoice]]
    ) -> bool:
        """Flavors of pod sets that share them; False if there are none."""
        requests: Requests = {}
        for _, one in members:
            for name, n in one.requests.items():
                requests[name] = plus(requests.get(name, 0), n)
        found = GroupFlavors({})
        for _, one in members:
            found.flavors = {**(found.flavors or {}), **one.flavors}
        for name in in_request_order(requests):
            if self._is_skipped(name, requests[name]) or name in (found.flavors or ()):
                continue
            part = self._search_group([i for i, _ in members], requests, name, assignment.quota)
            self._merge_attempts(found.attempts, part.attempts, name)
            if part.has_error or not part.flavors:
                found.flavors = None
                found.is_short, found.has_error = part.is_short, part.has_error
                break
            found.flavors = {**(found.flavors or {}), **part.flavors}
            found.is_short = found.is_short or part.is_short
        is_found = True
        for _, one in members:
            one.flavors = self._flavors_of(one, found.flavors or {}, len(members) > 1)
            one.attempts = found.attempts
            one.is_short, one.has_error = found.is_short, found.has_error
            assignment.add(one)
            is_found = is_found and not (one.has_error or (one.requests and not one.flavors))
        return is_found

    def _is_skipped(self, name: str, n: int) -> bool:
        """Whether a resource that no group covers does not matter."""
        if self.queue.group_of(name) is not None:
            return False
        return n == 0 or self.snapshot.options.ignores_undeclared

    def _flavors_of(
        self, choice: PodSetChoice, flavors: Mapping[str, FlavorChoice], is_grouped: bool
    ) -> dict[str, FlavorChoice]:
        if choice.requests:
            return {name: one for name, one in flavors.items() if name in choice.requests}
        if not is_grouped:
            return {}
        return {name: one for name, one in flavors.items() if one.flavor in self.queue.topologies}

    def _merge_attempts(
        self,
        total: dict[str, FlavorAttempt],
        part: Mapping[str, FlavorAttempt],
        resource: str,
    ) -> None:
        for flavor, one in part.items():
            held = total.get(flavor)
            total[flavor] = (
                one
                if held is None
                else FlavorAttempt(min(held.mode, one.mode), most_severe((held.reason, one.reason)))
            )
        group = self.queue.group_of(resource)
        for flavor in group.flavor_names if part and group is not None else ():
            if flavor in total and flavor not in part:
                total[flavor] = FlavorAttempt(Mode.NO_FIT, NO_MATCHING_FLAVOR)

    def _search_group(
        self,
        indexes: Sequence[int],
        requests: Requests,
        resource: str,
        taken: Mapping[FlavorResource, int],
    ) -> GroupFlavors:
        """Search the group of a resource. taken: by pod sets before."""
        found = GroupFlavors()
        group = self.queue.group_of(resource)
        if group is None:
            found.is_short = True
            return found
        wanted = in_request_order(set(requests) & set(group.covered_resources))
        names = group.flavor_names
        tried = self.workload.tried
        start = tried.next_index(indexes[0], resource) if tried is not None else 0
        best, last = _WORST, -1
        for last in range(start, len(names)):
            flavor = names[last]
            if self.nominated and not any(
                self.nominated.get(self.workload.pod_sets[i].name, {}).get(resource) == flavor
                for i in indexes
            ):
                found.is_short = True
                continue
            if not self._is_flavor_allowed(flavor, indexes, group):
                found.is_short = True
                found.attempts[flavor] = FlavorAttempt(Mode.NO_FIT, NO_MATCHING_FLAVOR)
                continue
            grade, choices, reason, is_short = self._grade(flavor, wanted, requests, taken)
            found.is_short = found.is_short or is_short
            found.attempts[flavor] = FlavorAttempt(grade[0].mode, reason)
            if not tries_next(grade, self.queue.spec.flavor_fungibility):
                found.flavors, best = choices, grade
                break
            if is_preferred(grade, best, self.queue.spec.flavor_fungibility):
                found.flavors, best = choices, grade
        for choice in (found.flavors or {}).values():
            choice.tried = -1 if last == len(names) - 1 else last
        if best[0] is Possibility.FIT:
            found.is_short = False
        return found

    def _grade(
        self,
        flavor: str,
        wanted: Sequence[str],
        requests: Requests,
        taken: Mapping[FlavorResource, int],
    ) -> tuple[Grade, dict[str, FlavorChoice], str, bool]:
        """The worst grade of the resources in a flavor, choices, why not, whether one is short."""
        rules = self.queue.spec.flavor_fungibility
        worst: Grade = (Possibility.FIT, 0)
        choices: dict[str, FlavorChoice] = {}
        reason, is_short = "", False
        for name in wanted:
            pair = (flavor, name)
            n = plus(taken.get(pair, 0), requests[name])
            possibility, height, why = self._possibility(pair, n)
            if possibility is not Possibility.FIT:
                is_short = True
                reason = most_severe((reason, why))
            grade = (possibility, height)
            if self._is_worse(worst, grade, rules):
                worst = grade
            if worst[0] is not Possibility.NO_FIT:
                choices[name] = FlavorChoice(flavor, possibility.mode, height)
        return worst, choices, reason, is_short

    def _is_worse(self, worst: Grade, grade: Grade, rules: FlavorFungibility) -> bool:
        """Whether a resource makes its flavor worse. As in the original, with the preference
        PreemptionOverBorrowing one that fits by borrowing hides one that is short."""
        if self.snapshot.options.is_fixed:
            shorts = [one[0] is not Possibility.FIT for one in (worst, grade)]
            if shorts[0] != shorts[1]:
                return shorts[1]
        return is_preferred(worst, grade, rules)

    def _possibility(self, pair: FlavorResource, n: int) -> tuple[Possibility, int, str]:
        """How an amount could be had, its height, and why not at once."""
        node = self.queue.node
        if n > node.potential(pair):
            return Possibility.NO_FIT, 0, EXCEEDS_MAX_QUOTA
        height, has_more_above = borrowing_height(node, pair, n)
        if n <= node.available_now(pair):
            return Possibility.FIT, height, ""
        preemption = self.queue.spec.preemption
        may_preempt_borrowing = preemption.borrow_within_cohort.policy != NEVER or (
            self.snapshot.options.is_fair and preemption.reclaim_within_cohort != NEVER
        )
        if node.quota(pair).nominal >= n or has_more_above or may_preempt_borrowing:
            possibility, height = self.oracle.simulate(self.workload, pair, n)
            return possibility, height, ""
        return Possibility.NO_FIT, height, WAITING_FOR_QUOTA

    def _is_flavor_allowed(
        self, name: str, indexes: Sequence[int], group: KueueResourceGroup
    ) -> bool:
        """Whether pods may use a flavor: topology, taints, selectors."""
        flavor = self.snapshot.flavors.get(name)
        if flavor is None:
            return False
        has_topology = "TopologyAwareScheduling" in self.snapshot.options.gates
        for i in indexes:
            pod_set = self.workload.pod_sets[i]
            if has_topology and topology_mismatch(
                self.snapshot,
                self.queue,
                pod_set,
                flavor,
                group.covered_resources,
                self.workload.demands[i].per_pod,
            ):
                return False
            spec = pod_set.template.spec
            tolerations = (*spec.tolerations, *flavor.spec.tolerations)
            if any(
                is_untolerated(taint, tolerations, HARD_EFFECTS, True)
                for taint in flavor.spec.node_taints
            ):
                return False
            if not selects_flavor(spec, flavor):
                return False
        return True

    def _place(self, assignment: FlavorAssignment) -> None:
        """Places in topologies: now, else after preemption, else not at all."""
        snapshot, queue, workload = self.snapshot, self.queue, self.workload
        requests = placement_requests(queue, workload, assignment, snapshot.places)
        names = [one.pod_set.name for held in requests.values() for one in held]
        if assignment.mode is Mode.FIT:
            result = place(snapshot, workload, requests)
            if result.failed is None:
                note_places(assignment, queue, result.placed, names, snapshot.places)
            else:
                assignment.pod_set(result.failed[0]).is_short = True
                assignment.set_mode(Mode.PREEMPT, [result.failed[0]])
        if assignment.mode is Mode.PREEMPT and not workload.unhealthy_nodes:
            result = place(snapshot, workload, requests, is_empty=True)
            if result.failed is None:
                assignment.set_mode(Mode.PREEMPT, names)
            else:
                name, flavor = result.failed
                attempts = assignment.pod_set(name).attempts
                if flavor in attempts:
                    attempts[flavor] = FlavorAttempt(Mode.NO_FIT, TOPOLOGY_FAILED)
                assignment.set_mode(Mode.NO_FIT, [name])


def selects_flavor(spec: PodSpec, flavor: ResourceFlavor) -> bool:
    """Whether selector and required affinity, cut down to labels of the flavor, match it. A term
    without such labels matches everything."""
    labels = flavor.spec.node_labels
    selector = spec.node_selector or {}
    if any(key in labels and labels[key] != value for key, value in selector.items()):
        return False
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    terms = []
    for term in affinity.required.node_selector_terms if affinity and affinity.required else ():
        kept = tuple(one for one in term.match_expressions if one.key in labels)
        if not kept:
            return True
        terms.append(NodeSelectorTerm(match_expressions=kept))
    return not terms or node_selector_matches(NodeSelector(tuple(terms)), labels, "")
