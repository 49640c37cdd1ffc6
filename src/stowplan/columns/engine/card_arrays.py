"""Arrays that the card kernels read and write, in named tuples.

A group is a profile whose pods are placed by the cards of nodes; its classes are rows of `requests`
and of `ClassRules.classes`, by the same number.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Codes = NDArray[np.int32]
Flags = NDArray[np.uint8]
Floats = NDArray[np.float64]

# Columns of `requests`. KIND: column of `kind_counts`, -1 for none. TAKEN_CPU: counted by the node.
# IS_LEVEL: 1 where other plugins give every row as much; written by kernels.
CPU, NUM, MILLI, KIND, TAKEN_CPU, SLOT, IS_LEVEL = 0, 1, 2, 3, 4, 5, 6
N_REQUEST_COLUMNS = 7

# Columns of `typical`.
TYPICAL_CPU, TYPICAL_NUM, TYPICAL_MILLI = 0, 1, 2

# Places in `options`.
POLICY, SELECTION, EXTENSION, NORM, TIES, WEIGHT, SCORED = 0, 1, 2, 3, 4, 5, 6
N_OPTIONS = 7

# Values of POLICY.
FGD, BEST_FIT, DOT_PRODUCT, GPU_PACKING, GPU_CLUSTERING, RANDOM_NODE = 0, 1, 2, 3, 4, 5
# Values of SELECTION.
BEST, WORST, RANDOM_CARD, FGD_CARD, DOT_PRODUCT_CARD = 0, 1, 2, 3, 4
# Values of EXTENSION.
MERGE, SHARE, DIVIDE, EXTEND = 0, 1, 2, 3
# Values of NORM.
NODE, POD, MAX = 0, 1, 2
# Values of TIES.
NAME, ANY = 0, 1

# Categories of a typical pod on a node.
Q1, Q2, Q3, Q4, XL, XR, NO_ACCESS = 0, 1, 2, 3, 4, 5, 6
N_CATEGORIES = 7

BLOCK_ROWS = 64
"""Rows of which the best is kept for each class."""

# The second axis of `blocks`.
HIGHEST, LOWEST, FIRST, N_HIGHEST = 0, 1, 2, 3
N_BLOCK_LINES = 4

KNOWN_MAX = 8
"""Rows in different states that others are compared with."""

CARD_MILLI = 1000
SCORE_MAX = 100
UNCHANGED_SCORE = 50
CPU_MAX = 128_000
MILLI_MAX = 8_000


class CardKernelColumns(NamedTuple):
    """Cards of nodes; a run of pods is counted in them.

    left: int64 (n_nodes, n_cards), milli, negative where a node has no such card. n_cards, model,
    cpu_capacity, cpu_left: int64 (n_nodes,). kind_counts: int64 (n_nodes, n_kinds). name_rank:
    int64 (n_nodes,), position of each row in the order of names. name_key: int64 (n_nodes,), number
    of the name for random choices.
    """

    left: Ints
    n_cards: Ints
    model: Ints
    cpu_capacity: Ints
    cpu_left: Ints
    kind_counts: Ints
    name_rank: Ints
    name_key: Ints


class CardExpectation(NamedTuple):
    """The policy of a group, and the pods that it expects.

    options: int64 (N_OPTIONS,). typical: int64 (n_typical, 3), their shares float64 (n_typical,),
    and typical_access: uint8 (n_typical, n_models).
    """

    options: Ints
    typical: Ints
    shares: Floats
    typical_access: Flags


class CardRules(NamedTuple):
    """What the classes of a group request, and what the group expects.

    options, typical, shares, typical_access: see `CardExpectation`. requests: int64 (n_classes,
    N_REQUEST_COLUMNS). access: uint8 (n_classes, n_models).
    """

    options: Ints
    requests: Ints
    access: Flags
    typical: Ints
    shares: Floats
    typical_access: Flags


class CardScratch(NamedTuple):
    """What is kept per row, and working memory.

    scores: int32 (n_slots, n_nodes), NOT_FITTING or the score of the policy. suiting, below: int64
    (n_nodes, n_typical), number of cards that suffice for a typical pod, and milli on the others.
    fragments: float64 (n_nodes,). totals: int64 (n_nodes,), milli left. last: int64 (n_nodes,),
    index of the row's last entry in the log. sums: float64 (N_CATEGORIES,). chosen, places: int64
    (n_cards + 1,), what is left of the chosen cards, and their indices. blocks: int32 (n_slots,
    N_BLOCK_LINES, n_blocks), of each BLOCK_ROWS rows the highest and the lowest score, the first
    row by name with the highest one, and how many have it. known: int64 (KNOWN_MAX,), rows.
    """

    scores: Codes
    suiting: Ints
    below: Ints
    fragments: Floats
    totals: Ints
    last: Ints
    sums: Floats
    chosen: Ints
    places: Ints
    blocks: Codes
    known: Ints


def card_scratch(n_slots: int, n_nodes: int, n_cards: int, n_typical: int) -> CardScratch:
    """Scratch arrays in which no row is counted."""
    return CardScratch(
        scores=np.zeros((n_slots, n_nodes), dtype=np.int32),
        suiting=np.zeros((n_nodes, n_typical), dtype=np.int64),
        below=np.zeros((n_nodes, n_typical), dtype=np.int64),
        fragments=np.zeros(n_nodes, dtype=np.float64),
        totals=np.zeros(n_nodes, dtype=np.int64),
        last=np.full(n_nodes, -1, dtype=np.int64),
        sums=np.zeros(N_CATEGORIES, dtype=np.float64),
        chosen=np.zeros(n_cards + 1, dtype=np.int64),
        places=np.zeros(n_cards + 1, dtype=np.int64),
        blocks=np.zeros(blocks_shape(n_slots, n_nodes), dtype=np.int32),
        known=np.zeros(KNOWN_MAX, dtype=np.int64),
    )


def blocks_shape(n_slots: int, n_nodes: int) -> tuple[int, int, int]:
    """The shape of `CardScratch.blocks`."""
    return n_slots, N_BLOCK_LINES, -(-n_nodes // BLOCK_ROWS)
