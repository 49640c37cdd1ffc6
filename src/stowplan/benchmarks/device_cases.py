"""Cases with parts of GPU cards by annotations: nodes with eight cards, pods that request parts of
one or several."""

from __future__ import annotations

import json
from typing import Any

from stowplan.benchmarks.benchmark_objects import (
    BenchmarkClient,
    Tree,
    node_tree,
    nodes,
    pod_tree,
)
from stowplan.benchmarks.benchmark_workload import (
    BenchmarkCase,
    BenchmarkWorkload,
    WorkloadSizes,
    arriving_pods,
    nodes_added,
)
from stowplan.objects.devices.gpu_cards import COUNT_KEY, MILLI_KEY, MODEL_KEY

N_CARDS = 8
MODELS = ("A", "B", "C")
NODE_ALLOCATABLE = {"cpu": "128", "memory": "512Gi", "pods": "250", COUNT_KEY: str(N_CARDS)}

SHAPES = (
    (4, 1, 100), (4, 1, 200), (8, 1, 250), (4, 1, 300), (8, 1, 400), (8, 1, 500), (6, 1, 600),
    (8, 1, 750), (8, 1, 1000), (16, 1, 1000), (16, 2, 1000), (32, 4, 1000), (2, 0, 0),
)  # fmt: skip
"""CPUs, cards, and milli of each."""


def _configuration(policy: str, selection: str) -> str:
    workload = [
        {"cpuMilli": 1000 * cpu, "num": num, "milli": milli, "count": 10 - i // 2}
        for i, (cpu, num, milli) in enumerate(SHAPES)
    ]
    own = [{"name": "GpuShare"}]
    alone = {"disabled": [{"name": "*"}], "enabled": own}
    profile: dict[str, Any] = {
        "plugins": {"multiPoint": {"enabled": own}, "preScore": alone, "score": alone},
        "pluginConfig": [
            {
                "name": "GpuShare",
                "args": {"policy": policy, "gpuSel": selection, "workload": workload},
            }
        ],
    }
    return json.dumps(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [profile],
        }
    )


def _node(index: int) -> Tree:
    labels = {MODEL_KEY: MODELS[index % len(MODELS)]}
    return node_tree(f"node-{index}", NODE_ALLOCATABLE, labels)


def _pod(index: int) -> Tree:
    # Shapes come in no fixed order, as those of users.
    cpu, num, milli = SHAPES[index * index * 7 % 97 % len(SHAPES)]
    tree = pod_tree(f"share-{index}", {"cpu": str(cpu), "memory": "1Gi"})
    if num:
        notes = {COUNT_KEY: str(num), MILLI_KEY: str(milli)}
        if index % 5 == 0:
            notes[MODEL_KEY] = "A|B"
        tree["metadata"]["annotations"] = notes
    return tree


def shares(client: BenchmarkClient, sizes: WorkloadSizes) -> BenchmarkWorkload:
    """Pods of 13 shapes, a fifth of them for two of three models, on empty nodes."""
    before = nodes_added(nodes(map(_node, range(sizes.nodes))))
    return arriving_pods(before, client.pods(map(_pod, range(sizes.pods))))


GPU_SHARE_CASES = tuple(
    BenchmarkCase(
        f"gpu-{name}",
        f"parts of GPU cards on nodes with eight, by {policy}",
        5000,
        10_000,
        shares,
        configuration=_configuration(policy, selection),
    )
    for name, policy, selection in (
        ("fgd", "FGD", "FGDScore"),
        ("bestfit", "BestFit", "best"),
        ("packing", "GpuPacking", "best"),
    )
)
