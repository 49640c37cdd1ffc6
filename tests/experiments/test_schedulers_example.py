"""`examples/experiments/schedulers.yaml`: four schedulers on one trace."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from typing import Any

import yaml

from stowplan.experiments.experiment_run import experiment

EXAMPLES = Path(__file__).parents[2] / "examples" / "experiments"
N_JOBS = 8
Tree = dict[str, Any]
SCHEDULERS = {"kube-scheduler", "kube-batch", "volcano", "kai"}


def test_four_schedulers_place_the_same_jobs_each_in_its_way(tmp_path: Path) -> None:
    plan: dict[str, Any] = yaml.safe_load((EXAMPLES / "schedulers.yaml").read_text())
    for name in plan["workloads"][0]["files"]:
        shutil.copy(EXAMPLES / name, tmp_path)
    jobs = (tmp_path / "spot-jobs.csv").read_text().splitlines()[: N_JOBS + 1]
    (tmp_path / "spot-jobs.csv").write_text("\n".join(jobs) + "\n")
    # One node, so that jobs wait.
    nodes = (tmp_path / "spot-nodes.csv").read_text().splitlines()[:2]
    (tmp_path / "spot-nodes.csv").write_text("\n".join(nodes) + "\n")
    files = [str(tmp_path / Path(name).name) for name in plan["workloads"][0]["files"]]
    plan["workloads"][0]["files"] = files
    plan |= {"seeds": 1, "options": {"sampleEvery": "12h"}}
    out = tmp_path / "out"
    experiment(plan, out=out, jobs=1)
    with (out / "measures.csv").open() as file:
        found = {(row["policy"], row["measure"]): row["value"] for row in csv.DictReader(file)}
    assert {policy for policy, _ in found} == SCHEDULERS
    for measure in ("wait_p90", "fairness_jain", "victims", "consolidation_moves"):
        assert {policy for policy in SCHEDULERS if (policy, measure) in found} == SCHEDULERS
    assert len({found[policy, "placed"] for policy in SCHEDULERS}) == 1
    assert float(found["kai", "placed"]) > 0


def job(name: str, cards: int, arrives_s: int, runs_s: int) -> Tree:
    """A pod that runs for a time, in the only queue."""
    asked = {"requests": {"cpu": "1", "nvidia.com/gpu": str(cards)}}
    asked["limits"] = {"nvidia.com/gpu": str(cards)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "creationTimestamp": f"2026-11-25T07:{arrives_s // 60:02}:{arrives_s % 60:02}Z",
            "labels": {"kai.scheduler/queue": "default-queue"},
            "annotations": {"stowplan.dev/run-seconds": str(runs_s)},
        },
        "spec": {"containers": [{"name": "c", "image": "i", "resources": asked}]},
    }


def test_consolidation_moves_are_counted_and_others_make_none(tmp_path: Path) -> None:
    # Two nodes are half empty when a pod comes that needs a whole one.
    offer = {"cpu": "8", "memory": "8Gi", "pods": "20", "nvidia.com/gpu": "2"}
    nodes: list[Tree] = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name},
            "status": {"allocatable": offer, "capacity": offer},
        }
        for name in "ab"
    ]
    runs = (("long", 3600), ("short", 60), ("long-2", 3600), ("short-2", 60))
    jobs = [job(name, 1, 10 * i, seconds) for i, (name, seconds) in enumerate(runs)]
    jobs.append(job("whole", 2, 300, 600))
    queues = [*yaml.safe_load_all((EXAMPLES / "objects" / "queues.yaml").read_text())]
    trace = tmp_path / "jobs.yaml"
    trace.write_text(yaml.safe_dump_all([*nodes, *queues, *jobs]))
    plan: dict[str, Any] = yaml.safe_load((EXAMPLES / "schedulers.yaml").read_text())
    plan["workloads"] = [{"name": "two", "files": [str(trace)]}]
    plan |= {"seeds": 1, "options": {"sampleEvery": "5m"}}
    out = tmp_path / "out"
    experiment(plan, out=out, jobs=1)
    with (out / "measures.csv").open() as file:
        found = {(row["policy"], row["measure"]): row["value"] for row in csv.DictReader(file)}
    moves = {policy: float(found[policy, "consolidation_moves"]) for policy in SCHEDULERS}
    assert moves == {"kube-scheduler": 0, "kube-batch": 0, "volcano": 0, "kai": 1}
    assert float(found["kai", "evictions.consolidation"]) == 1
    assert float(found["kai", "wait_max"]) < 60
