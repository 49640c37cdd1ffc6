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


def test_a_jobset_is_admitted_as_a_group_of_pods(tmp_path: Path) -> None:
    template = job("x", "one", 2)["spec"]["template"]
    template["metadata"] = {"annotations": {"stowplan.dev/run-seconds": "60"}}
    template["spec"]["schedulingGates"] = []
    made = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "train", "namespace": "default", "labels": {QUEUE: "one"}},
        "spec": {
            "suspend": True,
            "replicatedJobs": [
                {
                    "name": "workers",
                    "replicas": 2,
                    "template": {
                        "spec": {"parallelism": 2, "completions": 2, "template": template}
                    },
                }
            ],
        },
    }
    result = replayed(tmp_path, node(), flavor(), queue("one", "4"), made)
    (found,) = result.summary["workloads"]
    assert (found["job"], found["pods"], found["status"]) == ("jobset/train", 4, "Finished")
    assert result.summary["bindings"] == 4
