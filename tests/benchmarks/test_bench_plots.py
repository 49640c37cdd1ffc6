"""The plots of docs/performance.md: equal figures give equal files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

from tests.tidy.tree import ROOT

FIGURES = {
    "nodes": {"basic": [[500, 9.0], [5000, 5.0]], "anti": [[500, 7.0], [5000, 4.0]]},
    "classes": {"templates": [[1, 9.0], [200, 5.0]]},
    "existing": {"basic": [[0, 9.0], [20_000, 8.0]]},
    "stages": {"basic": {"decision": 3.0, "rest": 1.0}, "anti": {"decision": 4.0, "rest": 1.0}},
}


def plots_in(folder: Path) -> dict[str, str]:
    folder.mkdir()
    (folder / "figures.json").write_text(json.dumps(FIGURES))
    command = [sys.executable, ROOT / "bench" / "plots.py", folder, "--redraw"]
    subprocess.run(command, check=True)
    return {path.name: path.read_text() for path in folder.glob("*.svg")}


def test_the_same_figures_give_the_same_plots(tmp_path: Path) -> None:
    first, second = plots_in(tmp_path / "a"), plots_in(tmp_path / "b")
    assert first == second
    assert sorted(first) == ["classes.svg", "nodes.svg", "pods.svg", "stages.svg"]
    texts = {
        name: " ".join(ElementTree.fromstring(text).itertext()) for name, text in first.items()
    }
    assert all(word in texts["nodes.svg"] for word in ("basic", "anti", "pods/s"))
    assert "decision" in texts["stages.svg"]
