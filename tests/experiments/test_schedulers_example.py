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
    files = [str(tmp_path / name) for name in plan["workloads"][0]["files"]]
    plan["workloads"][0]["files"] = files
    plan |= {"seeds": 1, "options": {"sampleEvery": "12h"}}
    out = tmp_path / "out"
    experiment(plan, out=out, jobs=1)
    with (out / "measures.csv").open() as file:
        found = {(row["policy"], row["measure"]): row["value"] for row in csv.DictReader(file)}
    assert {policy for policy, _ in found} == SCHEDULERS
    for measure in ("wait_p90", "fairness_jain", "victims"):
        assert {policy for policy in SCHEDULERS if (policy, measure) in found} == SCHEDULERS
    assert len({found[policy, "placed"] for policy in SCHEDULERS}) == 1
    assert float(found["kai", "placed"]) > 0
