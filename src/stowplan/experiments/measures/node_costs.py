"""Energy and price of nodes, where their annotations or labels say what they take.

`stowplan.dev/idle-watts` and `stowplan.dev/busy-watts`: power of a node without requests and of a
full one, linear between them in the larger of its CPU and GPU shares. `stowplan.dev/hourly-price`:
price of an hour. An annotation takes precedence over a label.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stowplan.columns.array_types import Floats
from stowplan.experiments.measures.occupancy import Occupancy
from stowplan.experiments.measures.run_result import RunResult
from stowplan.inputs.input_error import InputError
from stowplan.objects.node import Node

IDLE_KEY = "stowplan.dev/idle-watts"
BUSY_KEY = "stowplan.dev/busy-watts"
PRICE_KEY = "stowplan.dev/hourly-price"
POWER_RESOURCES = ("cpu", "nvidia.com/gpu", "stowplan.dev/gpu-milli", "amd.com/gpu")
HOUR_S = 3600.0
_WATT_SECONDS_PER_KWH = 3.6e6


class NodeCosts(NamedTuple):
    """Costs of a replay. energy_kwh, price, used_price: None where no node says what it takes.

    price: of all nodes from the start to the last end; used_price: only while a node has pods.
    """

    energy_kwh: float | None
    price: float | None
    used_price: float | None


def node_costs(run: RunResult) -> NodeCosts:
    """The costs of a run; nothing without a replay. Nodes count as there from start to end: what
    churn removes is included. Raises InputError for an annotation that is no number from 0 up."""
    used = run.occupancy
    if used is None or not run.is_replay:
        return NodeCosts(None, None, None)
    until_s = _until(used)
    prices = [_number(node, PRICE_KEY) for node in used.nodes]
    watts = [(_number(node, IDLE_KEY), _number(node, BUSY_KEY)) for node in used.nodes]
    has_power = any(busy is not None for _, busy in watts)
    has_price = any(price is not None for price in prices)
    joules = price = used_price = 0.0
    for row in range(len(used.nodes) if has_power or has_price else 0):
        busy_s, share_s = _node_seconds(used, row, until_s)
        idle_w, busy_w = watts[row]
        if busy_w is not None:
            joules += (idle_w or 0.0) * until_s + (busy_w - (idle_w or 0.0)) * share_s
        hourly = prices[row] or 0.0
        price += hourly * until_s / HOUR_S
        used_price += hourly * busy_s / HOUR_S
    autoscaler = run.summary.get("autoscaler")
    return NodeCosts(
        joules / _WATT_SECONDS_PER_KWH if has_power else None,
        autoscaler["cost"] if autoscaler else price if has_price else None,
        used_price if has_price else None,
    )


def _until(used: Occupancy) -> float:
    """The last end of a pod that ended; the end of the simulation where none did."""
    ends = used.end[np.isfinite(used.start) & (used.end < used.end_s)]
    running = np.isfinite(used.start) & (used.end >= used.end_s)
    return used.end_s if running.any() or not ends.shape[0] else float(ends.max())


def _node_seconds(used: Occupancy, row: int, until_s: float) -> tuple[float, float]:
    """Seconds in which a node has pods, and the integral of its larger share over time."""
    pods = np.nonzero(used.node == row)[0]
    if not pods.shape[0]:
        return 0.0, 0.0
    columns = [used.resources.index(name) for name in POWER_RESOURCES if name in used.resources]
    columns = [column for column in columns if used.offered[row, column] > 0]
    start = np.minimum(used.start[pods], until_s)
    end = np.minimum(used.end[pods], until_s)
    at = np.concatenate((start, end))
    order = np.argsort(at, kind="stable")
    spans = np.diff(at[order], append=until_s)
    count = np.cumsum(np.repeat((1, -1), pods.shape[0])[order])
    shares: Floats = np.zeros((0, at.shape[0]))
    if columns:
        parts = used.requests[pods][:, columns] / used.offered[row, columns]
        shares = np.cumsum(np.concatenate((parts, -parts))[order], axis=0).T
    largest = np.minimum(shares.max(axis=0, initial=0.0), 1.0)
    return float(spans[count > 0].sum()), float((largest * spans).sum())


def _number(node: Node, key: str) -> float | None:
    text = node.metadata.annotations.get(key) or node.labels.get(key)
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < np.inf:
        raise InputError(f"nodes {node.name!r}", key, repr(text), "a number from 0 up")
    return number
