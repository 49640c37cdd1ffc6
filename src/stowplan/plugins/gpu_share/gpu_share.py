"""GpuShare: places pods on GPU cards, and gives each pod its cards.

Annotations of a pod request parts of cards or whole cards; a policy scores nodes by what is left of
their cards. Reserve chooses the cards, and the binding carries them to the pod.

Among equal scores the smallest name of a node wins, as in the original. FGD depends on a fixed
order: most of its placements tie, and with a random choice it packs worse than BestFit.

Source: hkust-adsl/kubernetes-scheduler-simulator (Weng et al., USENIX ATC 2023).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from enum import StrEnum

import msgspec
import numpy as np

from stowplan.columns.array_types import Bools, Ints
from stowplan.columns.column_cache import ColumnCache
from stowplan.framework import (
    OK,
    SCORE_MAX,
    SKIP,
    CycleState,
    NodeInfo,
    NodeTable,
    Pod,
    PodInfo,
    Problem,
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
    Action,
    QueueingHint,
    RegisteredEvents,
    on,
)
from stowplan.framework.deciders.kernel_terms import KernelTerm
from stowplan.framework.deciders.node_plugins import PodWarning
from stowplan.framework.plugin import Plugin
from stowplan.objects.devices.gpu_cards import (
    ASSUME_TIMES,
    COUNT_KEY,
    INDEX_KEY,
    MILLI_KEY,
    MODEL_KEY,
    CardState,
    GpuShareRequest,
    format_card_indices,
    is_accessible,
)
from stowplan.objects.node import Node
from stowplan.plugins.args_base import PluginArgs
from stowplan.plugins.gpu_share.card_choice import (
    CardChoiceOptions,
    CardSelection,
    candidate_cards,
)
from stowplan.plugins.gpu_share.card_filter import (
    fits_distinct_cards,
    fits_distinct_cards_column,
)
from stowplan.plugins.gpu_share.card_inventory import (
    CARD_KEY,
    GpuCardInventory,
    name_key,
    pod_draw,
    random_numbers,
)
from stowplan.plugins.gpu_share.card_ledger import (
    CardLedger,
    gpu_node_of,
    gpu_request_of,
    request_problem,
)
from stowplan.plugins.gpu_share.conventions import (
    CONVENTIONS,
    FURTHER_ANNOTATIONS,
    KAI_NAMES,
    REQUEST_ANNOTATIONS,
    kai_reservations,
)
from stowplan.plugins.gpu_share.conventions.device_ledger import DeviceLedger
from stowplan.plugins.gpu_share.conventions.device_sharing import REFUSALS as DEVICE_REFUSALS
from stowplan.plugins.gpu_share.conventions.device_sharing import (
    SEVERAL,
    UNKNOWN_CARDS,
    DeviceAttempt,
    attempt_of,
    device_attempt,
    refusal,
    requests_of,
)
from stowplan.plugins.gpu_share.conventions.gpu_links import has_links
from stowplan.plugins.gpu_share.conventions.kai_reservations import unused_reservations
from stowplan.plugins.gpu_share.conventions.mixed_nodes import (
    has_nodes_by_milli,
    holds_unknown_cards,
    may_request_gpus,
    mixed_column,
    mixed_problem,
    requests_counted_gpus,
)
from stowplan.plugins.gpu_share.fragmentation import TypicalPod
from stowplan.plugins.gpu_share.missing_cards import missing_cards
from stowplan.plugins.gpu_share.policies import (
    GpuPolicy,
    gpu_score,
    gpu_score_column,
    normalize_gpu_scores,
    settle_ties,
)
from stowplan.plugins.gpu_share.scores.dot_product import DotProductExtension, DotProductNorm
from stowplan.plugins.gpu_share.scores.gpu_topology import closest_whole_cards, is_several_whole
from stowplan.plugins.gpu_share.typical_pods import TypicalPodsOptions, typical_pods
from stowplan.plugins.pod_hints import is_assigned_or_nominated, queueing_hint

FITS, NO_SUCH_CARDS, TOO_LITTLE_LEFT = range(3)
DEVICES = "GpuShare/devices"
NO_STATE = error("GpuShare is enabled at filter or reserve and not at preFilter; expected both")


class GpuShareWorkloadPod(PluginArgs, frozen=True):
    """Pods of one shape in the expected workload. milli: on each of `num` cards."""

    cpu_milli: int = 0
    num: int = 0
    milli: int = 0
    models: str = ""
    count: int = 1


class GpuTies(StrEnum):
    """name: the smallest name; the other nodes with the highest score lose one point, so that no
    random choice is left. any: as the scheduler chooses among equals."""

    NAME = "name"
    ANY = "any"


class GpuShareArgs(PluginArgs, frozen=True):
    """policy: scores nodes. gpu_sel: chooses the card for a part of one. dim_ext, norm: vectors of
    DotProd and their divisor. workload: source of the typical pods of FGD, with the options below.
    ties: which of the nodes with the highest score is to win. seed: of Random. conventions: ways
    of registering and requesting GPUs that count beside the annotations of open-gpu-share.
    node_locks: take the lock of the node by which Volcano's or HAMi's device plugin knows the pod.
    reservation_image, reservation_service_account: of the pods that reserve cards for KAI's parts.
    """

    policy: GpuPolicy = GpuPolicy.BEST_FIT
    gpu_sel: CardSelection = CardSelection.BEST
    dim_ext: DotProductExtension = DotProductExtension.SHARE
    norm: DotProductNorm = DotProductNorm.MAX
    workload: tuple[GpuShareWorkloadPod, ...] = ()
    involve_cpu_pods: bool = True
    popularity_threshold: int = 95
    increase_step: int = 1
    gpu_res_weight: float = 0.0
    ties: GpuTies = GpuTies.NAME
    seed: int = 0
    conventions: tuple[str, ...] = ("volcano", "hami", "aliyun-gpu-mem")
    node_locks: bool = False
    reservation_image: str = ""
    reservation_service_account: str = "default"

    def problems(self, path: str) -> Iterator[Problem]:
        """FGD without workload, and figures out of range."""
        needs_typical = self.policy is GpuPolicy.FGD or self.gpu_sel is CardSelection.FGD
        if needs_typical and not self.workload:
            yield Problem(f"{path}.workload", "none", "the pods that FGD expects")
        for name, value, most in (
            ("popularityThreshold", self.popularity_threshold, 100),
            ("increaseStep", self.increase_step, 10_000),
        ):
            if not 1 <= value <= most:
                yield Problem(f"{path}.{name}", str(value), f"1 to {most}")
        for index, name in enumerate(self.conventions):
            if name not in CONVENTIONS:
                wanted = f"one of {', '.join(CONVENTIONS)}"
                yield Problem(f"{path}.conventions[{index}]", repr(name), wanted)
        yield from self._kai_problems(path)
        for index, pod in enumerate(self.workload):
            if min(pod.cpu_milli, pod.num, pod.milli) < 0 or pod.count < 1:
                yield Problem(f"{path}.workload[{index}]", str(pod), "amounts of 0 or more")
        if self.gpu_sel is CardSelection.DOT_PRODUCT and self.dim_ext is DotProductExtension.MERGE:
            yield Problem(
                f"{path}.gpuSel", self.gpu_sel.value, "another one, as dimExt merge has no cards"
            )

    def _kai_problems(self, path: str) -> Iterator[Problem]:
        """KAI's parts in two ways, and reservation pods without a program."""
        if set(KAI_NAMES) <= set(self.conventions):
            yield Problem(f"{path}.conventions", " and ".join(KAI_NAMES), "one of them")
        if kai_reservations.NAME in self.conventions and not self.reservation_image:
            wanted = f"the image of reservation pods, for {kai_reservations.NAME}"
            yield Problem(f"{path}.reservationImage", "none", wanted)

    @property
    def typical_pods(self) -> tuple[TypicalPod, ...]:
        """The typical pods of the workload."""
        workload = (
            (GpuShareRequest(pod.cpu_milli, pod.num, pod.milli, pod.models), pod.count)
            for pod in self.workload
        )
        options = TypicalPodsOptions(
            self.involve_cpu_pods,
            self.popularity_threshold,
            self.increase_step,
            self.gpu_res_weight,
        )
        return tuple(typical_pods(workload, options)) if self.workload else ()


class GpuShareState(msgspec.Struct, frozen=True):
    """Result of PreFilter or PreScore. nodes: as the ledger follows them. devices: what nodes
    register beside cards."""

    request: GpuShareRequest
    ledger: CardLedger
    nodes: NodeTable
    devices: DeviceAttempt


class GpuShare:
    """Filter, score and reserve by GPU cards.

    Differs: where the original fails an attempt (parts of several cards, no score for a node) the
    pod is placed: parts of several cards are on as many cards, and a node without score is worth 0.
    """

    name = "GpuShare"
    declaration = Plugin(
        name=name,
        reads=(),
        stable_codes=True,
        repeatable=True,
        rests_when_skipped=True,
        reads_annotations=(MILLI_KEY, COUNT_KEY, MODEL_KEY, INDEX_KEY, *REQUEST_ANNOTATIONS),
        reads_annotations_with=FURTHER_ANNOTATIONS,
    )
    Args = GpuShareArgs
    REFUSALS = {
        # No eviction adds cards or changes their model.
        NO_SUCH_CARDS: unresolvable("node(s) had too few GPU cards of an accepted model"),
        TOO_LITTLE_LEFT: unschedulable("node(s) had too little left on their GPU cards"),
    }

    def __init__(self, args: GpuShareArgs) -> None:
        self.args = args
        self._conventions = [CONVENTIONS[name] for name in args.conventions]
        self._reserves = kai_reservations.NAME in args.conventions
        self._choice = CardChoiceOptions(args.gpu_sel, args.dim_ext, args.norm, args.typical_pods)

    def _state(self, pod: Pod, snapshot: Snapshot) -> GpuShareState:
        request = gpu_request_of(PodInfo.of(pod))
        devices = attempt_of(pod, snapshot, self._conventions, {})
        return GpuShareState(request, CardLedger.of(snapshot.nodes), snapshot.nodes, devices)

    # Filter.

    def pre_filter(self, pod: Pod, snapshot: Snapshot, state: CycleState) -> Status:
        """Skip for a pod that requests no cards."""
        if not may_request_gpus(pod):
            return SKIP
        devices = device_attempt(pod, snapshot, self._conventions)
        if isinstance(devices, Status):
            return devices
        if devices is not None:
            state.write(DEVICES, devices)
            return OK
        problem = request_problem(pod)
        if problem:
            return unresolvable(f"pod requests GPUs that cannot be: {problem}")
        attempt = self._state(pod, snapshot)
        if attempt.request.milli <= 0:
            return SKIP
        state.write(self.name, attempt)
        return OK

    def add_pod(self) -> Status:
        """Nothing: the cards of a node are read from its pods."""
        return OK

    def remove_pod(self) -> Status:
        """Nothing, as for `add_pod`."""
        return OK

    def filter(self, pod: Pod, node: NodeInfo, state: CycleState) -> Status:
        """Success where as many cards as requested have enough left."""
        devices: DeviceAttempt | None = state.find(DEVICES)
        if devices is not None:
            return refusal(devices.verdict(node))
        attempt: GpuShareState | None = state.find(self.name)
        if attempt is None:
            return NO_STATE
        request = attempt.request
        if mixed_problem(node.node):
            return DEVICE_REFUSALS[SEVERAL]
        if holds_unknown_cards(node):
            return DEVICE_REFUSALS[UNKNOWN_CARDS]
        if fits_distinct_cards(attempt.ledger.state(node), request):
            return OK
        _, n_cards, model = gpu_node_of(node)
        is_large_enough = n_cards >= max(request.num, request.n_cards_min)
        has_cards = is_large_enough and is_accessible(request.models, model)
        return self.REFUSALS[TOO_LITTLE_LEFT if has_cards else NO_SUCH_CARDS]

    def filter_column(self, nodes: NodeTable, rows: Rows, state: CycleState) -> Ints:
        """int64 (n_rows,): FITS, or the reason of the refusal."""
        devices: DeviceAttempt | None = state.find(DEVICES)
        if devices is not None:
            return self._kept_column("filter", devices.key, nodes, rows, devices.verdicts)
        attempt: GpuShareState | None = state.find(self.name)
        if attempt is None:
            return np.full(np.arange(nodes.n_nodes)[rows].shape[0], -1, dtype=np.int64)
        request = attempt.request

        def evaluate(some: Rows) -> Ints:
            cards = CardLedger.of(nodes).columns().take(some)
            least = max(request.num, request.n_cards_min)
            has_cards: Bools = (cards.n_cards >= least) & cards.access(request.models)
            codes = np.where(has_cards, TOO_LITTLE_LEFT, NO_SUCH_CARDS)
            fits = fits_distinct_cards_column(cards, request)
            unknown_cards = CardLedger.of(nodes).unknown_cards()[some]
            found = np.where(unknown_cards, UNKNOWN_CARDS, np.where(fits, FITS, codes))
            return np.where(mixed_column(nodes)[some], SEVERAL, found)

        return self._kept_column("filter", request, nodes, rows, evaluate)

    def filter_status(self, code: int) -> Status:
        """The refusal of a code of `filter_column`."""
        if code in DEVICE_REFUSALS:
            return DEVICE_REFUSALS[code]
        return NO_STATE if code < 0 else self.REFUSALS[code]

    # Score.

    def pre_score(self, pod: Pod, snapshot: Snapshot, state: CycleState) -> Status:
        """Remember the request; pods without cards are scored as well."""
        state.write(f"{self.name}/scores", self._state(pod, snapshot))
        devices = attempt_of(pod, snapshot, self._conventions)
        if devices.has_devices().any():
            state.write(f"{DEVICES}/scores", devices)
        return OK

    def score(self, pod: Pod, node: NodeInfo, state: CycleState) -> int:
        """The score of the policy, before normalisation."""
        attempt = state.read(f"{self.name}/scores", GpuShareState)
        if self.args.policy is GpuPolicy.RANDOM:
            return self._draw(pod, name_key(node.name))
        devices: DeviceAttempt | None = state.find(f"{DEVICES}/scores")
        registered = None if devices is None else devices.on_cards(node)
        card_state, request = registered or (attempt.ledger.state(node), attempt.request)
        return gpu_score(self.args.policy, card_state, request, self._choice) or 0

    def score_column(self, pod: Pod, nodes: NodeTable, rows: Rows, state: CycleState) -> Ints:
        """int64 (n_rows,): `score` of each row."""
        attempt = state.read(f"{self.name}/scores", GpuShareState)
        if self.args.policy is GpuPolicy.RANDOM:
            numbers = np.arange(nodes.n_nodes)[rows].tolist()
            keys = np.array([name_key(nodes.names[row]) for row in numbers], dtype=np.int64)
            return random_numbers(pod_draw(self.args.seed, pod), keys)

        def evaluate(some: Rows) -> Ints:
            cards = CardLedger.of(nodes).columns().take(some)
            found = gpu_score_column(self.args.policy, cards, attempt.request, self._choice)[0]
            return found if devices is None else self._with_devices(found, devices, some)

        devices: DeviceAttempt | None = state.find(f"{DEVICES}/scores")
        key = attempt.request if devices is None else (attempt.request, devices.key)
        return self._kept_column("score", key, nodes, rows, evaluate)

    def _with_devices(self, scores: Ints, devices: DeviceAttempt, rows: Rows) -> Ints:
        """The scores, of nodes that register devices by these. int64 (n_rows,)."""
        numbers = np.arange(devices.nodes.n_nodes)[rows]
        for place in np.nonzero(devices.has_devices()[numbers])[0].tolist():
            registered = devices.on_cards(devices.nodes.info(int(numbers[place])))
            if registered is not None:
                scores[place] = gpu_score(self.args.policy, *registered, self._choice) or 0
        return scores

    def _kept_column(
        self,
        method: str,
        request: Hashable,
        nodes: NodeTable,
        rows: Rows,
        evaluate: Callable[[Rows], Ints],
    ) -> Ints:
        """int64 (n_rows,): answers kept per request, evaluated again for changed rows."""
        column = ColumnCache.of(nodes).column((self, method, request), nodes, evaluate)
        return np.array(column[rows])

    def normalize_score(self, scores: Ints, nodes: NodeTable, rows: Rows) -> Ints:
        """int64 (n_rows,): from 0 to 100, with ties settled. Random: 100 for the highest, 0 for the
        others.

        Differs: scores of GpuClustering below 0 and of GpuPacking above 100, on nodes with many
        cards, are cut off; the original fails the attempt.
        """
        if not scores.shape[0]:
            return scores
        if self.args.policy is GpuPolicy.RANDOM:
            return np.where(scores == scores.max(), SCORE_MAX, 0)
        final = np.clip(normalize_gpu_scores(self.args.policy, scores), 0, SCORE_MAX)
        if self.args.ties is GpuTies.NAME:
            numbers = np.arange(nodes.n_nodes)[rows].tolist()
            settle_ties(final, [nodes.names[row] for row in numbers])
        return final

    def _draw(self, pod: Pod, key: int) -> int:
        """A number that is as good as random, the same at every call."""
        keys = np.array([key], dtype=np.int64)
        return int(random_numbers(pod_draw(self.args.seed, pod), keys)[0])

    def kernel_terms(self, pod: Pod, snapshot: Snapshot) -> tuple[KernelTerm, ...] | None:
        """The request; None for a pod that prescribes its cards, or requests registered devices,
        and where nodes register some; None for several whole cards where nodes report links."""
        devices = attempt_of(pod, snapshot, self._conventions)
        if not devices.is_count or devices.has_devices().any() or request_problem(pod):
            return None
        if _may_mix(pod, snapshot.nodes):
            return None
        attempt = self._state(pod, snapshot)
        request = attempt.request
        if request.prescribed is not None:
            return None
        if is_several_whole(request) and has_links(snapshot.nodes):
            return None
        inventory = attempt.ledger.inventories.get(self)
        if inventory is None:
            inventory = attempt.ledger.inventories[self] = GpuCardInventory(
                attempt.ledger,
                snapshot.nodes,
                self.args.policy,
                self._choice,
                ties_by_name=self.args.ties is GpuTies.NAME,
                seed=self.args.seed,
            )
        return (inventory.terms(request, attempt if request.milli > 0 else None),)

    # After the node is chosen.

    def reserve(self, pod: Pod, node_name: str, state: CycleState) -> Status:
        """Choose the cards. They go onto the pod with its binding."""
        devices: DeviceAttempt | None = state.find(DEVICES)
        if devices is not None:
            return self._reserve_devices(devices, pod, node_name, state)
        attempt: GpuShareState | None = state.find(self.name)
        if attempt is None:
            return OK
        row = attempt.nodes.row(node_name)
        if row < 0:
            return self.REFUSALS[NO_SUCH_CARDS]
        info = attempt.nodes.info(row)
        left = attempt.ledger.state(info, pod.uid)
        cards = attempt.ledger.chosen.get(pod.uid)
        if cards is None or any(
            card >= len(left.left) or left.left[card] < attempt.request.milli for card in cards
        ):
            cards = self._chosen(pod, info.node, left, attempt.request)
        if cards is None:
            return self.REFUSALS[TOO_LITTLE_LEFT]
        attempt.ledger.reserve(pod.uid, row, cards)
        state.binding_annotations[INDEX_KEY] = format_card_indices(cards)
        state.binding_times = {**state.binding_times, **ASSUME_TIMES}
        return OK

    def _reserve_devices(
        self, devices: DeviceAttempt, pod: Pod, node_name: str, state: CycleState
    ) -> Status:
        most_left = self.args.gpu_sel is CardSelection.WORST
        notes = devices.reserve(pod, node_name, most_left=most_left)
        if isinstance(notes, Status):
            return notes
        if notes is not None:
            state.binding_annotations.update(notes.annotations)
            state.binding_times = {**state.binding_times, **notes.times}
            if self.args.node_locks:
                state.binding_lock = notes.lock
            if notes.reservations is not None:
                state.binding_cards = msgspec.structs.replace(
                    notes.reservations,
                    image=self.args.reservation_image,
                    service_account=self.args.reservation_service_account,
                )
        return OK

    def _chosen(
        self, pod: Pod, node: Node, left: CardState, request: GpuShareRequest
    ) -> tuple[int, ...] | None:
        if not fits_distinct_cards(left, request):
            return None
        closest = closest_whole_cards(node, left, request)
        if closest is not None:
            return closest
        choices = candidate_cards(left, request, self._choice)
        # Only RANDOM has several.
        return choices[self._draw(pod, CARD_KEY) % len(choices)] if choices else None

    def unreserve(self, pod: Pod, node_name: str, state: CycleState) -> None:
        """Take the cards back."""
        devices: DeviceAttempt | None = state.find(DEVICES)
        if devices is not None:
            devices.unreserve(pod, node_name)
        attempt: GpuShareState | None = state.find(self.name)
        if attempt is not None:
            attempt.ledger.unreserve(pod.uid, attempt.nodes.row(node_name))

    # Sessions, which choose cards before they bind.

    def remember_choice(self, pod: Pod, snapshot: Snapshot) -> None:
        """The cards that are reserved for a pod are those of its binding, if they are still left
        then."""
        CardLedger.of(snapshot.nodes).remember(pod.uid)
        DeviceLedger.of(snapshot.nodes).remember(pod.uid)

    def forget_choices(self, snapshot: Snapshot) -> None:
        """Another session begins."""
        # Ledgers follow every pod, so none is made for a cluster where no pod requests cards.
        for ledger in (CardLedger.existing(snapshot.nodes), DeviceLedger.existing(snapshot.nodes)):
            if ledger is not None:
                ledger.chosen.clear()

    # Events, signature and explanations.

    def events_to_register(self) -> RegisteredEvents:
        """A node with cards is added or changes, or a pod gives cards back."""
        on_node = (
            Action.ADD
            | Action.UPDATE_NODE_ALLOCATABLE
            | Action.UPDATE_NODE_LABEL
            | Action.UPDATE_NODE_ANNOTATION
        )
        return (on(NODE, on_node), on(POD, Action.DELETE, _after_deletion))

    def signature(self, pod: Pod) -> object:
        """The request; for Random, which draws for each pod, the pod."""
        request = (
            gpu_request_of(PodInfo.of(pod)),
            request_problem(pod),
            requests_counted_gpus(pod),
            *requests_of(pod, self._conventions).values(),
        )
        return (*request, pod.uid) if self.args.policy is GpuPolicy.RANDOM else request

    def explain(self, pod: Pod, node: NodeInfo, state: CycleState) -> list[str]:
        """What the pod needs, and what is left of each card."""
        devices: DeviceAttempt | None = state.find(DEVICES)
        if devices is not None:
            return devices.explain(node)
        attempt: GpuShareState | None = state.find(self.name)
        if attempt is None:
            return []
        problem = mixed_problem(node.node)
        if problem:
            return [problem]
        if holds_unknown_cards(node):
            return ["gpu cards: pods on the node have GPUs that the kubelet has chosen"]
        request, cards = attempt.request, attempt.ledger.state(node)
        model = f" of {request.models}" if request.models else ""
        left = ", ".join(map(str, cards.left)) or "none"
        return [
            f"gpu cards: needs {request.num}{model} with {request.milli} milli each, "
            f"left{f' of {cards.model}' if cards.model else ''}: {left}"
        ]

    def node_updated(self, before: Node, after: Node, pods: Sequence[Pod]) -> Sequence[PodWarning]:
        """Cards that are missing under the pods."""
        return tuple(missing_cards(before, after, pods, self._conventions))

    def unused_pods(self, pods: Sequence[Pod]) -> Sequence[Pod]:
        """Reservation pods whose card no pod has."""
        return unused_reservations(pods) if self._reserves else ()


def _after_deletion(pod: Pod, old: Pod, new: None) -> QueueingHint:
    # Of every convention: a pod that frees what no one counts wakes others for nothing.
    devices = requests_of(old, tuple(CONVENTIONS.values()))
    is_counted = requests_counted_gpus(old)
    freed = bool(devices) or is_counted or gpu_request_of(PodInfo.of(old)).milli > 0
    return queueing_hint(is_assigned_or_nominated(old) and freed)


def _may_mix(pod: Pod, nodes: NodeTable) -> bool:
    """True where some node may refuse the pod for how other pods have got its GPUs."""
    if not has_nodes_by_milli(nodes):
        return False
    if requests_counted_gpus(pod):
        return True
    return bool(mixed_column(nodes).any() or CardLedger.of(nodes).unknown_cards().any())
