"""Priorities: the older way to prefer nodes, 0 to 10 each, by one function or by map and reduce.

A priority is either one function that scores all nodes, or a map that scores one node at a time,
with an optional reduce that sees all those scores at the end. What is worth computing once per pod
is its metadata, which every function is handed.

Source: kube-scheduler v1.13, algorithm/types.go and algorithm/priorities/reduce.go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stowplan.columns import NodeInfo, NodeTable, Rows
from stowplan.framework.problems import ContractError
from stowplan.objects.pod import Pod

Ints = NDArray[np.int64]

PRIORITY_MAX = 10
"""The highest score that a priority may give a node in the end; the lowest is 0."""

PriorityMetadataProducer = Callable[[Pod], Any]
"""What is computed once per pod."""

PriorityMapFunction = Callable[[Pod, NodeInfo, Any], int]
"""(pod, node, metadata) -> score of the node, any whole number where a reduce follows."""

PriorityReduceFunction = Callable[[Ints, Pod, NodeTable, Rows, Any], Ints]
"""(scores, pod, nodes, rows, metadata) -> int64 (n_rows,): the final scores of `rows`."""

PriorityFunction = Callable[[Pod, NodeTable, Rows, Any], Ints]
"""(pod, nodes, rows, metadata) -> int64 (n_rows,): the scores of `rows`."""


class Priority(msgspec.Struct, frozen=True):
    """A configured priority. weight: what its scores are multiplied with in a node's total."""

    name: str
    weight: int = 1
    whole_list: PriorityFunction | None = None
    map: PriorityMapFunction | None = None
    reduce: PriorityReduceFunction | None = None
    metadata: PriorityMetadataProducer | None = None

    def __post_init__(self) -> None:
        """Raises ContractError for a priority that cannot be asked."""
        if not self.name:
            raise ContractError("a priority: name is '', wanted a non-empty string")
        if (self.whole_list is None) == (self.map is None):
            got = "neither" if self.map is None else "both"
            wanted = "either a whole-list function or a map"
            raise ContractError(f"priority {self.name!r}: got {got}, wanted {wanted}")
        if self.reduce is not None and self.map is None:
            raise ContractError(f"priority {self.name!r}: got a reduce, wanted a map before it")


def normalize_reduce(most: int = PRIORITY_MAX, *, reverse: bool = False) -> PriorityReduceFunction:
    """A reduce that makes the highest score `most` and the others shares of it, truncated.

    reverse: the highest score becomes 0 and a score of 0 `most`. Where no score is above 0 they
    stay as they are; reversed all become `most`.
    """

    def reduce(scores: Ints, *_: Any) -> Ints:
        return normalize_scores(scores, most, reverse=reverse)

    return reduce


def normalize_scores(scores: Ints, most: int, *, reverse: bool = False) -> Ints:
    """int64 (n,): the scores as shares of the highest, out of `most`; see `normalize_reduce`."""
    highest = int(scores.max(initial=0))
    if highest == 0:
        return np.full(scores.shape, most, dtype=np.int64) if reverse else scores
    parts = scores * most
    shares: Ints = parts // highest
    if parts.min() < 0:
        # Go's division truncates toward zero, NumPy's rounds down.
        shares += (parts < 0) & (shares * highest != parts)
    return most - shares if reverse else shares
