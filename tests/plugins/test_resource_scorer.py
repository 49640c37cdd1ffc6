"""What is scored: which resources, which amounts, and rows that lack some of them."""

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from stowplan.objects.pod import Pod
from stowplan.objects.pod_requests import fit_requests
from stowplan.plugins.resources.resource_allocation import (
    NodeResourceReader,
    ResourceSpec,
    ResourceUtilization,
    RowsResourceReader,
    resource_utilizations,
    score_resources,
    weight_problems,
)
from tests.plugins.clusters import node, pod, table

GPU = "example.com/gpu"
NODES = table(
    [
        node("plain", offers="cpu=4 memory=8 pods=9"),
        node("gpu", offers=f"cpu=8 memory=16 {GPU}=2 ephemeral-storage=5 pods=9"),
    ],
    [pod("cpu=1 memory=3 ephemeral-storage=2", on="gpu", name="there"), pod(on="plain", name="p")],
)
Row = tuple[list[int], list[int]]


def found(one: Pod, *names: str, fill_in: bool = False) -> list[Row]:
    """(allocatable, before) of each stock, over all rows; the same node by node."""
    specs = [ResourceSpec(name) for name in names]
    held = resource_utilizations(
        RowsResourceReader(NODES, NODES.all_rows), specs, fit_requests(one), fill_in=fill_in
    )
    for row in range(NODES.n_nodes):
        single = resource_utilizations(
            NodeResourceReader(NODES.info(row)), specs, fit_requests(one), fill_in=fill_in
        )
        for whole, part in zip(held, single, strict=True):
            assert whole.allocatable[row : row + 1] == part.allocatable
            assert whole.before[row : row + 1] == part.before
    return [(stock.allocatable.tolist(), stock.before.tolist()) for stock in held]


def test_amounts() -> None:
    assert found(pod(), "cpu", "memory") == [([4000, 8000], [0, 1000]), ([8, 16], [0, 3])]
    assert found(pod(), "ephemeral-storage") == [([0, 5], [0, 2])]


def test_defaults_count_for_cpu_and_memory_only() -> None:
    mib_200 = 200 * 1024 * 1024
    assert found(pod(), "cpu", "memory", "ephemeral-storage", fill_in=True) == [
        ([4000, 8000], [100, 1000]),
        ([8, 16], [mib_200, 3]),
        ([0, 5], [0, 2]),
    ]


def test_extended_resources_count_for_pods_that_ask() -> None:
    assert found(pod(), GPU) == []
    assert found(pod(f"{GPU}=1"), GPU) == [([0, 2], [0, 0])]


def test_resources_that_are_not_counted_are_left_out() -> None:
    assert found(pod(), "pods", "storage", "") == []


def total(held: Sequence[ResourceUtilization], n_rows: int) -> NDArray[np.int64]:
    """A rule that shows what it was given: the sum of all that is offered."""
    assert all(stock.allocatable.shape == (n_rows,) for stock in held)
    assert all(stock.allocatable.all() for stock in held)
    return sum((s.allocatable for s in held), np.full(n_rows, 1000 * len(held), dtype=np.int64))


@pytest.mark.parametrize(
    ("first", "second", "scores"),
    [
        ([1, 2, 3], [4, 5, 6], [2005, 2007, 2009]),
        ([1, 0, 3], [4, 5, 6], [2005, 1005, 2009]),
        ([1, 0, 0], [0, 5, 0], [1001, 1005, 0]),
        ([0, 0, 0], [4, 5, 6], [1004, 1005, 1006]),
        ([], [], []),
    ],
)
def test_rows_are_scored_by_what_they_offer(
    first: list[int], second: list[int], scores: list[int]
) -> None:
    held = [
        ResourceUtilization(
            1, np.array(amounts, dtype=np.int64), np.zeros(len(amounts), dtype=np.int64), 0
        )
        for amounts in (first, second)
    ]
    assert score_resources(held, len(first), total).tolist() == scores


def test_weights() -> None:
    assert ResourceSpec("cpu", 0).weight == 1
    problems = weight_problems([ResourceSpec("a", -1), ResourceSpec("b", 101)], "r")
    assert list(map(str, problems)) == [
        "r[0].weight: Invalid value: -1: expected 1 to 100",
        "r[1].weight: Invalid value: 101: expected 1 to 100",
    ]
