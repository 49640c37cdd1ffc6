"""Every shape that can be measured, by name."""

from __future__ import annotations

from stowplan.framework.problems import did_you_mean
from stowplan.sim.bench_churn import CHURN, VOLUMES
from stowplan.sim.bench_perf import AFFINITY, PLACING, SPREADING
from stowplan.sim.bench_table import TABLE
from stowplan.sim.bench_workload import Shape
from stowplan.sim.input_error import InputError

SHAPES: dict[str, Shape] = {
    shape.name: shape for shape in (*TABLE, *PLACING, *AFFINITY, *SPREADING, *CHURN, *VOLUMES)
}

START = "start"
"""Measured in processes of its own, and not a workload."""

SESSIONS = "sessions"
"""Measured by the session, and not by the pod."""

NAMES = (*SHAPES, START, SESSIONS)
"""In the order in which they are run when none is named."""


def known(name: str) -> str:
    """The name, if it is a shape's; raises InputError."""
    if name in NAMES:
        return name
    hint = did_you_mean(name, NAMES)
    wanted = "one that `stowplan bench --list` names" + (f" ({hint})" if hint else "")
    raise InputError("shape", "", repr(name), wanted)
