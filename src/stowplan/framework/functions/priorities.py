"""Priorities of Kubernetes 1.13: scores 0 to 10, by one function or by map and reduce.

A priority is either one function that scores all nodes, or a map that scores one node, with an
optional reduce over all those scores. Metadata is computed once per pod and passed to every
function.

Source: kube-scheduler v1.13, algorithm/types.go and algorithm/priorities/reduce.go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from stowplan.columns import NodeInfo, NodeTable, Rows
from stowplan.columns.array_types import Ints
from stowplan.framework.problems import ContractError
from stowplan.objects.pod import Pod

PRIORITY_MAX = 10
"""Highest final score of a node; the lowest is 0."""

PriorityMetadataProducer = Callable[[Pod], Any]
"""Computed once per pod."""

PriorityMapFunction = Callable[[Pod, NodeInfo, Any], int]
"""(pod, node, metadata) -> score of the node; any integer where a reduce follows."""

PriorityReduceFunction = Callable[[Ints, Pod, NodeTable, Rows, Any], Ints]
"""(scores, pod, nodes, rows, metadata) -> int64 (n_rows,): the final scores of `rows`."""

PriorityFunction = Callable[[Pod, NodeTable, Rows, Any], Ints]
"""(pod, nodes, rows, metadata) -> int64 (n_rows,): the scores of `rows`."""


class Priority(msgspec.Struct, frozen=True):
    """A configured priority. weight: factor of its scores in a node's total."""

    name: str
    weight: int = 1
    whole_list: PriorityFunction | None = None
    map: PriorityMapFunction | None = None
    reduce: PriorityReduceFunction | None = None
    metadata: PriorityMetadataProducer | None = None

    def __post_init__(self) -> None:
        """Raises ContractError for an invalid priority."""
        if not self.name:
            raise ContractError("a priority: name is ''; expected a non-empty string")
        if (self.whole_list is None) == (self.map is None):
            got = "neither" if self.map is None else "both"
            wanted = "either a whole-list function or a map"
            raise ContractError(f"priority {self.name!r}: Invalid value: {got}: expected {wanted}")
        if self.reduce is not None and self.map is None:
            raise ContractError(
                f"priority {self.name!r}: Invalid value: a reduce without a map: expected both"
            )


def normalize_reduce(most: int = PRIORITY_MAX, *, reverse: bool = False) -> PriorityReduceFunction:
    """A reduce that scales scores so that the highest becomes `most`, truncated.

    reverse: the highest becomes 0 and a score of 0 `most`. Where no score is above 0 they are
    unchanged; reversed all become `most`.
    """

    def reduce(scores: Ints, *_: Any) -> Ints:
        return normalize_scores(scores, most, reverse=reverse)

    return reduce


def normalize_scores(scores: Ints, most: int, *, reverse: bool = False) -> Ints:
    """int64 (n,): the scores scaled to `most`; see `normalize_reduce`."""
    highest = int(scores.max(initial=0))
    if highest == 0:
        return np.full(scores.shape, most, dtype=np.int64) if reverse else scores
    parts = scores * most
    shares: Ints = parts // highest
    if parts.min() < 0:
        # Go's division truncates toward zero, NumPy's rounds down.
        shares += (parts < 0) & (shares * highest != parts)
    return most - shares if reverse else shares
