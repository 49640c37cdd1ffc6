"""Start time: from process start to the first decision, with empty and with warm caches."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from stowplan.benchmarks.benchmark_objects import pod_tree
from stowplan.benchmarks.benchmark_workload import WorkloadSizes
from stowplan.benchmarks.stowplan_cases import REQUESTS, node
from stowplan.objects.encoding.json_codec import encode

CACHE_FOLDERS = ("NUMBA_CACHE_DIR", "STOWPLAN_CACHE_DIR", "XDG_CACHE_HOME")
"""Variables of cache folders; all point to an empty folder at first."""

_DECIDE = """\
import sys, time
from stowplan.assembly import configuration_of
from stowplan.assembly.build import scheduler_for
from stowplan.messages.effects import Bind
from stowplan.messages.events import NodeAdded, PodAdded
from stowplan.objects.encoding.json_codec import decode
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
scheduler = scheduler_for(*configuration_of(None, "default"))
with open(sys.argv[1], "rb") as lines:
    pod = decode(next(lines), Pod)
    scheduler.handle([NodeAdded(decode(line, Node)) for line in lines], 0)
effects = scheduler.handle([PodAdded(pod)], 0)
assert any(isinstance(effect, Bind) for effect in effects)
print(time.monotonic(), flush=True)
"""
"""A scheduler's work until its first decision: import, build, read the cluster."""

_HELP = (
    "import time\nfrom stowplan.cli.main import main\n"
    "try: main(['--help'])\nexcept SystemExit: print(time.monotonic())"
)


def start_seconds(n_nodes: int, repeat: int = 1) -> dict[str, float]:
    """Minimum of `repeat` starts each, in seconds.

    cold: first decision with empty caches. warm: with filled caches. help: `stowplan --help`.
    """
    cold: list[float] = []
    warm: list[float] = []
    with tempfile.TemporaryDirectory(prefix="stowplan-bench-") as folder:
        cluster = Path(folder, "cluster.jsonl")
        write_cluster(cluster, n_nodes)
        for index in range(repeat):
            cache = Path(folder, f"cache-{index}")
            cache.mkdir()
            cold.append(_seconds(_DECIDE, str(cluster), cache=cache))
            warm.append(_seconds(_DECIDE, str(cluster), cache=cache))
        helped = [_seconds(_HELP, cache=Path(folder)) for _ in range(repeat)]
    return {
        name: round(min(times), 3)
        for name, times in zip(("cold", "warm", "help"), (cold, warm, helped), strict=True)
    }


def write_cluster(path: Path, n_nodes: int) -> None:
    """A pod and the nodes as JSON, one per line."""
    sizes = WorkloadSizes(nodes=n_nodes, pods=1)
    trees = [pod_tree("first", REQUESTS), *(node(i, sizes) for i in range(n_nodes))]
    path.write_bytes(b"".join(encode(tree) + b"\n" for tree in trees))


def _seconds(script: str, *arguments: str, cache: Path) -> float:
    """Seconds from process start to the time that it prints last."""
    surroundings = {**os.environ, **dict.fromkeys(CACHE_FOLDERS, str(cache))}
    command = [sys.executable, "-c", script, *arguments]
    began = time.monotonic()
    ran = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=True)
    return float(ran.stdout.split()[-1]) - began
