"""Lower bounds of the price of nodes on which pods run, which no scheduler can be below.

The bound is the value of the dual of a linear program: each pool divides the price of a node among
limits (a resource, the number of pods, how many pods of more than a half, a third, a quarter fit,
how many of one class fit alone), and a pod costs at least its cheapest share of them. Any division
gives a valid bound; the best is sought by mirror ascent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stowplan.columns.array_types import Bools, Floats

ITERATIONS = 300
PARTS = (2, 3, 4, 5)
"""Of pods that need more than 1/t of a node, at most t - 1 run there."""
TOLERANCE = 1e-6


class Demand(NamedTuple):
    """Classes of pods against pools of nodes.

    counts: float64 (n_classes,), pods. uses: float64 (n_classes, n_pools, n_limits), the share of
    each limit of a node that a pod uses. fits: bool (n_classes, n_pools), whether a pod of the
    class can run there. prices: float64 (n_pools,).
    """

    counts: Floats
    uses: Floats
    fits: Bools
    prices: Floats


def demand_of(
    counts: Sequence[int],
    requests: Floats,
    offered: Floats,
    alone: Floats,
    fits: Bools,
    prices: Sequence[float],
) -> Demand:
    """The demand of classes.

    requests: float64 (n_classes, n_resources). offered: float64 (n_pools, n_resources). alone:
    float64 (n_classes, n_pools), how many pods of a class run on a node alone; 0 for unknown.
    """
    offers = np.maximum(offered, 1e-9)
    shares = requests[:, None, :] / offers[None, :, :]
    limits = [shares]
    for part in PARTS:
        # Against rounding: a pod of exactly 1/t is none of more than 1/t.
        is_large = requests[:, None, :] * part > offers[None, :, :] * (1 + 1e-12)
        limits.append(is_large / (part - 1))
    n_classes, n_pools = alone.shape
    own = np.zeros((n_classes, n_pools, n_classes))
    with np.errstate(divide="ignore"):
        each = np.where(alone > 0, 1 / np.maximum(alone, 1e-9), 0.0)
    for k in range(n_classes):
        own[k, :, k] = each[k]
    limits.append(own)
    uses = np.concatenate(limits, axis=2)
    return Demand(np.array(counts, dtype=float), uses, fits, np.array(prices, dtype=float))


class Bound(NamedTuple):
    """A bound and what each pod costs at least, float64 (n_classes,)."""

    price: float
    values: Floats


def lower_bound(demand: Demand, iterations: int = ITERATIONS) -> Bound:
    """The best bound of the price that was found; it is valid however early the search ends."""
    return _ascent(demand, demand.prices, iterations)


def is_impossible(demand: Demand, nodes: Sequence[int], iterations: int = ITERATIONS) -> bool:
    """True when a dual bound proves that these numbers of nodes per pool are too few."""
    there = np.array(nodes, dtype=float)
    # A pool without nodes takes no pod.
    fits = demand.fits & (there > 0)[None, :]
    if not fits.any(axis=1).all():
        return True
    # Any division of the price 1 among all limits of these nodes: pods must not cost more than 1.
    return _violation(demand._replace(fits=fits), there, iterations) > TOLERANCE


def _ascent(demand: Demand, prices: Floats, iterations: int) -> Bound:
    """Mirror ascent on how each pool divides the price of a node."""
    _, n_pools, n_limits = demand.uses.shape
    log_weights = np.zeros((n_pools, n_limits))
    best = Bound(0.0, np.zeros(demand.counts.shape[0]))
    total = max(float(demand.counts.sum()), 1.0)
    for step in range(1, iterations + 1):
        weights = _normalised(log_weights)
        costs = np.where(
            demand.fits, prices[None, :] * (demand.uses * weights[None]).sum(axis=2), np.inf
        )
        cheapest = costs.argmin(axis=1)
        values = costs[np.arange(costs.shape[0]), cheapest]
        price = float(demand.counts @ values)
        if price > best.price:
            best = Bound(price, values)
        gradient = np.zeros_like(weights)
        used = demand.uses[np.arange(costs.shape[0]), cheapest]
        np.add.at(gradient, cheapest, used * demand.counts[:, None])
        largest = np.abs(gradient).max()
        if largest <= 0 or total <= 0:
            break
        log_weights += gradient / largest * (4.0 / np.sqrt(step))
    return best


def _violation(demand: Demand, nodes: Floats, iterations: int) -> float:
    """How far the best bound found exceeds these nodes: positive proves that they are too few."""
    there = np.flatnonzero(nodes > 0)
    uses, fits = demand.uses[:, there], demand.fits[:, there]
    n_limits = uses.shape[2]
    log_weights = np.zeros(there.shape[0] * n_limits)
    worst = -np.inf
    rows = np.arange(fits.shape[0])
    for step in range(1, iterations + 1):
        # One division of the price 1 among all limits of all these nodes.
        weights = _normalised(log_weights[None])[0].reshape(there.shape[0], n_limits)
        per_node = weights / nodes[there, None]
        costs = np.where(fits, (uses * per_node[None]).sum(axis=2), np.inf)
        cheapest = costs.argmin(axis=1)
        excess = float(demand.counts @ costs[rows, cheapest]) - 1.0
        worst = max(worst, excess)
        if worst > TOLERANCE:
            break
        gradient = np.zeros_like(per_node)
        np.add.at(gradient, cheapest, uses[rows, cheapest] * demand.counts[:, None])
        gradient /= nodes[there, None]
        largest = np.abs(gradient).max()
        if largest <= 0:
            break
        log_weights += gradient.ravel() / largest * (4.0 / np.sqrt(step))
    return worst


def _normalised(log_weights: Floats) -> Floats:
    """Weights of sum 1 in each row."""
    shifted = np.exp(log_weights - log_weights.max(axis=1, keepdims=True))
    found: Floats = shifted / shifted.sum(axis=1, keepdims=True)
    return found
