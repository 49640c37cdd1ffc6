"""What `explain` reports of a job of KAI-Scheduler's queues that waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from stowplan.assembly.deciders import ConfigText, deciders_of
from stowplan.batch.queue_models.kai.model import kai_model
from stowplan.forecast.eta import eta
from stowplan.forecast.explain_job import explain_pod_group
from stowplan.forecast.queue_reports.job_waits import JobWait
from tests.batch.queue_models.test_kai_model import group, node, pod, queue
from tests.cli.run import run

Tree = dict[str, Any]
KAI = "scheduler: kai"
STARTED, NOW = "2026-11-25T07:00:00Z", "2026-11-25T07:10:00Z"
LAST_START = "kai.scheduler/last-start-timestamp"


def running(name: str, of: str, gpus: int, seconds: int = 0) -> Tree:
    notes = {"stowplan.dev/run-seconds": str(seconds)} if seconds else {}
    tree = pod(name, of, gpus, node="a", annotations=notes)
    tree["status"]["startTime"] = STARTED
    return tree


def waiting(name: str, of: str, gpus: int = 1) -> Tree:
    return pod(name, of, gpus, creationTimestamp=NOW)


def started(tree: Tree) -> Tree:
    tree["metadata"]["annotations"] = {LAST_START: STARTED}
    return tree


def written(tmp_path: Path, *objects: Tree) -> Path:
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    return path


def wait_of(path: Path, config: str = KAI) -> JobWait:
    deciders = deciders_of([ConfigText(config, "kai.yaml")])
    found = explain_pod_group("default/new", path, config=deciders).wait
    assert found is not None
    return found


def texts(wait: JobWait) -> list[tuple[str, str]]:
    return [(moment.at[11:16], moment.text) for moment in wait.moments]


def protected(runtime: str = "30m", seconds: int = 7200) -> list[Tree]:
    """A queue with quota whose job waits for one that has run for 10 of 30 minutes."""
    rich = queue("rich", 0)
    rich["spec"]["reclaimMinRuntime"] = runtime
    return [
        node("a", 4),
        rich,
        queue("poor", 4),
        started(group("old", "rich", 1)),
        running("old", "old", 4, seconds),
        group("new", "poor", 2),
        *(waiting(f"new-{i}", "new") for i in range(2)),
    ]


def test_the_end_of_a_minimum_runtime_is_when_a_job_starts(tmp_path: Path) -> None:
    wait = wait_of(written(tmp_path, *protected()))
    assert texts(wait) == [
        ("07:30", "the minimum runtime of default/old is over: reclaim may evict it"),
        ("09:00", "default/old ends: 4 nvidia.com/gpu free"),
    ]
    assert wait.start_at == "2026-11-25T07:30:01Z"


def test_a_job_that_may_not_be_reclaimed_from_is_not_waited_for(tmp_path: Path) -> None:
    objects = protected()
    # Less than its quota is in use, so nothing is taken from it.
    objects[1]["spec"]["resources"]["gpu"]["quota"] = 8
    wait = wait_of(written(tmp_path, *objects))
    assert texts(wait) == [("09:00", "default/old ends: 4 nvidia.com/gpu free")]
    assert wait.start_at == "2026-11-25T09:00:00Z"


def test_a_job_starts_when_another_one_ends(tmp_path: Path) -> None:
    wait = wait_of(written(tmp_path, *protected("4h")))
    assert [at for at, _ in texts(wait)] == ["09:00", "11:00"]
    assert wait.start_at == "2026-11-25T09:00:00Z"


def test_each_queue_above_has_its_bounds(tmp_path: Path) -> None:
    objects = [
        node("a", 8),
        queue("top", 4, limit=5),
        queue("red", 2, parent="top"),
        queue("blue", 2, parent="top"),
        group("old", "blue", 1),
        running("old", "old", 4, 3600),
        group("new", "red", 1, preemptibility="non-preemptible"),
        waiting("new", "new", 3),
        group("other", "elsewhere", 1),
        running("other", "other", 1, 900),
        queue("elsewhere", 1),
    ]
    wait = wait_of(written(tmp_path, *objects))
    cards = {one.queue: one for one in wait.levels if one.resource == "nvidia.com/gpu"}
    assert {name: one.over for name, one in cards.items()} == {
        "red": ("quota", "fair share"),
        # Reclaim judges the fair share of the job's own queue alone.
        "top": ("limit",),
    }
    red, top = cards["red"], cards["top"]
    assert (red.asked, red.allocated, red.quota, red.fair_share) == (3, 0, 2, 3 - 1)
    assert (top.allocated, top.limit) == (4, 5)
    # What ends outside of the queue that is full does not help.
    assert [text for _, text in texts(wait)] == []


def test_only_ends_below_the_queue_that_is_full_count(tmp_path: Path) -> None:
    objects = [
        node("a", 8),
        queue("top", 4, limit=4),
        queue("red", 2, parent="top"),
        queue("blue", 2, parent="top"),
        group("old", "blue", 2),
        *(running(f"old-{i}", "old", 2, 3600) for i in range(2)),
        group("new", "red", 1),
        waiting("new", "new", 4),
        queue("elsewhere", 1),
        group("other", "elsewhere", 1),
        running("other", "other", 1, 900),
    ]
    wait = wait_of(written(tmp_path, *objects))
    assert texts(wait) == [("08:00", "2 pods of podgroup default/old end: 4 nvidia.com/gpu free")]
    assert wait.start_at == "2026-11-25T08:00:00Z"


def test_a_preemption_delay_is_named(tmp_path: Path) -> None:
    new = group("new", "poor", 2, preemptionDelay="15m")
    new["metadata"]["creationTimestamp"] = NOW
    objects = [one for one in protected("0s", 0) if one["metadata"]["name"] != "new"]
    wait = wait_of(written(tmp_path, *objects, new))
    assert texts(wait) == [("07:25", "its preemption delay is over: others may be evicted for it")]
    assert wait.start_at == "2026-11-25T07:25:01Z"


def test_sessions_that_only_follow_changes_start_it_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, *protected())
    deciders = deciders_of([ConfigText(KAI, "kai.yaml")])

    def start() -> float | None:
        (found, _) = eta(path, config=deciders).pods
        return None if found.start is None else found.start.median_s

    assert start() == pytest.approx(1200, abs=2)
    # Without it only the end of the other job is a reason to decide again.
    monkeypatch.setattr(kai_model, "next_session_in", lambda *_: None)
    assert start() == pytest.approx(6600, abs=2)


def test_the_command_prints_queues_moments_and_start(tmp_path: Path) -> None:
    path = written(tmp_path, *protected())
    found = run("explain", "podgroup/new", "--compat", "kai", str(path)).out
    assert "QUEUE  RESOURCE        ASKED  ALLOCATED" in found
    assert "Expected start: 2026-11-25T07:30:01Z, in 20m" in found
