"""Benchmarks of Volcano's sessions: a crowded cluster with nested queues, and jobs on an empty one.

The shapes of jobs are those of Volcano's own benchmark guide.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

from stowplan.benchmarks.sessions.session_benchmarks import REQUESTS, SessionBenchmark
from stowplan.messages import events as happened
from stowplan.messages.events import Event

CONFIGURATION = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins:
  - name: overcommit
  - name: drf
  - name: predicates
  - name: %s
  - name: nodeorder
"""
PROPORTION = CONFIGURATION % "proportion"
CAPACITY = CONFIGURATION % "capacity\n    enableHierarchy: true"
SHAPES = ((10_000, 1), (500, 20), (20, 500), (1, 10_000))
"""(jobs, pods of each)."""
CROWDED_NODES, N_PARENTS, N_LEAVES = 4000, 10, 29
SIZE = 20
N_CHANGED = 100
SHAPE_NODES = 1000
SESSIONS_MAX = 20


def volcano_shape(n_jobs: int, size: int, n_nodes: int = SHAPE_NODES) -> float:
    """Seconds of all sessions until every pod of these jobs has a node."""
    benchmark = SessionBenchmark(n_nodes, PROPORTION, "volcano")
    benchmark.show([benchmark.queue("q")])
    for number in range(n_jobs):
        asks = {"cpu": f"{size}", "memory": f"{size}Gi"}
        gang = benchmark.gang(f"g{number}", "q", size, ("1", "1Gi"), min_resources=asks)
        benchmark.show(list(gang))
    gc.collect()
    gc.freeze()
    took, n_bound, events = 0.0, 0, [happened.Synced()]
    for _ in range(SESSIONS_MAX):
        took += benchmark.session(*events)
        events = []
        n_bound += benchmark.settle()
        if n_bound == n_jobs * size:
            break
    gc.unfreeze()
    if n_bound != n_jobs * size:
        raise RuntimeError(f"{n_bound} of {n_jobs * size} pods were bound")
    return took


def volcano_crowded(n_nodes: int = CROWDED_NODES) -> dict[str, float]:
    """Seconds of a first session on a crowded cluster, and of one after some pods have changed.

    25 running and 10 pending pods per node, in gangs of 300 queues in three levels.
    """
    benchmark = SessionBenchmark(n_nodes, CAPACITY, "volcano")
    leaves = list(_show_queues(benchmark))
    for number in range(25 * n_nodes // SIZE):
        nodes = [(number * SIZE + k) % n_nodes for k in range(SIZE)]
        queue = leaves[number % len(leaves)]
        benchmark.show(list(benchmark.gang(f"r{number}", queue, SIZE, _asks(number), nodes)))
    for number in range(10 * n_nodes // SIZE):
        queue = leaves[number % len(leaves)]
        benchmark.show(list(benchmark.gang(f"p{number}", queue, SIZE, _asks(number))))
    gc.collect()
    gc.freeze()
    found = {"first": benchmark.session(happened.Synced())}
    for _ in range(SESSIONS_MAX):
        if not benchmark.settle():
            break
        benchmark.session()
    changes = []
    for round_ in range(3):
        left = [benchmark.pods[f"r{round_}-{k}"] for k in range(SIZE)]
        events: list[Event] = [happened.PodDeleted(pod) for pod in left]
        for number in range(N_CHANGED // SIZE - 1):
            name = f"new{round_}-{number}"
            events += list(benchmark.gang(name, leaves[number], SIZE, _asks(number)))
        changes.append(benchmark.session(*events))
        benchmark.settle()
    gc.unfreeze()
    return found | {f"{N_CHANGED} changed": sorted(changes)[len(changes) // 2]}


def _show_queues(benchmark: SessionBenchmark) -> Iterator[str]:
    benchmark.show([benchmark.queue("root")])
    for parent in range(N_PARENTS):
        benchmark.show([benchmark.queue(f"p{parent}", parent="root")])
        for leaf in range(N_LEAVES):
            benchmark.show([benchmark.queue(f"q{parent}-{leaf}", parent=f"p{parent}")])
            yield f"q{parent}-{leaf}"


def _asks(number: int) -> tuple[str, str]:
    return REQUESTS[number % len(REQUESTS)]


def volcano_seconds(n_nodes: int = CROWDED_NODES) -> dict[str, float]:
    """Seconds of each shape. n_nodes: of the crowded cluster; the others have a quarter of it."""
    part = n_nodes / CROWDED_NODES
    found = {}
    for n_jobs, size in SHAPES:
        jobs, pods = (max(round(n_jobs * part), 1), size) if n_jobs > 1 else (1, round(size * part))
        took = volcano_shape(jobs, pods, max(n_nodes // 4, 1))
        found[f"volcano {jobs} of {pods}"] = round(took, 3)
    crowded = volcano_crowded(n_nodes)
    return found | {f"volcano {name}": round(took, 3) for name, took in crowded.items()}
