"""Workloads survive failing requests and leaving nodes; planted bugs are found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stowplan.controller_runtime.controller import Controller
from stowplan.controllers.batch.cron_job import CronJobController
from stowplan.controllers.node_lifecycle.zone_disruption import ZoneTaintQueue
from stowplan.controllers.workloads.daemon_set.daemon_set_controller import DaemonSetController
from stowplan.controllers.workloads.job_controller import JobController
from stowplan.controllers.workloads.stateful_set.stateful_set_controller import (
    StatefulSetController,
)
from tests.fault_runs.__main__ import main
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
    size = examples(1)
    runs = [run_seed(seed, tmp_path) for seed in range(number * size, (number + 1) * size)]
    assert sum(run.n_faults for run in runs), "no request failed"


def first_fault(folder: Path) -> str:
    for seed in range(40):
        try:
            run_seed(seed, folder)
        except WorkloadFault as fault:
            return str(fault)
    pytest.fail("no seed showed the mistake")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (JobController, "Job train"),
        (StatefulSetController, "StatefulSet db"),
        (DaemonSetController, "DaemonSet agent"),
        (CronJobController, "CronJob report"),
    ],
)
def test_a_controller_that_misses_changes_is_found(
    kind: type[Controller], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    observe = kind.observe
    missed = {"StatefulSetController": "pods", "DaemonSetController": "nodes"}
    path = missed.get(kind.__name__, "batch/jobs" if kind is CronJobController else "pods")

    def deaf(self: Controller, change: Any, before: Any) -> None:
        # Wrong: a pod that ends does not concern its Job, and the like.
        if change.path != path:
            observe(self, change, before)

    monkeypatch.setattr(kind, "observe", deaf)
    assert text in first_fault(tmp_path)


def test_nodes_that_are_evicted_all_at_once_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ZoneTaintQueue, "accept", lambda self, now: True)
    assert "evicted at" in first_fault(tmp_path)


def test_the_command_prints_how_many_ran(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workloads", "gangs", "--runs", "2", "--first", "3"]) == 0
    printed = capsys.readouterr().out
    assert "workloads: 2 of 2 runs, seeds 3 to 4, 0 failed" in printed
    assert printed.endswith("4 runs in all\n")


def test_an_unknown_family_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["nope"])
    assert 'unknown family "nope": one of schedulers, plugins' in capsys.readouterr().err
