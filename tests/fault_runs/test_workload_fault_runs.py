"""Workloads survive failing requests and leaving nodes; planted bugs are found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stowplan.controllers.workloads.job_controller import JobController
from tests.fault_runs.workload_fault_run import WorkloadFault, WorkloadFaultRun
from tests.soak import examples

N_PARTS = 10


def run_seed(seed: int, folder: Path) -> WorkloadFaultRun:
    run = WorkloadFaultRun(seed, folder)
    try:
        run.run()
    except WorkloadFault as fault:
        raise WorkloadFault(f"seed {seed}: {fault}") from None
    return run


@pytest.mark.slow
@pytest.mark.parametrize("number", range(N_PARTS))
def test_many_runs(number: int, tmp_path: Path) -> None:
    size = examples(5)
    runs = [run_seed(seed, tmp_path) for seed in range(number * size, (number + 1) * size)]
    assert sum(run.n_faults for run in runs), "no request failed"


def first_fault(folder: Path) -> str:
    for seed in range(40):
        try:
            run_seed(seed, folder)
        except WorkloadFault as fault:
            return str(fault)
    pytest.fail("no seed showed the mistake")


def test_a_controller_that_misses_pods_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    observe = JobController.observe

    def deaf(self: JobController, change: Any, before: Any) -> None:
        # Wrong: a pod that ends does not concern its Job.
        if change.path != "pods":
            observe(self, change, before)

    monkeypatch.setattr(JobController, "observe", deaf)
    assert "Job train" in first_fault(tmp_path)
