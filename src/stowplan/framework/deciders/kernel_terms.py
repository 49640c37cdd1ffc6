"""Parts: what a plugin's rule amounts to for one pod, as values that a compiled engine can read.

A plugin that gives parts promises that they say all that its walks would: the engine then chooses
nodes without calling it. Parts of Filter bear on which nodes pass, parts of Score on their points.
A plugin that says nothing of the kind is asked in the ordinary way, for every pod.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from stowplan.columns.pods.podterms import TermRole, WeightedTerm
from stowplan.framework.snapshot import Snapshot
from stowplan.objects.pod import Pod

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class ResourceFit(msgspec.Struct, frozen=True):
    """Filter: a pod slot, and `wanted` (resource, amount in base units, above 0) must be free."""

    wanted: tuple[tuple[str, int], ...]


class ScoringStrategyType(Enum):
    """How utilisation becomes a score."""

    LEAST = "least"
    MOST = "most"
    RATIO = "ratio"


class ScoredResource(msgspec.Struct, frozen=True):
    """A resource that is scored. fills_in: cpu and memory that pods do not name have defaults."""

    resource: str
    weight: int
    request: int
    fills_in: bool


class ResourceScore(msgspec.Struct, frozen=True):
    """Score by utilisation. line: for RATIO, the score per percentage, 101 of them."""

    strategy: ScoringStrategyType
    resources: tuple[ScoredResource, ...]
    line: tuple[int, ...] = ()


class BalancedAllocation(msgspec.Struct, frozen=True):
    """Score by how much the pod evens out the use of resources: (resource, request)."""

    resources: tuple[tuple[str, int], ...]


class TopologyTermKind(Enum):
    """What a term makes of the pods that it counts in a domain.

    Filter: APART wants none, NEAR some, EVEN_HARD a skew within bounds. Score: EVEN_SOFT wants
    few, DRAWN adds up weights.
    """

    APART = "apart"
    NEAR = "near"
    EVEN_HARD = "even, hard"
    EVEN_SOFT = "even, soft"
    DRAWN = "drawn"

    @property
    def filters(self) -> bool:
        """True for the kinds that bear on which nodes pass."""
        return self in (TopologyTermKind.APART, TopologyTermKind.NEAR, TopologyTermKind.EVEN_HARD)


class TopologyTerm(msgspec.Struct, frozen=True):
    """A rule about the pods in each domain of a topology key.

    counts: gives int64 (n_nodes,), what the pods on each row count now. adds: what a pod would
    count once it is placed; anchors: labels one of which every pod has that counts, none where that
    cannot be said. included: bool (n_nodes,), the rows that count; None for all of them.
    skew_max, domains_min: of the spread kinds. matches: 1 when the pod itself is counted, so that
    it adds to its own skew, or may be the first of its company.
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


class TopologyTerms(msgspec.Struct, frozen=True):
    """The terms of one plugin. requires_all: soft spread leaves nodes that lack a key unscored."""

    terms: tuple[TopologyTerm, ...]
    requires_all: bool = False


KernelTerm = ResourceFit | ResourceScore | BalancedAllocation | TopologyTerms


class PeerAffinityTerms(Protocol):
    """The pods that may be placed next to the one in question. have_terms: whether any of them has
    a term of pod affinity."""

    @property
    def have_terms(self) -> bool: ...

    def terms(self, role: TermRole, pod: Pod) -> list[WeightedTerm]:
        """Their terms in a role whose labels may be about `pod`."""


class KernelTermsPlugin(Protocol):
    """A plugin whose rule is parts."""

    def parts(
        self, pod: Pod, snapshot: Snapshot, peers: PeerAffinityTerms
    ) -> tuple[KernelTerm, ...] | None:
        """What the rule amounts to for `pod`; None where parts cannot say it.

        Called once per kind of pods and state of the other objects, not per attempt. What a part
        keeps must not change; only `TopologyTerm.counts` is asked again.
        """


def is_filter_term(part: KernelTerm) -> bool:
    """True for parts, or terms, of Filter; the others are of Score."""
    return isinstance(part, ResourceFit)
