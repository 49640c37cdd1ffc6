"""PreemptorAttempts: attempts of pods of one class that fit nowhere and preempt one by one.

The first of them is walked. For those after it the PostFilter keeps verdicts and candidates as rows
change (`framework/deciders/preemptor_search.py`), and the same for the attempt in which a pod is
placed on the node that it is nominated to, where that is the only one that it fits on.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import numpy as np

from stowplan.columns.array_types import Ints
from stowplan.cycle.attempt import Attempt, run_pre_filters_of
from stowplan.cycle.decision import REFUSED, SamplingState, break_tie, conclude
from stowplan.cycle.engine.classes import EnginePodClass
from stowplan.framework import Snapshot
from stowplan.framework.cycle_state import REFUSED_ALONE, CycleState
from stowplan.framework.deciders.decider import Decision
from stowplan.framework.deciders.extender_review import PreemptionCandidate
from stowplan.framework.deciders.preemptor_search import (
    FindKernel,
    PreemptorSearch,
    Rejections,
    SearchesForPreemptors,
)
from stowplan.framework.diagnosis import Diagnosis
from stowplan.framework.runtime.registered_plugin import RegisteredPlugin
from stowplan.framework.status import Status
from stowplan.objects.pod import Pod

CELLS_MAX = 6_000_000
"""Rows times classes that are kept, 4 to 20 bytes each; the least recently used class is dropped
first. 60 classes in turn on 50,000 nodes were walked where 20 of them were kept."""

PLANNED_MIN, ROWS_PER_PLANNED = 2, 300
"""Preemptors are planned together where there are so many, and one for each so many rows: a plan
tries every row."""

IsPlanned = Callable[[Snapshot], bool]

DrawTieBreak = Callable[[], int | None]
"""Draws the tie-break number of a pod, see `decision.decide`."""

PlanOfClass = Callable[[EnginePodClass], IsPlanned]
"""`IsPlanned` of a class, for the plan that it has now."""

RowScores = Callable[[EnginePodClass, Ints], Ints | None]
"""int64 (n_rows,): the total scores of rows for a class that passes on no others; None where these
have to be walked."""


BeginSearch = Callable[[EnginePodClass, Pod, Snapshot], "ClassSearch | None"]
"""Begins the search of a class without a walk of its first pod; None where it has to be walked."""


class ClassSearch:
    """The search of one class, with the words for its refusals."""

    def __init__(
        self,
        search: PreemptorSearch,
        is_planned: IsPlanned,
        state: CycleState,
        plugin: str,
        earlier: Sequence[RegisteredPlugin],
        sampling: SamplingState,
        scores: RowScores,
        kernel: FindKernel,
        begin: BeginSearch,
    ) -> None:
        """is_planned: whether only pods on nodes and free amounts have changed for the class.
        state: that its PreFilters leave. plugin: the PostFilter, and those that are called before
        it. sampling, scores, kernel: of the decider. begin: begins the search of another class."""
        self._search = search
        self._is_planned = is_planned
        self._state = state
        self._plugin = plugin
        self._earlier = earlier
        self._sampling = sampling
        self._scores = scores
        self._kernel = kernel
        self._begin = begin
        self._text: tuple[object, Decision] | None = None

    def is_decided_alone(self, pod: Pod, snapshot: Snapshot) -> bool:
        """See `PodClass.is_decided_alone`."""
        if not self._follow(pod, snapshot):
            return False
        return not self._search.n_passing or bool(snapshot.nominations.node_of(pod.uid))

    def is_refused(self, pod: Pod, snapshot: Snapshot) -> bool:
        """True where `pod`, one of the class, is known to pass on no row."""
        return self._follow(pod, snapshot) and not self._search.n_passing

    def _follow(self, pod: Pod, snapshot: Snapshot) -> bool:
        return self._is_planned(snapshot) and self._search.follow(pod, snapshot)

    def decide(
        self, pod: Pod, one: EnginePodClass, snapshot: Snapshot, draw: int | None
    ) -> Decision | None:
        """The decision of the walk; None where the pod has to be walked. draw: tie-break number,
        see `decision.decide`. Ties are counted from where the search of sampled nodes stands."""
        if not self._follow(pod, snapshot):
            return None
        nodes, search = snapshot.nodes, self._search
        own = nodes.row(snapshot.nominations.node_of(pod.uid))
        if own >= 0 or search.n_passing:
            return self._placed(pod, one, snapshot, own, draw)
        if pod.status.nominated_node_name or self._is_helped_before(pod, snapshot):
            return None
        candidate = search.cheapest(pod)
        if candidate is None:
            return None
        one.framework.note_preemption()
        return self._preempts(search.rejections(), candidate, nodes.n_nodes)

    def nominated_row(self, pod: Pod, snapshot: Snapshot) -> int:
        """See `PodClass.nominated_row`."""
        node = snapshot.nominations.node_of(pod.uid)
        if not node or not self._follow(pod, snapshot):
            return -1
        row, search = snapshot.nodes.row(node), self._search
        if row < 0 or search.n_passing or not search.passes_where_nominated(row, pod):
            return -1
        return row

    def _is_helped_before(self, pod: Pod, snapshot: Snapshot) -> bool:
        """True where a PostFilter that is called before may help the pod."""
        return any(member.may_help(pod, snapshot) for member in self._earlier)

    def decide_in_turn(
        self, pods: Sequence[Pod], classes: Sequence[EnginePodClass], snapshot: Snapshot
    ) -> Iterator[Decision]:
        """See `PodClass.decide_in_turn`. One of these pods is of this class."""
        nominations = snapshot.nominations
        kernel = None if nominations.node_of(pods[0].uid) else self._kernel()
        if kernel is None:
            return
        joined: dict[EnginePodClass, ClassSearch | None] = {}
        members: list[ClassSearch] = []
        for pod, one in zip(pods, classes, strict=True):
            if pod.status.nominated_node_name or nominations.node_of(pod.uid):
                break
            if one in joined:
                other = joined[one]
            else:
                other = joined[one] = self._joining(one, pod, snapshot)
            if other is None:
                break
            members.append(other)
        n_nodes = snapshot.nodes.n_nodes
        if len(members) < max(PLANNED_MIN, n_nodes // ROWS_PER_PLANNED):
            return
        planned = self._search.plan([one._search for one in members], kernel)
        for pod, one, search, (candidate, rejections) in zip(
            pods, classes, members, planned, strict=False
        ):
            if search._is_helped_before(pod, snapshot):
                return
            one.framework.note_preemption()
            yield search._preempts(rejections, candidate, n_nodes)

    def _joining(self, one: EnginePodClass, pod: Pod, snapshot: Snapshot) -> ClassSearch | None:
        """The search of a class whose pods may be planned with those of this one; None where they
        may not. It is begun where none of these pods was decided yet."""
        other = one.search
        if other is None:
            other = self._begin(one, pod, snapshot)
        if (
            isinstance(other, ClassSearch)
            and other.is_refused(pod, snapshot)
            and self._search.may_join(other._search)
        ):
            return other
        return None

    def _preempts(
        self, rejections: Rejections, candidate: PreemptionCandidate, n_nodes: int
    ) -> Decision:
        text = self._text
        if text is None or (text[0] is not rejections and text[0] != rejections):
            text = self._text = rejections, self._refusal(rejections, n_nodes)
        words = text[1]
        return Decision(
            refusal=REFUSED,
            message=words.message,
            reasons=words.reasons,
            near_misses=words.near_misses,
            plugins=words.plugins,
            pending=words.pending,
            nominated_node=candidate.node_name,
            victims=candidate.victims,
            preempted_by=self._plugin,
        )

    def nominated_decision(
        self, pod: Pod, one: EnginePodClass, snapshot: Snapshot, draw: DrawTieBreak
    ) -> Decision | None:
        """See `PodClass.nominated_decision`."""
        own = snapshot.nodes.row(snapshot.nominations.node_of(pod.uid))
        if own < 0 or not self._follow(pod, snapshot):
            return None
        passed = self._passed(pod, one, own)
        return None if passed is None else self._unwalked(pod, one, snapshot, passed, own, draw)

    def _placed(
        self, pod: Pod, one: EnginePodClass, snapshot: Snapshot, own: int, draw: int | None
    ) -> Decision | None:
        """The decision for a pod that passes somewhere. own: the row that it is nominated to."""
        passed = self._passed(pod, one, own)
        if passed is None:
            return None
        found = self._unwalked(pod, one, snapshot, passed, own, lambda: draw)
        if found is not None:
            return found
        attempt = Attempt(pod, snapshot, one.framework)
        attempt.state, attempt.passed = self._state.clone(), passed
        return conclude(attempt, draw, self._sampling)

    def _passed(self, pod: Pod, one: EnginePodClass, own: int) -> Ints | None:
        """int64, ascending: the rows on which a pod passes; None without any, and where it has to
        be walked. own: the row that it is nominated to."""
        search = self._search
        passes_there = own >= 0 and (
            search.passes_where_nominated(own, pod) or search.passes_without(own, pod.uid)
        )
        if one.claims is not None or passes_there is None:
            # Its state is not that of another pod of the class.
            return None
        if own >= 0 and search.n_passing == search.passes(own):
            return np.array([own]) if passes_there else None
        passed = search.passing()
        if own >= 0 and search.passes(own) != passes_there:
            passed = np.sort(np.append(passed, own)) if passes_there else passed[passed != own]
        return passed if passed.shape[0] else None

    def _unwalked(
        self,
        pod: Pod,
        one: EnginePodClass,
        snapshot: Snapshot,
        passed: Ints,
        own: int,
        draw: DrawTieBreak,
    ) -> Decision | None:
        """The decision of `conclude` where the pod passes on its own row alone, or with the scores
        that kernels find; None without these."""
        nodes, framework = snapshot.nodes, one.framework
        if passed.shape[0] == 1:
            return (
                Decision(node_name=nodes.names[own], state=one.state) if passed[0] == own else None
            )
        if (
            pod.status.nominated_node_name
            or framework.profile.percentage_of_nodes_to_score
            or not framework.at("score")
        ):
            return None
        total = self._scores(one, passed)
        if total is None:
            return None
        best = total.max()
        row = break_tie(nodes, passed[total == best], draw(), self._sampling.next_start)
        return Decision(node_name=nodes.names[row], state=one.state, score=int(best))

    def _refusal(self, rejections: Iterable[tuple[Status, int]], n_nodes: int) -> Decision:
        diagnosis = Diagnosis(n_nodes)
        diagnosis.counted = tuple(rejections)
        return Decision(
            message=diagnosis.text(),
            reasons=diagnosis.reasons(),
            near_misses=diagnosis.near_misses(),
            plugins=tuple(sorted(diagnosis.plugins)),
            pending=tuple(sorted(diagnosis.pending)),
        )


def _is_refused_by_rows(attempt: Attempt) -> bool:
    """True where filters of all rows, and nothing else, have refused the pod."""
    verdicts = attempt.verdicts
    return (
        verdicts is not None
        and attempt.failure is None
        and attempt.passed.shape[0] == 0
        and attempt.pre_filter.restrict is None
        and verdicts.rows.shape[0] == attempt.snapshot.nodes.n_nodes
        and attempt.state.find(REFUSED_ALONE) is None
    )


class PreemptorAttempts:
    """The searches of all classes, with a bound."""

    def __init__(self, sampling: SamplingState, kernel: FindKernel) -> None:
        """sampling, kernel: of the decider."""
        self._sampling = sampling
        self._kernel = kernel
        self._kept: OrderedDict[EnginePodClass, None] = OrderedDict()

    def decide(
        self, one: EnginePodClass, pod: Pod, snapshot: Snapshot, draw: int | None
    ) -> Decision | None:
        """The decision for a pod of the class; None where it has to be walked."""
        return None if one.search is None else one.search.decide(pod, one, snapshot, draw)

    def first(
        self,
        one: EnginePodClass,
        attempt: Attempt,
        draw: int | None,
        plan_of: PlanOfClass,
        scores: RowScores,
    ) -> Decision | None:
        """Begin a search where filters have refused all rows; its decision for that pod, None where
        PostFilter has to be called."""
        self._drop(one)
        if not _is_refused_by_rows(attempt):
            return None
        pod, snapshot = attempt.pod, attempt.snapshot
        begun = self._search_of(one, attempt, plan_of, scores)
        if begun is None:
            return None
        return self._keep(one, begun, snapshot).decide(pod, one, snapshot, draw)

    def begin(
        self,
        plan_of: PlanOfClass,
        scores: RowScores,
        one: EnginePodClass,
        pod: Pod,
        snapshot: Snapshot,
    ) -> ClassSearch | None:
        """Begin a search, where its verdicts are those of the filters; None where a row passes, and
        where the pod has to be walked for it."""
        if not plan_of(one)(snapshot):
            return None
        attempt = Attempt(pod, snapshot, one.framework)
        if not run_pre_filters_of(attempt) or attempt.pre_filter.restrict is not None:
            return None
        if attempt.state.find(REFUSED_ALONE) is not None:
            return None
        begun = self._search_of(one, attempt, plan_of, scores)
        if begun is None or not begun.is_refused(pod, snapshot):
            return None
        return self._keep(one, begun, snapshot)

    def _search_of(
        self,
        one: EnginePodClass,
        attempt: Attempt,
        plan_of: PlanOfClass,
        scores: RowScores,
    ) -> ClassSearch | None:
        """A search for pods like that of an attempt, of which PreFilters have run; None where
        PostFilter has to be called."""
        framework, snapshot, pod = attempt.framework, attempt.snapshot, attempt.pod
        limits, is_planned_now = one.run_limits, plan_of(one)

        def is_planned(snapshot: Snapshot) -> bool:
            return is_planned_now(snapshot) and all(one.is_unlimited(snapshot) for one in limits)

        members = framework.at("postFilter")
        place = next((i for i, m in enumerate(members) if m.may_help(pod, snapshot)), len(members))
        if one.card_filter or place == len(members) or not is_planned(snapshot):
            return None
        member = members[place]
        if pod.spec.resource_claims or not isinstance(member.plugin, SearchesForPreemptors):
            return None
        search = member.plugin.preemptor_search(pod, snapshot, framework, attempt.state)
        if search is None:
            return None
        own = self._sampling, scores, self._kernel, partial(self.begin, plan_of, scores)
        return ClassSearch(search, is_planned, attempt.state, member.name, members[:place], *own)

    def _keep(self, one: EnginePodClass, begun: ClassSearch, snapshot: Snapshot) -> ClassSearch:
        one.search = begun
        self._kept[one] = None
        while len(self._kept) > max(1, CELLS_MAX // max(1, snapshot.nodes.n_nodes)):
            oldest, _ = self._kept.popitem(last=False)
            oldest.search = None
        return begun

    def _drop(self, one: EnginePodClass) -> None:
        one.search = None
        self._kept.pop(one, None)

    def retain(self, classes: Iterable[EnginePodClass]) -> None:
        """Keep the searches of these classes and drop all others."""
        left = set(classes)
        for one in [one for one in self._kept if one not in left]:
            self._drop(one)
