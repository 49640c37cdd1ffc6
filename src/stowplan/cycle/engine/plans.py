"""Plans: a pod class in kernel form, built from the kernel terms of its plugins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from stowplan.columns.engine import arrays as at
from stowplan.columns.pods.podcounts import LabelIndex, sums_by_value
from stowplan.cycle.engine.card_groups import CardGroups
from stowplan.cycle.engine.class_arrays import ClassArrays
from stowplan.cycle.engine.class_terms import ClassTerms, NoPlan
from stowplan.cycle.engine.classes import NO_STATE, EnginePodClass, PodOutline
from stowplan.cycle.engine.device_rows import DeviceRows
from stowplan.cycle.engine.layouts import GROUPS_MAX, is_host_like
from stowplan.cycle.engine.outline_plans import (
    NATIVE,
    OutlinePlan,
    OutlineRows,
    ResourceKinds,
    form_plan,
    own_points,
    shared_requests,
)
from stowplan.cycle.engine.plugin_points import PluginPoints
from stowplan.framework import SCORE_MAX, CycleState, Framework, RestrictTo, Snapshot, Status
from stowplan.framework.deciders.kernel_terms import (
    DeviceTerms,
    KernelTerm,
    NodeRules,
    PeerAffinityTerms,
    RunLimit,
    ScoredResource,
    ScoringStrategyType,
    TopologyTerm,
    TopologyTermKind,
)
from stowplan.framework.node_to_status import PluginVerdicts
from stowplan.framework.plugin_calls import takes_parameter
from stowplan.framework.runtime.registered_plugin import RegisteredPlugin
from stowplan.objects.node import HOSTNAME_LABEL

TERM_KINDS = {
    TopologyTermKind.APART: at.APART,
    TopologyTermKind.NEAR: at.NEAR,
    TopologyTermKind.EVEN_HARD: at.EVEN_HARD,
    TopologyTermKind.EVEN_SOFT: at.EVEN_SOFT,
    TopologyTermKind.WEIGHTED_AFFINITY: at.WEIGHTED_AFFINITY,
}
STRATEGIES = {
    ScoringStrategyType.LEAST: at.LEAST,
    ScoringStrategyType.MOST: at.MOST,
    ScoringStrategyType.RATIO: at.RATIO,
}


class Planner:
    """Makes plans in the class arrays of one node table."""

    def __init__(
        self,
        class_arrays: ClassArrays,
        snapshot: Snapshot,
        peers: PeerAffinityTerms,
        kinds: dict[Framework, ResourceKinds],
    ) -> None:
        """kinds: of resources, by profile; they outlive the plans."""
        self._kinds = kinds
        self._class_arrays = class_arrays
        self.card_groups = CardGroups(class_arrays)
        # By the type of the claims.
        self._device_rows: dict[type[object], DeviceRows] = {}
        self._snapshot = snapshot
        self._peers = peers
        self._statics: dict[object, StaticResult] = {}
        # By number: the term and its class.
        self._terms: dict[int, TopologyTerm] = {}
        self._planned: list[EnginePodClass] = []
        # Which terms may count pods of a class, and which classes a term may count.
        self._by_anchor: LabelIndex[int] = LabelIndex()
        self._by_label: LabelIndex[EnginePodClass] = LabelIndex()
        # How many of the planned classes are in it.
        self._n_labelled = 0
        self._outlines: dict[tuple[int, bytes], OutlinePlan] = {}
        # The outline of the latest class that was looked up, and its plan.
        self._latest: tuple[PodOutline | None, OutlinePlan | None] = None, None
        self._rows = OutlineRows(class_arrays, snapshot.nodes)

    @property
    def device_rows(self) -> list[DeviceRows]:
        """Those that have classes, by the type of the claims."""
        return [rows for rows in self._device_rows.values() if rows]

    def plan(self, one: EnginePodClass, uses: Sequence[PluginPoints]) -> None:
        """Assign a class its number and write its arrays. Raises NoPlan."""
        terms: list[tuple[PluginPoints, KernelTerm]] = []
        about_nodes: list[PluginPoints] = []
        unreserved: set[str] = set()
        one.state, one.run_limits, one.card_filter = CycleState(), (), ""
        skipped = one.state.skip_filter
        for use in uses:
            if use.applies_to is not None and not use.applies_to(one.pod):
                skipped.add(use.member.name)
                continue
            found = self.kernel_terms(use, one)
            if found is None:
                about_nodes.append(use)
                continue
            for term in found:
                if isinstance(term, NodeRules):
                    about_nodes.append(use)
                    unreserved.add(use.member.name)
                elif isinstance(term, DeviceTerms):
                    terms.append((use, term))
                    unreserved.add(use.member.name)
                elif isinstance(term, RunLimit):
                    one.run_limits += (term,)
                else:
                    terms.append((use, term))
        if len(one.footprint.requested) > at.AMOUNTS_MAX or one.footprint.ports:
            raise NoPlan
        class_terms = ClassTerms(terms)
        static = self._static(one, about_nodes)
        one.state.skip_filter |= static.skips
        reserved = class_terms.reserve(one.state) | unreserved
        if not one.framework.binds_directly(one.state, reserved):
            raise NoPlan
        unplaced = unreserved and class_terms.devices is None
        if (unplaced or class_terms.are_cards_scored) and static.normalised:
            raise NoPlan
        number = self._static_number(one, class_terms, static)
        scores = (*static.normalised, *class_terms.normalised)
        is_bounded = bool(scores) and any(t.kind.filters for t in class_terms.terms)
        layout, placed = self._placed(class_terms, by_block=not is_bounded)
        one.number = self._class_arrays.add_class()
        self._class_arrays.classes[one.number, at.STATIC] = number
        self._write_cards(one, class_terms)
        params = self._class_arrays.classes[one.number]
        self._class_arrays.group(params, layout, by_block=not is_bounded)
        normalised = [n for is_reversed, weight in scores for n in (is_reversed, weight)]
        params[at.N_NORMALISED] = _write_groups(
            memoryview(params.data), at.NORMALISED, 2, normalised
        )
        self._share(one, uses, class_terms)
        self._write_amounts(params, one, class_terms)
        self._write_terms(params, one, class_terms, placed)
        wanted = () if class_terms.fit is None else class_terms.fit.wanted
        self._write_few(params, [self._rows.item(name) for name, _ in wanted if name not in NATIVE])

    def plan_alike(self, one: EnginePodClass) -> bool:
        """Plan a class as others of its outline; its arrays are written by the next `write`. False
        where it has to be planned on its own. Raises NoPlan."""
        outline, shared = self._latest
        if one.outline is not outline:
            shared = self._outlines.get((id(one.framework), one.outline.content))
            self._latest = one.outline, shared
        requests = shared_requests(one)
        if shared is None or requests is None:
            return False
        if not shared.applies_to(one, self.kernel_terms):
            return False
        form = shared.form(one, requests)
        plan = shared.forms.get(form)
        if plan is None:
            if len(requests) > at.AMOUNTS_MAX:
                raise NoPlan
            self._begin_form(shared, form, one, requests)
            return True
        one.state, one.run_limits, one.card_filter = shared.state, (), ""
        self._rows.add(plan, one, requests)
        return True

    def plan_like_latest(self, classes: Sequence[EnginePodClass], start: int) -> int:
        """Plan classes from `start` on that are of the latest class' outline, up to labels, and
        differ from others of it in amounts at most; returns the place of the first that is not
        planned. Each is planned as by `plan_alike`, in one step for all of them."""
        latest, shared = self._latest
        if latest is None or shared is None or shared.has_own or start == len(classes):
            return start
        # As many as all of an outline have.
        if len(classes[start].pod.spec.containers) != 1:
            return start
        content, framework, state = latest.content, latest.framework, shared.state
        forms, kind_of, rows = shared.forms, shared.kinds.numbers.get, self._rows
        form: object = None
        planned: list[EnginePodClass] = []
        asked: list[dict[str, int]] = []
        for place in range(start, len(classes)):
            one = classes[place]
            outline, footprint = one.outline, one.footprint
            if outline is not latest:
                if outline.content != content or outline.framework is not framework:
                    return place
                latest = outline
            if not footprint.is_plain:
                return place
            requests = footprint.requested
            # As `OutlinePlan.form`; without a plan where one of the kinds is not known yet.
            its = tuple(map(kind_of, requests))
            if its != form:
                plan = forms.get(its)
                if plan is None:
                    return place
                form = its
                planned, asked = rows.of(plan)
            if one.state is not NO_STATE:  # It has been planned before.
                one.number, one.terms, one.counted_at = -1, (), -1
                one.run_limits, one.card_filter = (), ""
            one.state = state
            planned.append(one)
            asked.append(requests)
        return len(classes)

    def _begin_form(
        self, shared: OutlinePlan, form: object, one: EnginePodClass, requests: dict[str, int]
    ) -> None:
        """Plan the first class of a form."""
        one.state, one.run_limits, one.card_filter = shared.state, (), ""
        one.number = self._class_arrays.add_class()
        params = self._class_arrays.classes[one.number]
        params[:] = shared.params
        parts = [(u, t) for u in shared.counted for t in self.kernel_terms(u, one) or ()]
        self._write_amounts(params, one, ClassTerms(parts))
        terms = [term for _, term in parts]
        plan = shared.forms[form] = form_plan(params, terms, one.footprint, requests)
        items = [self._rows.item(name) for name in requests]
        self._write_few(params, [items[place] for place in plan.wanted])
        self._count_labels(one)

    def write(self) -> None:
        """Number the classes that `plan_alike` has planned since the last call, and write their
        arrays."""
        written = self._rows.write()
        if self._terms:
            for one in written:
                self._count_labels(one)
        else:
            self._planned += written

    def _share(
        self, one: EnginePodClass, uses: Sequence[PluginPoints], class_terms: ClassTerms
    ) -> None:
        """Keep what a plan without amounts has for other classes of its outline."""
        if not one.outline.content or one.run_limits:
            return
        if class_terms.terms or class_terms.cards or class_terms.devices:
            return
        own = own_points(one, uses, self.kernel_terms, self.answers_by_outline)
        if own is not None:
            params = self._class_arrays.classes[one.number].copy()
            kinds = self._kinds.get(one.framework)
            if kinds is None:
                kinds = self._kinds[one.framework] = ResourceKinds(uses)
            shared = OutlinePlan(params, one.state, own, kinds, self._snapshot.nodes)
            self._outlines[id(one.framework), one.outline.content] = shared
            self._latest = one.outline, shared

    def kernel_terms(self, use: PluginPoints, one: EnginePodClass) -> tuple[KernelTerm, ...] | None:
        """The plugin's kernel terms; None for a node-only rule. Raises NoPlan if it declares
        neither."""
        if not use.is_whole or not (use.kernel_terms or use.member.node_only):
            raise NoPlan
        if use.kernel_terms is None:
            return None
        terms: tuple[KernelTerm, ...] | None
        terms = use.kernel_terms(one.pod, self._snapshot, self._peers)
        if terms is None:
            raise NoPlan
        of_claims = any(isinstance(term, NodeRules | RunLimit | DeviceTerms) for term in terms)
        if of_claims and (
            one.claims is None
            or self._snapshot.object_store is not one.framework.shared.object_store
        ):
            # Only for such classes the terms are made anew when the objects change.
            raise NoPlan
        return terms

    def answers_by_outline(self, use: PluginPoints, one: EnginePodClass) -> bool:
        """True where a plugin answers alike for all classes of the outline of this one, as long as
        plans hold; see `PluginPoints`."""
        found = use.answers_by_outline
        return found is not None and bool(found(one.pod, self._snapshot, self._peers))

    def _static_number(
        self, one: EnginePodClass, class_terms: ClassTerms, static: StaticResult
    ) -> int:
        """Number of the rows that pass, with the devices that they have free. Raises NoPlan."""
        devices = class_terms.devices
        if devices is None:
            return static.number
        if class_terms.cards is not None:
            raise NoPlan
        scored = len(static.normalised) if class_terms.normalised else -1
        if scored == at.NORMALISED_MAX:
            raise NoPlan
        rows = self._device_rows.get(type(devices.claims))
        if rows is None:
            rows = DeviceRows(self._class_arrays, self._snapshot.nodes)
            self._device_rows[type(devices.claims)] = rows
        number = rows.add(one, devices, static.number, scored)
        if number is None:
            raise NoPlan
        return number

    def _write_cards(self, one: EnginePodClass, class_terms: ClassTerms) -> None:
        if class_terms.cards is None:
            return
        uses, part = class_terms.cards
        weight = uses.member.weight if uses.scores else 0
        taken_cpu = one.footprint.requested.get("cpu", 0)
        if not self.card_groups.add(one.number, part, weight, taken_cpu):
            one.number = -1
            raise NoPlan
        one.card_filter = uses.member.name

    # Amounts.

    def _write_amounts(self, params: at.Ints, one: EnginePodClass, class_terms: ClassTerms) -> None:
        item, footprint = self._rows.item, one.footprint
        # A memoryview: writing single numbers through it costs half as much as through the array.
        cells = memoryview(params.data)
        if class_terms.fit is not None:
            cells[at.HAS_ROOM], cells[at.PODS] = 1, item("pods")
            wanted = [
                number for name, amount in class_terms.fit.wanted for number in (item(name), amount)
            ]
            cells[at.N_WANTED] = _write_groups(cells, at.WANTED, 2, wanted)
        if class_terms.resource_score is not None:
            used: list[int] = []
            for u in class_terms.resource_score.resources:
                used += (item(u.resource), u.weight, _source(u), u.request)
            cells[at.N_USED] = _write_groups(cells, at.USED, 4, used)
            cells[at.USE_KIND] = STRATEGIES[class_terms.resource_score.strategy]
            cells[at.USE_WEIGHT] = class_terms.use_weight
            if class_terms.resource_score.line:
                cells[at.LINE] = self._class_arrays.line(class_terms.resource_score.line)
        if class_terms.balanced is not None:
            even = [
                n for name, request in class_terms.balanced.resources for n in (item(name), request)
            ]
            cells[at.N_EVEN] = _write_groups(cells, at.EVEN, 2, even)
            cells[at.EVEN_WEIGHT] = class_terms.even_weight
        taken = [n for name, amount in footprint.requested.items() for n in (item(name), amount)]
        cells[at.N_TAKEN] = _write_groups(cells, at.TAKEN, 2, taken)
        cells[at.CPU], cells[at.MEMORY] = footprint.nonzero

    def _write_few(self, params: at.Ints, items: Sequence[int]) -> None:
        """Write the rows that offer what a class requests, where they are few and nothing but the
        row counts. items: indices of resources."""
        if not params[at.N_TERMS] + params[at.N_NORMALISED]:
            self._rows.write_few(params[np.newaxis], np.array([items], dtype=np.int64))

    # Node-only rules.

    def _static(self, one: EnginePodClass, uses: Sequence[PluginPoints]) -> StaticResult:
        """Result of node-only rules for a class; classes with equal results share it."""
        pod = one.pod
        signatures = [id(one) if use.signature is None else use.signature(pod) for use in uses]
        # Pods that name the same claim read more of it once its volume or a CSINode has changed.
        key = id(one.framework), one.claims, *signatures
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
        """Run PreFilter and clear the rows that it excludes; False if it skips. Raises NoPlan if it
        refuses the pod."""
        member = use.member
        answer = member.call("pre_filter", one.pod, self._snapshot, state)
        if isinstance(answer, RestrictTo):
            names = self._snapshot.nodes.names
            passes &= np.array([name in answer.node_names for name in names], dtype=np.bool_)
            return True
        return _is_asked(answer, member, state.skip_filter)

    def _scored(self, use: PluginPoints, one: EnginePodClass, state: CycleState) -> bool:
        """Run PreScore; False if it skips. Raises NoPlan if it fails."""
        member = use.member
        # Which rows pass is not known here.
        if takes_parameter(member.plugin, "pre_score", "rows"):
            raise NoPlan
        rows = self._snapshot.nodes.all_rows
        answer = member.call("pre_score", one.pod, self._snapshot, rows, state)
        return _is_asked(answer, member, state.skip_score)

    # Terms.

    def _placed(
        self, class_terms: ClassTerms, *, by_block: bool
    ) -> tuple[int, list[tuple[TopologyTerm, bool]]]:
        """The layout for the terms' topology keys, and the terms, hostname terms first. by_block:
        see `ClassArrays.group`."""
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
                # Nodes without the label count as nodes with an empty value; for host names the
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
        if layout.n_groups > GROUPS_MAX and not (by_block and layout.inner >= 0):
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
        first = params[at.FIRST_TERM] = class_arrays.n_terms
        for rows in self.device_rows:
            rows.count(one)
        n_counts = class_arrays.n_terms - first
        first += n_counts
        for term, by_host in placed:
            self._add_term(term, 0 if by_host else keys.index(term.key))
        params[at.N_TERMS] = n_counts + len(placed)
        params[at.N_HOST_TERMS] = n_counts + sum(by_host for _, by_host in placed)
        params[at.SPREAD_WEIGHT], params[at.AFFINITY_WEIGHT] = (
            class_terms.spread_weight,
            class_terms.affinity_weight,
        )
        params[at.REQUIRES_ALL] = class_terms.requires_all
        near = [term.matches for term, _ in placed if term.kind is TopologyTermKind.NEAR]
        params[at.MATCHES_ITSELF] = bool(near) and all(near)
        one.terms = tuple(range(first, first + len(placed)))
        if one.terms:
            self._label_planned()
        for t in class_arrays.counting(one.terms):
            anchors = self._terms[t].anchors
            self._by_anchor.add(t, anchors)
            for other in self._by_label.found_by(anchors) if anchors else tuple(self._planned):
                self._add_effects(other, (t,))
        self._count_labels(one)

    def _count_labels(self, one: EnginePodClass) -> None:
        """Record what placing a pod of a class adds to all terms so far, and to later ones."""
        self._planned.append(one)
        if self._terms:
            found = self._by_anchor.found_by(one.labels.items())
            self._add_effects(one, sorted(set(found)))

    def _label_planned(self) -> None:
        """Add the classes to the index by label that were planned since it was last needed."""
        for one in self._planned[self._n_labelled :]:
            labels = one.labels.items()
            if labels:
                self._by_label.add(one, labels)
        self._n_labelled = len(self._planned)

    def _add_effects(self, one: EnginePodClass, terms: Iterable[int]) -> None:
        """Record what placing a pod of a class adds to these terms."""
        for t in terms:
            count = self._terms[t].adds(one.pod)
            if count:
                self._class_arrays.add_effect(one.number, t, count)

    def _add_term(self, term: TopologyTerm, slot: int) -> None:
        class_arrays, nodes = self._class_arrays, self._snapshot.nodes
        key = class_arrays.key(term.key)
        n_values = len(nodes.labels.column(term.key).vocabulary)
        number = class_arrays.add_term(n_values, term.same_counts)
        params = class_arrays.terms[number]
        params[at.KIND], params[at.KEY], params[at.SLOT] = TERM_KINDS[term.kind], key, slot
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
        self._terms[number] = term

    def recount(self, one: EnginePodClass) -> None:
        """Recount the pods of each term of a class."""
        class_arrays, n_nodes = self._class_arrays, self._snapshot.nodes.n_nodes
        for t in one.terms:
            term, params = self._terms[t], class_arrays.terms[t]
            counts = term.counts()
            if term.included is not None:
                counts = counts * term.included
            codes = class_arrays.codes(int(params[at.KEY]))[:n_nodes]
            sums = sums_by_value(codes, int(params[at.N_VALUES]), counts)[:-1]
            class_arrays.counted(t)[:] = sums
            params[at.TOTAL], params[at.N_LOWEST] = int(sums.sum()), 0


class StaticResult(msgspec.Struct, frozen=True):
    """Result of node-only rules.

    number: in the class arrays. normalised: (is reversed, weight) of each raw score. skips: plugins
    whose PreFilter skips.
    """

    number: int
    normalised: tuple[tuple[bool, int], ...]
    skips: frozenset[str]


def _as_points(member: RegisteredPlugin, scores: at.Ints) -> at.Ints | int | None:
    """A plugin's normalised scores of all rows, if they do not depend on which rows pass; otherwise
    None. Raises NoPlan."""
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
    """False if a verdict is an error, which ends an attempt regardless of other nodes."""
    if verdicts.certain:
        return True
    codes = np.unique(verdicts.codes[verdicts.codes != 0]).tolist()
    return all(verdicts.explain(code).is_rejected for code in codes)


def _is_asked(answer: Status, member: RegisteredPlugin, skips: set[str]) -> bool:
    """False for a plugin that skips, which is recorded in `skips`. Raises NoPlan for one that
    fails."""
    if answer.is_skip:
        skips.add(member.name)
        return False
    if not answer.is_success:
        raise NoPlan
    return True


def _write_groups(cells: memoryview[int], first: int, width: int, numbers: Sequence[int]) -> int:
    """Write groups of `width` numbers consecutively; returns the number of groups."""
    for place, number in enumerate(numbers, first):
        cells[place] = number
    return len(numbers) // width


def _source(used: ScoredResource) -> int:
    filled_in = at.NONZERO_CPU if used.resource == "cpu" else at.NONZERO_MEMORY
    return filled_in if used.fills_in else at.REQUESTED
