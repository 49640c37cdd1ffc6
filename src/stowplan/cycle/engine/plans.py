"""Plans: what a class of pods is to the kernels, from the parts that its plugins give."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from stowplan.columns.engine import arrays as at
from stowplan.columns.pods.podcounts import LabelIndex, sums_by_value
from stowplan.cycle.engine.class_arrays import ClassArrays
from stowplan.cycle.engine.classes import EnginePodClass
from stowplan.cycle.engine.layouts import GROUPS_MAX, is_host_like
from stowplan.framework import SCORE_MAX, CycleState, Framework, RestrictTo, Snapshot, Status
from stowplan.framework.deciders.kernel_terms import (
    BalancedAllocation,
    KernelTerm,
    PeerAffinityTerms,
    ResourceFit,
    ResourceScore,
    ScoredResource,
    ScoringStrategyType,
    TopologyTerm,
    TopologyTermKind,
    TopologyTerms,
)
from stowplan.framework.node_to_status import PluginVerdicts
from stowplan.framework.plugin_calls import takes_parameter
from stowplan.framework.runtime.registered_plugin import RegisteredPlugin
from stowplan.objects.node import HOSTNAME_LABEL

P = TypeVar("P")

KINDS = {
    TopologyTermKind.APART: at.APART,
    TopologyTermKind.NEAR: at.NEAR,
    TopologyTermKind.EVEN_HARD: at.EVEN_HARD,
    TopologyTermKind.EVEN_SOFT: at.EVEN_SOFT,
    TopologyTermKind.WEIGHTED_AFFINITY: at.WEIGHTED_AFFINITY,
}
POINTS_MAX = 2**31 - 1
"""What a leaf of a tree can hold."""

STRATEGIES = {
    ScoringStrategyType.LEAST: at.LEAST,
    ScoringStrategyType.MOST: at.MOST,
    ScoringStrategyType.RATIO: at.RATIO,
}


class NoPlan(Exception):
    """What a class's rules come to cannot be said to the kernels; the walk decides its pods."""


class PluginPoints:
    """A plugin of a profile with the points at which decisions ask it."""

    def __init__(self, member: RegisteredPlugin, framework: Framework) -> None:
        self.member = member
        at_point = {
            point: member in framework.at(point)
            for point in ("preFilter", "filter", "preScore", "score")
        }
        self.filters, self.scores = at_point["filter"], at_point["score"]
        self.prepares_filter, self.prepares_score = at_point["preFilter"], at_point["preScore"]
        calls = member.calls
        self.concerns, self.parts = calls["concerns"], calls["parts"]
        self.signature = calls["signature"]
        # A plugin whose preparation is switched off at one point fails at the next.
        self.is_whole = not (
            (self.filters and calls["pre_filter"] and not self.prepares_filter)
            or (self.scores and calls["pre_score"] and not self.prepares_score)
            or (self.prepares_filter and calls["filter"] and not self.filters)
        )


def plugin_points_of(framework: Framework) -> list[PluginPoints] | None:
    """The plugins that decisions ask; None where the profile is one that no plan can be made for:
    it looks at a share of the nodes only, its Bind may fail at once and give room back before the
    next pod, its scores add up to more than trees can hold, or some are divided first."""
    percentage = framework.profile.percentage_of_nodes_to_score
    if (percentage and percentage < 100) or not framework.unconditional_binder:
        return None
    # Trees hold points in 32 bits.
    if SCORE_MAX * sum(member.weight for member in framework.at("score")) > POINTS_MAX:
        return None
    if framework.profile.divisors:
        return None
    members = {
        member.name: member
        for point in ("preFilter", "filter", "preScore", "score")
        for member in framework.at(point)
    }
    return [PluginPoints(member, framework) for member in members.values()]


class ClassTerms:
    """The parts of a class, sorted out. Raises NoPlan for more of a sort than the kernels take."""

    def __init__(self, parts: Sequence[tuple[PluginPoints, KernelTerm]]) -> None:
        self.room: ResourceFit | None = None
        self.use: ResourceScore | None = None
        self.even: BalancedAllocation | None = None
        self.use_weight = self.even_weight = self.spread_weight = self.affinity_weight = 0
        self.requires_all = False
        self.terms: list[TopologyTerm] = []
        for uses, part in parts:
            self._take(uses, part)

    def _take(self, uses: PluginPoints, part: KernelTerm) -> None:
        weight = uses.member.weight
        if isinstance(part, TopologyTerms):
            self._take_terms(uses, part)
        elif isinstance(part, ResourceFit):
            if uses.filters:
                self.room = _single_part(self.room, part, len(part.wanted))
        elif not uses.scores:
            return
        elif isinstance(part, ResourceScore):
            self.use, self.use_weight = _single_part(self.use, part, len(part.resources)), weight
        else:
            self.even, self.even_weight = _single_part(self.even, part, len(part.resources)), weight

    def _take_terms(self, uses: PluginPoints, part: TopologyTerms) -> None:
        taken = [t for t in part.terms if (uses.filters if t.kind.filters else uses.scores)]
        kinds = {term.kind for term in taken}
        # What is normalised, or met as a whole, is so per plugin.
        if (
            kinds
            & {t.kind for t in self.terms}
            & {
                TopologyTermKind.NEAR,
                TopologyTermKind.EVEN_SOFT,
                TopologyTermKind.WEIGHTED_AFFINITY,
            }
        ):
            raise NoPlan
        if TopologyTermKind.EVEN_SOFT in kinds:
            self.spread_weight, self.requires_all = uses.member.weight, part.requires_all
        if TopologyTermKind.WEIGHTED_AFFINITY in kinds:
            self.affinity_weight = uses.member.weight
        self.terms += taken


class Planner:
    """Makes plans on the sheets of one table of nodes."""

    def __init__(
        self, class_arrays: ClassArrays, snapshot: Snapshot, peers: PeerAffinityTerms
    ) -> None:
        self._class_arrays = class_arrays
        self._snapshot = snapshot
        self._peers = peers
        self._statics: dict[object, StaticResult] = {}
        # A resource keeps its place for as long as its table's shape does.
        self._items: dict[str, int] = {}
        # By number: the term itself, and the class that it is of.
        self._terms: list[TopologyTerm] = []
        self._planned: list[EnginePodClass] = []
        # Which terms may count pods of a class, and the other way round.
        self._by_anchor: LabelIndex[int] = LabelIndex()
        self._by_label: LabelIndex[EnginePodClass] = LabelIndex()

    def plan(self, one: EnginePodClass, uses: Sequence[PluginPoints]) -> None:
        """Give a class its number and its place on the sheets. Raises NoPlan."""
        parts: list[tuple[PluginPoints, KernelTerm]] = []
        about_nodes: list[PluginPoints] = []
        one.state = CycleState()
        skipped = one.state.skip_filter
        for use in uses:
            if use.concerns is not None and not use.concerns(one.pod):
                skipped.add(use.member.name)
                continue
            found = self._parts(use, one)
            if found is None:
                about_nodes.append(use)
            elif found:
                parts += [(use, part) for part in found]
        if len(one.footprint.requested) > at.AMOUNTS_MAX or one.footprint.ports:
            raise NoPlan
        class_terms = ClassTerms(parts)
        static = self._static(one, about_nodes)
        one.state.skip_filter |= static.skips
        if not one.framework.goes_straight(one.state):
            raise NoPlan
        layout, placed = self._placed(class_terms)
        one.number = self._class_arrays.add_class()
        params = self._class_arrays.classes[one.number]
        params[at.STATIC], params[at.LAYOUT] = static.number, layout
        params[at.N_GROUPS] = self._class_arrays.n_groups(layout)
        normalised = [n for is_reversed, weight in static.normalised for n in (is_reversed, weight)]
        params[at.N_NORMALISED] = _write_groups(
            memoryview(params.data), at.NORMALISED, 2, normalised
        )
        self._write_amounts(params, one, class_terms)
        self._write_terms(params, one, class_terms, placed)

    def _parts(self, use: PluginPoints, one: EnginePodClass) -> tuple[KernelTerm, ...] | None:
        """A plugin's parts; None for a rule that is about nodes only. Raises NoPlan for any
        other."""
        if not use.is_whole or not (use.parts or use.member.node_only):
            raise NoPlan
        if use.parts is None:
            return None
        parts: tuple[KernelTerm, ...] | None = use.parts(one.pod, self._snapshot, self._peers)
        if parts is None:
            raise NoPlan
        return parts

    # Amounts.

    def _write_amounts(self, params: at.Ints, one: EnginePodClass, class_terms: ClassTerms) -> None:
        item, footprint = self._item, one.footprint
        # Written number by number: a view of Python's own costs half as much as the array.
        cells = memoryview(params.data)
        if class_terms.room is not None:
            cells[at.HAS_ROOM], cells[at.PODS] = 1, item("pods")
            wanted = [
                number
                for name, amount in class_terms.room.wanted
                for number in (item(name), amount)
            ]
            cells[at.N_WANTED] = _write_groups(cells, at.WANTED, 2, wanted)
        if class_terms.use is not None:
            used: list[int] = []
            for u in class_terms.use.resources:
                used += (item(u.resource), u.weight, _source(u), u.request)
            cells[at.N_USED] = _write_groups(cells, at.USED, 4, used)
            cells[at.USE_KIND] = STRATEGIES[class_terms.use.strategy]
            cells[at.USE_WEIGHT] = class_terms.use_weight
            if class_terms.use.line:
                params[at.LINE : at.LINE + len(class_terms.use.line)] = class_terms.use.line
        if class_terms.even is not None:
            even = [
                n for name, request in class_terms.even.resources for n in (item(name), request)
            ]
            cells[at.N_EVEN] = _write_groups(cells, at.EVEN, 2, even)
            cells[at.EVEN_WEIGHT] = class_terms.even_weight
        taken = [n for name, amount in footprint.requested.items() for n in (item(name), amount)]
        cells[at.N_TAKEN] = _write_groups(cells, at.TAKEN, 2, taken)
        cells[at.CPU], cells[at.MEMORY] = footprint.nonzero

    def _item(self, resource: str) -> int:
        place = self._items.get(resource)
        if place is None:
            place = self._items[resource] = self._snapshot.nodes.item(resource)
        return place

    # Rules about nodes.

    def _static(self, one: EnginePodClass, uses: Sequence[PluginPoints]) -> StaticResult:
        """What rules about nodes say of a class; classes that they treat alike share it."""
        pod = one.pod
        signatures = [id(one) if use.signature is None else use.signature(pod) for use in uses]
        key = id(one.framework), *signatures
        found = self._statics.get(key)
        if found is None:
            found = self._statics[key] = self._evaluated(one, uses)
        return found

    def _evaluated(self, one: EnginePodClass, uses: Sequence[PluginPoints]) -> StaticResult:
        nodes, state, pod = self._snapshot.nodes, CycleState(), one.pod
        passes = np.ones(nodes.n_nodes, dtype=np.bool_)
        points = np.zeros(nodes.n_nodes, dtype=np.int64)
        raw: list[at.Ints] = []
        normalised: list[tuple[bool, int]] = []
        for use in uses:
            member = use.member
            is_asked = not use.prepares_filter or self._prepared(use, one, state, passes)
            if use.filters and is_asked:
                verdicts = member.verdicts(pod, nodes, nodes.all_rows, state)
                if not _all_refusals(verdicts):
                    raise NoPlan
                passes &= verdicts.codes == 0
            is_asked = not use.prepares_score or self._scored(use, one, state)
            if not (use.scores and is_asked):
                continue
            scores = member.scores(pod, nodes, nodes.all_rows, state)
            same = _as_points(member, scores)
            if same is None:
                raw.append(scores)
                normalised.append((member.normalizes == "reversed", member.weight))
            else:
                points += same * member.weight
        if len(raw) > at.NORMALISED_MAX:
            raise NoPlan
        number = self._class_arrays.add_static(passes, points, raw)
        return StaticResult(number, tuple(normalised), frozenset(state.skip_filter))

    def _prepared(
        self, use: PluginPoints, one: EnginePodClass, state: CycleState, passes: NDArray[np.bool_]
    ) -> bool:
        """Ask PreFilter, and clear the rows that it leaves out; False when it skips. Raises NoPlan
        when it refuses the pod."""
        member = use.member
        answer = member.call("pre_filter", one.pod, self._snapshot, state)
        if isinstance(answer, RestrictTo):
            names = self._snapshot.nodes.names
            passes &= np.array([name in answer.node_names for name in names], dtype=np.bool_)
            return True
        return _is_asked(answer, member, state.skip_filter)

    def _scored(self, use: PluginPoints, one: EnginePodClass, state: CycleState) -> bool:
        """Ask PreScore; False when it skips. Raises NoPlan when it fails."""
        member = use.member
        # Which rows pass is not known here.
        if takes_parameter(member.plugin, "pre_score", "rows"):
            raise NoPlan
        rows = self._snapshot.nodes.all_rows
        answer = member.call("pre_score", one.pod, self._snapshot, rows, state)
        return _is_asked(answer, member, state.skip_score)

    # Terms.

    def _placed(self, class_terms: ClassTerms) -> tuple[int, list[tuple[TopologyTerm, bool]]]:
        """The layout for the keys of the terms, and the terms, those first that look at a row's
        host only."""
        class_arrays, nodes = self._class_arrays, self._snapshot.nodes
        by_host, by_domain = [], []
        for term in class_terms.terms:
            column = nodes.labels.column(term.key)
            codes, n_values = column.codes[: nodes.n_nodes], len(column.vocabulary)
            is_host_like_key = is_host_like(codes, n_values)
            if term.kind is TopologyTermKind.APART and is_host_like_key:
                by_host.append(term)
                continue
            if term.kind is TopologyTermKind.EVEN_SOFT:
                # Nodes without a label count as one with an empty one; and of host names the
                # walk counts nodes, not values.
                if column.vocabulary.find("") >= 0:
                    raise NoPlan
                if term.key == HOSTNAME_LABEL and not (is_host_like_key and (codes >= 0).all()):
                    raise NoPlan
            by_domain.append(term)
        keys = tuple(sorted({term.key for term in by_domain}))
        if len(keys) > at.KEYS_MAX:
            raise NoPlan
        number, layout = class_arrays.layout(keys)
        if layout.n_groups > GROUPS_MAX:
            raise NoPlan
        return number, [(t, True) for t in by_host] + [(t, False) for t in by_domain]

    def _write_terms(
        self,
        params: at.Ints,
        one: EnginePodClass,
        class_terms: ClassTerms,
        placed: list[tuple[TopologyTerm, bool]],
    ) -> None:
        class_arrays = self._class_arrays
        keys = sorted({term.key for term, by_host in placed if not by_host})
        first = class_arrays.n_terms
        for term, by_host in placed:
            self._add_term(term, 0 if by_host else keys.index(term.key))
        params[at.FIRST_TERM], params[at.N_TERMS] = first, len(placed)
        params[at.N_HOST_TERMS] = sum(by_host for _, by_host in placed)
        params[at.SPREAD_WEIGHT], params[at.AFFINITY_WEIGHT] = (
            class_terms.spread_weight,
            class_terms.affinity_weight,
        )
        params[at.REQUIRES_ALL] = class_terms.requires_all
        near = [term.matches for term, _ in placed if term.kind is TopologyTermKind.NEAR]
        params[at.MATCHES_ITSELF] = bool(near) and all(near)
        one.terms = tuple(range(first, first + len(placed)))
        for t in one.terms:
            anchors = self._terms[t].anchors
            self._by_anchor.add(t, anchors)
            for other in self._by_label.found_by(anchors) if anchors else tuple(self._planned):
                self._add_effects(other, (t,))
        self._planned.append(one)
        labels = one.labels.items()
        if labels:
            self._by_label.add(one, labels)
        self._add_effects(one, sorted(set(self._by_anchor.found_by(labels))))

    def _add_effects(self, one: EnginePodClass, terms: Iterable[int]) -> None:
        """What placing a pod of a class adds to these terms."""
        for t in terms:
            count = self._terms[t].adds(one.pod)
            if count:
                self._class_arrays.add_effect(one.number, t, count)

    def _add_term(self, term: TopologyTerm, slot: int) -> None:
        class_arrays, nodes = self._class_arrays, self._snapshot.nodes
        key = class_arrays.key(term.key)
        n_values = len(nodes.labels.column(term.key).vocabulary)
        number = class_arrays.add_term(n_values)
        params = class_arrays.terms[number]
        params[at.KIND], params[at.KEY], params[at.SLOT] = KINDS[term.kind], key, slot
        params[at.SKEW_MAX], params[at.DOMAINS_MIN] = term.skew_max, term.domains_min
        params[at.MATCHES], params[at.TOTAL] = term.matches, 0
        included = term.included
        params[at.MASK] = -1 if included is None else class_arrays.add_mask(included)
        codes = class_arrays.codes(key)[: nodes.n_nodes]
        if included is not None:
            codes = codes[included]
        first = params[at.FIRST_COUNT]
        present = class_arrays.present[first : first + n_values]
        present[:] = 0
        present[codes[codes >= 0]] = 1
        params[at.N_DOMAINS] = int(present.sum())
        self._terms.append(term)

    def recount(self, one: EnginePodClass) -> None:
        """Count the pods of each of a class's terms anew."""
        class_arrays, n_nodes = self._class_arrays, self._snapshot.nodes.n_nodes
        for t in one.terms:
            term, params = self._terms[t], class_arrays.terms[t]
            counts = term.counts()
            if term.included is not None:
                counts = counts * term.included
            codes = class_arrays.codes(int(params[at.KEY]))[:n_nodes]
            sums = sums_by_value(codes, int(params[at.N_VALUES]), counts)[:-1]
            class_arrays.counted(t)[:] = sums
            params[at.TOTAL] = int(sums.sum())


class StaticResult(msgspec.Struct, frozen=True):
    """What rules about nodes say. number: on the sheets. normalised: (is reversed, weight) of each
    raw score. skips: the plugins whose PreFilter skips."""

    number: int
    normalised: tuple[tuple[bool, int], ...]
    skips: frozenset[str]


def _as_points(member: RegisteredPlugin, scores: at.Ints) -> at.Ints | int | None:
    """A plugin's scores of all rows as they are after normalising, where that is the same
    whichever rows pass; None where it is not. Raises NoPlan."""
    lowest, highest = int(scores.min(initial=0)), int(scores.max(initial=0))
    if member.calls["normalize_score"] is None:
        if lowest < 0 or highest > SCORE_MAX:
            raise NoPlan
        return scores
    if member.normalizes not in ("highest", "reversed") or lowest < 0:
        raise NoPlan
    if highest > 0 and (scores != highest).any():
        return None
    return SCORE_MAX if (highest > 0) == (member.normalizes == "highest") else 0


def _all_refusals(verdicts: PluginVerdicts) -> bool:
    """False where one answer is an error, which ends an attempt whatever other nodes there are."""
    if verdicts.certain:
        return True
    codes = np.unique(verdicts.codes[verdicts.codes != 0]).tolist()
    return all(verdicts.explain(code).is_rejected for code in codes)


def _is_asked(answer: Status, member: RegisteredPlugin, skips: set[str]) -> bool:
    """False, and noted, for a plugin that skips. Raises NoPlan for one that does not succeed."""
    if answer.is_skip:
        skips.add(member.name)
        return False
    if not answer.is_success:
        raise NoPlan
    return True


def _single_part(before: P | None, part: P, n_amounts: int) -> P:
    """A part of which there is one only, with no more amounts than the kernels take."""
    if before is not None or n_amounts > at.AMOUNTS_MAX:
        raise NoPlan
    return part


def _write_groups(cells: memoryview[int], first: int, width: int, numbers: Sequence[int]) -> int:
    """Write groups of `width` numbers one after the other; how many groups there are."""
    for place, number in enumerate(numbers, first):
        cells[place] = number
    return len(numbers) // width


def _source(used: ScoredResource) -> int:
    if not used.fills_in:
        return at.REQUESTED
    return at.NONZERO_CPU if used.resource == "cpu" else at.NONZERO_MEMORY
