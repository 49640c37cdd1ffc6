"""Card groups: kernel arrays of the classes that are placed by the GPU cards of nodes.

Where cards are scored, by kernels of their own, the classes of one profile are a group. Cards are
read from the profile's inventory at the start of each run; what is kept between runs is valid for
the rows that the log of the class arrays does not name.

Where cards only filter, the kernels of all other classes place the pods: which models a class
accepts is part of its node-only rules, and what it requests of cards is in its row of `classes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from stowplan.columns.array_types import grow
from stowplan.columns.engine import arrays as at
from stowplan.columns.engine import card_arrays as ca
from stowplan.cycle.engine.class_arrays import ClassArrays
from stowplan.framework.deciders.kernel_terms import CardInventory, CardTerms
from stowplan.objects.pod import Pod

SCORES_BYTES_MAX = 1 << 28
"""Memory limit of the scores of a group; a class beyond it is not placed by kernel."""


class CardGroup:
    """The classes of a profile that scores cards. number: of the class whose SEEN says which
    changes are counted."""

    def __init__(self, class_arrays: ClassArrays, terms: CardTerms, weight: int) -> None:
        """weight: of the plugin's score."""
        self._class_arrays = class_arrays
        self.inventory = terms.inventory
        self.number = class_arrays.add_class()
        expectation = terms.inventory.expectation()
        self._options = expectation.options.copy()
        self._options[ca.WEIGHT], self._options[ca.SCORED] = weight, 1
        self._expectation = expectation
        self._requests = np.zeros((8, ca.N_REQUEST_COLUMNS), dtype=np.int64)
        self._access = np.zeros((8, terms.access.shape[0]), dtype=np.uint8)
        self._n_slots = 0
        self._n_forgotten = class_arrays.n_forgotten
        self._scratch: ca.CardScratch | None = None

    def add(self, number: int, terms: CardTerms, taken_cpu: int) -> bool:
        """Add a class; False where there is no memory for its scores. taken_cpu: what a node counts
        for a pod."""
        n_nodes = self._class_arrays.n_nodes
        if (self._n_slots + 1) * n_nodes * 4 > SCORES_BYTES_MAX:
            return False
        self._requests = grow(self._requests, (number + 1, ca.N_REQUEST_COLUMNS))
        self._access = grow(self._access, (number + 1, self._access.shape[1]))
        self._requests[number] = (
            terms.cpu_milli, terms.num, terms.milli, terms.kind, taken_cpu, self._n_slots, 0,
        )  # fmt: skip
        self._access[number] = terms.access
        self._n_slots += 1
        return True

    def run(
        self,
        kernels: ModuleType,
        pods: Sequence[Pod],
        heads: at.Ints,
        draws: NDArray[np.uint64],
        totals: at.Ints,
    ) -> tuple[list[int], list[dict[str, str]]]:
        """Place pods until one fits nowhere; returns rows and the annotations of the bindings.

        kernels: the module `card_kernels`. heads: int64 (n_pods,), classes. totals: int64
        (n_pods,), output.
        """
        if self.inventory.is_mixed():
            # Since the plan was made; the next one is none.
            return [], []
        cards = self.inventory.columns()
        scratch = self._scratch_for(cards)
        rows = np.empty(len(pods), dtype=np.int64)
        given = np.empty((len(pods), cards.left.shape[1] + 1), dtype=np.int64)
        class_arrays, expectation = self._class_arrays, self._expectation
        columns, rules, _, _ = class_arrays.kernel_arrays()
        card_rules = ca.CardRules(
            self._options,
            self._requests,
            self._access,
            expectation.typical,
            expectation.shares,
            expectation.typical_access,
        )
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
        return placed, reserved(self.inventory, pods, placed, given)

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
            blocks=grow(found.blocks, ca.blocks_shape(self._n_slots, n_nodes)),
            chosen=grow(found.chosen, (width + 1,)),
            places=grow(found.places, (width + 1,)),
        )
        return found


def reserved(
    inventory: CardInventory, pods: Sequence[Pod], rows: Sequence[int], given: at.Ints
) -> list[dict[str, str]]:
    """Give the first pods, which are placed on these rows, the cards that a kernel has chosen;
    returns the annotations of their bindings. given: see `kernels.run`."""
    cards_of = [tuple(one[1 : one[0] + 1]) for one in given[: len(rows)].tolist()]
    return inventory.reserve(pods[: len(rows)], rows, cards_of)


class CardNeeds:
    """What some classes of a profile request of cards."""

    def __init__(self, inventory: CardInventory, requests: Sequence[CardTerms]) -> None:
        self._inventory = inventory
        self._num = np.array([[one.num] for one in requests], dtype=np.int64)
        self._milli = np.array([[one.milli] for one in requests], dtype=np.int64)
        self._access = np.array([one.access for one in requests], dtype=np.bool_)

    def suffice(self, rows: at.Ints) -> NDArray[np.bool_]:
        """bool (n_classes, n_rows): whether enough cards of a row suffice, as they are now. rows:
        int64 (n_rows,)."""
        cards = self._inventory.columns()
        n_suiting = (cards.left[rows] >= self._milli[:, :, None]).sum(axis=2)
        found: NDArray[np.bool_] = (n_suiting >= self._num) & self._access[:, cards.model[rows]]
        return found | (self._milli <= 0)


class CardGroups:
    """The classes of one node table that are placed by cards, by inventory."""

    def __init__(self, class_arrays: ClassArrays) -> None:
        self._class_arrays = class_arrays
        self._groups: dict[tuple[object, int], CardGroup] = {}
        self._group_of: dict[int, CardGroup] = {}
        self._terms: dict[int, CardTerms] = {}
        # Of classes whose cards only filter.
        self._filters: dict[int, CardTerms] = {}
        # By number of node-only rules and accepted models: that of both; and the reverse.
        self._with_access: dict[tuple[int, bytes], int] = {}
        self._without_access: dict[int, int] = {}

    def add(self, number: int, terms: CardTerms, weight: int, taken_cpu: int) -> bool:
        """Add a class; see `CardGroup.add`. weight: of the plugin's score; 0 where it does not
        score, and then False where cards are chosen in a way that only the plugin knows."""
        if not weight:
            if not self._add_filter(number, terms):
                return False
            self._terms[number] = self._filters[number] = terms
            return True
        group = self._groups.get((terms.inventory, weight))
        if group is None:
            group = CardGroup(self._class_arrays, terms, weight)
            self._groups[terms.inventory, weight] = group
        if not group.add(number, terms, taken_cpu):
            return False
        self._group_of[number] = group
        self._terms[number] = terms
        return True

    def _add_filter(self, number: int, terms: CardTerms) -> bool:
        selection = terms.inventory.expectation().options[ca.SELECTION]
        if selection not in (ca.BEST, ca.WORST) or terms.num < 1:
            return False
        params = self._class_arrays.classes[number]
        order = at.FIRST_CARDS
        if terms.milli < ca.CARD_MILLI:
            is_share = terms.num == 1
            order = at.MOST_LEFT if is_share and selection == ca.WORST else at.LEAST_LEFT
        params[[at.N_CARDS, at.CARD_MILLI, at.CARD_ORDER]] = terms.num, terms.milli, order
        params[at.STATIC] = self._accepting(int(params[at.STATIC]), terms)
        return True

    def _accepting(self, static: int, terms: CardTerms) -> int:
        """Number of the node-only rules of which only rows with accepted models pass."""
        known = static, terms.access.tobytes()
        found = self._with_access.get(known)
        if found is None:
            model = terms.inventory.columns().model
            passes = self._class_arrays.passes(np.array([static]))[0]
            passes &= terms.access[model] != 0
            found = self._class_arrays.add_static_like(static, passes)
            self._with_access[known], self._without_access[found] = found, static
        return found

    def node_rules(self, statics: at.Ints) -> at.Ints:
        """int64 (n,): the numbers of node-only rules without accepted models. statics: as they are
        in `classes`."""
        return np.array([self._without_access.get(one, one) for one in statics.tolist()])

    def needs(self, numbers: Sequence[int]) -> list[tuple[list[int], CardNeeds]]:
        """What classes request, by inventory: their places in `numbers`, and their needs."""
        by_inventory: dict[CardInventory, list[int]] = {}
        for place, number in enumerate(numbers):
            if number in self._terms:
                by_inventory.setdefault(self._terms[number].inventory, []).append(place)
        return [
            (places, CardNeeds(one, [self._terms[numbers[place]] for place in places]))
            for one, places in by_inventory.items()
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

    def filtering(
        self, heads: at.Ints, *, has_nominations: bool
    ) -> tuple[CardInventory | None, int]:
        """The cards that filter for the first of these classes, None for none, and of how many
        classes kernels can place pods then: of those with other cards they cannot. They know
        neither cards of nominated pods nor nodes whose GPUs pods get in several ways."""
        if not self._filters:
            return None, heads.shape[0]
        found: CardInventory | None = None
        for place, number in enumerate(heads.tolist()):
            terms = self._filters.get(number)
            if terms is None or terms.inventory is found:
                continue
            if has_nominations or found is not None or terms.inventory.is_mixed():
                return found, place
            found = terms.inventory
        return found, heads.shape[0]
