"""The cards of a node table in the form of the card kernels, under the arguments of one profile."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stowplan.columns.array_types import Ints
from stowplan.columns.engine import card_arrays as ca
from stowplan.columns.nodetable import NodeTable
from stowplan.framework import Pod
from stowplan.framework.deciders.kernel_terms import CardTerms
from stowplan.objects.devices.gpu_cards import (
    INDEX_KEY,
    GpuShareRequest,
    format_card_indices,
    is_accessible,
)
from stowplan.plugins.gpu_share.card_choice import CardChoiceOptions, CardSelection
from stowplan.plugins.gpu_share.card_ledger import CardLedger
from stowplan.plugins.gpu_share.conventions.mixed_nodes import mixed_column
from stowplan.plugins.gpu_share.fragmentation import TypicalColumns
from stowplan.plugins.gpu_share.policies import GpuPolicy
from stowplan.plugins.gpu_share.scores.dot_product import DotProductExtension, DotProductNorm

POLICIES = {
    GpuPolicy.FGD: ca.FGD,
    GpuPolicy.BEST_FIT: ca.BEST_FIT,
    GpuPolicy.DOT_PRODUCT: ca.DOT_PRODUCT,
    GpuPolicy.GPU_PACKING: ca.GPU_PACKING,
    GpuPolicy.GPU_CLUSTERING: ca.GPU_CLUSTERING,
    GpuPolicy.RANDOM: ca.RANDOM_NODE,
}
SELECTIONS = {
    CardSelection.BEST: ca.BEST,
    CardSelection.WORST: ca.WORST,
    CardSelection.RANDOM: ca.RANDOM_CARD,
    CardSelection.FGD: ca.FGD_CARD,
    CardSelection.DOT_PRODUCT: ca.DOT_PRODUCT_CARD,
}
EXTENSIONS = {
    DotProductExtension.MERGE: ca.MERGE,
    DotProductExtension.SHARE: ca.SHARE,
    DotProductExtension.DIVIDE: ca.DIVIDE,
    DotProductExtension.EXTEND: ca.EXTEND,
}
NORMS = {
    DotProductNorm.NODE: ca.NODE,
    DotProductNorm.POD: ca.POD,
    DotProductNorm.MAX: ca.MAX,
}

CARD_KEY = 0
"""Key of the random choice of a card; those of nodes come from their names."""

_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def pod_draw(seed: int, pod: Pod) -> int:
    """The number from which the random choices for a pod follow."""
    return zlib.crc32(f"{seed}/{pod.uid}".encode())


def name_key(name: str) -> int:
    """The number of a node in random choices."""
    return zlib.crc32(name.encode()) + 1


def random_numbers(draw: int, keys: Ints) -> Ints:
    """int64 (n,): from 0 on, as good as random, the same for the same draw and key. keys: int64
    (n,).

    Source: finalizer of SplitMix64.
    """
    mixed: NDArray[np.uint64] = np.uint64(draw) ^ (keys.astype(np.uint64) * _SPREAD)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _MIX_1
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _MIX_2
    mixed ^= mixed >> np.uint64(31)
    return (mixed >> np.uint64(1)).astype(np.int64)


class GpuCardInventory:
    """See `CardInventory`."""

    def __init__(
        self,
        ledger: CardLedger,
        nodes: NodeTable,
        policy: GpuPolicy,
        choice: CardChoiceOptions,
        *,
        ties_by_name: bool,
        seed: int,
    ) -> None:
        self._ledger, self._nodes = ledger, nodes
        self._policy, self._choice = policy, choice
        self._ties_by_name, self._seed = ties_by_name, seed
        self._shape = -1
        self._names: tuple[Ints, Ints] = (np.zeros(0, np.int64), np.zeros(0, np.int64))

    def terms(self, request: GpuShareRequest, state: object) -> CardTerms:
        """The kernel terms of a class of pods."""
        access = [is_accessible(request.models, model) for model in self._ledger.models()]
        return CardTerms(
            self,
            request.cpu_milli,
            request.num,
            request.milli,
            -1 if request.kind is None else self._ledger.kind_index(request.kind),
            np.array(access, dtype=np.uint8),
            state,
        )

    def columns(self) -> ca.CardKernelColumns:
        """See `CardInventory.columns`."""
        found = self._ledger.columns()
        return ca.CardKernelColumns(
            found.left,
            found.n_cards,
            found.model,
            found.cpu_capacity,
            found.cpu_left,
            found.kind_counts.copy(),
            *self._by_name(),
        )

    def is_mixed(self) -> bool:
        """See `CardInventory.is_mixed`."""
        return bool(mixed_column(self._nodes).any() or self._ledger.unknown_cards().any())

    def _by_name(self) -> tuple[Ints, Ints]:
        """int64 (n_nodes,), int64 (n_nodes,): position in the order of names, and key of the
        name."""
        if self._shape != self._nodes.shape:
            self._shape, names = self._nodes.shape, self._nodes.names
            rank = np.empty(len(names), dtype=np.int64)
            rank[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
            self._names = rank, np.array([name_key(name) for name in names], dtype=np.int64)
        return self._names

    def expectation(self) -> ca.CardExpectation:
        """See `CardInventory.expectation`."""
        options = np.zeros(ca.N_OPTIONS, dtype=np.int64)
        options[ca.POLICY] = POLICIES[self._policy]
        options[ca.SELECTION] = SELECTIONS[self._choice.selection]
        options[ca.EXTENSION] = EXTENSIONS[self._choice.extension]
        options[ca.NORM] = NORMS[self._choice.norm]
        options[ca.TIES] = ca.NAME if self._ties_by_name else ca.ANY
        pods = self._choice.typical
        shapes = [(pod.cpu_milli, pod.num, pod.milli) for pod in pods]
        return ca.CardExpectation(
            options,
            np.array(shapes, dtype=np.int64).reshape(len(pods), 3),
            np.array([pod.share for pod in pods], dtype=np.float64),
            TypicalColumns(pods, self._ledger.models()).access.astype(np.uint8),
        )

    def draws(self, pods: Sequence[Pod]) -> NDArray[np.uint64]:
        """See `CardInventory.draws`."""
        is_random = (
            self._policy is GpuPolicy.RANDOM or self._choice.selection is CardSelection.RANDOM
        )
        if not is_random:
            return np.zeros(len(pods), dtype=np.uint64)
        return np.array([pod_draw(self._seed, pod) for pod in pods], dtype=np.uint64)

    def reserve(
        self, pods: Sequence[Pod], rows: Sequence[int], cards: Sequence[tuple[int, ...]]
    ) -> list[dict[str, str]]:
        """See `CardInventory.reserve`."""
        notes: list[dict[str, str]] = []
        for pod, row, chosen in zip(pods, rows, cards, strict=True):
            if chosen:
                self._ledger.reserve(pod.uid, row, chosen)
                notes.append({INDEX_KEY: format_card_indices(chosen)})
            else:
                notes.append({})
        return notes
