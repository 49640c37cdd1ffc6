"""Formats of --output, and the columns of tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.cli.run import Ran, run

CLUSTER = """\
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "110"}}
---
apiVersion: v1
kind: Pod
metadata: {name: fits}
spec: {containers: [{name: c, resources: {requests: {cpu: "3"}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: large, namespace: team}
spec: {containers: [{name: c, resources: {requests: {cpu: "5"}}}]}
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: default}
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata: {name: gang}
spec: {minMember: 1, queue: default}
"""
CONFIG = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "scheduler.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_with_output(command: str, output: str) -> Ran:
    return run(*command.split(), "-o", output)


@pytest.mark.parametrize(
    "command",
    [
        "explain large -n team -f cluster.yaml",
        "explain podgroup/gang -f cluster.yaml",
        "queues -f cluster.yaml",
        "config check scheduler.yaml",
        "plugin list",
        "parity",
        "plugin check mine.py",
    ],
)
def test_yaml_and_json_are_the_same_tree(here: Path, command: str) -> None:
    (here / "mine.py").write_text(
        'from stowplan.framework import score\n\n\n@score("Mine")\ndef mine(node):\n    return 1\n'
    )
    tree = json.loads(run_with_output(command, "json").out)
    assert tree
    assert yaml.safe_load(run_with_output(command, "yaml").out) == tree


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("explain large -n team -f cluster.yaml", ["pod/large"]),
        ("explain podgroup/gang -f cluster.yaml", ["podgroup/gang"]),
        ("queues -f cluster.yaml", ["queue/default"]),
        ("simulate -f cluster.yaml", ["pod/large"]),
        ("simulate -f cluster.yaml -n default", []),
        ("simulate -f cluster.yaml --seeds 2", ["pod/large"]),
    ],
)
def test_names_are_printed_as_kubectl_prints_them(command: str, names: list[str]) -> None:
    assert run_with_output(command, "name").out.split() == names


def test_explain_name_keeps_the_exit_code() -> None:
    assert run_with_output("explain fits -f cluster.yaml", "name").code == 0
    assert run_with_output("explain large -A -f cluster.yaml", "name").code == 1


@pytest.mark.parametrize(
    ("command", "output", "columns"),
    [
        ("simulate -f cluster.yaml", "table", "NAMESPACE OWNER PODS REASON EXAMPLES"),
        ("simulate -f cluster.yaml -n team", "table", "OWNER PODS REASON EXAMPLES"),
        ("simulate -f cluster.yaml", "wide", "NAMESPACE NAME REASON"),
        ("simulate -f cluster.yaml -n team", "wide", "NAME REASON"),
        ("simulate -f cluster.yaml -n team -A", "wide", "NAMESPACE NAME REASON"),
        ("simulate -f cluster.yaml", "table", "RESOURCE REQUESTED ALLOCATABLE UTILIZATION"),
        ("explain large -A -f cluster.yaml", "table", "NODE PLUGIN REASON DETAILS"),
        (
            "queues -f cluster.yaml",
            "table",
            "NAME WEIGHT SHARE PLACED PENDING RESOURCE DESERVED ALLOCATED REQUESTED",
        ),
        (
            "queues -f cluster.yaml",
            "wide",
            "NAME WEIGHT SHARE PLACED PENDING RESOURCE BY WEIGHT DESERVED ALLOCATED REQUESTED",
        ),
        ("plugin list", "table", "NAME TYPE DEFAULT WEIGHT EXTENSION POINTS"),
        ("plugin list", "wide", "NAME TYPE DEFAULT WEIGHT EXTENSION POINTS MODULE"),
        ("bench --list", "table", "NAME NODES PODS DESCRIPTION"),
    ],
)
def test_columns(command: str, output: str, columns: str) -> None:
    lines = [line.split() for line in run_with_output(command, output).out.splitlines()]
    assert columns.split() in lines


def test_explain_wide_lists_every_node(here: Path) -> None:
    node, rest = CLUSTER.split("---\n", 1)
    nodes = [node.replace("n1", f"n{number}") for number in range(25)]
    (here / "cluster.yaml").write_text("---\n".join([*nodes, rest]))
    few = run_with_output("explain large -A -f cluster.yaml", "table").out
    assert "25  NodeResourcesFit" in few
    assert "n17" not in few
    assert "n17" in run_with_output("explain large -A -f cluster.yaml", "wide").out


def test_plugin_list_has_every_kind_of_plugin(here: Path) -> None:
    (here / "mine.py").write_text(
        'from stowplan.framework import score\n\n\n@score("Mine")\ndef mine(node):\n    return 1\n'
    )
    listed = json.loads(run_with_output("plugin list --plugin mine.py", "json").out)
    by_name = {(one["name"], one["type"]): one for one in listed}
    assert by_name["TaintToleration", "profile"]["weight"] == 3
    assert by_name["TaintToleration", "profile"]["default"] is True
    assert by_name["gang", "session"]["extensionPoints"] == []
    assert ("allocate", "action") in by_name
    assert by_name["Mine", "profile"]["extensionPoints"] == ["score"]
    assert by_name["Mine", "profile"]["default"] is False
    assert run_with_output("plugin list", "name").out.splitlines()[0] == listed[0]["name"]
