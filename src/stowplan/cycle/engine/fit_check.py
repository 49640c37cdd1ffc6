"""ClassFitCheck: compares the needs of many classes with the free amounts of all rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stowplan.columns.engine import arrays as at
from stowplan.columns.pods.podterms import ExistingPodTerms
from stowplan.cycle.engine.card_groups import CardGroups
from stowplan.cycle.engine.class_arrays import ClassArrays
from stowplan.cycle.engine.classes import EnginePodClass
from stowplan.framework import Snapshot

NOT_ASKED = np.iinfo(np.int64).min
"""A free amount that every row satisfies."""


class ClassFitCheck:
    """See `FitCheck`. All classes have a plan with ResourceFit and no terms."""

    def __init__(
        self,
        known: Sequence[tuple[EnginePodClass, frozenset[str]]],
        class_arrays: ClassArrays,
        card_groups: CardGroups,
        snapshot: Snapshot,
    ) -> None:
        """known: see `KernelPlacer.fit_check`."""
        classes = [one for one, _ in known]
        self._nodes = snapshot.nodes
        self._refusers = RefusersByRow(known, card_groups, snapshot.nodes.n_nodes)
        self._fits = RowCounts(len(known), snapshot.nodes.n_nodes)
        # Generation at which preemption was last found to be of no help.
        self._helpless_at = -1
        self._static_revision = static_revision_of(snapshot)
        # Preemption helps the pod of the highest priority most.
        self._highest_priority = max(classes, key=lambda one: one.pod.priority)
        params = class_arrays.classes[[one.number for one in classes]]
        self._pods_item = int(params[0, at.PODS])
        wanted = [
            {
                int(row[at.WANTED + 2 * i]): int(row[at.WANTED + 2 * i + 1])
                for i in range(int(row[at.N_WANTED]))
            }
            for row in params
        ]
        self._items = np.array(sorted({item for one in wanted for item in one}), dtype=np.int64)
        # int64 (n_classes, n_items): base units.
        self._wanted = np.array(
            [[one.get(item, NOT_ASKED) for item in self._items.tolist()] for one in wanted],
            dtype=np.int64,
        ).reshape(len(classes), len(self._items))
        statics = card_groups.node_rules(params[:, at.STATIC])
        self._passes: NDArray[np.bool_] = class_arrays.passes(statics)

    def hold(self, snapshot: Snapshot) -> bool:
        """See `FitCheck.hold`."""
        one = self._highest_priority
        if static_revision_of(snapshot) != self._static_revision:
            return False
        generation = snapshot.nodes.journal.generation
        if self._helpless_at == generation:
            return True
        members = one.framework.at("postFilter")
        if any(member.may_help(one.pod, snapshot) for member in members):
            return False
        self._helpless_at = generation
        return True

    def may_fit(self, rows: Sequence[int] | None) -> NDArray[np.bool_]:
        """See `FitCheck.may_fit`."""
        nodes = self._nodes
        those = np.arange(nodes.n_nodes) if rows is None else np.array(rows, dtype=np.int64)
        allocatable, requested, _, pod_count = nodes.amounts
        cells = self._items[:, None], those
        free = allocatable[cells] - requested[cells]
        enough: NDArray[np.bool_] = self._wanted[:, :, None] <= free
        has_slot: NDArray[np.bool_] = pod_count[those] < allocatable[self._pods_item, those]
        suffices: NDArray[np.bool_] = enough.all(axis=1) & has_slot
        self._fits.write(those, self._refusers.refine(suffices, self._passes[:, those], those))
        return self._fits.any()

    def refusers_of(self, number: int) -> frozenset[str] | None:
        """See `FitCheck.refusers_of`."""
        return self._refusers.refusers_of(number)

    def other_refusers(self) -> NDArray[np.bool_]:
        """See `FitCheck.other_refusers`."""
        return self._refusers.differ()


class RowCounts:
    """On how many rows something is true of each class, kept as rows change."""

    def __init__(self, n_classes: int, n_rows: int) -> None:
        self._flags = np.zeros((n_classes, n_rows), dtype=np.bool_)
        self._counts = np.zeros(n_classes, dtype=np.int64)

    def write(self, rows: NDArray[np.int64], flags: NDArray[np.bool_]) -> None:
        """Set rows, each given once. flags: bool (n_classes, n_rows)."""
        if rows.shape[0] == 1:
            # One row in most calls, where sums cost more than all else.
            before = self._flags[:, rows[0]]
            self._counts += flags[:, 0].view(np.int8) - before.view(np.int8)
            before[:] = flags[:, 0]
            return
        self._counts += flags.sum(axis=1) - self._flags[:, rows].sum(axis=1)
        self._flags[:, rows] = flags

    def any(self) -> NDArray[np.bool_]:
        """bool (n_classes,): true on some row."""
        found: NDArray[np.bool_] = self._counts > 0
        return found


class RefusersByRow:
    """Which rows amounts, and which only GPU cards, refuse a class. Without cards the plugins that
    refuse a class are always the same."""

    def __init__(
        self,
        known: Sequence[tuple[EnginePodClass, frozenset[str]]],
        card_groups: CardGroups,
        n_nodes: int,
    ) -> None:
        """known: see `KernelPlacer.fit_check`."""
        self._card_needs = card_groups.needs([one.number for one, _ in known])
        self._is_known = np.array([bool(one.card_filter) for one, _ in known], dtype=np.bool_)
        self._has_cards = bool(self._is_known.any())
        n_rows = n_nodes if self._has_cards else 0
        self._by_amounts, self._by_cards = (RowCounts(len(known), n_rows) for _ in range(2))
        # Per class: the plugins that compare amounts, and those that read only the node.
        self._amounts = [frozenset(_by_amounts(one)) for one, _ in known]
        self._cards = [frozenset(name for name in [one.card_filter] if name) for one, _ in known]
        self._fixed = [
            refusers - amounts - cards
            for (_, refusers), amounts, cards in zip(known, self._amounts, self._cards, strict=True)
        ]
        self._were = np.array(
            [
                [not refusers.isdisjoint(amounts), not refusers.isdisjoint(cards)]
                for (_, refusers), amounts, cards in zip(
                    known, self._amounts, self._cards, strict=True
                )
            ],
            dtype=np.bool_,
        )

    def refine(
        self, enough: NDArray[np.bool_], passes: NDArray[np.bool_], rows: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """bool (n_classes, n_rows): where a class fits, noting what refuses it elsewhere.

        enough: where amounts suffice; passes: node-only rules, of the same shape. rows: int64
        (n_rows,).
        """
        fits = enough & passes
        if not self._has_cards:
            return fits
        suffices = np.ones_like(fits)
        for places, needs in self._card_needs:
            suffices[places] = needs.suffice(rows)
        self._by_amounts.write(rows, passes & ~enough)
        self._by_cards.write(rows, fits & ~suffices)
        fits &= suffices
        return fits

    def refusers_of(self, number: int) -> frozenset[str] | None:
        """See `FitCheck.refusers_of`. Of several plugins that compare amounts, which one refuses is
        not known here."""
        if len(self._amounts[number]) != 1 or not self._is_known[number]:
            return None
        found = self._fixed[number]
        if self._by_amounts.any()[number]:
            found |= self._amounts[number]
        return found | self._cards[number] if self._by_cards.any()[number] else found

    def differ(self) -> NDArray[np.bool_]:
        """bool (n_classes,): see `FitCheck.other_refusers`."""
        if not self._has_cards:
            return self._is_known
        differs: NDArray[np.bool_] = self._by_amounts.any() != self._were[:, 0]
        differs |= self._by_cards.any() != self._were[:, 1]
        differs &= self._is_known
        return differs


def _by_amounts(one: EnginePodClass) -> set[str]:
    """The plugins that compare amounts."""
    return {m.name for m in one.framework.at("filter") if m.declaration.by_amounts}


def fit_check_of(
    known: Sequence[tuple[EnginePodClass, frozenset[str]]],
    class_arrays: ClassArrays,
    card_groups: CardGroups,
    snapshot: Snapshot,
) -> ClassFitCheck | None:
    """Build the fit check of these classes; None if a class has no plan with resource needs.
    known: see `KernelPlacer.fit_check`."""
    classes = [one for one, _ in known]
    if not classes or not all(
        one.is_fast and not one.terms and one.claims is None for one in classes
    ):
        return None
    if not class_arrays.classes[[one.number for one in classes], at.HAS_ROOM].all():
        return None
    return ClassFitCheck(known, class_arrays, card_groups, snapshot)


def static_revision_of(snapshot: Snapshot) -> tuple[int, ...]:
    """Revision token; changes with anything but free amounts and pods on nodes, unless those pods
    add new terms."""
    nodes = snapshot.nodes
    return (
        id(nodes),
        nodes.shape,
        snapshot.object_store.version,
        ExistingPodTerms.of(nodes).n_entered,
    )
