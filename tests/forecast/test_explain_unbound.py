"""What `explain` reports of pods that a session chooses nodes for and that are not bound."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace
from rich.console import Console

from stowplan.assembly.deciders import ConfigText, deciders_of
from stowplan.cli.tables.jobs import print_job_explanation
from stowplan.forecast.explain_job import JobExplanation, explain_job, explain_pod_group
from stowplan.simulation.session_runner import SessionRun, SessionRunner
from tests.batch.queue_models.test_kai_model import deciders, group, node, pod, queue

Tree = dict[str, Any]


def cluster(tmp_path: Path, *objects: Tree) -> Path:
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    return path


def lines(found: JobExplanation) -> list[str]:
    screen = Console(file=io.StringIO(), width=400)
    print_job_explanation(found, screen)
    return screen.file.getvalue().splitlines()  # type: ignore[attr-defined]


def test_a_pod_that_is_not_bound_waits_for_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = cluster(
        tmp_path, node("a", 4), queue("q", 4), group("g", "q", 1), pod("p", "g"), pod("r", "g")
    )
    run_session = SessionRunner.run_session

    def run_of(self: SessionRunner) -> SessionRun:
        run = run_session(self)
        return replace(run, bound={key: one for key, one in run.bound.items() if "/r" in key})

    monkeypatch.setattr(SessionRunner, "run_session", run_of)
    found = explain_job("default/p", path, config=deciders(), changes=False)
    why = "a session chooses a for pod default/p, which is not bound: its volumes are not ready"
    assert found.job is not None
    assert found.job.message.startswith(why)
    assert (found.job.ready, found.job.waiting, found.node) == (1, ("default/p",), "")
    headline, figures, *_ = lines(found)
    assert headline.startswith(f"default/p (kai-scheduler, by sessions): pending; {why}")
    assert "0 of 2 pods have a node, 1 after the session" in figures
    of_group = explain_pod_group("default/g", path, config=deciders(), changes=False)
    assert of_group.job is not None
    assert of_group.job.reason == "NotBound"


def test_a_claim_that_is_missing_keeps_a_pod_of_volcano_from_all_nodes(tmp_path: Path) -> None:
    one = pod("p", gpus=0)
    one["spec"] |= {
        "schedulerName": "volcano",
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "gone"}}],
    }
    config = deciders_of([ConfigText("scheduler: volcano", "volcano.yaml")])
    found = explain_job("default/p", cluster(tmp_path, node("a", 4), one), config=config)
    assert [one.reasons for one in found.nodes] == [("node(s) didn't pass the predicates",)]
