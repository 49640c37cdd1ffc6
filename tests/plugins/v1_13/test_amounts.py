"""What pods ask for: each container rounded up by itself, and the sums of nodes kept by delta."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.columns import NodeTable, Overlay, PodInfo
from stowplan.objects.pod import Pod
from stowplan.plugins.v1_13.resource_requests import (
    RequestedByRow,
    nonzero_on,
    requested_on,
    resource_requests_of,
)
from stowplan.testing import node
from tests.plugins.clusters import container, is_found, pod
from tests.soak import examples

MI = 1024 * 1024


def asking(*containers: str, initial: tuple[str, ...] = (), name: str = "p") -> Pod:
    return pod(
        name=name,
        containers=[container(text) for text in containers],
        initContainers=[container(text) for text in initial],
    )


def test_each_container_is_rounded_up_by_itself() -> None:
    found = resource_requests_of(asking("cpu=0.0005 memory=100500m", "cpu=0.0005"))
    assert found.on_node == {"cpu": 2, "memory": 101}


@pytest.mark.parametrize(
    ("regular", "initial", "wanted"),
    [
        ("cpu=1", ("cpu=3", "cpu=2"), {"cpu": 3000}),
        ("cpu=4", ("cpu=3",), {"cpu": 4000}),
        ("example.com/gpu=0", (), {"example.com/gpu": 0}),
        ("", ("example.com/gpu=0",), {}),
        ("", ("example.com/gpu=2",), {"example.com/gpu": 2}),
        ("unheard-of=2 pods=3", (), {}),
    ],
)
def test_the_largest_init_container_counts_for_the_pod_to_place(
    regular: str, initial: tuple[str, ...], wanted: dict[str, int]
) -> None:
    assert resource_requests_of(asking(regular, initial=initial)).wanted == wanted


def test_a_container_that_names_nothing_counts_with_defaults() -> None:
    assert resource_requests_of(asking("", "cpu=0 memory=0", "cpu=1")).nonzero == (1100, 400 * MI)
    assert resource_requests_of(asking(initial=("cpu=9",))).nonzero == (0, 0)


class Forgetful(RequestedByRow):
    """Forgets that defaults go with their pod."""

    def pod_removed(self, row: int, info: PodInfo) -> None:
        for name, asked in resource_requests_of(info.pod).on_node.items():
            self._requested[name][row] -= asked


sizes = st.sampled_from(["", "cpu=1", "cpu=0.0005 memory=1Mi", "example.com/gpu=2 memory=3"])
steps = st.lists(
    st.tuples(st.sampled_from(["add", "remove", "node", "gone"]), sizes, st.integers(0, 3)),
    max_size=14,
)


def disagreement(keeps: type[RequestedByRow], script: list[tuple[str, str, int]]) -> str:
    """Where what is kept differs from a recount, "" where it does not."""
    table = NodeTable()
    kept = keeps.of(table)
    for number, (what, text, where) in enumerate(script):
        _step(table, what, asking(text, name=f"p{number}"), f"n{where}")
        for row in range(table.n_nodes):
            info = table.info(row)
            for name in ("cpu", "memory", "example.com/gpu"):
                if kept.requested(name)[row] != requested_on(info, name):
                    return f"step {number}: {name}"
            both = kept.nonzero("cpu")[row], kept.nonzero("memory")[row]
            if both != nonzero_on(info):
                return f"step {number}: defaults"
    return ""


def _step(table: NodeTable, what: str, arriving: Pod, name: str) -> None:
    row = table.row(name)
    if what == "node" and row < 0:
        table.add_node(node(name))
    elif what == "gone" and row >= 0:
        table.remove_node(name)
    elif what == "add":
        table.add_pod(arriving, name)
    elif what == "remove" and row >= 0 and table.pods[row]:
        with Overlay(table) as what_if:
            what_if.take(table.pods[row][0].uid, row)
        table.remove_pod(table.pods[row][-1].uid)


@given(script=steps)
@settings(max_examples=examples(100))
def test_what_is_kept_is_what_a_recount_gives(script: list[tuple[str, str, int]]) -> None:
    assert disagreement(RequestedByRow, script) == ""


def test_control_forgotten_defaults_are_found() -> None:
    def shows(script: list[tuple[str, str, int]]) -> Any:
        return disagreement(Forgetful, script)

    assert is_found(steps, lambda script: bool(shows(script)))
