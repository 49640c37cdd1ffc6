"""Card groups: kernel arrays of the classes that are placed by the GPU cards of nodes.

The classes of one profile are a group. Cards are read from the profile's inventory at the start of
each run; what is kept between runs is valid for the rows that the log of the class arrays does not
name.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from stowplan.columns.array_types import grow
from stowplan.columns.engine import arrays as at
from stowplan.columns.engine import card_arrays as ca
from stowplan.columns.engine import numpy_card_kernels
from stowplan.cycle.engine.class_arrays import ClassArrays
from stowplan.framework.deciders.kernel_terms import CardInventory, CardTerms
from stowplan.objects.pod import Pod

SCORES_BYTES_MAX = 1 << 28
"""Memory limit of the scores of a group; a class beyond it is not placed by kernel."""


class CardGroup:
    """The classes of a profile. number: of the class whose SEEN says which changes are counted."""

    def __init__(self, class_arrays: ClassArrays, terms: CardTerms, weight: int) -> None:
        """weight: of the plugin's score; 0 where it does not score."""
        self._class_arrays = class_arrays
        self.inventory = terms.inventory
        self.number = class_arrays.add_class()
        expectation = terms.inventory.expectation()
        self._options = expectation.options.copy()
        self._options[ca.WEIGHT], self._options[ca.SCORED] = weight, int(weight > 0)
        self._expectation = expectation
        self._requests = np.zeros((8, ca.N_REQUEST_COLUMNS), dtype=np.int64)
        self._access = np.zeros((8, terms.access.shape[0]), dtype=np.uint8)
        self._n_slots = 0
        self._n_forgotten = class_arrays.n_forgotten
        self._scratch: ca.CardScratch | None = None

    @property
    def is_scored(self) -> bool:
        """True where compiled kernels are needed, since nodes are scored by their cards."""
        return bool(self._options[ca.SCORED])

    def add(self, number: int, terms: CardTerms, taken_cpu: int) -> bool:
        """Add a class; False where there is no memory for its scores, or its cards are chosen in a
        way that only the plugin knows. taken_cpu: what a node counts
        for a pod."""
        n_nodes = self._class_arrays.n_nodes
        if (self._n_slots + 1) * n_nodes * 4 > SCORES_BYTES_MAX:
            return False
        if not self.is_scored and self._options[ca.SELECTION] not in (ca.BEST, ca.WORST):
            return False
        self._requests = grow(self._requests, (number + 1, ca.N_REQUEST_COLUMNS))
        self._access = grow(self._access, (number + 1, self._access.shape[1]))
        self._requests[number] = (
            terms.cpu_milli, terms.num, terms.milli, terms.kind, taken_cpu, self._n_slots,
        )  # fmt: skip
        self._access[number] = terms.access
        self._n_slots += 1
        return True

    def needs(self, numbers: Sequence[int]) -> CardNeeds:
        """What some of its classes request."""
        return CardNeeds(self.inventory, self._requests[numbers], self._access[numbers])

    def run(
        self,
        kernels: ModuleType | None,
        pods: Sequence[Pod],
        heads: at.Ints,
        draws: NDArray[np.uint64],
        totals: at.Ints,
    ) -> tuple[list[int], list[dict[str, str]]]:
        """Place pods until one fits nowhere; returns rows and the annotations of the bindings.

        kernels: the module `card_kernels`, for a group that is scored. heads: int64 (n_pods,),
        classes. totals: int64 (n_pods,), output.
        """
        if self.inventory.is_mixed():
            # Since the plan was made; the next one is none.
            return [], []
        cards = self.inventory.columns()
        scratch = self._scratch_for(cards)
        rows = np.empty(len(pods), dtype=np.int64)
        given = np.empty((len(pods), cards.left.shape[1] + 1), dtype=np.int64)
        class_arrays, expectation = self._class_arrays, self._expectation
        columns, rules, grouping, _ = class_arrays.kernel_arrays()
        card_rules = ca.CardRules(
            self._options,
            self._requests,
            self._access,
            expectation.typical,
            expectation.shares,
            expectation.typical_access,
        )
        if kernels is None or not self.is_scored:
            n_placed = numpy_card_kernels.run(
                columns,
                rules,
                grouping,
                cards,
                card_rules,
                scratch.scores,
                heads,
                draws,
                rows,
                totals,
                given,
                class_arrays.n_log,
            )  # fmt: skip
        else:
            n_placed = kernels.run(
                tuple(columns),
                (rules.classes, rules.passes, rules.points, rules.behind),
                tuple(cards),
                tuple(card_rules),
                tuple(scratch),
                heads,
                draws,
                self.inventory.draws(pods),
                rows,
                totals,
                given,
                self.number,
                class_arrays.log,
                class_arrays.n_log,
            )  # fmt: skip
        class_arrays.n_log += n_placed
        placed: list[int] = rows[:n_placed].tolist()
        cards_of = [tuple(one[1 : one[0] + 1]) for one in given[:n_placed].tolist()]
        return placed, self.inventory.reserve(pods[:n_placed], placed, cards_of)

    def _scratch_for(self, cards: ca.CardKernelColumns) -> ca.CardScratch:
        """The scratch arrays, large enough, with log positions as they are now."""
        n_nodes, width = cards.left.shape
        found, class_arrays = self._scratch, self._class_arrays
        if found is None:
            found = ca.card_scratch(
                max(self._n_slots, 8), n_nodes, width, self._expectation.typical.shape[0]
            )
        # Indices in the log change when its older half is forgotten.
        np.subtract(found.last, class_arrays.n_forgotten - self._n_forgotten, out=found.last)
        self._n_forgotten = class_arrays.n_forgotten
        self._scratch = found = found._replace(
            scores=grow(found.scores, (self._n_slots, n_nodes)),
            chosen=grow(found.chosen, (width + 1,)),
            places=grow(found.places, (width + 1,)),
        )
        return found


class CardNeeds:
    """What some classes of a group request of cards.

    requests, access: their rows of the group's arrays.
    """

    def __init__(
        self, inventory: CardInventory, requests: at.Ints, access: NDArray[np.uint8]
    ) -> None:
        self._inventory = inventory
        self._requests = requests
        self._access = access

    def suffice(self, rows: at.Ints) -> NDArray[np.bool_]:
        """bool (n_classes, n_rows): whether enough cards of a row suffice, as they are now. rows:
        int64 (n_rows,)."""
        cards = self._inventory.columns()
        milli, num = self._requests[:, [ca.MILLI]], self._requests[:, [ca.NUM]]
        n_suiting = (cards.left[rows] >= milli[:, :, None]).sum(axis=2)
        found: NDArray[np.bool_] = (n_suiting >= num) & (self._access[:, cards.model[rows]] != 0)
        return found | (milli <= 0)


class CardGroups:
    """The groups of one node table, by inventory."""

    def __init__(self, class_arrays: ClassArrays) -> None:
        self._class_arrays = class_arrays
        self._groups: dict[tuple[object, int], CardGroup] = {}
        self._group_of: dict[int, CardGroup] = {}

    def add(self, number: int, terms: CardTerms, weight: int, taken_cpu: int) -> bool:
        """Add a class; see `CardGroup.add`."""
        group = self._groups.get((terms.inventory, weight))
        if group is None:
            group = CardGroup(self._class_arrays, terms, weight)
            self._groups[terms.inventory, weight] = group
        if not group.add(number, terms, taken_cpu):
            return False
        self._group_of[number] = group
        return True

    def needs(self, numbers: Sequence[int]) -> list[tuple[list[int], CardNeeds]]:
        """What classes request, by group: the places of its classes in `numbers`, and their
        needs."""
        by_group: dict[CardGroup, list[int]] = {}
        for place, number in enumerate(numbers):
            if number in self._group_of:
                by_group.setdefault(self._group_of[number], []).append(place)
        return [
            (places, group.needs([numbers[place] for place in places]))
            for group, places in by_group.items()
        ]

    def first(self, heads: at.Ints) -> tuple[CardGroup | None, int]:
        """The group of the first class, None for none, and how many of the classes from there on
        belong to it."""
        if not self._group_of:
            return None, heads.shape[0]
        numbers: list[int] = heads.tolist()
        group_of = self._group_of
        first = group_of.get(numbers[0])
        others = (i for i, number in enumerate(numbers) if group_of.get(number) is not first)
        return first, next(others, len(numbers))
