"""A small trace in the format of OpenB, and the real one if available."""

import os
from pathlib import Path

import numpy as np

NODE_HEADER = "sn,cpu_milli,memory_mib,gpu,model"
POD_HEADER = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
    "creation_time,deletion_time,scheduled_time"
)
MODELS = ("T4", "P100", "V100M16", "")


def nodes(n_nodes: int = 20, seed: int = 0) -> str:
    rng = np.random.default_rng(seed)
    lines = [NODE_HEADER]
    for index in range(n_nodes):
        model = MODELS[int(rng.integers(len(MODELS)))]
        cards = int(rng.choice([2, 8])) if model else 0
        lines.append(f"node-{index:03d},{64_000 + 32_000 * (cards > 2)},262144,{cards},{model}")
    return "\n".join(lines) + "\n"


def pods(n_pods: int = 60, seed: int = 0) -> str:
    rng = np.random.default_rng(seed)
    lines = [POD_HEADER]
    for index in range(n_pods):
        cards = int(rng.choice([0, 1, 1, 1, 2, 8]))
        milli = 0 if not cards else int(rng.choice([460, 1000])) if cards == 1 else 1000
        models = str(rng.choice(["", "", "T4", "P100|V100M16"])) if cards else ""
        created = int(rng.integers(1_000_000))
        shape = f"{int(rng.choice([4000, 12_000]))},16384,{cards},{milli},{models}"
        lines.append(f"pod-{index:04d},{shape},LS,Running,{created},{created + 60},{created + 1}")
    return "\n".join(lines) + "\n"


def real() -> Path | None:
    """The folder of the real trace, named by STOWPLAN_TRACES."""
    folder = os.environ.get("STOWPLAN_TRACES")
    path = Path(folder, "openb") if folder else None
    return path if path is not None and path.is_dir() else None
