"""Benchmarks of KAI-Scheduler's cycles: a crowded cluster, fragmented nodes that are consolidated,
and the division of fair shares.
"""

from __future__ import annotations

import datetime
import gc
import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from stowplan.batch.queue_models.kai.fair_share import (
    UNLIMITED,
    KaiQueueShares,
    KaiShare,
    divide,
)
from stowplan.benchmarks.sessions.session_benchmarks import REQUESTS, START, SessionBenchmark
from stowplan.messages import events as happened
from stowplan.messages.effects import Evict
from stowplan.messages.events import Event
from stowplan.objects.kai.kai_kinds import (
    KaiPodGroupObject,
    KaiPodGroupSpec,
    KaiQueueObject,
    KaiQueueResource,
    KaiQueueResources,
    KaiQueueSpec,
)
from stowplan.objects.meta import ObjectMeta

CONFIGURATION = "scheduler: kai"
CROWDED_NODES, FRAGMENTED_NODES = 4000, 500
N_QUEUES, N_DIVIDED, PER_PARENT = 20, 1000, 50
SIZE, N_CHANGED = 20, 100
CARDS = 8
SESSIONS_MAX = 40
ROUNDS_MAX = 200
FREE = KaiQueueResource(UNLIMITED, UNLIMITED, 1.0)


class KaiBenchmark(SessionBenchmark):
    """The same with objects of KAI-Scheduler."""

    group_annotation = "pod-group-name"
    configuration = CONFIGURATION

    def __init__(self, n_nodes: int, n_gpus: int = 0) -> None:
        super().__init__(n_nodes, self.configuration, "kai-scheduler", n_gpus)

    def queue(self, name: str, weight: int = 1, **spec: Any) -> Event:
        """Event: a queue is created, without limits. spec: more fields."""
        resources = spec.pop("resources", None) or KaiQueueResources(
            FREE, FREE, KaiQueueResource(0.0, UNLIMITED, float(weight))
        )
        meta = ObjectMeta(name=name, uid=name, creation_timestamp=START)
        return happened.ObjectAdded(
            KaiQueueObject(metadata=meta, spec=KaiQueueSpec(resources=resources, **spec))
        )

    def settle(self) -> int:
        """The same; pods that are evicted are gone."""
        evicted = [effect.name for effect in self.effects if isinstance(effect, Evict)]
        n_bound = super().settle()
        self.show([happened.PodDeleted(self.pods.pop(name)) for name in evicted])
        return n_bound

    def gang(
        self,
        name: str,
        queue: str,
        size: int,
        asks: tuple[str, ...],
        nodes: Sequence[int] = (),
        **spec_fields: Any,
    ) -> Iterator[Event]:
        """Events: a gang is created, pending, or running on these nodes. spec_fields: of its group,
        with `min_member` where not all pods are needed."""
        moment = START + datetime.timedelta(seconds=len(self.pods))
        meta = ObjectMeta(name=name, namespace="ns", uid=name, creation_timestamp=moment)
        spec = KaiPodGroupSpec(queue=queue, **{"min_member": size, **spec_fields})
        yield happened.ObjectAdded(KaiPodGroupObject(metadata=meta, spec=spec))
        yield from self.members(name, size, asks, nodes, moment)


def kai_crowded(n_nodes: int = CROWDED_NODES) -> dict[str, float]:
    """Seconds of a first cycle on a crowded cluster, and of one after some pods have changed.

    25 running and 10 pending pods per node, in gangs of queues that have as much as they deserve.
    """
    benchmark = KaiBenchmark(n_nodes)
    benchmark.show([benchmark.queue("root")])
    queues = [f"q{number}" for number in range(N_QUEUES)]
    part = KaiQueueResources(
        KaiQueueResource(24_000.0 * n_nodes / N_QUEUES, UNLIMITED, 1.0), FREE, FREE
    )
    benchmark.show([benchmark.queue(name, parent_queue="root", resources=part) for name in queues])
    for number in range(25 * n_nodes // SIZE):
        nodes = [(number * SIZE + k) % n_nodes for k in range(SIZE)]
        # Each time round the nodes, others ask for other amounts.
        asks = _asks(number + number * SIZE // n_nodes)
        gang = benchmark.gang(f"r{number}", queues[number % N_QUEUES], SIZE, asks, nodes)
        benchmark.show(list(gang))
    for number in range(10 * n_nodes // SIZE):
        gang = benchmark.gang(f"p{number}", queues[number % N_QUEUES], SIZE, _asks(number))
        benchmark.show(list(gang))
    gc.collect()
    gc.freeze()
    found = {"first": benchmark.session(happened.Synced())}
    for _ in range(SESSIONS_MAX):
        # Until the reasons of all jobs are written.
        if not benchmark.effects:
            break
        benchmark.settle()
        benchmark.session()
    gc.collect()
    gc.freeze()
    changes = []
    for round_ in range(3):
        left = [benchmark.pods[f"r{round_}-{k}"] for k in range(SIZE)]
        events: list[Event] = [happened.PodDeleted(pod) for pod in left]
        for number in range(N_CHANGED // SIZE - 1):
            name = f"new{round_}-{number}"
            events += list(benchmark.gang(name, queues[number], SIZE, _asks(number)))
        changes.append(benchmark.session(*events))
        benchmark.settle()
    gc.unfreeze()
    return found | {f"{N_CHANGED} changed": sorted(changes)[len(changes) // 2]}


def kai_consolidation(n_nodes: int = FRAGMENTED_NODES) -> float:
    """Seconds of a cycle that empties a node for a pod with all cards of one, where every node has
    half of them in use."""
    benchmark = KaiBenchmark(n_nodes, CARDS)
    benchmark.show([benchmark.queue("root"), benchmark.queue("q", parent_queue="root")])
    for node in range(n_nodes):
        for card in range(CARDS // 2):
            one = benchmark.gang(f"r{node}-{card}", "q", 1, ("1", "1Gi", "1"), [node])
            benchmark.show(list(one))
    benchmark.show(list(benchmark.gang("whole", "q", 1, ("1", "1Gi", str(CARDS)))))
    gc.collect()
    gc.freeze()
    took = benchmark.session(happened.Synced())
    gc.unfreeze()
    n_moved = sum(isinstance(effect, Evict) for effect in benchmark.effects)
    if n_moved != CARDS // 2:
        raise RuntimeError(f"{n_moved} of {CARDS // 2} pods were moved")
    return took


class KaiScaleShape(msgspec.Struct, frozen=True):
    """Jobs on a cluster of nodes with 8 cards that are free, or all used by jobs of one card of a
    queue without quota. n_bound: pods that start at last."""

    n_jobs: int
    size: int
    cards: int
    is_full: bool
    n_bound: int


def scale_shapes(n_nodes: int) -> dict[str, KaiScaleShape]:
    """The shapes of KAI's own scale tests."""
    cards, gang = CARDS * n_nodes, min(10, n_nodes)
    n_gangs = max(n_nodes // 10, 1)
    return {
        "jobs of 1 card": KaiScaleShape(cards, 1, 1, False, cards),
        "one job reclaims half": KaiScaleShape(1, n_nodes // 2, CARDS, True, n_nodes // 2),
        "gangs reclaim all": KaiScaleShape(n_gangs, gang, CARDS, True, n_gangs * gang),
        "jobs of 1 card reclaim": KaiScaleShape(n_nodes, 1, 1, True, n_nodes),
    }


def kai_scale(shape: KaiScaleShape, n_nodes: int) -> tuple[float, float]:
    """Seconds of all cycles until the pods of a shape have their nodes, and of the longest one."""
    benchmark = KaiBenchmark(n_nodes, CARDS)
    none, all_ = (KaiQueueResource(quota, UNLIMITED, 0.0) for quota in (0.0, UNLIMITED))
    benchmark.show(
        [
            benchmark.queue("full", resources=KaiQueueResources(FREE, FREE, none)),
            benchmark.queue("q", resources=KaiQueueResources(FREE, FREE, all_)),
        ]
    )
    for number in range(CARDS * n_nodes if shape.is_full else 0):
        one = benchmark.gang(f"r{number}", "full", 1, ("1", "1Gi", "1"), [number // CARDS])
        benchmark.show(list(one))
    asks = ("1", "1Gi", str(shape.cards))
    for number in range(shape.n_jobs):
        benchmark.show(list(benchmark.gang(f"g{number}", "q", shape.size, asks)))
    gc.collect()
    gc.freeze()
    took: list[float] = []
    n_bound, events = 0, [happened.Synced()]
    while n_bound < shape.n_bound and len(took) < ROUNDS_MAX:
        took.append(benchmark.session(*events))
        events = []
        n_bound += benchmark.settle()
    gc.unfreeze()
    if n_bound < shape.n_bound:
        raise RuntimeError(f"{n_bound} of {shape.n_bound} pods were bound")
    return sum(took), max(took)


def kai_division(n_queues: int = N_DIVIDED) -> float:
    """Seconds of a division of three resources among queues in two levels that want more than there
    is."""
    queues = []
    for number in range(n_queues):
        parent = "" if number % PER_PARENT == 0 else f"q{number - number % PER_PARENT}"
        shares = {
            resource: KaiShare(number % 7, UNLIMITED, 1.0 + number % 3, 5.0 + number % 11)
            for resource in ("gpu", "cpu", "memory")
        }
        queues.append(KaiQueueShares(f"q{number}", parent, 100, float(number), shares))
    total = dict.fromkeys(("gpu", "cpu", "memory"), 4.0 * n_queues)
    began = time.perf_counter()
    divide(total, queues)
    return time.perf_counter() - began


def kai_seconds(n_nodes: int = CROWDED_NODES) -> dict[str, float]:
    """Seconds of each. n_nodes: of the crowded cluster; an eighth of it are consolidated."""
    crowded = kai_crowded(n_nodes)
    found = {f"kai {name}": round(took, 3) for name, took in crowded.items()}
    n_fragmented = max(n_nodes * FRAGMENTED_NODES // CROWDED_NODES, 2)
    moved = kai_consolidation(n_fragmented)
    for name, shape in scale_shapes(n_fragmented).items():
        took, longest = kai_scale(shape, n_fragmented)
        found |= {f"kai {name}": round(took, 3), f"kai {name}, longest": round(longest, 3)}
    return found | {
        f"kai consolidation of {n_fragmented} nodes": round(moved, 3),
        f"kai division among {N_DIVIDED} queues": round(kai_division(), 4),
    }


def _asks(number: int) -> tuple[str, str]:
    return REQUESTS[number % len(REQUESTS)]
