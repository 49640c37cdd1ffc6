"""PreemptorAttempts: attempts of pods of one class that fit nowhere and preempt one by one.

The first of them is walked. For those after it the PostFilter keeps verdicts and candidates as rows
change (`framework/deciders/preemptor_search.py`), and the same for the attempt in which a pod is
placed on the node that it is nominated to, where that is the only one that it fits on.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from stowplan.columns.array_types import Ints
from stowplan.cycle.attempt import Attempt
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

CELLS_MAX = 1_000_000
"""Rows times classes that are kept; the least recently used class is dropped first."""

PLANNED_MIN, ROWS_PER_PLANNED = 2, 300
"""Preemptors are planned together where there are so many, and one for each so many rows: a plan
tries every row."""

IsPlanned = Callable[[Snapshot], bool]

RowScores = Callable[[EnginePodClass, Ints], Ints | None]
"""int64 (n_rows,): the total scores of rows for a class that passes on no others; None where these
have to be walked."""


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
    ) -> None:
        """is_planned: whether only pods on nodes and free amounts have changed for the class.
        state: that its PreFilters leave. plugin: the PostFilter, and those that are called before
        it. sampling, scores, kernel: of the decider."""
        self._search = search
        self._is_planned = is_planned
        self._state = state
        self._plugin = plugin
        self._earlier = earlier
        self._sampling = sampling
        self._scores = scores
        self._kernel = kernel
        self._text: tuple[object, Decision] | None = None

    def is_decided_alone(self, pod: Pod, snapshot: Snapshot) -> bool:
        """See `PodClass.is_decided_alone`."""
        if not self._follow(pod, snapshot):
            return False
        return not self._search.n_passing or bool(snapshot.nominations.node_of(pod.uid))

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
        """See `PodClass.decide_in_turn`. The first pod is of this class, and it is followed."""
        nominations = snapshot.nominations
        kernel = None if nominations.node_of(pods[0].uid) else self._kernel()
        if kernel is None:
            return
        joined: dict[EnginePodClass, bool] = {}
        members: list[ClassSearch] = []
        for pod, one in zip(pods, classes, strict=True):
            other = one.search
            if not isinstance(other, ClassSearch):
                break
            joins = joined.get(one)
            if joins is None:
                joins = joined[one] = self._may_join(other, pod, snapshot)
            if not joins or pod.status.nominated_node_name or nominations.node_of(pod.uid):
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

    def _may_join(self, other: ClassSearch, pod: Pod, snapshot: Snapshot) -> bool:
        """Whether pods of another class may be planned with those of this one."""
        return (
            other._follow(pod, snapshot)
            and not other._search.n_passing
            and self._search.may_join(other._search)
        )

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

    def _placed(
        self, pod: Pod, one: EnginePodClass, snapshot: Snapshot, own: int, draw: int | None
    ) -> Decision | None:
        """The decision for a pod that passes somewhere. own: the row that it is nominated to."""
        nodes, search = snapshot.nodes, self._search
        passes_there = own >= 0 and search.passes_without(own, pod.uid)
        if one.claims is not None or passes_there is None:
            # Its state is not that of another pod of the class.
            return None
        n_others = search.n_passing - (own >= 0 and search.passes(own))
        if n_others == 0 and passes_there:
            return Decision(node_name=nodes.names[own], state=one.state)
        attempt = Attempt(pod, snapshot, one.framework)
        attempt.state = self._state.clone()
        passed = search.passing()
        if own >= 0:
            passed = passed[passed != own]
            if passes_there:
                passed = np.sort(np.append(passed, own))
        attempt.passed = passed
        if not passed.shape[0]:
            return None
        return self._scored(attempt, one, draw) or conclude(attempt, draw, self._sampling)

    def _scored(self, attempt: Attempt, one: EnginePodClass, draw: int | None) -> Decision | None:
        """The decision of `conclude`, with the scores that kernels find; None without them."""
        passed, framework = attempt.passed, attempt.framework
        if (
            passed.shape[0] == 1
            or attempt.pod.status.nominated_node_name
            or framework.profile.percentage_of_nodes_to_score
            or not framework.at("score")
        ):
            return None
        total = self._scores(one, passed)
        if total is None:
            return None
        best = total.max()
        row = break_tie(attempt, passed[total == best], draw, self._sampling.next_start)
        return Decision(
            node_name=attempt.snapshot.nodes.names[row], state=one.state, score=int(best)
        )

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
        is_planned: IsPlanned,
        scores: RowScores,
    ) -> Decision | None:
        """Begin a search where filters have refused all rows; its decision for that pod, None where
        PostFilter has to be called."""
        framework, snapshot, pod = attempt.framework, attempt.snapshot, attempt.pod
        self._drop(one)
        if not _is_refused_by_rows(attempt) or one.card_filter:
            return None
        limits = one.run_limits

        def is_planned_without_limits(snapshot: Snapshot) -> bool:
            return is_planned(snapshot) and all(limit.is_unlimited(snapshot) for limit in limits)

        members = framework.at("postFilter")
        place = next((i for i, m in enumerate(members) if m.may_help(pod, snapshot)), len(members))
        if place == len(members) or not is_planned_without_limits(snapshot):
            return None
        member = members[place]
        if pod.spec.resource_claims or not isinstance(member.plugin, SearchesForPreemptors):
            return None
        search = member.plugin.preemptor_search(pod, snapshot, framework, attempt.state)
        if search is None:
            return None
        own = self._sampling, scores, self._kernel
        kept = ClassSearch(
            search, is_planned_without_limits, attempt.state, member.name, members[:place], *own
        )
        one.search = kept
        self._kept[one] = None
        while len(self._kept) > max(1, CELLS_MAX // max(1, snapshot.nodes.n_nodes)):
            oldest, _ = self._kept.popitem(last=False)
            oldest.search = None
        return kept.decide(pod, one, snapshot, draw)

    def _drop(self, one: EnginePodClass) -> None:
        one.search = None
        self._kept.pop(one, None)

    def retain(self, classes: Iterable[EnginePodClass]) -> None:
        """Keep the searches of these classes and drop all others."""
        left = set(classes)
        for one in [one for one in self._kept if one not in left]:
            self._drop(one)
