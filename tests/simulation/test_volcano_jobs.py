"""Replays of Volcano's Jobs by its sessions: its controllers create, restart and end their pods."""

from __future__ import annotations

from pathlib import Path

import yaml

from stowplan.simulation.replay import ReplayOptions
from stowplan.simulation.simulate import Simulation, simulate

CLUSTER = """
{apiVersion: v1, kind: Node, metadata: {name: n},
 status: {allocatable: {cpu: "8", pods: "110"}, capacity: {cpu: "8", pods: "110"}}}
---
{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: small},
 spec: {weight: 1, capability: {cpu: "3"}}}
"""


def vcjob(name: str, n_pods: int, seconds: int, exit_codes: str = "0", **spec: object) -> str:
    notes = {"stowplan.dev/run-seconds": str(seconds), "stowplan.dev/exit-code": exit_codes}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    template = {"metadata": {"annotations": notes}, "spec": {"containers": [container]}}
    task = {"name": "w", "replicas": n_pods, "template": template}
    job = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"queue": "small", "tasks": [task], **spec},
    }
    return yaml.safe_dump(job)


def replayed(directory: Path, config: str, *jobs: str) -> Simulation:
    (directory / "cluster.yaml").write_text("\n---\n".join((CLUSTER, *jobs)))
    (directory / "conf").write_text(config)
    return simulate(directory / "cluster.yaml", config=directory / "conf", replay=ReplayOptions())


def test_jobs_wait_for_admission_and_restart_by_their_policies(tmp_path: Path) -> None:
    policies = [{"event": "PodFailed", "action": "RestartJob"}]
    found = replayed(
        tmp_path,
        "scheduler: volcano\n",
        vcjob("first", 2, 60),
        vcjob("flaky", 2, 20, "1", policies=policies, maxRetry=3),
        vcjob("large", 4, 20),
    )
    pods = {one.pod: one for one in found.placements}
    # Those of a job that is not admitted do not exist.
    assert sorted(pods) == [f"default/{job}-w-{i}" for job in ("first", "flaky") for i in (0, 1)]
    assert [pods[f"default/flaky-w-{i}"].restarts for i in (0, 1)] == [2, 2]
    assert found.summary["notes"][-2:] == [
        "Volcano: 1 job not admitted, without pods",
        "large in default: not inqueue: queue small's capability cpu 3, 0 in use, 4 asked",
    ]
    assert not any("read as pods" in note for note in found.summary["notes"])


def test_jobs_are_pods_and_gangs_where_others_decide(tmp_path: Path) -> None:
    config = "scheduler: kube-batch\nactions: allocate\ntiers: [{plugins: [{name: gang}]}]\n"
    config += "batch: {schedulerName: volcano}\n"
    found = replayed(tmp_path, config, vcjob("first", 2, 60))
    assert sorted(one.pod for one in found.placements) == ["default/first-w-0", "default/first-w-1"]
    assert any("Job.batch.volcano.sh read as pods" in note for note in found.summary["notes"])
