"""Arrays that kernels read and write, in named tuples.

A class is a set of pods that all plugins treat alike; its number is its index on the first axis of
`classes`. A term is a rule of one class about the pods of a topology domain; it has a number too,
and its counts are part of one array with those of all terms.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Codes = NDArray[np.int32]
Flags = NDArray[np.uint8]

AMOUNTS_MAX = 8
"""Resources that a class may request, be scored by, or use."""

FEW_MAX = 8
"""Rows that are few."""

NORMALISED_MAX = 3
"""Scores of a class that may be normalized by their highest raw value."""

KEYS_MAX = 4
"""Topology keys of the terms of a class, host names not counted."""

# Columns of `classes`.
STATIC, LAYOUT, N_GROUPS, PODS, SEEN = 0, 1, 2, 3, 4
N_WANTED, N_USED, N_EVEN, N_TAKEN, N_NORMALISED = 5, 6, 7, 8, 9
USE_KIND, USE_WEIGHT, EVEN_WEIGHT, HAS_ROOM = 10, 11, 12, 13
CPU, MEMORY = 14, 15
FIRST_TERM, N_HOST_TERMS, N_TERMS = 16, 17, 18
SPREAD_WEIGHT, AFFINITY_WEIGHT, REQUIRES_ALL, MATCHES_ITSELF = 19, 20, 21, 22
TREE = 23
"""Index of its tree; SHARED for a class without a tree of its own, which is evaluated for every
call."""
N_BLOCKS, INNER = 24, 25
"""Number of blocks of its layout, 0 for a class whose groups are rated one by one; the slot of the
key whose values are single rows."""
N_CARDS, CARD_MILLI, CARD_ORDER = 26, 27, 28
"""GPU cards that the pod gets, 0 for none, the thousandths of each, and which of those it gets."""
N_FEW = 29
"""Number of the only rows that may have what a class requests, 0 where they are not few."""
WANTED = 30
"""(item, amount) for each of N_WANTED: amounts that must be free."""
USED = WANTED + 2 * AMOUNTS_MAX
"""(item, weight, source, amount) for each of N_USED: resources scored by utilisation."""
EVEN = USED + 4 * AMOUNTS_MAX
"""(item, amount) for each of N_EVEN: resources scored by balance."""
TAKEN = EVEN + 2 * AMOUNTS_MAX
"""(item, amount) for each of N_TAKEN: amounts that the pod uses."""
NORMALISED = TAKEN + 2 * AMOUNTS_MAX
"""(is reversed, weight) for each of N_NORMALISED."""
HIGHEST = NORMALISED + 2 * NORMALISED_MAX
"""For each of N_NORMALISED the highest raw value among rows that pass; written by kernels."""
N_HIGHEST = HIGHEST + NORMALISED_MAX
"""Number of passing rows with that value."""
LINE = N_HIGHEST + NORMALISED_MAX
"""For RATIO the number of the line that has its scores."""
FEW = LINE + 1
"""The rows of N_FEW."""
N_COLUMNS = FEW + FEW_MAX

N_LINE_COLUMNS = 101
"""Percentages that a line has a score for."""

SHARED = 0
"""The tree that classes without one of their own use in turn."""

# Values of USE_KIND.
LEAST, MOST, RATIO = 1, 2, 3

# Values of a source: the requested amounts, or cpu or memory with defaults.
REQUESTED, NONZERO_CPU, NONZERO_MEMORY = 0, 1, 2

# Values of CARD_ORDER: the first cards that have enough left, or those with the least or the most.
FIRST_CARDS, LEAST_LEFT, MOST_LEFT = 0, 1, 2

# Columns of `terms`.
KIND, KEY, FIRST_COUNT, N_VALUES, SLOT = 0, 1, 2, 3, 4
SKEW_MAX, DOMAINS_MIN, MATCHES, N_DOMAINS, MASK, TOTAL = 5, 6, 7, 8, 9, 10
LOWEST, N_LOWEST = 11, 12
"""For hard spread the lowest count of a domain, and how many domains have it; 0 where neither is
known. Written by kernels."""
N_TERM_COLUMNS = 13

# Values of KIND; those from EVEN_SOFT on are scored.
APART, NEAR, EVEN_HARD, EVEN_SOFT, WEIGHTED_AFFINITY = 0, 1, 2, 3, 4

# The second axis of `groups` and of `places`.
FIRST, SIZE, BLOCK_FIRST, BLOCK_END = 0, 1, 2, 3
GROUP, LEAF, BLOCK = 0, 1, 2

STALE, CROWDED = -2, -1
"""Instead of a block's number of cells: to be found again; more than there is space for."""

# The first axis of `by_group` and of `by_term`.
OPEN, SCORED, AFFINITY_POINTS, SPREAD_POINTS, POINTS, N_ROWS = 0, 1, 2, 3, 4, 5
N_GROUP_ROWS = 6
FLOOR = 0

# The first axis of `shares` and of `marks`.
CPU_UNIT, MEMORY_UNIT, CPU_LEFT, MEMORY_LEFT, CPU_FREE, MEMORY_FREE, N_SHARES = 0, 1, 2, 3, 4, 5, 6
EVENNESS, BASE, ROW_AT, BOUND, HIGHEST_BOUND, PLACE_OF = 0, 1, 2, 3, 4, 5
FIRST_ALIKE, N_UNLIKE, IS_ARRANGED, N_MARKS = 6, 7, 8, 9
N_MOVED = 3
"""Lines of `marks` that move with a row."""

CLOSED = -(2**30)
"""Base of a row that no pod may be placed on; with any other points added it is negative."""

BOUND_ROWS = 64
"""Rows of which the highest bound is kept."""


class NodeColumns(NamedTuple):
    """The node table's own columns, in which placements are counted.

    allocatable, requested: int64 (n_resources, n_rows_max), base units. nonzero: int64 (2,
    n_rows_max), cpu and memory with defaults. pod_count: int64 (n_rows_max,). rank: int64
    (n_nodes,), position of each row in the snapshot's order.
    """

    allocatable: Ints
    requested: Ints
    nonzero: Ints
    pod_count: Ints
    rank: Ints


class ClassRules(NamedTuple):
    """Rules of classes and terms.

    classes: int64 (n_classes, N_COLUMNS). Node-only filters and scores, once per set of pods that
    they treat alike: passes: uint8 (n_statics, n_nodes); points: int64 (n_statics, n_nodes),
    weighted scores; raw: int64 (n_statics, NORMALISED_MAX, n_nodes), before normalization. terms:
    int64 (n_terms, N_TERM_COLUMNS). counts: int64 (n_counts,). present: uint8 (n_counts,), values
    that are domains. codes: int32 (n_keys, n_nodes), -1 where a node lacks the key. masks: uint8
    (n_masks, n_nodes), rows whose pods count. behind: uint8 (n_nodes,), rows of which a score
    changes with the first pod placed. logs: float64 (n_logs,), logarithm of n + 2 at n.
    first_effect: int64 (n_classes + 1,), index into effects: int64 (n_effects, 2), terms that a
    placed pod of the class adds to, and by how much. lines: int64 (n_lines, N_LINE_COLUMNS), scores
    by percentage.
    """

    classes: Ints
    passes: Flags
    points: Ints
    raw: Ints
    terms: Ints
    counts: Ints
    present: Flags
    codes: Codes
    masks: Flags
    behind: Flags
    logs: NDArray[np.float64]
    first_effect: Ints
    effects: Ints
    lines: Ints


class DomainGrouping(NamedTuple):
    """Groups of rows, and the tournament trees. Rows of a group share a domain of each of a
    layout's keys.

    groups: int64 (n_layouts, 4, n_groups_max), start of a group's tree, its number of leaves, a
    power of 2, and by block its first group and the one after its last. values: int32 (n_layouts,
    KEYS_MAX, n_groups_max), -1 for no such label. places: int32 (n_layouts, 3, n_nodes), group,
    leaf and block of a row. rows_of: int32 (n_layouts, width), row of a leaf. trees: int32
    (n_trees, width): the root of a group is at its start + 1, a leaf holds the points of its row or
    -1. log: int32 (n_log_max,), rows in the order of their changes.

    Where a key's values are single rows, each group is a row, and groups whose other values are the
    same are divided into blocks. cells: int32 (n_trees, n_blocks_max, 1 + 2 * n_cells_max), per
    block the number of cells, STALE or CROWDED; the best group of each cell; and its number of
    groups. The groups of a cell have fitting rows and the same counts.
    """

    groups: Ints
    values: Codes
    places: Codes
    rows_of: Codes
    trees: Codes
    log: Codes
    cells: Codes


class Scratch(NamedTuple):
    """Working memory of one choice.

    by_group: int64 (N_GROUP_ROWS, n_groups_max). by_term: int64 (1, n_terms + 1). weights: float64
    (n_terms + 1,). stamps: int64 (n_values_max + 3,). stack: int64 (64,). even: float64 (n_nodes,).
    leaves: int32 (n_nodes,). picked: int64 (n_groups_max,), the open groups that are rated. Three
    arrays for `kernels.bound_rows`, whose rows end with a whole block of BOUND_ROWS: shares:
    float32 (N_SHARES, n_rows), percent of what a row has of cpu and memory: one unit (milli-CPU,
    byte), what is left by amounts with defaults, and by requested amounts. marks: int32 (N_MARKS,
    n_rows): 50 less the evenness of the row as it is, twice the points of node-only plugins, the
    row of a place, the bound, by block the highest one, the place of a row, and by block of rows
    that are alike the one with the smallest rank; then, first of their lines, the number of places
    before rows that are all alike, and whether there are such.
    salts: uint64 (n_rows,), see `kernels.note_salts`. Columns of all three are places of rows.
    """

    by_group: Ints
    by_term: Ints
    weights: NDArray[np.float64]
    stamps: Ints
    stack: Ints
    even: NDArray[np.float64]
    leaves: Codes
    picked: Ints
    shares: NDArray[np.float32]
    marks: Codes
    salts: NDArray[np.uint64]


def bound_arrays(n_nodes: int) -> tuple[NDArray[np.float32], Codes, NDArray[np.uint64]]:
    """Arrays for `Scratch.shares`, `Scratch.marks` and `Scratch.salts`."""
    n_rows = -(-n_nodes // BOUND_ROWS) * BOUND_ROWS
    shares, marks = np.zeros((N_SHARES, n_rows), np.float32), np.zeros((N_MARKS, n_rows), np.int32)
    marks[BASE] = CLOSED
    return shares, marks, np.zeros(n_rows, np.uint64)
