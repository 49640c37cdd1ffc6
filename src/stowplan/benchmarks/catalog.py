"""All benchmark cases, by name."""

from __future__ import annotations

from stowplan.benchmarks.benchmark_workload import BenchmarkCase
from stowplan.benchmarks.cases.device_cases import GPU_SHARE_CASES
from stowplan.benchmarks.cases.scheduler_perf_cases import AFFINITY, GANGS, PLACING, SPREADING
from stowplan.benchmarks.cases.scheduler_perf_churn import CHURN, VOLUMES
from stowplan.benchmarks.cases.stowplan_cases import MILLION, STOWPLAN_CASES
from stowplan.benchmarks.cases.volume_cases import UNBOUND_VOLUMES
from stowplan.benchmarks.claims.claim_cases import CLAIM_CASES
from stowplan.framework.problems import did_you_mean
from stowplan.inputs.input_error import InputError

CASES: dict[str, BenchmarkCase] = {
    shape.name: shape
    for shape in (
        *STOWPLAN_CASES,
        *GPU_SHARE_CASES,
        *CLAIM_CASES,
        *PLACING,
        *AFFINITY,
        *SPREADING,
        *CHURN,
        *VOLUMES,
        *UNBOUND_VOLUMES,
        *GANGS,
        MILLION,
    )
}

START = "start"
"""Start times: measured in separate processes, not a workload."""

COLD = "cold"
"""The first decisions of a new process without compiled kernels, not a workload."""

SESSIONS, VOLCANO_SESSIONS = "sessions", "sessions-volcano"
KUEUE_SESSIONS, KAI_SESSIONS = "sessions-kueue", "sessions-kai"
"""Session times: measured per session, not per pod."""

NAMES = (*CASES, START, COLD, SESSIONS, VOLCANO_SESSIONS, KUEUE_SESSIONS, KAI_SESSIONS)
"""Names in the default order."""


def check_case_name(name: str) -> str:
    """The name of a benchmark case; raises InputError for others."""
    if name in NAMES:
        return name
    hint = did_you_mean(name, NAMES)
    expected = "a name from `stowplan bench --list`" + (f" ({hint})" if hint else "")
    raise InputError("shape", "", repr(name), expected)
