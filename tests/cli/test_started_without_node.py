"""Pods whose status says that they run, while they have no node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.batch.queue_models.test_kai_model import group, node, pod, queue
from tests.cli.run import run

WHY = "its status.phase is Running, but it has no spec.nodeName"
SCHEDULERS = {"kai": "kai-scheduler", "volcano": "volcano"}


@pytest.fixture(params=SCHEDULERS)
def options(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """Four pods of one scheduler, two of them with phase Running."""
    name = request.param
    pods = [pod(f"p{i}", "") for i in range(4)]
    for i, one in enumerate(pods):
        one["spec"]["schedulerName"] = SCHEDULERS[name]
        one["status"] = {"phase": "Running" if i < 2 else "Pending"}
    objects: list[dict[str, Any]] = [node("a", 8), *pods]
    if name == "kai":
        objects += [queue("q", 8), group("g", "q", 1)]
        for one in pods:
            one["metadata"]["annotations"] = {"pod-group-name": "g"}
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump_all(objects))
    (tmp_path / "config.yaml").write_text(f"scheduler: {name}\n")
    return ["-f", str(tmp_path / "cluster.yaml"), "--config", str(tmp_path / "config.yaml")]


def test_explain_names_the_contradiction(options: list[str]) -> None:
    text = run("explain", "pod/p0", *options).out
    assert f"ignored by sessions; {WHY}" in text
    assert "another scheduler" not in text
    assert WHY not in run("explain", "pod/p2", *options).out


def test_explain_of_all_pending_pods_has_the_cause(options: list[str]) -> None:
    (line,) = [
        one for one in run("explain", "--all-pending", *options).out.splitlines() if WHY in one
    ]
    assert line.split()[0] == "2"
    assert "default/p0, default/p1" in line


def test_simulate_has_one_note(options: list[str]) -> None:
    text = run("simulate", *options).out
    assert "2 of 4 pods placed" in text
    (line,) = [one for one in text.splitlines() if "spec.nodeName" in one]
    assert line.startswith(
        "Note: 2 pods run by their status, but have no spec.nodeName: not placed"
    )
    assert line.endswith(": default/p0, default/p1")
