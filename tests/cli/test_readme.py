"""The README's plugin and its Python, pasted and run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

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
