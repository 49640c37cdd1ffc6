"""Kernel terms: a plugin's rule for one pod, as values that compiled kernels evaluate.

A plugin that returns kernel terms, from its method `kernel_terms`, promises that they are
equivalent to its other methods: kernels then choose nodes without calling it. Filter terms decide
which nodes pass, score terms their score. A plugin without that method is called in the ordinary
way, for every pod, and for every class where it declares `node_only`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from enum import Enum
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from stowplan.columns import NodeTable
from stowplan.columns.array_types import Bools, Ints
from stowplan.columns.engine.card_arrays import CardExpectation, CardKernelColumns
from stowplan.columns.pods.podterms import TermRole, WeightedTerm
from stowplan.framework.cycle_state import CycleState
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod


class ResourceFit(msgspec.Struct, frozen=True):
    """Filter: a pod slot and each `wanted` (resource, amount in base units, above 0) must be
    free."""

    wanted: tuple[tuple[str, int], ...]


class ScoringStrategyType(Enum):
    """How utilisation becomes a score."""

    LEAST = "least"
    MOST = "most"
    RATIO = "ratio"


class ScoredResource(msgspec.Struct, frozen=True):
    """A resource that is scored. fills_in: containers without cpu or memory requests get
    defaults."""

    resource: str
    weight: int
    request: int
    fills_in: bool


class ResourceScore(msgspec.Struct, frozen=True):
    """Score by utilisation. line: for RATIO, int64 (101,), score by percentage."""

    strategy: ScoringStrategyType
    resources: tuple[ScoredResource, ...]
    line: tuple[int, ...] = ()


class BalancedAllocation(msgspec.Struct, frozen=True):
    """Score by how evenly the pod leaves resources used: (resource, request)."""

    resources: tuple[tuple[str, int], ...]


class TopologyTermKind(Enum):
    """Role of a topology term.

    Filter: APART requires no matching pod in the domain, NEAR at least one, EVEN_HARD a skew within
    bounds. Score: EVEN_SOFT prefers few, WEIGHTED_AFFINITY sums weights.
    """

    APART = "apart"
    NEAR = "near"
    EVEN_HARD = "even, hard"
    EVEN_SOFT = "even, soft"
    WEIGHTED_AFFINITY = "weighted affinity"

    @property
    def filters(self) -> bool:
        """True for the filter roles."""
        return self in (TopologyTermKind.APART, TopologyTermKind.NEAR, TopologyTermKind.EVEN_HARD)


class TopologyTerm(msgspec.Struct, frozen=True):
    """A rule about the pods in each domain of a topology key.

    counts: returns int64 (n_nodes,), current count of each row. adds: what a pod adds when it is
    placed; anchors: labels of which every counted pod has one, empty where that is unknown.
    included: bool (n_nodes,), rows that count; None for all. skew_max, domains_min: of the spread
    roles. matches: 1 when the pod itself is counted, so that it adds to its own skew, or satisfies
    its own affinity as the first pod. counted: equal for terms of one kind and key that count the
    same on every row while no other affinity term comes and no namespace changes; None where that
    is unknown. Not for kinds that are compared with a minimum or a total.
    """

    kind: TopologyTermKind
    key: str
    counts: Callable[[], Ints]
    adds: Callable[[Pod], int]
    included: Bools | None = None
    skew_max: int = 0
    domains_min: int = 0
    matches: int = 0
    anchors: tuple[tuple[str, str], ...] = ()
    counted: Hashable = None

    @property
    def same_counts(self) -> Hashable:
        """Equal for terms that can share their counts; None for one that has its own."""
        return None if self.counted is None else (self.kind, self.key, self.counted)


class TopologyTerms(msgspec.Struct, frozen=True):
    """Topology terms of one plugin. requires_all: soft spread does not score nodes that lack a
    key."""

    terms: tuple[TopologyTerm, ...]
    requires_all: bool = False


class CardInventory(Protocol):
    """The GPU cards of a node table under the rules of one profile."""

    def columns(self) -> CardKernelColumns:
        """The cards as they are now; the arrays that kernels write are copies."""

    def is_mixed(self) -> bool:
        """True where pods get GPUs of one node in several ways, which kernels do not know."""

    def expectation(self) -> CardExpectation:
        """The policy and its typical pods."""

    def draws(self, pods: Sequence[Pod]) -> NDArray[np.uint64]:
        """uint64 (n_pods,): a number for the random choices of each pod."""

    def reserve(
        self, pods: Sequence[Pod], rows: Sequence[int], cards: Sequence[tuple[int, ...]]
    ) -> list[dict[str, str]]:
        """Give placed pods their cards before they are entered in the table; returns the
        annotations of their bindings."""


class CardTerms(msgspec.Struct, frozen=True):
    """Filter, score and choice of cards: `num` cards of a node with `milli` left on each.

    inventory: the same object for all classes of a profile. cpu_milli: as the policy counts it.
    kind: column of the kinds of pods on a node, -1 for none. access: uint8 (n_models,), accepted
    models. state: what Reserve and Unreserve read from the cycle state under the plugin's name;
    None where they have nothing to do. The kernels reserve: Reserve is not called.
    """

    inventory: CardInventory
    cpu_milli: int
    num: int
    milli: int
    kind: int
    access: NDArray[np.uint8]
    state: object = None


class OwnClaims(msgspec.Struct, frozen=True):
    """A `claims_signature` of claims that placing the pod changes, so that it is equal only until
    then. Classes of it are for callers that run the binding cycles of what they place."""


class DeviceClaims(Protocol):
    """The claims of a class of pods: each pod has claims of its own, all ask for the same.

    What serves them is devices, or volumes. Claims of one type share their `states`.
    """

    def states(self, nodes: NodeTable) -> Ints:
        """int64 (n_nodes,): a number for what is free on each row, the same array until the table
        changes; rows of which it differs from before serve other claims than before."""

    def admitted(self, nodes: NodeTable, rows: Ints) -> Bools | None:
        """bool (n_rows,): rows whose devices serve the claims; None where one of them needs an
        answer of its own."""

    def points(self, nodes: NodeTable, rows: Ints) -> Ints:
        """int64 (n_rows,): the score of rows that `admitted` has admitted, before normalization:
        preference of the alternatives that they would give."""

    def n_fitting(self, nodes: NodeTable, rows: Ints) -> Ints | None:
        """int64 (n_rows,): how many pods of the class the devices of each row serve, one after the
        other; None where that is not worth finding out, or other rows change with them."""

    def is_alike(self, other: DeviceClaims) -> bool:
        """True where a pod of the other class leaves of every row as many for this class as one of
        its own. Both count by `n_fitting`."""

    def are_own(self, pod: Pod, taken: set[Hashable]) -> bool:
        """True where the pod's claims still are as the class reads them, and none of them is in
        `taken`, to which they are added: claims of other pods that are placed with it."""

    def reserve(self, pod: Pod, node: Node, free: int, state: CycleState) -> int:
        """Take devices of a node that serves the pod's claims, as Reserve would. free: the number
        that `states` has for its row. Returns the one afterwards where the class counts by
        `n_fitting`. state: of the pod's binding cycle."""


class DeviceTerms(msgspec.Struct, frozen=True):
    """Filter: rows whose free devices, or volumes, serve the claims of the class; and Reserve,
    which is done as soon as a pod has its row. Only for classes by `claims_signature`, of a caller
    that runs the binding cycles of what it places. has_alternatives: the rows have `points`, which
    count by the highest among the rows that pass.
    """

    claims: DeviceClaims
    has_alternatives: bool = False


class NodeRules(msgspec.Struct, frozen=True):
    """For pods with these claims the plugin's Filter reads nothing but nodes: it is evaluated once
    for the class, as that of a plugin that declares `node_only`. Reserve has nothing to do.

    Only for classes by `claims_signature`.
    """


class RunLimit(msgspec.Struct, frozen=True):
    """Filter: passes on every row as long as a kernel places at most `pods(snapshot)` pods of the
    class at once; 0: the next pod is walked. is_unlimited: True where any number of pods passes on
    every row, whatever pods are there.

    Only for classes by `claims_signature`.
    """

    pods: Callable[[Any], int]
    is_unlimited: Callable[[Any], bool]


KernelTerm = (
    ResourceFit
    | ResourceScore
    | BalancedAllocation
    | TopologyTerms
    | CardTerms
    | DeviceTerms
    | NodeRules
    | RunLimit
)


class PeerAffinityTerms(Protocol):
    """Pods that may be placed beside the pod in question. have_terms: whether any of them has pod
    affinity terms."""

    @property
    def have_terms(self) -> bool: ...

    def terms(self, role: TermRole, pod: Pod) -> list[WeightedTerm]:
        """Their terms in a role whose selectors may match `pod`."""
