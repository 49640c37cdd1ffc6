"""docs/yoda.md, as a user would follow it: a report, a configuration, and commands that decide."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.run import check_one_line, run

PAGE = (Path(__file__).parents[2] / "docs" / "yoda.md").read_text()
REPORT, CONFIG = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
NODES = "".join(
    f"---\nkind: Node\napiVersion: v1\nmetadata: {{name: {name}}}\n"
    "status: {allocatable: {pods: '9'}}\n"
    for name in ("n0", "n1")
)


def asking(name: str, labels: str) -> str:
    return (
        f"---\nkind: Pod\napiVersion: v1\nmetadata: {{name: {name}, labels: {{{labels}}}}}\n"
        "spec: {containers: [{name: c}]}\n"
    )


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "yoda.yaml").write_text(CONFIG)
    pods = asking("a", "scv/memory: '8000', scv/clock: '5705'") + asking("b", "scv/memory: '8000'")
    (tmp_path / "cluster.yaml").write_text(REPORT + NODES + pods + asking("c", "app: web"))
    return tmp_path


def placements(*options: str) -> dict[str, Any]:
    ran = run(
        *("simulate", "--cluster", "cluster.yaml", "--config", "yoda.yaml", "--out", "out"),
        *options,
    )
    assert ran.code == 0, ran.err
    lines = Path("out/placements.jsonl").read_text().splitlines()
    return {placed["pod"].partition("/")[2]: placed for placed in map(json.loads, lines)}


def test_simulate_holds_what_it_placed(here: Path) -> None:
    placed = placements()
    assert placed["a"]["node"] == "n1"
    assert placed["b"]["node"] == ""
    assert "too few GPUs with room for the pod" in placed["b"]["reason"]
    assert placed["c"]["node"] in ("n0", "n1")
    summary = json.loads(Path("out/summary.json").read_text())
    assert summary["ignored"] == {}


def test_compat_gives_the_memory_twice(here: Path) -> None:
    (here / "yoda.yaml").write_text(CONFIG.replace("compat: false", "compat: true"))
    placed = placements()
    assert [placed[name]["node"] for name in ("a", "b")] == ["n1", "n1"]


def test_explain_names_what_is_left_of_each_card(here: Path) -> None:
    text = (here / "cluster.yaml").read_text()
    (here / "cluster.yaml").write_text(text + asking("d", "scv/number: '2', scv/memory: '100'"))
    ran = run(*("explain", "d", "--cluster", "cluster.yaml", "--config", "yoda.yaml", "-o", "json"))
    assert ran.code == 1
    assert "gpus: needs 2 cards, 100 MiB free on each, there is card 0: 12192 of 12194" in ran.out
    assert "gpus: there is no Scv n0" in ran.out


def test_evaluate_takes_reports(here: Path) -> None:
    case = {
        "id": "gpu",
        "pod": {"metadata": {"name": "p", "labels": {"scv/memory": "100"}}},
        "nodes": [
            {"metadata": {"name": name}, "status": {"allocatable": {"pods": "9"}}}
            for name in ("n0", "n1")
        ],
        "scvs": [
            {
                "metadata": {"name": "n1"},
                "status": {"cardList": [{"id": 0, "health": "Healthy", "freeMemory": 100}]},
            }
        ],
        "profile": {
            "profiles": [
                {
                    "plugins": {
                        "filter": {"enabled": [{"name": "yoda"}]},
                        "preFilter": {"enabled": [{"name": "yoda"}]},
                    }
                }
            ]
        },
    }
    (here / "cases.jsonl").write_text(json.dumps(case) + "\n")
    ran = run("evaluate", "cases.jsonl")
    assert ran.code == 0, ran.err
    placed = json.loads(ran.out)["result"]
    assert placed["feasible"] == ["n1"]
    assert placed["filter"]["n0"]["plugin"] == "yoda"


def test_arguments_that_are_wrong(here: Path) -> None:
    (here / "yoda.yaml").write_text(CONFIG.replace("compat: false", "compat: maybe"))
    check_one_line(run("config", "check", "yoda.yaml"), "args.compat", "true or false")
    (here / "yoda.yaml").write_text(CONFIG.replace("disabled: [{name: PrioritySort}]", ""))
    check_one_line(run("config", "check", "yoda.yaml"), "queueSort", "PrioritySort, yoda")


def test_a_report_that_cannot_be_read(here: Path) -> None:
    (here / "cluster.yaml").write_text(REPORT.replace("power: 250", "power: much") + NODES)
    ran = run("simulate", "--cluster", "cluster.yaml")
    check_one_line(ran, "Scv n1: status.cardList[0].power", "expected a whole number")
