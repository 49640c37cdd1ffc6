"""Families of fault runs by name, each with a function that runs one seed."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from tests.fault_runs.card_config import CARD_CONFIG
from tests.fault_runs.card_gang_config import CARD_GANG_CONFIG
from tests.fault_runs.configs import BASE_CONFIG, EXTENDERS_CONFIG, TEST_PLUGINS_CONFIG
from tests.fault_runs.device_fault_run import DeviceFault, DeviceFaultRun
from tests.fault_runs.fault_run import FaultRun, FaultRunConfig, run_with_faults, shrink_failure
from tests.fault_runs.gang_config import GANG_CONFIG
from tests.fault_runs.kai_gang_config import KAI_GANG_CONFIG
from tests.fault_runs.native_gang_config import NATIVE_GANG_CONFIG
from tests.fault_runs.workload_fault_run import WorkloadFault, WorkloadFaultRun

RunSeed = Callable[[int], tuple[str, "Counter[str]"]]
"""Runs a seed; returns why it failed, "" if it passed, and what happened how often."""


def _run_scheduler(config: FaultRunConfig, seed: int) -> tuple[str, Counter[str]]:
    fault_run = FaultRun(seed, config)
    try:
        fault_run.run()
    # Whatever it is: the run is repeated to shrink its fault schedule, and the failure printed.
    except Exception as error:  # noqa: BLE001
        found = run_with_faults(seed, config)
        text = repr(error) if found is None else str(shrink_failure(found, config))
        return text, Counter(fault_run.injected_counts)
    return "", Counter(fault_run.injected_counts)


def _run_workloads(seed: int) -> tuple[str, Counter[str]]:
    with tempfile.TemporaryDirectory() as folder:
        run = WorkloadFaultRun(seed, Path(folder))
        try:
            run.run()
        except WorkloadFault as fault:
            return f"seed {seed}: {fault}", run.parts
        return "", run.parts


def _run_devices(seed: int) -> tuple[str, Counter[str]]:
    with tempfile.TemporaryDirectory() as folder:
        run = DeviceFaultRun(seed, Path(folder))
        failure = ""
        try:
            run.run()
        except DeviceFault as fault:
            failure = f"seed {seed}: {fault}"
        counts = Counter({"failed requests": run.n_faults, "allocations": run.allocations})
        return failure, counts


FAMILIES: Mapping[str, tuple[str, RunSeed]] = {
    "schedulers": ("one or two schedulers", partial(_run_scheduler, BASE_CONFIG)),
    "plugins": ("plugins that pause and refuse", partial(_run_scheduler, TEST_PLUGINS_CONFIG)),
    "extenders": ("extenders that fail", partial(_run_scheduler, EXTENDERS_CONFIG)),
    "gangs": ("gangs and queues, decided in sessions", partial(_run_scheduler, GANG_CONFIG)),
    "kai-gangs": ("KAI's queues and gangs", partial(_run_scheduler, KAI_GANG_CONFIG)),
    "native-gangs": (
        "PodGroups of scheduling.k8s.io beside pods",
        partial(_run_scheduler, NATIVE_GANG_CONFIG),
    ),
    "cards": ("pods with GPU cards", partial(_run_scheduler, CARD_CONFIG)),
    "card-gangs": ("gangs with GPU cards", partial(_run_scheduler, CARD_GANG_CONFIG)),
    "devices": ("pods with resource claims", _run_devices),
    "workloads": ("every kind with a controller, failing nodes", _run_workloads),
}
"""What each is about, and how a seed is run."""


def run_seeds(family: str, seeds: range) -> tuple[list[str], Counter[str]]:
    """Run seeds of a family; the failures, and what happened how often in all of them."""
    failures: list[str] = []
    counts: Counter[str] = Counter()
    for seed in seeds:
        failure, happened = FAMILIES[family][1](seed)
        counts += happened
        if failure:
            failures.append(failure)
    return failures, counts
