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
from stowplan.benchmarks.cases.stowplan_cases import REQUESTS, node
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

_DECIDE_MANY = """\
import sys, time
from stowplan.driver.gc_settings import paused_collector, uncollected_imports
with uncollected_imports():
    from stowplan.assembly import configuration_of
    from stowplan.assembly.build import scheduler_for
    from stowplan.messages.effects import Bind
    from stowplan.messages.events import NodeAdded, PodAdded
    from stowplan.objects.encoding.json_codec import decode
    from stowplan.objects.node import Node
    from stowplan.objects.pod import Pod
    from stowplan.simulation.kernel_cache import BACKGROUND_COMPILATION
with paused_collector() as resume_collector:
    n_pods, n_max, target = int(sys.argv[2]), 8, float(sys.argv[3])
    scheduler = scheduler_for(*configuration_of(None, "default"))
    BACKGROUND_COMPILATION.start()
    with open(sys.argv[1], "rb") as lines:
        text = next(lines)
        scheduler.handle([NodeAdded(decode(line, Node)) for line in lines], 0)
    resume_collector()
texts = [text.replace(b'first"', b'first-%d"' % i) for i in range(n_pods)]
longest, first, worked, n_bound = 0.0, 0.0, 0.0, 0
while n_bound < n_pods:
    began = time.monotonic()
    events = [PodAdded(decode(text, Pod)) for text in texts[:200]]
    effects, texts = scheduler.handle(events, 0, n_max), texts[200:]
    now = time.monotonic()
    took = now - began
    n_max = max(8, int(n_max * target / took)) if took > target else min(2 * n_max, 2000)
    n_bound += sum(isinstance(effect, Bind) for effect in effects)
    first, worked = first or now, worked or time.process_time()
    BACKGROUND_COMPILATION.poll()
    longest = max(longest, time.monotonic() - began)
print(first, worked, longest, time.monotonic(), flush=True)
BACKGROUND_COMPILATION.stop()
"""
"""As `_DECIDE`, with many pods, and as the live scheduler does it: the collector rests until the
nodes are known, another process compiles the kernels from the first decision on, and a call decides
as many pods as fit its time. Prints the time of the first decision, the processor time until then,
the seconds of the longest call, and the time of the last decision."""

COLD_TARGET_S = 0.025
"""As long as a call may take."""

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


def cold_seconds(n_nodes: int, n_pods: int) -> dict[str, float]:
    """Decisions of a new process with empty caches, whose kernels are not compiled, in seconds.

    first, last: from process start to the first and the last decision. processor: processor time of
    the process until the first. stall: the longest call, with the decoding of its pods, and with
    what is done for the kernels.
    """
    with tempfile.TemporaryDirectory(prefix="stowplan-bench-") as folder:
        cluster = Path(folder, "cluster.jsonl")
        write_cluster(cluster, n_nodes)
        began = time.monotonic()
        ran = _run(_DECIDE_MANY, str(cluster), str(n_pods), str(COLD_TARGET_S), cache=Path(folder))
    first, worked, stall, last = map(float, ran.split()[-4:])
    return {
        "first": round(first - began, 3),
        "processor": round(worked, 3),
        "stall": round(stall, 3),
        "last": round(last - began, 3),
    }


def write_cluster(path: Path, n_nodes: int) -> None:
    """A pod and the nodes as JSON, one per line."""
    sizes = WorkloadSizes(nodes=n_nodes, pods=1)
    trees = [pod_tree("first", REQUESTS), *(node(i, sizes) for i in range(n_nodes))]
    path.write_bytes(b"".join(encode(tree) + b"\n" for tree in trees))


def _seconds(script: str, *arguments: str, cache: Path) -> float:
    """Seconds from process start to the time that it prints last."""
    began = time.monotonic()
    return float(_run(script, *arguments, cache=cache).split()[-1]) - began


def _run(script: str, *arguments: str, cache: Path) -> str:
    """The output of a new process with these caches."""
    surroundings = {**os.environ, **dict.fromkeys(CACHE_FOLDERS, str(cache))}
    command = [sys.executable, "-c", script, *arguments]
    ran = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=True)
    return ran.stdout
