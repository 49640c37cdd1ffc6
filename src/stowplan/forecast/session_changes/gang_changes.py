"""Changes of the pods of a gang and of nodes that let a session start it, each tried in a session.

A pod of a gang is edited in the object that has its template, pods without one each by themselves:
the edit is made to all pods of the gang with that spec, and costs as much as for one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations
from typing import NamedTuple

from msgspec.structs import replace

from stowplan.assembly.deciders import Deciders
from stowplan.cycle.attempt import filter_pod
from stowplan.cycle.change import Change, ChangedObject
from stowplan.cycle.explanation import pending_form
from stowplan.forecast.session_changes.claim_changes import (
    edits_for,
    is_of_template,
    lowered_counts,
    text_for,
    with_edits,
)
from stowplan.forecast.session_changes.gang_freeing import GangFreeing
from stowplan.forecast.session_changes.session_trials import JobChanges, Outcome, smallest
from stowplan.inputs.cluster_reader import Cluster
from stowplan.inputs.counts import count_of
from stowplan.insight.changes.changed_objects import PodSource, changed_objects, source_of
from stowplan.insight.changes.edits import (
    AddNodeEdit,
    NodeEdit,
    ObjectEdit,
    PodEdit,
    can_be_combined,
)
from stowplan.insight.changes.node_edits import copies_of, new_nodes
from stowplan.insight.changes.node_problems import NodeProblems
from stowplan.insight.changes.pod_edits import (
    container_requests,
    lower_by_percent,
    lower_request,
)
from stowplan.objects.pod import Pod
from stowplan.objects.pod_requests import fit_requests
from stowplan.simulation.session_runner import SessionRunner

TRIALS_MAX = 24
"""Candidates of one kind that are tried."""
POOLS_MAX = 8
"""Kinds of new nodes that are tried."""
ADDED_MAX = 64
"""New nodes of one kind."""
PAIRS_LEFT_OUT = (
    "pairs with a lower request, with pods to free, with several new nodes, "
    "or with the PodGroup or the Queue"
)
PERCENT = 100


class MemberPods(NamedTuple):
    """Pods of a gang with one spec. sources: the objects that have it, none where no patch can name
    them."""

    pods: tuple[Pod, ...]
    sources: tuple[PodSource, ...]


class GangEdit(NamedTuple):
    """An edit for a gang. members: whose pods a PodEdit changes, or whose claims that were made
    from one template. n_copies: of a new node. is_enough: whether a node has no other problem than
    resources after it."""

    edit: PodEdit | NodeEdit | ObjectEdit | AddNodeEdit
    members: MemberPods | None = None
    n_copies: int = 1
    is_enough: bool = True

    @property
    def cost(self) -> int:
        """Points."""
        return self.edit.cost * self.n_copies

    @property
    def text(self) -> str:
        """The change in words."""
        if self.n_copies > 1:
            assert isinstance(self.edit, AddNodeEdit)
            return f"add {self.n_copies} nodes of pool {self.edit.pool}"
        if isinstance(self.edit, ObjectEdit) and self.members is not None:
            return text_for(self.edit, self.members.pods)
        return self.edit.text

    def of_objects(self, cluster: Cluster) -> list[ObjectEdit]:
        """What it does to claims and to the devices of nodes."""
        if not isinstance(self.edit, ObjectEdit):
            return []
        pods = () if self.members is None else self.members.pods
        return edits_for(self.edit, pods, cluster.objects)


def find_gang_changes(
    cluster: Cluster, deciders: Deciders, pending: Sequence[str], has_started: Outcome
) -> JobChanges:
    """The smallest changes of the pending pods of a gang and of nodes, each tried in a session.

    pending: keys of the gang's pods without a node. The cluster stays as it is.
    """
    search = _GangSearch(cluster, deciders, pending, has_started)
    changes = search.run()
    return JobChanges(tuple(changes), tuple(search.not_searched))


def _lower_total(pod: Pod, resource: str, asked: int, percent: int) -> PodEdit | None:
    """The request of the pod as a whole, lowered by so many percent of what the pod requests."""
    return lower_request(pod, resource, asked - asked * percent // PERCENT)


class _GangSearch:
    """One search."""

    def __init__(
        self, cluster: Cluster, deciders: Deciders, pending: Sequence[str], has_started: Outcome
    ) -> None:
        self.cluster = cluster
        self.deciders = deciders
        self.has_started = has_started
        self.members = _members(cluster, set(pending))
        self._gang: frozenset[str] = frozenset()
        self.not_searched: list[str] = []
        if any(not members.sources for members in self.members):
            self.not_searched.append("changes of the pods: the object that they were made from")

    def run(self) -> list[Change]:
        """Search one edit, then two together where no single one helps."""
        candidates = self._candidates()
        by_kind: dict[str, list[GangEdit]] = {}
        for candidate in candidates:
            if candidate.is_enough:
                by_kind.setdefault(candidate.edit.kind, []).append(candidate)
        found = [
            self._first_that_helps(kind, [(one,) for one in own]) for kind, own in by_kind.items()
        ]
        found += [self._lowered_request(), self._lowered_count(), self._new_nodes()]
        freed = self._freed()
        if not any(found) and freed is None:
            found.append(self._first_that_helps("combined", self._pairs(candidates)))
            self.not_searched.append(PAIRS_LEFT_OUT)
            if not found[-1]:
                self.not_searched.append("three or more changes together")
        changes = [self._change(edits) for edits in found if edits]
        return changes if freed is None else [*changes, freed]

    def starts_after(self, edits: Sequence[GangEdit]) -> bool:
        """True when a session starts the gang after these edits."""
        cluster = _edited(self.cluster, edits)
        return self.has_started(SessionRunner(cluster, self.deciders).run_session())

    # Candidates.

    def _candidates(self) -> list[GangEdit]:
        """Edits of pods and nodes that solve a problem of a node, other than its resources."""
        runner = SessionRunner(self.cluster, self.deciders)
        runner.disable_actions()
        runner.run_session()
        pending = {pod.uid for members in self.members for pod in members.pods}
        jobs = (job.tasks for job in runner.known_jobs)
        self._gang = frozenset(uid for tasks in jobs if pending & set(tasks) for uid in tasks)
        snapshot = runner.snapshot()
        framework = self.deciders.framework()
        found: dict[tuple[str, int], GangEdit] = {}
        for number, members in enumerate(self.members):
            problems = NodeProblems(
                filter_pod(pending_form(members.pods[0]), snapshot, framework),
                edits_spec=bool(members.sources),
                edits_affinity=bool(members.sources),
            )
            for case in (
                case for row in problems.rows for case in problems.cases(row, pairs=False)
            ):
                for remedy in case.remedies:
                    edit, *others = remedy.edits
                    if others or not isinstance(edit, PodEdit | NodeEdit | ObjectEdit):
                        continue
                    is_enough = remedy.covers >= case.problems
                    is_of_pods = isinstance(edit, PodEdit) or is_of_template(edit)
                    own = members if is_of_pods else None
                    key = edit.text, -1 if own is None else number
                    if key not in found or is_enough > found[key].is_enough:
                        found[key] = GangEdit(edit, own, is_enough=is_enough)
        return list(found.values())

    def _lowered_request(self) -> tuple[GangEdit, ...]:
        """The cheapest lowering of one request: by the fewest percent."""
        found: list[GangEdit] = []
        for members in self.members:
            pod = members.pods[0]
            if not members.sources:
                continue
            level = pod.spec.resources
            at_level = level.requests if level is not None else {}
            for resource in at_level:
                asked = fit_requests(pod).get(resource, 0)
                found += self._least_lowering(members, partial(_lower_total, pod, resource, asked))
            for place in container_requests(pod.spec):
                if place[-1] not in at_level:
                    lower = partial(lower_by_percent, pod.spec, *place)
                    found += self._least_lowering(members, lower)
        return (min(found, key=lambda one: one.cost),) if found else ()

    def _least_lowering(
        self, members: MemberPods, lower: Callable[[int], PodEdit | None]
    ) -> list[GangEdit]:
        """The edit by the fewest percent with which the gang starts; none if no edit helps."""

        def helps(percent: int) -> bool:
            edit = lower(percent)
            return edit is not None and self.starts_after([GangEdit(edit, members)])

        percent = smallest(1, PERCENT, helps)
        edit = None if percent is None else lower(percent)
        return [] if edit is None else [GangEdit(edit, members)]

    def _lowered_count(self) -> tuple[GangEdit, ...]:
        """The cheapest lowering of the number of devices that a request of their claims is for."""
        found: list[GangEdit] = []
        for members in self.members:
            for edits in lowered_counts(members.pods[0], self.cluster.objects):
                own = members if edits and is_of_template(edits[0]) else None
                tried = [GangEdit(edit, own) for edit in edits]

                def helps(number: int, tried: list[GangEdit] = tried) -> bool:
                    return self.starts_after([tried[number - 1]])

                number = smallest(1, len(tried), helps)
                found += [] if number is None else [tried[number - 1]]
        return (min(found, key=lambda one: one.cost),) if found else ()

    def _new_nodes(self) -> tuple[GangEdit, ...]:
        """The fewest new nodes of one kind."""
        kinds = new_nodes(self.cluster.nodes)
        if len(kinds) > POOLS_MAX:
            left = count_of(len(kinds) - POOLS_MAX, "kind")
            self.not_searched.append(f"{left} of new nodes of {len(kinds)}")
        best: GangEdit | None = None
        for edit in kinds[:POOLS_MAX]:
            most = min(ADDED_MAX, sum(len(members.pods) for members in self.members))
            if best is not None:
                most = min(most, best.n_copies - 1)

            def helps(count: int, edit: AddNodeEdit = edit) -> bool:
                return self.starts_after([GangEdit(edit, n_copies=count)])

            count = smallest(1, most, helps)
            if count is not None:
                best = GangEdit(edit, n_copies=count)
        if kinds and best is None:
            self.not_searched.append(f"more than {count_of(ADDED_MAX, 'new node')}")
        return () if best is None else (best,)

    def _pairs(self, singles: list[GangEdit]) -> list[tuple[GangEdit, ...]]:
        added = [GangEdit(edit) for edit in new_nodes(self.cluster.nodes)[:POOLS_MAX]]
        pods = [one for one in singles if isinstance(one.edit, PodEdit)]
        both = [
            (one, other)
            for one, other in combinations(singles, 2)
            if one.members is not other.members or can_be_combined(one.edit, other.edit)
        ]
        return [*both, *((new, one) for new in added for one in pods)]

    def _freed(self) -> Change | None:
        """The cheapest running pods of others to end."""
        if not self.members:
            return None
        pods = self.cluster.pods

        def starts_without(keys: frozenset[str]) -> bool:
            left = replace(self.cluster, pods=[pod for pod in pods if pod.key not in keys])
            return self.has_started(SessionRunner(left, self.deciders).run_session())

        freeing = GangFreeing(starts_without)
        running = [pod for pod in pods if self._may_end(pod)]
        found = freeing.cheapest(running, self.members[0].pods[0], self.cluster.sources())
        if freeing.is_cut:
            self.not_searched.append("cheaper sets of pods to free")
        return found

    def _may_end(self, pod: Pod) -> bool:
        return bool(pod.node_name) and not pod.is_finished and pod.uid not in self._gang

    # Results.

    def _first_that_helps(
        self, kind: str, candidates: Sequence[tuple[GangEdit, ...]]
    ) -> tuple[GangEdit, ...]:
        """The cheapest candidate after which the gang starts; () for none."""
        ordered = sorted(candidates, key=_cost)
        for edits in ordered[:TRIALS_MAX]:
            if self.starts_after(edits):
                return edits
        if len(ordered) > TRIALS_MAX:
            left = count_of(len(ordered) - TRIALS_MAX, "candidate")
            self.not_searched.append(f"{left} of kind {kind}, each of a higher or equal cost")
        return ()

    def _change(self, edits: tuple[GangEdit, ...]) -> Change:
        kind = edits[0].edit.kind if len(edits) == 1 else "combined"
        text = " and ".join(one.text for one in edits)
        objects: list[ChangedObject] = []
        for members in self.members:
            own = [
                one.edit
                for one in edits
                if one.members is members and members.sources and isinstance(one.edit, PodEdit)
            ]
            for source in members.sources if own else ():
                objects += changed_objects(own, source, {})
        nodes = {node.name: node for node in self.cluster.nodes}
        of_nodes: list[NodeEdit | AddNodeEdit] = []
        of_objects: list[ObjectEdit] = []
        for one in edits:
            of_objects += one.of_objects(self.cluster)
            if isinstance(one.edit, NodeEdit):
                of_nodes.append(one.edit)
            elif isinstance(one.edit, AddNodeEdit):
                of_nodes += copies_of(one.edit, one.n_copies, nodes)
        named = {edit.node for edit in of_nodes if isinstance(edit, NodeEdit)}
        named_nodes = {name: nodes[name] for name in named}
        objects += changed_objects([*of_nodes, *of_objects], None, named_nodes)
        return Change(kind, _cost(edits), text, tuple(objects))


def _cost(edits: Sequence[GangEdit]) -> int:
    return sum(one.cost for one in edits)


def _members(cluster: Cluster, pending: set[str]) -> list[MemberPods]:
    """The pods of the gang, those that one edit changes together."""
    groups: list[tuple[object, list[Pod]]] = []
    for pod in cluster.pods:
        if pod.key not in pending:
            continue
        is_read = pod.key not in cluster.origins
        mark: object = pod.spec if is_read else cluster.origins[pod.key]
        for known, pods in groups:
            if known is mark or (is_read and known == mark):
                pods.append(pod)
                break
        else:
            groups.append((mark, [pod]))
    return [MemberPods(tuple(pods), _sources(pods, cluster)) for _, pods in groups]


def _sources(pods: list[Pod], cluster: Cluster) -> tuple[PodSource, ...]:
    some = pods if pods[0].key not in cluster.origins else pods[:1]
    sources = cluster.sources()
    found = [source_of(pod, sources) for pod in some]
    return tuple(source for source in found if source is not None and not source.is_daemon_set)


def _edited(cluster: Cluster, edits: Sequence[GangEdit]) -> Cluster:
    """The cluster after the edits."""
    nodes = {node.name: node for node in cluster.nodes}
    pods = {pod.key: pod for pod in cluster.pods}
    of_objects: list[ObjectEdit] = []
    for one in sorted(edits, key=lambda one: -one.edit.position):
        match one.edit:
            case PodEdit():
                assert one.members is not None
                for member in one.members.pods:
                    pod = pods[member.key]
                    pods[pod.key] = replace(pod, spec=one.edit.change(pod.spec)[0])
            case NodeEdit():
                nodes[one.edit.node] = one.edit.change(nodes[one.edit.node])[0]
            case AddNodeEdit():
                for edit in copies_of(one.edit, one.n_copies, nodes):
                    nodes[edit.node.name] = edit.node
            case ObjectEdit():
                of_objects += one.of_objects(cluster)
    objects = with_edits(cluster.objects, of_objects) if of_objects else cluster.objects
    return replace(cluster, nodes=list(nodes.values()), pods=list(pods.values()), objects=objects)
