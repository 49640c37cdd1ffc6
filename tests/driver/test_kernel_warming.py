"""The kernel of preemptors: compiled beside the scheduler, and not asked for before."""

from __future__ import annotations

import subprocess
import sys

WARM = "import stowplan.driver.kernel_warming as w; w.warm_kernels(); "
BURST = """
import sys
from stowplan.assembly.deciders import deciders_of
from stowplan.cycle.engine import kernel_loading
from stowplan.messages import events as happened
from stowplan.testing import builders

def burst():
    scheduler = deciders_of(()).scheduler(engine="auto")
    events = [happened.NodeAdded(builders.node(f"n{i}", cpu="1")) for i in range(8)]
    events += [
        happened.PodAdded(builders.pod(f"l{i}", uid=f"l{i}", cpu="1", on=f"n{i}"))
        for i in range(8)
    ]
    events += [
        happened.PodAdded(builders.pod(f"h{i}", uid=f"h{i}", cpu="1", priority=9))
        for i in range(6)
    ]
    found = scheduler.handle(events, 0)
    assert sum(type(one).__name__ == "Evict" for one in found) == 6
    return scheduler.pod_lane.decider

NAME = "stowplan.columns.engine.preemption_kernels"
"""


def run(program: str) -> None:
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_scheduler_does_not_compile_the_kernel_of_preemptors() -> None:
    """The other kernels are loaded: preemptors are decided one by one."""
    run(BURST + "kernel_loading.load_kernels(); burst(); assert NAME not in sys.modules")


def test_a_kernel_that_is_imported_and_not_compiled_is_not_asked() -> None:
    run(
        BURST + "kernel_loading.load_kernels(); run = kernel_loading.load_preemption_kernel(); "
        "burst(); assert not run.signatures"
    )


def test_warming_leaves_nothing_of_it_to_compile() -> None:
    """What it is called with is what preemptors are planned with."""
    run(
        WARM + BURST + "run = sys.modules[NAME].run; assert len(run.signatures) == 1; "
        "decider = burst(); assert decider._preemption_kernel() is run; "
        "assert len(run.signatures) == 1"
    )
