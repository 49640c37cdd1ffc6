"""The demonstration as one file."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from stowplan.cli.main import cli
from stowplan.driver.client.one_shot_requests import ClusterListing
from stowplan.examples.demo import DemoResult
from stowplan.examples.demo_cluster import DemoCheck
from stowplan.examples.demo_report import demo_intervals, demo_report
from stowplan.examples.demo_state import ObservedCluster, ObservedPod
from stowplan.testing.builders import node, pod
from stowplan.web.page import write_page
from stowplan.web.replay_maps import NEVER

S = 1_000_000_000
BEGAN = 7 * S


def result() -> DemoResult:
    view = ObservedCluster()
    view.nodes = {name: node(name) for name in ("node-2", "node-1")}
    view.pods = {
        "a": ObservedPod(pod("a", uid="a", on="node-1", cpu="1"), BEGAN + S, BEGAN + 2 * S),
        "b": ObservedPod(
            pod("b", uid="b", on="node-2", cpu="1"), BEGAN + S, BEGAN + 3 * S, BEGAN + 5 * S
        ),
        "c": ObservedPod(pod("c", uid="c", cpu="99"), BEGAN + 4 * S),
    }
    checks = [DemoCheck("<b>one</b>", "2", held=False)]
    return DemoResult(checks, [], [], ClusterListing(), 9.0, [], view, BEGAN)


def test_pods_are_on_their_nodes_when_they_were() -> None:
    run = demo_intervals(result())
    assert [one.name for one in run.nodes] == ["node-1", "node-2"]
    found = {one.pod.name: (one.created, one.bound, one.ended) for one in run.pods}
    assert found == {"a": (1.0, 2.0, NEVER), "b": (1.0, 3.0, 5.0), "c": (4.0, NEVER, NEVER)}
    assert [sum(one.is_on_node(at) for one in run.pods) for at in (0, 2, 4, 6)] == [0, 1, 2, 1]


def test_the_file_has_the_map_and_texts_as_text(tmp_path: Path) -> None:
    file = tmp_path / "demo.html"
    write_page(demo_report(result()), file)
    text = file.read_text()
    assert "Nodes at a time" in text
    assert "0 of 1" in text
    assert "<b>one</b>" not in text
    assert "&lt;b&gt;one&lt;/b&gt;" in text


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    answer = CliRunner().invoke(cli, ["demo", "--report", str(tmp_path)])
    assert answer.exit_code == 2
