"""Waits and makespan with and without backfilling: gangs with run limits on GPU nodes, replayed.

    python bench/backfill.py [--jobs 200] [--node-count 16]

Jobs of 1 to 64 GPUs arrive about as fast as the nodes can run them, and run for an exponential
time, which is their limit. They are replayed with `allocate` and with every mode of
`backfill-timed`.
"""

from __future__ import annotations

import argparse
import datetime
import sys
import time

import numpy as np
from msgspec.structs import replace

from stowplan.assembly.deciders import ConfigText, deciders_of
from stowplan.inputs.cluster_reader import Cluster
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.podgroup import PodGroup, PodGroupSpec, Queue, QueueSpec
from stowplan.objects.timing.run_limits import RUN_ANNOTATION
from stowplan.simulation.replay import Replay, ReplayOptions
from stowplan.testing import builders

GPU = "nvidia.com/gpu"
PER_NODE = 8
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
TIERS = "tiers: [{plugins: [{name: gang}, {name: predicates}, {name: nodeorder}]}]"
SHARES = [0.3, 0.2, 0.15, 0.15, 0.1, 0.06, 0.04]
MODES = ("allocate", "strict", "easy", "conservative")


def workload(n_jobs: int, n_nodes: int, seed: int = 1) -> Cluster:
    """Gangs of pods with one GPU up to a whole node each."""
    rng = np.random.default_rng(seed)
    nodes = [
        builders.node(f"n{number}", cpu="96", memory="1Ti", resources={GPU: PER_NODE})
        for number in range(n_nodes)
    ]
    objects: list[object] = [Queue(metadata=ObjectMeta(name="default"), spec=QueueSpec(1, {}))]
    pods, at = [], 0.0
    for number in range(n_jobs):
        at += float(rng.exponential(90))
        n_gpus = int(
            rng.choice([1, 2, 4, 8, 16, 32, 64], p=[0.3, 0.2, 0.15, 0.15, 0.1, 0.06, 0.04])
        )
        runs_s = int(rng.exponential(1800)) + 60
        size, each = max(n_gpus // PER_NODE, 1), min(n_gpus, PER_NODE)
        created = EPOCH + datetime.timedelta(seconds=round(at))
        name = f"job-{number:04}"
        meta = ObjectMeta(name=name, namespace="default", creation_timestamp=created)
        objects.append(PodGroup(metadata=meta, spec=PodGroupSpec(size, "default")))
        made = builders.pod("x", resources={GPU: each}, scheduler="kube-batch")
        notes = {"scheduling.k8s.io/group-name": name, RUN_ANNOTATION: str(runs_s)}
        for member in range(size):
            its = replace(meta, name=f"{name}-{member}", annotations=notes)
            pods.append(replace(made, metadata=its))
    return Cluster(nodes, pods, objects)  # type: ignore[arg-type]


def replayed(cluster: Cluster, mode: str) -> tuple[float, list[float], list[float]]:
    """Makespan, waits of all jobs, waits of those of two nodes and more, in seconds."""
    text = f'actions: "allocate"\n{TIERS}'
    if mode != "allocate":
        arguments = f"{{name: backfill-timed, arguments: {{mode: {mode}}}}}"
        text = f'actions: "backfill-timed"\nconfigurations: [{arguments}]\n{TIERS}'
    deciders = deciders_of([ConfigText(text, "batch.yaml")])
    run = Replay(cluster, deciders.scheduler(rng=np.random.default_rng(0)), ReplayOptions())
    run.run(lambda now: None, 10**30)
    waits: dict[str, float] = {}
    sizes: dict[str, int] = {}
    for history in run.pod_histories.values():
        job = history.pod.name.rpartition("-")[0]
        assert history.waited is not None, f"{history.pod.key}: {history.note}"
        waits[job] = max(waits.get(job, 0.0), history.waited / SECOND)
        sizes[job] = sizes.get(job, 0) + 1
    ends = [history.ended or 0 for history in run.pod_histories.values()]
    large = [wait for job, wait in waits.items() if sizes[job] > 1]
    return max(ends) / SECOND, list(waits.values()), large


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--node-count", type=int, default=16)
    given = parser.parse_args()
    print("| | makespan | mean wait | 95 % of waits below | mean wait of gangs | longest wait |")
    print("|---|---|---|---|---|---|")
    cluster = workload(given.jobs, given.node_count)
    for mode in MODES:
        began = time.process_time()
        makespan, waits, large = replayed(cluster, mode)
        cells = (makespan / 60, np.mean(waits) / 60, np.percentile(waits, 95) / 60)
        cells = (*cells, np.mean(large) / 60, max(waits) / 60)
        title = mode if mode == "allocate" else f"backfill-timed, {mode}"
        print(f"| {title} | " + " | ".join(f"{cell:,.0f} min" for cell in cells) + " |", flush=True)
        print(f"{mode}: {time.process_time() - began:.1f} s of CPU", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
