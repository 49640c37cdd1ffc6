"""Yoda: places pods by the GPUs of nodes, as Scv objects report them.

Labels of a pod request a number of cards, free memory on each, and a clock of the memory. Nodes
with enough such cards pass; strong and free cards score. Labels may also order the queue.

Source: NJUPT-ISL Yoda-Scheduler 2.x, pkg/yoda.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from stowplan.columns.array_types import Bools, Ints
from stowplan.framework import (
    OK,
    SKIP,
    CycleState,
    Handle,
    NodeInfo,
    NodeTable,
    ObjectStore,
    Pod,
    PodInfo,
    QueuedPod,
    Rows,
    Snapshot,
    Status,
    error,
    unresolvable,
    unschedulable,
)
from stowplan.framework.clusterevents import (
    NODE,
    POD,
    SCV,
    Action,
    QueueingHint,
    RegisteredEvents,
    on,
)
from stowplan.framework.plugin import Plugin
from stowplan.objects.devices.scv import Scv
from stowplan.objects.node import Node
from stowplan.plugins.args_base import PluginArgs
from stowplan.plugins.arithmetic import n_rows_of
from stowplan.plugins.gpu_share.conventions.mixed_nodes import gpu_sources, shared_column
from stowplan.plugins.pod_hints import is_assigned_or_nominated, queueing_hint
from stowplan.plugins.yoda.card_columns import CardColumns, RequestedGpuMemory
from stowplan.plugins.yoda.card_scores import (
    CardMaxima,
    card_maxima,
    card_score,
    node_score,
    normalize_min_max,
    scores_by_column,
    wrap_uint64,
)
from stowplan.plugins.yoda.gpu_ledger import GpuLedger
from stowplan.plugins.yoda.gpu_request import (
    MEMORY_LABEL,
    UINT64_MAX,
    GpuRequest,
    parse_uint,
    queue_priority,
)
from stowplan.plugins.yoda.scv_devices import (
    AMOUNT_MAX,
    CARDS_KEY,
    AvailableCard,
    GpuReport,
    ReportedCards,
    format_shares,
    gpu_report_of,
)

NO_STATE = error("yoda is enabled at filter and not at preFilter; expected both")
FITS, NO_REPORT, TOO_FEW_CARDS, NO_MATCHING_CLOCK, INSUFFICIENT_GPU_MEMORY, GIVEN_TWICE = range(6)


class YodaArgs(PluginArgs, frozen=True):
    """compat: sort, filter and score as the original does, with the defects that are fixed here."""

    compat: bool = False


class YodaPreFilterState:
    """Result of PreFilter.

    came, gone: pods added or removed in a dry run: by node, and by uid.
    """

    def __init__(self, demand: GpuRequest, object_store: ObjectStore, cards: CardColumns) -> None:
        self.demand = demand
        self.object_store = object_store
        self.cards = cards
        self.came: Mapping[str, tuple[Pod, ...]] = {}
        self.gone: frozenset[str] = frozenset()

    def clone(self) -> YodaPreFilterState:
        """A copy that changes independently."""
        other = YodaPreFilterState(self.demand, self.object_store, self.cards)
        other.came, other.gone = self.came, self.gone
        return other


class YodaPreScoreState(msgspec.Struct, frozen=True):
    """Result of PreScore, read by Score. counting: bool (n_cards,), the counted cards."""

    demand: GpuRequest
    object_store: ObjectStore
    cards: CardColumns
    counting: Bools
    maxima: CardMaxima


class Yoda:
    """Sort, filter, score and reserve by GPUs.

    Differs: unless `compat`, a pod without GPU labels is neither restricted nor scored; the
    original requires a card for it. Reasons are counted, where the original names each node.
    """

    name = "yoda"
    declaration = Plugin(name=name, reads=(Scv,), rests_when_skipped=True)
    Args = YodaArgs
    # No eviction adds cards or changes their clock.
    REFUSALS = {
        NO_REPORT: unresolvable("node(s) had no report of their GPUs"),
        TOO_FEW_CARDS: unresolvable("node(s) had too few GPUs"),
        NO_MATCHING_CLOCK: unresolvable("node(s) had too few GPUs with the clock asked for"),
        INSUFFICIENT_GPU_MEMORY: unschedulable("node(s) had too few GPUs with room for the pod"),
    }
    SHARED_OTHERWISE = unresolvable("node(s) had GPUs that are shared in another way as well")

    def __init__(self, args: YodaArgs, handle: Handle) -> None:
        self.compat = args.compat
        self._bound = UINT64_MAX if args.compat else AMOUNT_MAX
        self._shared = handle.shared
        self._ledger = GpuLedger.of(handle.shared)

    # Queue sort.

    def less(self, first: QueuedPod, second: QueuedPod) -> bool:
        """True when `first` is to be scheduled before `second`."""
        return self.sort_key(first) < self.sort_key(second)

    def sort_key(self, queued: QueuedPod) -> tuple[float, ...]:
        """By the label, the highest first.

        Differs: pods of equal labels stand in the order of their priority, then of their arrival;
        the original leaves them in any order.
        """
        pod = queued.pod
        return -queue_priority(pod.labels), -pod.priority, queued.added_at

    # The rule, over the cards of one node.

    def verdict(self, demand: GpuRequest, cards: ReportedCards) -> int:
        """PASSES, or why the cards of a node do not satisfy a request."""
        if self.compat:
            return self._original_verdict(demand, cards.report)
        # Differs: the original counts cards of enough memory and cards of the right clock apart,
        # and where only a number is asked for the unhealthy ones as well.
        healthy = cards.healthy()
        if len(healthy) < demand.n_cards:
            return TOO_FEW_CARDS
        if sum(demand.clock in (None, one.clock) for one in healthy) < demand.n_cards:
            return NO_MATCHING_CLOCK
        return FITS if cards.n_suiting(demand) >= demand.n_cards else INSUFFICIENT_GPU_MEMORY

    def _original_verdict(self, demand: GpuRequest, report: GpuReport) -> int:
        healthy = [gpu for gpu in report.gpus if gpu.is_healthy]
        n_cards, memory, clock = demand.n_cards, demand.memory, demand.clock
        if n_cards > report.n_cards:
            return TOO_FEW_CARDS
        if memory is not None and sum(gpu.free >= memory for gpu in healthy) < n_cards:
            return INSUFFICIENT_GPU_MEMORY
        if clock is not None and sum(gpu.clock == clock for gpu in healthy) < n_cards:
            return NO_MATCHING_CLOCK
        return FITS

    # Before any node.

    def pre_filter(self, pod: Pod, snapshot: Snapshot, state: CycleState) -> Status:
        """Skip for a pod that asks for no GPU, unless `compat`."""
        demand = GpuRequest.of(pod.labels)
        if demand.is_none and not self.compat:
            return SKIP
        cards = CardColumns.of(snapshot.nodes, self._ledger, self._bound)
        cards.follow(snapshot.nodes, snapshot.object_store)
        state.write(self.name, YodaPreFilterState(demand, snapshot.object_store, cards))
        return OK

    def add_pod(self, info: PodInfo, node: NodeInfo, state: CycleState) -> Status:
        """Count a pod that was added, with the cards that it requests."""
        attempt: YodaPreFilterState | None = state.find(self.name)
        if attempt is None:
            return NO_STATE
        if info.uid in attempt.gone:
            attempt.gone -= {info.uid}
        else:
            there = attempt.came.get(node.name, ())
            attempt.came = {**attempt.came, node.name: (*there, info.pod)}
        return OK

    def remove_pod(self, info: PodInfo, node: NodeInfo, state: CycleState) -> Status:
        """Stop counting a pod that was removed, and its reservation. What reports include of it is
        unknown."""
        attempt: YodaPreFilterState | None = state.find(self.name)
        if attempt is None:
            return NO_STATE
        there = attempt.came.get(node.name, ())
        left = tuple(pod for pod in there if pod.uid != info.uid)
        if len(left) < len(there):
            attempt.came = {**attempt.came, node.name: left}
        else:
            attempt.gone |= {info.uid}
        return OK

    # One node.

    def filter(self, node: NodeInfo, state: CycleState) -> Status:
        """Success where enough cards satisfy the pod."""
        attempt: YodaPreFilterState | None = state.find(self.name)
        if attempt is None:
            return NO_STATE
        scv = attempt.object_store.find(Scv, node.name)
        if scv is None:
            return self.REFUSALS[NO_REPORT]
        if not self.compat and gpu_sources(node.node):
            return self.SHARED_OTHERWISE
        report = gpu_report_of(scv, self._bound)
        code = self.verdict(attempt.demand, self._cards(report, node.name, attempt))
        return OK if code == FITS else self.REFUSALS[code]

    def _cards(self, report: GpuReport, name: str, attempt: YodaPreFilterState) -> ReportedCards:
        """The cards of a node with what is held of them, for this attempt."""
        cards = ReportedCards(report, self._ledger.shares_on(name, attempt.gone))
        for pod in attempt.came.get(name, ()):
            demand = GpuRequest.of(pod.labels)
            if not demand.is_none:
                cards.choose(demand)
        return cards

    def score(self, pod: Pod, node: NodeInfo, state: CycleState) -> int:
        """Strength of the cards that satisfy the pod, and the share of free memory."""
        known = state.read(f"{self.name}/scores", YodaPreScoreState)
        scv = known.object_store.find(Scv, node.name)
        if scv is None:
            return 0
        report, demand = gpu_report_of(scv, self._bound), known.demand
        reported = ReportedCards(report, () if self.compat else self._ledger.shares_on(node.name))
        cards_left, cards = reported.left(), 0
        if self.verdict(demand, reported) == FITS:
            counting = (left for left in cards_left if self._counts(left, demand))
            cards = sum(self._card_score(left, known.maxima) for left in counting)
        asked = sum(
            min(parse_uint(info.pod.labels.get(MEMORY_LABEL, "")), self._bound)
            for info in node.pods
        )
        held = sum(left.gpu.free - left.memory for left in cards_left)
        free = max(0, report.free - held)
        return node_score(cards, report.total, free, wrap_uint64(asked))

    def _card_score(self, left: AvailableCard, maxima: CardMaxima) -> int:
        free = left.gpu.free if self.compat else left.memory
        return card_score(left.gpu, free, maxima, compat=self.compat)

    def _counts(self, left: AvailableCard, demand: GpuRequest) -> bool:
        """True for a card whose strength counts. The clock need not be the requested one.

        Differs: the original counts cards that are not healthy.
        """
        sound = self.compat or (left.gpu.is_healthy and left.is_open)
        enough = left.memory >= (demand.memory or 0) and left.gpu.clock >= (demand.clock or 0)
        return sound and enough

    # Every node.

    def filter_column(self, nodes: NodeTable, rows: Rows, state: CycleState) -> Ints:
        """int64 (n_rows,): PASSES, or the reason of the refusal."""
        attempt: YodaPreFilterState | None = state.find(self.name)
        if attempt is None:
            return np.full(n_rows_of(rows), -1, dtype=np.int64)
        codes = self._codes(attempt.demand, attempt.cards)
        found = attempt.cards.on(codes, rows, NO_REPORT)
        if self.compat:
            return found
        is_shared = shared_column(nodes)[rows] & (found != NO_REPORT)
        return np.where(is_shared, GIVEN_TWICE, found)

    def filter_status(self, code: int) -> Status:
        """The refusal of a code of `filter_column`."""
        if code == GIVEN_TWICE:
            return self.SHARED_OTHERWISE
        return NO_STATE if code < 0 else self.REFUSALS[code]

    def _codes(self, demand: GpuRequest, cards: CardColumns) -> Ints:
        """int64 (n_reports,): `verdict` of each report."""
        wanted, clock = demand.n_cards, demand.clock
        right = np.ones(cards.clock.shape, np.bool_) if clock is None else cards.clock == clock
        memory = demand.memory or 0
        if self.compat:
            roomy = cards.healthy & (cards.free >= memory)
            # Without a request for it, a property is not counted.
            short = cards.count(roomy) < wanted if demand.memory is not None else False
            slow = cards.count(cards.healthy & right) < wanted if clock is not None else False
            codes = np.where(slow, NO_MATCHING_CLOCK, FITS)
            codes = np.where(short, INSUFFICIENT_GPU_MEMORY, codes)
            return np.where(cards.n_cards < wanted, TOO_FEW_CARDS, codes)
        suiting = cards.healthy & right & cards.open & (cards.left >= memory)
        codes = np.where(cards.count(suiting) < wanted, INSUFFICIENT_GPU_MEMORY, FITS)
        codes = np.where(cards.count(cards.healthy & right) < wanted, NO_MATCHING_CLOCK, codes)
        return np.where(cards.count(cards.healthy) < wanted, TOO_FEW_CARDS, codes)

    def pre_score(self, pod: Pod, snapshot: Snapshot, state: CycleState) -> Status:
        """Find the strongest of the cards that satisfy the pod, on any node; Skip for a pod without
        GPU request."""
        demand = GpuRequest.of(pod.labels)
        if demand.is_none and not self.compat:
            return SKIP
        cards = CardColumns.of(snapshot.nodes, self._ledger, self._bound)
        cards.follow(snapshot.nodes, snapshot.object_store)
        counting = self._counting(demand, cards)
        maxima = card_maxima(cards, counting, compat=self.compat)
        scores = YodaPreScoreState(demand, snapshot.object_store, cards, counting, maxima)
        state.write(f"{self.name}/scores", scores)
        return OK

    def _counting(self, demand: GpuRequest, cards: CardColumns) -> Bools:
        """bool (n_cards,): the counted cards, of reports that satisfy the pod."""
        fast = cards.clock >= (demand.clock or 0)
        if self.compat:
            suiting = (cards.free >= (demand.memory or 0)) & fast
        else:
            suiting = cards.healthy & cards.open & (cards.left >= (demand.memory or 0)) & fast
        counting: Bools = suiting & cards.spread(self._codes(demand, cards) == FITS)
        return counting

    def score_column(self, nodes: NodeTable, rows: Rows, state: CycleState) -> Ints:
        """int64 (n_rows,): `score` of each row."""
        known = state.read(f"{self.name}/scores", YodaPreScoreState)
        asked = RequestedGpuMemory.of(nodes, self._bound).column(rows, nodes.n_nodes)
        return scores_by_column(
            known.cards, known.counting, known.maxima, asked, rows, compat=self.compat
        )

    def normalize_score(self, scores: Ints) -> Ints:
        """int64 (n_rows,): from 0, the lowest of them, to 100; 100 for all where they are equal."""
        return normalize_min_max(scores) if scores.shape[0] else scores

    # After the node is chosen.

    def reserve(self, pod: Pod, node_name: str, state: CycleState) -> Status:
        """Reserve the cards until a report includes them. The binding writes them on the pod.

        Differs: the original reserves nothing, so that pods which are decided between two reports
        are given the same memory.
        """
        attempt: YodaPreFilterState | None = state.find(self.name)
        scv = None if attempt is None else attempt.object_store.find(Scv, node_name)
        if self.compat or attempt is None or scv is None:
            return OK
        demand = attempt.demand
        report = gpu_report_of(scv, self._bound)
        # What it holds already, if it is tried again, is not in its way.
        held = self._ledger.shares_on(node_name, (pod.uid,))
        shares = ReportedCards(report, held).choose(demand)
        if shares is None:
            return self.REFUSALS[INSUFFICIENT_GPU_MEMORY]
        if shares and demand.memory != 0:
            self._ledger.hold(pod, node_name, shares)
            state.binding_annotations[CARDS_KEY] = format_shares(shares)
        return OK

    def unreserve(self, pod: Pod) -> None:
        """End the reservation."""
        self._ledger.drop(pod.uid)

    # Events, signature and explanations.

    def events_to_register(self) -> RegisteredEvents:
        """A report or a node is added or changed, a pod with cards is deleted, or the pod's request
        changes."""
        return (
            on(SCV, Action.ADD | Action.UPDATE, self._after_report),
            on(NODE, Action.ADD, self._after_node),
            on(NODE, Action.UPDATE_NODE_ALLOCATABLE | Action.UPDATE_NODE_ANNOTATION),
            on(POD, Action.DELETE, _after_deletion),
            on(POD, Action.UPDATE_POD_LABEL, _after_labels),
        )

    def _after_report(self, pod: Pod, old: Scv | None, new: Scv) -> QueueingHint:
        """Also where the report would satisfy the pod before: it may include what was reserved
        until now."""
        return queueing_hint(self._report_fits(GpuRequest.of(pod.labels), new))

    def _after_node(self, pod: Pod, old: None, new: Node) -> QueueingHint:
        scv = self._shared.object_store.find(Scv, new.name)
        return queueing_hint(scv is not None and self._report_fits(GpuRequest.of(pod.labels), scv))

    def _report_fits(self, demand: GpuRequest, scv: Scv) -> bool:
        """True when the cards of a report would satisfy the pod without reservations."""
        report = gpu_report_of(scv, self._bound)
        return self.verdict(demand, ReportedCards(report)) == FITS

    def signature(self, pod: Pod) -> object:
        """The request of the pod."""
        return GpuRequest.of(pod.labels)

    def explain(self, node: NodeInfo, state: CycleState) -> list[str]:
        """The number of cards that the pod needs, and the cards that remain."""
        attempt: YodaPreFilterState | None = state.find(self.name)
        scv = None if attempt is None else attempt.object_store.find(Scv, node.name)
        if attempt is None or scv is None:
            return [f"gpus: there is no Scv {node.name}"]
        sources = gpu_sources(node.node)
        if sources and not self.compat:
            return [f"gpus: reported by an Scv, and {' and '.join(sources)}"]
        demand, report = attempt.demand, gpu_report_of(scv, self._bound)
        needs = [f"{demand.n_cards} card{'s' if demand.n_cards != 1 else ''}"]
        if demand.memory is not None:
            needs.append(f"{demand.memory} MiB free on each")
        if demand.clock is not None:
            needs.append(f"clock {demand.clock} MHz")
        is_exact = not self.compat
        held = self._cards(report, node.name, attempt) if is_exact else ReportedCards(report)
        cards_left = held.left()
        cards = "; ".join(_format_card(left) for left in cards_left)
        return [
            f"gpus: needs {', '.join(needs)}, there {'is' if len(cards_left) == 1 else 'are'} "
            f"{cards or 'none'}"
        ]


def _after_deletion(pod: Pod, old: Pod, new: None) -> QueueingHint:
    return queueing_hint(is_assigned_or_nominated(old) and not GpuRequest.of(old.labels).is_none)


def _after_labels(pod: Pod, old: Pod, new: Pod) -> QueueingHint:
    other = GpuRequest.of(old.labels) != GpuRequest.of(new.labels)
    return queueing_hint(new.uid == pod.uid and other)


def _format_card(left: AvailableCard) -> str:
    gpu = left.gpu
    parts = [
        f"card {gpu.id}: {left.memory} of {gpu.total_memory} MiB free",
        f"clock {gpu.clock} MHz",
    ]
    if left.memory < gpu.free or not left.is_open:
        parts.append(f"{gpu.free - left.memory} MiB held" if left.is_open else "held whole")
    if not gpu.is_healthy:
        parts.append("not healthy")
    return ", ".join(parts)
