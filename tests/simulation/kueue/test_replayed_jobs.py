"""Replays in which Kueue admits jobs: they wait for quota in virtual time."""

from __future__ import annotations

from pathlib import Path

import pytest

from stowplan.simulation.replay import ReplayOptions
from stowplan.simulation.simulate import Simulation, simulate
from tests.simulation.kueue.test_job_admission import (
    QUEUE,
    Tree,
    flavor,
    job,
    kueue,
    node,
    queue,
    workload_of,
    written,
)


def timed(name: str, in_queue: str, pods: int, seconds: int, **more: object) -> Tree:
    """A job whose pods run for some seconds."""
    made = job(name, in_queue, pods, **more)  # type: ignore[arg-type]
    notes = {"stowplan.dev/run-seconds": str(seconds)}
    made["spec"]["template"]["metadata"] = {"annotations": notes}
    return made


def replayed(directory: Path, *objects: Tree | list[Tree]) -> Simulation:
    config = directory / "kueue.yaml"
    config.write_text("scheduler: kueue\n")
    return simulate(written(directory, *objects), config=config, replay=ReplayOptions())


def test_jobs_wait_for_quota_in_virtual_time(tmp_path: Path) -> None:
    jobs = timed("a", "one", 2, 600), timed("b", "one", 2, 60, minute=1), job("c", "one", 9)
    result = replayed(tmp_path, node(), flavor(), queue("one", "3"), *jobs)
    first, second = workload_of(result, "job/a"), workload_of(result, "job/b")
    assert (first["status"], first["admitted_s"]) == ("Finished", 0.0)
    assert second["status"] == "Finished"
    assert first["finished_s"] <= second["admitted_s"] <= first["finished_s"] + 5
    assert second["wait_s"] == pytest.approx(second["admitted_s"] - 60)
    hopeless = workload_of(result, "job/c")
    assert (hopeless["status"], hopeless["reason"]) == ("Pending", "ExceedsMaxQuota")
    assert result.summary["bindings"] == 4
    assert "Kueue: 2 of 3 workloads admitted" in result.summary["notes"]
    assert not any("PodGroup" in note for note in result.summary["notes"])


def test_a_job_of_higher_priority_stops_another_one(tmp_path: Path) -> None:
    high = kueue("WorkloadPriorityClass", "high") | {"value": 9}
    labels = {"kueue.x-k8s.io/priority-class": "high"}
    own = queue("one", "2", preemption={"withinClusterQueue": "LowerPriority"})
    urgent = timed("urgent", "one", 2, 60, minute=5, labels=labels)
    result = replayed(tmp_path, node(), flavor(), own, high, timed("low", "one", 2, 3600), urgent)
    low = workload_of(result, "job/low")
    assert workload_of(result, "job/urgent")["wait_s"] < 60
    # It was admitted a second time, and ran from the beginning.
    assert low["admitted_s"] > 360
    assert low["finished_s"] >= low["admitted_s"] + 3600


def job_set(name: str, in_queue: str, workers: int, seconds: int, **more: object) -> Tree:
    """A JobSet of a driver and workers with one CPU each."""
    jobs = []
    for title, replicas in (("driver", 1), ("workers", workers)):
        made = timed("x", in_queue, 1, seconds)["spec"]
        inner = {"parallelism": 1, "completions": 1, "template": made["template"]}
        jobs.append({"name": title, "replicas": replicas, "template": {"spec": inner}})
    meta = {"name": name, "namespace": "default", "labels": {QUEUE: in_queue}, **more}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": meta,
        "spec": {"suspend": True, "replicatedJobs": jobs},
    }


def test_a_jobset_runs_and_ends(tmp_path: Path) -> None:
    result = replayed(
        tmp_path, node(), flavor(), queue("one", "4"),
        job_set("train", "one", 3, 60), job_set("next", "one", 3, 60),
    )  # fmt: skip
    first, second = sorted(result.summary["workloads"], key=lambda one: one["admitted_s"])
    assert {first["job"], second["job"]} == {"jobset/train", "jobset/next"}
    assert (first["pods"], first["status"], second["status"]) == (4, "Finished", "Finished")
    assert first["finished_s"] <= second["admitted_s"] <= first["finished_s"] + 5
    assert result.summary["bindings"] == 8


def test_a_jobset_that_is_preempted_starts_again(tmp_path: Path) -> None:
    high = kueue("WorkloadPriorityClass", "high") | {"value": 9}
    labels = {"kueue.x-k8s.io/priority-class": "high"}
    own = queue("one", "3", preemption={"withinClusterQueue": "LowerPriority"})
    urgent = timed("urgent", "one", 2, 60, minute=5, labels=labels)
    low = job_set("low", "one", 2, 3600, creationTimestamp="2026-01-01T12:00:00Z")
    result = replayed(tmp_path, node(), flavor(), own, high, low, urgent)
    found = workload_of(result, "jobset/low")
    assert workload_of(result, "job/urgent")["wait_s"] < 60
    assert found["admitted_s"] > 360
    assert found["finished_s"] >= found["admitted_s"] + 3600
