"""Warnings about plugins that modify their inputs or whose column walk disagrees."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stowplan.framework import OK, NodeInfo, NodeTable, Pod, Rows, Status, score, unschedulable
from stowplan.inputs.cluster_reader import Cluster
from stowplan.simulation.plugin_sampling import NODES_MAX, PODS_EVERY, PODS_FIRST, _CallSample
from stowplan.simulation.simulate import simulate
from stowplan.testing import node, pod
from tests.cli.run import run

Ints = NDArray[np.int64]
FULL = unschedulable("node(s) had too many pods")


class Sound:
    name = "Sound"
    REJECTED = FULL

    def filter(self, node: NodeInfo) -> Status:
        return OK if len(node.pods) < 3 else FULL

    def filter_column(self, nodes: NodeTable, rows: Rows) -> Any:
        return nodes.pod_count[rows] < 3

    def score(self, node: NodeInfo) -> int:
        return len(node.pods)

    def score_column(self, nodes: NodeTable) -> Ints:
        return nodes.pod_count.copy()


class ByCode(Sound):
    def filter_column(self, nodes: NodeTable, rows: Rows) -> Any:
        return np.where(nodes.pod_count[rows] < 3, 0, 1)

    def filter_status(self, code: int) -> Status:
        return FULL


@score("rows")
def by_row(nodes: NodeTable) -> Ints:
    return np.arange(nodes.n_nodes)


class LabelsTheNode:
    name = "LabelsTheNode"

    def score(self, node: NodeInfo) -> int:
        node.labels["seen"] = "yes"
        return 1


class LabelsThePod:
    name = "LabelsThePod"

    def filter(self, pod: Pod) -> Status:
        pod.labels["seen"] = "yes"
        return OK


class SortsPods:
    name = "SortsPods"

    def score(self, node: NodeInfo) -> int:
        node.pods.reverse()
        return 1


class CountsPods:
    name = "CountsPods"

    def score(self, node: NodeInfo) -> int:
        return 0

    def score_column(self, nodes: NodeTable) -> Ints:
        nodes.pod_count[:] += 1
        return np.zeros(nodes.n_nodes, dtype=np.int64)


class OffByOne(Sound):
    def filter_column(self, nodes: NodeTable, rows: Rows) -> Any:
        return nodes.pod_count[rows] < 2


class OtherReason(ByCode):
    def filter_status(self, code: int) -> Status:
        return unschedulable("node(s) were full")


class OtherScore(Sound):
    def score_column(self, nodes: NodeTable, rows: Rows) -> Ints:  # type: ignore[override]
        return nodes.pod_count[rows] + 1


def warnings(plugin: Any) -> list[str]:
    bound = [pod(f"there-{i}", on=f"n{i % 2}") for i in range(5)]
    cluster = Cluster([node(f"n{i}") for i in range(3)], [*bound, pod("a"), pod("b")])
    found: list[str] = simulate(cluster, plugins=[plugin]).summary.get("warnings", [])
    return found


@pytest.mark.parametrize("plugin", [Sound, ByCode, by_row])
def test_a_sound_plugin_is_not_warned_of(plugin: Any) -> None:
    assert warnings(plugin) == []


@pytest.mark.parametrize(
    ("plugin", "method", "message"),
    [
        (LabelsTheNode, "score", ": metadata.labels.seen was nothing, is 'yes'; "),
        (LabelsThePod, "filter", ": metadata.labels.seen was nothing, is 'yes'; "),
        (SortsPods, "score", "changed the list of the pods on node "),
        (CountsPods, "score_column", "changed the node table: pod count; "),
        (OffByOne, "filter_column", "returns Unschedulable 'node(s) had too many pods' for pod "),
        (OtherReason, "filter_column", "returns Unschedulable 'node(s) were full' for pod "),
        (OtherScore, "score_column", "returns 3 for pod 'default/a' on node "),
    ],
)
def test_a_mistake_is_warned_of_once(plugin: Any, method: str, message: str) -> None:
    (warning,) = warnings(plugin)
    line = getattr(plugin, method).__code__.co_firstlineno
    wanted = f"plugin {plugin.name!r}: {method} (test_plugin_sampling.py:{line}) "
    assert warning.startswith(wanted)
    assert message in warning


def test_what_is_compared_is_named() -> None:
    (warning,) = warnings(OtherScore)
    assert " for pod '" in warning
    assert " on node '" in warning
    assert ", but score returns 2; run `stowplan plugin check FILE.py` for details" in warning


def test_the_first_pods_and_then_one_of_many_are_looked_at() -> None:
    sample, pods = _CallSample(), [pod(f"p{i}") for i in range(2 * PODS_EVERY)]
    n_looked_at = [sum(sample.takes(one) for _ in range(NODES_MAX + 5)) for one in pods]
    chosen = [place for place, n_nodes in enumerate(n_looked_at) if n_nodes]
    assert chosen == [*range(PODS_FIRST), PODS_EVERY - 1, 2 * PODS_EVERY - 1]
    assert {n_nodes for n_nodes in n_looked_at if n_nodes} == {NODES_MAX}


WRITES = """\
class Writes:
    name = "Writes"

    def score(self, node):
        node.labels["seen"] = "yes"
        return 1
"""


@pytest.mark.parametrize("more", [(), ("--replay",), ("--seeds", "2")])
def test_simulate_warns_on_standard_error(more: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "writes.py").write_text(WRITES)
    size = ("--node-count", "3", "--pod-count", "5")
    ran = run("simulate", "--plugin", str(tmp_path / "writes.py"), *size, "-o", "json", *more)
    assert ran.code == 0
    json.loads(ran.out)
    lines = ran.err.splitlines()
    assert lines
    for line in lines:
        assert line.startswith("Warning: plugin 'Writes': score (writes.py:4) changed node 'small-")
