"""DotProd: prefer the node whose remaining resources have the smallest product with the request.

What remains of a node is one vector, or several, each with the cards that it stands for
(`DotProductExtension`); vectors are normalised by one of three divisors (`DotProductNorm`).

Source: hkust-adsl/kubernetes-scheduler-simulator, pkg/simulator/plugin/dot_product_score.go and
pkg/utils resource vectors.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np

from stowplan.objects.devices.gpu_cards import CARD_MILLI, CardState, GpuShareRequest
from stowplan.plugins.gpu_share.scores.packing_scores import CPU_MAX, MILLI_MAX

POD_NORM_SCALE = 10
"""Products normalised by the pod are divided by this before tanh."""


class DotProductExtension(StrEnum):
    """merge: all cards as one entry. share: one vector per partly used card, and one for the idle
    ones. divide: as share, with the CPU in proportion. extend: an entry per partly used card, and
    one for the idle ones."""

    MERGE = "merge"
    SHARE = "share"
    DIVIDE = "divide"
    EXTEND = "extend"


class DotProductNorm(StrEnum):
    """The divisor of vectors: the capacity of the node, the request of the pod, or the largest
    node."""

    NODE = "node"
    POD = "pod"
    MAX = "max"


class CardPair(NamedTuple):
    """A vector of a node and of a pod. cards: those that the pair stands for; None for any.

    free, asked: CPU first, then GPU entries.
    """

    free: tuple[float, ...]
    asked: tuple[float, ...]
    cards: tuple[int, ...] | None


def hyperbolic_tangent(x: Any) -> Any:
    """tanh of x, at least 0, as Go computes it; for numbers and arrays.

    The best card may hang on the last bit, which differs between libraries.
    Source: Cephes mathematical library, tanh.
    """
    square = x * x
    above = (-9.64399179425052238628e-1 * square - 9.92877231001918586564e1) * square
    below = ((square + 1.12811678491632931402e2) * square + 2.23548839060100448583e3) * square
    small = x + x * square * (
        (above - 1.61468768441708447952e3) / (below + 4.84406305325125486048e3)
    )
    large = 1 - 2 / (np.exp(2 * np.minimum(x, 44.0)) + 1)
    return np.where(x >= 0.625, large, small)


def card_pairs(
    state: CardState, request: GpuShareRequest, extension: DotProductExtension
) -> Iterator[CardPair]:
    """The pairs of a node and a pod, partly used cards first."""
    cpu, total = float(request.cpu_milli), request.total_milli
    if extension is DotProductExtension.MERGE:
        yield CardPair((state.cpu_left, state.total_left), (cpu, total), None)
        return
    if extension is DotProductExtension.EXTEND:
        yield from _extended_pairs(state, request)
        return
    idle = [card for card, left in enumerate(state.left) if left == CARD_MILLI]
    parts: list[tuple[int, tuple[int, ...]]] = []
    if total < CARD_MILLI:
        parts += [
            (left, (card,)) for card, left in enumerate(state.left) if total <= left < CARD_MILLI
        ]
    if total <= CARD_MILLI * len(idle):
        parts.append((CARD_MILLI * len(idle), tuple(idle[: request.num])))
    for part, cards in parts:
        cpu_left = float(state.cpu_left)
        if extension is DotProductExtension.DIVIDE:
            whole = state.total_left
            if whole == 0:
                continue
            cpu_left = cpu_left * part / whole
        yield CardPair((cpu_left, part), (cpu, total), cards)


def _extended_pairs(state: CardState, request: GpuShareRequest) -> Iterator[CardPair]:
    idle = [card for card, left in enumerate(state.left) if left == CARD_MILLI]
    partly = [(card, left) for card, left in enumerate(state.left) if 0 < left < CARD_MILLI]
    entries = [left for _, left in partly]
    cards: list[tuple[int, ...]] = [(card,) for card, _ in partly]
    if idle:
        entries.append(CARD_MILLI * len(idle))
        cards.append(tuple(idle[: request.num]))
    free = (state.cpu_left, *entries)
    for place, (entry, chosen) in enumerate(zip(entries, cards, strict=True)):
        if entry >= request.total_milli:
            asked = [0.0] * len(entries)
            asked[place] = request.total_milli
            yield CardPair(free, (request.cpu_milli, *asked), chosen)


def pair_value(
    pair: CardPair, state: CardState, request: GpuShareRequest, norm: DotProductNorm
) -> float:
    """The value of a pair, higher for a smaller product."""
    cpu_divisor, gpu_divisor = divisors(
        state.cpu_capacity, len(state.left) * CARD_MILLI, request, norm
    )
    product = 0.0
    for place, (free, asked) in enumerate(zip(pair.free, pair.asked, strict=True)):
        divisor = gpu_divisor if place else cpu_divisor
        if divisor:
            product += (free / divisor) * (asked / divisor)
    product /= len(pair.free)
    if norm is DotProductNorm.POD:
        product = float(hyperbolic_tangent(product / POD_NORM_SCALE))
    return 1 - product


def divisors(
    cpu_capacity: Any, milli_capacity: Any, request: GpuShareRequest, norm: DotProductNorm
) -> tuple[Any, Any]:
    """What CPU entries and GPU entries are divided by; for numbers and arrays."""
    if norm is DotProductNorm.NODE:
        return cpu_capacity, milli_capacity
    if norm is DotProductNorm.POD:
        return request.cpu_milli, request.total_milli
    return CPU_MAX, MILLI_MAX


def best_pair(
    state: CardState,
    request: GpuShareRequest,
    extension: DotProductExtension,
    norm: DotProductNorm,
) -> tuple[float, CardPair | None]:
    """The first of the pairs with the highest value above -1, and its value; 0 and None without
    one."""
    best: CardPair | None = None
    highest = -1.0
    for pair in card_pairs(state, request, extension):
        value = pair_value(pair, state, request, norm)
        if value > highest:
            highest, best = value, pair
    return (0.0, None) if best is None else (highest, best)


def dot_product_score(
    state: CardState,
    request: GpuShareRequest,
    extension: DotProductExtension,
    norm: DotProductNorm,
) -> int:
    """The score of a node; 0 where its CPU does not suffice."""
    if state.cpu_left < request.cpu_milli:
        return 0
    return int(100 * best_pair(state, request, extension, norm)[0])
