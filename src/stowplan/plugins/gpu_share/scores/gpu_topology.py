"""GpuTopology: prefer nodes on which the several GPUs of a pod are close to each other.

GpuShare takes the closest GPUs of the node that is chosen; this plugin scores nodes by how close
these are. The weight of the plugin in the profile says how much that counts.

Source: own rule, on the scale of links that HAMi's nodes report.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import comb

import msgspec
import numpy as np

from stowplan.columns.array_types import Ints
from stowplan.columns.column_cache import ColumnCache
from stowplan.framework import (
    OK,
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
)
from stowplan.framework.plugin import Plugin
from stowplan.objects.devices.gpu_cards import (
    CARD_MILLI,
    COUNT_KEY,
    INDEX_KEY,
    MILLI_KEY,
    MODEL_KEY,
    CardState,
    GpuShareRequest,
)
from stowplan.objects.node import Node
from stowplan.plugins.args_base import PluginArgs
from stowplan.plugins.arithmetic import default_normalize_score
from stowplan.plugins.gpu_share.card_ledger import CardLedger, gpu_node_of, gpu_request_of
from stowplan.plugins.gpu_share.conventions import (
    CONVENTIONS,
    FURTHER_ANNOTATIONS,
    REQUEST_ANNOTATIONS,
)
from stowplan.plugins.gpu_share.conventions.device_sharing import (
    DeviceAttempt,
    attempt_of,
    requests_of,
)
from stowplan.plugins.gpu_share.conventions.gpu_links import (
    LinkRows,
    annotated_links,
    closest_cards,
    links_between,
)


class GpuTopologyArgs(PluginArgs, frozen=True):
    """conventions: as for GpuShare."""

    conventions: tuple[str, ...] = ("volcano", "hami", "aliyun-gpu-mem")

    def problems(self, path: str) -> Iterator[Problem]:
        """Names of conventions that do not exist."""
        for index, name in enumerate(self.conventions):
            if name not in CONVENTIONS:
                wanted = f"one of {', '.join(CONVENTIONS)}"
                yield Problem(f"{path}.conventions[{index}]", repr(name), wanted)


class LinkedSet(msgspec.Struct, frozen=True):
    """GPUs that a pod would get on a node. names: indices or ids. links: the sum between them.
    best: the highest sum of as many GPUs of the node, were all of them idle. n_pairs: pairs of
    GPUs."""

    names: tuple[str, ...]
    links: int
    best: int
    n_pairs: int


class TopologyState(msgspec.Struct, frozen=True):
    """Result of PreScore."""

    request: GpuShareRequest
    ledger: CardLedger
    devices: DeviceAttempt


class GpuTopology:
    """Score nodes by the links between the GPUs that a pod would get; 0 without links."""

    name = "GpuTopology"
    declaration = Plugin(
        name=name,
        reads=(),
        repeatable=True,
        normalizes="highest",
        reads_annotations=(MILLI_KEY, COUNT_KEY, MODEL_KEY, INDEX_KEY, *REQUEST_ANNOTATIONS),
        reads_annotations_with=FURTHER_ANNOTATIONS,
    )
    Args = GpuTopologyArgs

    def __init__(self, args: GpuTopologyArgs) -> None:
        self._conventions = [CONVENTIONS[name] for name in args.conventions]

    def pre_score(self, pod: Pod, snapshot: Snapshot, state: CycleState) -> Status:
        """Skip for a pod that does not request several GPUs."""
        request = gpu_request_of(PodInfo.of(pod))
        devices = attempt_of(pod, snapshot, self._conventions)
        parts = [part for one in devices.requests.values() for part in one.containers]
        if not is_several_whole(request) and all(part.count < 2 for part in parts):
            return SKIP
        state.write(self.name, TopologyState(request, CardLedger.of(snapshot.nodes), devices))
        return OK

    def score(self, node: NodeInfo, state: CycleState) -> int:
        """The sum of links between the GPUs that the pod would get."""
        return sum(one.links for one in _sets_on(node, state.read(self.name, TopologyState)))

    def score_column(self, nodes: NodeTable, rows: Rows, state: CycleState) -> Ints:
        """int64 (n_rows,): `score` of each row."""
        attempt = state.read(self.name, TopologyState)

        def evaluate(some: Rows) -> Ints:
            numbers = np.arange(nodes.n_nodes)[some].tolist()
            found = [
                sum(one.links for one in _sets_on(nodes.info(row), attempt)) for row in numbers
            ]
            return np.array(found, dtype=np.int64)

        key = (self, attempt.request, attempt.devices.key)
        return np.array(ColumnCache.of(nodes).column(key, nodes, evaluate)[rows])

    def normalize_score(self, scores: Ints) -> Ints:
        """int64 (n_rows,): percentages of the highest sum."""
        return default_normalize_score(scores)

    def signature(self, pod: Pod) -> object:
        """The requests."""
        return gpu_request_of(PodInfo.of(pod)), *requests_of(pod, self._conventions).values()

    def explain(self, node: NodeInfo, state: CycleState) -> list[str]:
        """Which GPUs the pod would get, how close they are, and what the closest would have had."""
        attempt: TopologyState | None = state.find(self.name)
        if attempt is None:
            return []
        lines = [_text(one) for one in _sets_on(node, attempt) if one.best]
        problem = _links_problem(node, attempt)
        return [*lines, *([problem] if problem else [])]


def is_several_whole(request: GpuShareRequest) -> bool:
    """True for several whole cards."""
    return request.num > 1 and request.milli >= CARD_MILLI


def closest_whole_cards(
    node: Node, state: CardState, request: GpuShareRequest
) -> tuple[int, ...] | None:
    """The cards for a pod that requests several whole ones, where the node reports links; None
    where it does not, or where the pod names its cards."""
    if not is_several_whole(request) or request.prescribed is not None:
        return None
    links, _ = annotated_links(node, len(state.left))
    idle = tuple(card for card, left in enumerate(state.left) if left >= request.milli)
    if not links or len(idle) < request.num:
        return None
    return closest_cards(links, idle, request.num)


def _sets_on(node: NodeInfo, attempt: TopologyState) -> list[LinkedSet]:
    """The GPUs of each container, or of the pod; none where too few are idle."""
    registered = attempt.devices.linked_on(node)
    if registered is not None:
        links, ids, chosen = registered
        return [_linked(links, some, [ids[one] for one in some]) for some in chosen]
    request = attempt.request
    if not is_several_whole(request):
        return []
    state = attempt.ledger.state(node)
    links, _ = annotated_links(node.node, len(state.left))
    cards = request.prescribed or closest_whole_cards(node.node, state, request)
    if not links or cards is None or max(cards) >= len(state.left):
        return []
    return [_linked(links, cards, [str(card) for card in cards])]


def _linked(links: LinkRows, cards: Sequence[int], names: Sequence[str]) -> LinkedSet:
    best = closest_cards(links, tuple(range(len(links))), len(cards))
    pairs = comb(len(cards), 2)
    return LinkedSet(tuple(names), links_between(links, cards), links_between(links, best), pairs)


def _text(found: LinkedSet) -> str:
    pairs = f"{found.n_pairs} pair{'s' if found.n_pairs > 1 else ''}"
    lost = f"{found.best - found.links} less than the closest of the node"
    return (
        f"gpu links: {', '.join(found.names)} with {found.links} over {pairs}, "
        f"{lost if found.best > found.links else 'the closest of the node'}"
    )


def _links_problem(node: NodeInfo, attempt: TopologyState) -> str:
    found = attempt.devices.ledger.report(node, attempt.devices.conventions)
    if found.only is not None:
        return found.report.links_problem
    return annotated_links(node.node, gpu_node_of(node)[1])[1]
