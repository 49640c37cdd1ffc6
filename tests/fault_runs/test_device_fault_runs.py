"""No device is given twice while requests fail and replies are lost; planted bugs are found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stowplan.controllers.resource_claim import ResourceClaimController
from stowplan.plugins.devices.claim_binding import PendingAllocations
from tests.fault_runs.device_fault_run import DeviceFault, DeviceFaultRun
from tests.soak import examples


def run_seed(seed: int, folder: Path) -> DeviceFaultRun:
    run = DeviceFaultRun(seed, folder)
    try:
        run.run()
    except DeviceFault as fault:
        raise DeviceFault(f"seed {seed}: {fault}") from None
    return run


def test_many_runs(tmp_path: Path) -> None:
    runs = [run_seed(seed, tmp_path) for seed in range(examples(4))]
    assert sum(run.n_faults for run in runs), "no request failed"
    assert sum(run.allocations for run in runs) >= 2 * len(runs)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(20))
def test_four_hundred_runs(number: int, tmp_path: Path) -> None:
    for seed in range(1000 + 20 * number, 1020 + 20 * number):
        run_seed(seed, tmp_path)


def first_fault(folder: Path) -> str:
    for seed in range(40):
        try:
            run_seed(seed, folder)
        except DeviceFault as fault:
            return str(fault)
    pytest.fail("no seed showed the mistake")


def test_allocations_that_others_do_not_see_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Wrong: what is decided counts only once the watch shows it.
    monkeypatch.setattr(PendingAllocations, "add", lambda *given: None)
    assert "has users" in first_fault(tmp_path)


def test_a_controller_that_keeps_devices_of_ended_pods_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def keeps(self: ResourceClaimController, claim: Any) -> None:
        """Wrong: nothing is deallocated."""

    monkeypatch.setattr(ResourceClaimController, "_sync_claim", keeps)
    assert "left over" in first_fault(tmp_path)
