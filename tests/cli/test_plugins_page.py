"""The examples of docs/plugins.md, run as a user would run them."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.cli.run import run

PAGE = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text()
PYTHON = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
YAML = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
SIZE = ("--node-count", "12", "--pod-count", "20", "-o", "json")

NODE = "kind: Node\napiVersion: v1\nmetadata: {name: n}\nstatus: {allocatable: {pods: '110'}}\n"
POD = (
    "---\nkind: Pod\napiVersion: v1\nmetadata: {name: p%d, labels: {team: a}}\n"
    "spec: {containers: [{name: c}]}\n"
)

LOWEST, NEAR_GPU, QUOTA, CHECK = PYTHON


def placed_by(tmp_path: Path, source: str, *more: str) -> dict[str, object]:
    path = tmp_path / "mine.py"
    path.write_text(source)
    ran = run("simulate", "--plugin", str(path), *(more or SIZE))
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


def test_the_smallest_one_runs(tmp_path: Path) -> None:
    assert placed_by(tmp_path, LOWEST)["pods"] == 20


def test_the_one_with_columns_runs(tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(NODE.replace("{pods:", "{nvidia.com/gpu: '4', pods:") + POD % 0)
    told = placed_by(tmp_path, NEAR_GPU, "--cluster", str(cluster), "-o", "json")
    assert told["failed"] == {"node(s) were kept for pods that need a GPU": 1}


def test_the_one_with_columns_passes_its_check() -> None:
    exec(compile(NEAR_GPU + "\n" + CHECK, "docs/plugins.md", "exec"), {})


def test_the_one_with_arguments_holds_its_quota(tmp_path: Path) -> None:
    config, cluster = tmp_path / "quota.yaml", tmp_path / "cluster.yaml"
    config.write_text(YAML[0])
    cluster.write_text(NODE + "".join(POD % index for index in range(5)))
    told = placed_by(
        tmp_path, QUOTA, "--config", str(config), "--cluster", str(cluster), "-o", "json"
    )
    assert told["placed"] == 3
    assert told["failed"] == {"the team's quota is used up": 2}
