"""Every shape that can be measured, by name."""

from __future__ import annotations

from stowplan.benchmarks.benchmark_workload import BenchmarkCase
from stowplan.benchmarks.scheduler_perf_cases import AFFINITY, PLACING, SPREADING
from stowplan.benchmarks.scheduler_perf_churn import CHURN, VOLUMES
from stowplan.benchmarks.stowplan_cases import STOWPLAN_CASES
from stowplan.framework.problems import did_you_mean
from stowplan.inputs.input_error import InputError

CASES: dict[str, BenchmarkCase] = {
    shape.name: shape
    for shape in (*STOWPLAN_CASES, *PLACING, *AFFINITY, *SPREADING, *CHURN, *VOLUMES)
}

START = "start"
"""Measured in processes of its own, and not a workload."""

SESSIONS = "sessions"
"""Measured by the session, and not by the pod."""

NAMES = (*CASES, START, SESSIONS)
"""In the order in which they are run when none is named."""


def check_case_name(name: str) -> str:
    """The name, if it is a shape's; raises InputError."""
    if name in NAMES:
        return name
    hint = did_you_mean(name, NAMES)
    wanted = "one that `stowplan bench --list` names" + (f" ({hint})" if hint else "")
    raise InputError("shape", "", repr(name), wanted)
