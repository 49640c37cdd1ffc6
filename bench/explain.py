"""Processor time of explaining a pending pod on 5,000 nodes with 100,000 pods.

Per pod the first explanation on new tables, a second one, and the search for changes, in
milliseconds. Run: python bench/explain.py
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from random import Random
from typing import Any

from stowplan.cycle.explanation import explain
from stowplan.forecast.explain import framework_for, snapshot_for
from stowplan.inputs.cluster_reader import Cluster
from stowplan.insight.changes.search import find_changes
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.simulation.scheduler_configuration import read_deciders
from stowplan.testing import builders

N_NODES, N_PODS = 5_000, 100_000
GPU_TAINT = "dedicated=gpu:NoSchedule"

PENDING = {
    "40 CPUs": builders.pod("x", cpu="40", memory="1Gi"),
    "30 CPUs, 63Gi": builders.pod("x", cpu="30", memory="63Gi"),
    "24 CPUs, selector": builders.pod("x", cpu="24", memory="1Gi", node_selector={"pool": "gpu"}),
    "unknown selector": builders.pod("x", cpu="1", memory="1Gi", node_selector={"pool": "none"}),
}


def nodes() -> list[Node]:
    """A quarter of the nodes has 32 CPUs, the others 16; a fifth is tainted."""
    return [
        builders.node(
            f"node-{i:04}",
            zone="abc"[i % 3],
            cpu="16" if i % 4 else "32",
            memory="64Gi",
            labels={"pool": ("web", "batch", "gpu")[i % 7 % 3]},
            taints=() if i % 5 else (GPU_TAINT,),
        )
        for i in range(N_NODES)
    ]


def pods() -> list[Pod]:
    """Twenty pods on each node."""
    rng = Random(1)
    return [
        builders.pod(
            f"p{i}",
            cpu=rng.choice(("200m", "500m", "700m", "900m")),
            memory=rng.choice(("512Mi", "1Gi", "3Gi")),
            labels={"app": f"a{i % 50}"},
            on=f"node-{i % N_NODES:04}",
        )
        for i in range(N_PODS)
    ]


def took_ms(work: Callable[..., Any], *given: Any) -> float:
    """Processor time of a call."""
    began = time.process_time()
    work(*given)
    return (time.process_time() - began) * 1e3


def main() -> None:
    """Measure and print a line per pod."""
    deciders, made, bound = read_deciders(None, ()), nodes(), pods()
    for name, pod in PENDING.items():
        snapshot = snapshot_for(pod, Cluster(made, [*bound, pod]))
        given = pod, snapshot, framework_for(pod, deciders, None)
        snapshot.nodes.refresh()
        # As the command does while it explains.
        gc.collect()
        gc.disable()
        first, again = took_ms(explain, *given), took_ms(explain, *given)
        changes = took_ms(find_changes, *given)
        gc.enable()
        print(f"{name}: first {first:.0f}, again {again:.0f}, changes {changes:.0f}")


if __name__ == "__main__":
    main()
