"""The README's plugin and its Python, pasted and run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from stowplan.assembly import DEFAULT_PLUGINS, IN_TREE
from stowplan.framework.extension_points import points_of
from tests.cli.run import run

README = (Path(__file__).parents[2] / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_plugin_runs(tmp_path: Path) -> None:
    path = tmp_path / "packed.py"
    path.write_text(BLOCKS[0])
    size = ("--node-count", "20", "--pod-count", "30", "-o", "json")
    with_it = run("simulate", "--plugin", str(path), "--out", str(tmp_path / "with"), *size)
    assert with_it.code == 0, with_it.err
    without = run("simulate", "--out", str(tmp_path / "without"), *size)
    assert without.code == 0
    placements = [(tmp_path / d / "placements.jsonl").read_text() for d in ("with", "without")]
    assert placements[0] != placements[1]


def node(name: str) -> str:
    return (
        "---\nkind: Node\napiVersion: v1\n"
        f"metadata: {{name: {name}, labels: {{kubernetes.io/hostname: {name}}}}}\n"
        "status: {allocatable: {cpu: '8', memory: 32Gi, pods: '6'}}\n"
    )


def replica(name: str, on: str = "") -> str:
    return (
        f"---\nkind: Pod\napiVersion: v1\nmetadata: {{name: {name}, labels: {{app: web}}}}\n"
        f"spec: {{nodeName: '{on}', containers: [{{name: c, resources: "
        "{requests: {cpu: 100m, memory: 128Mi}}}]}\n"
    )


def placed(here: Path, *bound: str) -> list[str]:
    """Where six replicas go, of which a node takes six, on five nodes. bound: nodes that have one.

    The default rules spread them, as a Service selects them.
    """
    text = "".join(node(f"n{i}") for i in range(5))
    text += "".join(replica(f"there-{i}", name) for i, name in enumerate(bound))
    text += "".join(replica(f"p{i}") for i in range(6))
    (here / "cluster.yaml").write_text(
        text + "---\nkind: Service\napiVersion: v1\n"
        "metadata: {name: web}\nspec: {selector: {app: web}, ports: [{port: 80}]}\n"
    )
    (here / "packed.py").write_text(BLOCKS[0])
    files = ("--cluster", str(here / "cluster.yaml"), "--plugin", str(here / "packed.py"))
    ran = run("simulate", *files, "--out", str(here / "out"))
    assert ran.code == 0, ran.err
    lines = (here / "out" / "placements.jsonl").read_text().splitlines()
    return [json.loads(line)["node"] for line in lines]


def test_the_plugin_fills_the_fullest_node_first(tmp_path: Path) -> None:
    (only,) = set(placed(tmp_path))
    assert only
    assert placed(tmp_path, "n3", "n1", "n3", "n4", "n3", "n1") == ["n3"] * 3 + ["n1"] * 3


def test_the_plugin_outweighs_all_default_rules_together() -> None:
    scoring = [use.weight for use in DEFAULT_PLUGINS if "score" in points_of(IN_TREE[use.name])]
    assert f"weight = {sum(scoring) + 1} " in BLOCKS[0]


def test_the_plugin_is_about_twenty_lines() -> None:
    assert len([line for line in BLOCKS[0].splitlines() if line.strip()]) <= 20


def test_the_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "packed.py").write_text(BLOCKS[0])
    (tmp_path / "cluster.yaml").write_text(
        "kind: Node\napiVersion: v1\nmetadata: {name: n}\n"
        "status: {allocatable: {cpu: '1', pods: '9'}}\n"
        "---\nkind: Pod\napiVersion: v1\nmetadata: {name: p}\nspec: {containers: [{name: c}]}\n"
    )
    exec(compile(BLOCKS[1], "README.md", "exec"), {})
