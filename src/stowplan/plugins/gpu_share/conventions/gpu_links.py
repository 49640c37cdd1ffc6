"""Links between the GPUs of a node: how close two of them are, and which several are closest.

A link is a number on the scale of HAMi's `node-nvidia-score`: 100 and more for NVLink, 20 within a
socket, 10 across sockets; 0 where nothing is known.

Source: Project-HAMi/HAMi, pkg/device/nvidia (scale of links); own choice among equally close sets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import combinations
from math import comb

import numpy as np

from stowplan.columns.array_types import Bools, Ints
from stowplan.columns.column_cache import ColumnCache
from stowplan.columns.nodetable import NodeTable, Rows
from stowplan.objects.devices.gpu_cards import card_indices
from stowplan.objects.node import Node

LINKS_KEY = "stowplan.dev/gpu-links"
"""Annotation of a node: `0-1,2-3;4-5,6-7`, where `;` separates sockets, `,` separates groups with
NVLink, and `-` separates cards, by index or by their place among the registered ones."""

NVLINK, SAME_SOCKET, ACROSS_SOCKETS = 100, 20, 10
LINK_MAX = 1_000_000
SETS_MAX = 20_000
"""Sets of GPUs that are compared by their links."""

LinkRows = tuple[tuple[int, ...], ...]
"""Links of each GPU to each, symmetric; empty where nothing is known."""


def link_rows(n_cards: int, link: Callable[[int, int], int]) -> LinkRows:
    """The links of `n_cards` GPUs by a function of two indices."""
    cards = range(n_cards)
    return tuple(tuple(0 if i == j else link(i, j) for j in cards) for i in cards)


def links_by_socket(sockets: Sequence[int]) -> LinkRows:
    """Links of GPUs of which only the socket is known; empty where one is not known (-1)."""
    if min(sockets, default=-1) < 0:
        return ()
    return link_rows(
        len(sockets), lambda i, j: SAME_SOCKET if sockets[i] == sockets[j] else ACROSS_SOCKETS
    )


def annotated_links(node: Node, n_cards: int) -> tuple[LinkRows, str]:
    """The links of a node's annotation, and what is wrong with it, "" if nothing is; no links
    without an annotation, or with a wrong one."""
    text = node.metadata.annotations.get(LINKS_KEY)
    return ((), "") if text is None else _annotated(text, n_cards)


@lru_cache(maxsize=1024)
def _annotated(text: str, n_cards: int) -> tuple[LinkRows, str]:
    place: dict[int, tuple[int, int]] = {}
    wanted = "cards once each, such as 0-1,2-3;4-5,6-7 (; between sockets, , between NVLink groups)"
    problem = f"annotation {LINKS_KEY}: got {text[:60]!r}, wanted {wanted}"
    for socket, part in enumerate(text.split(";")):
        for group, names in enumerate(part.split(",")):
            cards = card_indices(names.strip())
            if cards is None:
                return (), problem
            for card in cards:
                if card in place:
                    return (), problem
                place[card] = socket, group
    if set(place) != set(range(n_cards)):
        all_cards = f"each of the node's {n_cards} cards, from 0"
        return (), f"annotation {LINKS_KEY}: got {text[:60]!r}, wanted {all_cards}"

    def link(one: int, other: int) -> int:
        first, second = place[one], place[other]
        if first == second:
            return NVLINK
        return SAME_SOCKET if first[0] == second[0] else ACROSS_SOCKETS

    return link_rows(n_cards, link), ""


def links_between(links: LinkRows, cards: Sequence[int]) -> int:
    """The sum of links between these cards."""
    return sum(links[one][other] for one, other in combinations(cards, 2))


@lru_cache(maxsize=65536)
def closest_cards(links: LinkRows, idle: tuple[int, ...], count: int) -> tuple[int, ...]:
    """The `count` of the idle cards with the highest sum of links between them.

    Of equally close sets, the one with the least links to the other idle cards, so that these stay
    close to each other; then the first in the order of `idle`. Where there are more than SETS_MAX
    sets, cards are found one after the other.
    """
    if count < 2 or count >= len(idle):
        return idle[:count]
    found: Ints = np.array(links, dtype=np.int64)[np.ix_(idle, idle)]
    if comb(len(idle), count) > SETS_MAX:
        return tuple(idle[place] for place in _one_by_one(found, count))
    sets = _sets(len(idle), count)
    inside = np.zeros(sets.shape[0], dtype=np.int64)
    for one, other in combinations(range(count), 2):
        inside += found[sets[:, one], sets[:, other]]
    outside = found.sum(axis=1)[sets].sum(axis=1) - 2 * inside
    best = np.lexsort((outside, -inside))[0]
    return tuple(idle[place] for place in sets[best].tolist())


@lru_cache(maxsize=128)
def _sets(n_cards: int, count: int) -> Ints:
    """int64 (n_sets, count): the sets, in the order of `combinations`."""
    return np.array(list(combinations(range(n_cards), count)), dtype=np.int64)


def _one_by_one(found: Ints, count: int) -> list[int]:
    rows, columns = np.triu_indices(found.shape[0], 1)
    first = int(found[rows, columns].argmax())
    chosen = [int(rows[first]), int(columns[first])]
    while len(chosen) < count:
        sums = found[chosen].sum(axis=0)
        sums[chosen] = np.iinfo(np.int64).min
        chosen.append(int(sums.argmax()))
    return sorted(chosen)


def has_links(nodes: NodeTable) -> bool:
    """True where a node is annotated with the links between its cards."""

    def evaluate(rows: Rows) -> Bools:
        numbers = np.arange(nodes.n_nodes)[rows].tolist()
        found = [LINKS_KEY in nodes.nodes[row].metadata.annotations for row in numbers]
        return np.array(found, dtype=np.bool_)

    return bool(ColumnCache.of(nodes).of_nodes("has gpu links", nodes, evaluate).any())
