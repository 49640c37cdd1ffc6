"""Session benchmarks: a crowded cluster with queues, many small gangs, one large gang.

Measures the `handle` call that runs the session, including inventory updates and effects.
"""

from __future__ import annotations

import datetime
import gc
import time
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from stowplan.assembly.deciders import ConfigText, deciders_of
from stowplan.messages import events as happened
from stowplan.messages.effects import Bind, Effect, PatchStatus
from stowplan.messages.events import Event
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.node import Node, NodeStatus
from stowplan.objects.pod import (
    Container,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
    ResourceRequirements,
)
from stowplan.objects.podgroup import PodGroup, PodGroupSpec, PodGroupStatus, Queue, QueueSpec
from stowplan.objects.quantity import Quantity
from stowplan.scheduler import Scheduler

CONFIGURATION = """
actions: "reclaim, allocate, backfill, preempt"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]
"""
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
BATCH = 1000
SIZE = 20
"""Pods per gang in the crowded cluster."""
CROWDED_NODES = 4000
GANG_NODES = 5000
N_CHANGED = 100
N_QUEUES = 20
REQUESTS = (("500m", "1Gi"), ("1", "2Gi"), ("250m", "512Mi"), ("1", "4Gi"), ("2", "2Gi"))
NODE = {"cpu": "24", "memory": "128Gi", "pods": "110"}


class SessionBenchmark:
    """A scheduler that runs sessions, and its pods.

    group_annotation: that names their group. effects: of the sessions since the last `settle`.
    """

    group_annotation = "scheduling.k8s.io/group-name"

    def __init__(
        self,
        n_nodes: int,
        configuration: str = CONFIGURATION,
        name: str = "kube-batch",
        n_gpus: int = 0,
    ) -> None:
        """name: schedulerName of the pods. n_gpus: of a node."""
        self.scheduler_name = name
        files = [ConfigText(configuration, "bench")]
        self.scheduler: Scheduler = deciders_of(files).scheduler()
        self.pods: dict[str, Pod] = {}
        self.now = 0
        self._specs: dict[tuple[tuple[str, ...], str], PodSpec] = {}
        self.effects: list[Effect] = []
        self.show(happened.NodeAdded(_node(number, n_gpus)) for number in range(n_nodes))

    def show(self, events: Iterator[Event] | Sequence[Event]) -> None:
        """Deliver events before the sync, a thousand per call."""
        held = list(events)
        for first in range(0, len(held), BATCH):
            self.scheduler.handle(held[first : first + BATCH], self.now)

    def queue(self, name: str, weight: int = 1, **spec: Any) -> Event:
        """Event: a queue is created. spec: more fields."""
        meta = ObjectMeta(name=name, uid=name)
        return happened.ObjectAdded(Queue(metadata=meta, spec=QueueSpec(weight=weight, **spec)))

    def gang(
        self,
        name: str,
        queue: str,
        size: int,
        asks: tuple[str, ...],
        nodes: Sequence[int] = (),
        **spec_fields: Any,
    ) -> Iterator[Event]:
        """Events: a gang is created, pending, or running on these nodes. spec_fields: more of its
        PodGroup."""
        moment = START + datetime.timedelta(seconds=len(self.pods))
        meta = ObjectMeta(name=name, namespace="ns", uid=name, creation_timestamp=moment)
        spec = PodGroupSpec(min_member=size, queue=queue, **spec_fields)
        status = PodGroupStatus(phase="Running" if nodes else "Pending")
        yield happened.ObjectAdded(PodGroup(metadata=meta, spec=spec, status=status))
        yield from self.members(name, size, asks, nodes, moment)

    def members(
        self,
        name: str,
        size: int,
        asks: tuple[str, ...],
        nodes: Sequence[int],
        moment: datetime.datetime,
    ) -> Iterator[Event]:
        """Events: the pods of a group are created."""
        for number in range(size):
            on = f"n{nodes[number]:05d}" if nodes else ""
            yield happened.PodAdded(self._pod(f"{name}-{number}", name, asks, on, moment))

    def _pod(
        self, name: str, group: str, asks: tuple[str, ...], on: str, moment: datetime.datetime
    ) -> Pod:
        meta = ObjectMeta(
            name=name,
            namespace="ns",
            uid=name,
            annotations={self.group_annotation: group},
            labels={"job": group},
            creation_timestamp=moment,
        )
        status = PodStatus(phase="Running" if on else "Pending")
        pod = self.pods[name] = Pod(metadata=meta, spec=self._spec(asks, on), status=status)
        return pod

    def _spec(self, asks: tuple[str, ...], on: str) -> PodSpec:
        found = self._specs.get((asks, on))
        if found is None:
            amounts: dict[str, Quantity] = dict(
                zip(("cpu", "memory", "nvidia.com/gpu"), asks, strict=False)
            )
            asked = ResourceRequirements(requests=amounts, limits=amounts)
            main = Container(name="c", resources=asked)
            found = PodSpec(containers=(main,), scheduler_name=self.scheduler_name, node_name=on)
            self._specs[asks, on] = found
        return found

    def session(self, *events: Event) -> float:
        """Run a session after these events; seconds that the call took."""
        self.now += SECOND
        began = time.perf_counter()
        effects = self.scheduler.handle(events, self.now)
        took = time.perf_counter() - began
        self.effects += effects
        return took

    def settle(self) -> int:
        """Apply the effects without a session; returns the number of bound pods."""
        events: list[Event] = []
        n_bound = 0
        for effect in self.effects:
            match effect:
                case Bind():
                    n_bound += 1
                    spec = replace(self.pods[effect.name].spec, node_name=effect.node)
                    status = PodStatus(phase="Running")
                    events.append(happened.BindDone(effect.effect, effect.uid))
                    events.append(self._changed(effect.name, spec=spec, status=status))
                case PatchStatus():
                    condition = PodCondition("PodScheduled", "False", effect.reason, effect.message)
                    status = PodStatus(phase="Pending", conditions=(condition,))
                    events.append(self._changed(effect.name, status=status))
        self.effects.clear()
        self.show(events)
        return n_bound

    def _changed(self, name: str, **fields: Any) -> Event:
        pod = self.pods[name] = replace(self.pods[name], **fields)
        return happened.PodUpdated(pod)


def crowded_seconds(n_nodes: int = CROWDED_NODES) -> dict[str, float]:
    """Seconds of a first session on a crowded cluster, and of one after some pods have changed.

    25 running and 10 pending pods per node, in gangs.
    """
    benchmark = SessionBenchmark(n_nodes)
    benchmark.show([benchmark.queue(f"q{number}", 1 + number % 3) for number in range(N_QUEUES)])
    n_running, n_waiting = 25 * n_nodes // SIZE, 10 * n_nodes // SIZE
    for number in range(n_running):
        nodes = [(number * SIZE + k) % n_nodes for k in range(SIZE)]
        benchmark.show(
            list(benchmark.gang(f"r{number}", f"q{number % N_QUEUES}", SIZE, _asks(number), nodes))
        )
    for number in range(n_waiting):
        benchmark.show(
            list(benchmark.gang(f"p{number}", f"q{number % N_QUEUES}", SIZE, _asks(number)))
        )
    gc.collect()
    gc.freeze()
    found = {"first": benchmark.session(happened.Synced())}
    while benchmark.settle():
        benchmark.session()
    changes = []
    for round_ in range(5):
        left = [benchmark.pods[f"r{round_}-{k}"] for k in range(SIZE)]
        events: list[Event] = [happened.PodDeleted(pod) for pod in left]
        for number in range(N_CHANGED // SIZE - 1):
            name = f"new{round_}-{number}"
            events += list(benchmark.gang(name, f"q{number}", SIZE, _asks(number)))
        changes.append(benchmark.session(*events))
        benchmark.settle()
    gc.unfreeze()
    return found | {f"{N_CHANGED} changed": sorted(changes)[len(changes) // 2]}


def small_gangs(n_nodes: int = GANG_NODES, n_gangs: int = 1000, size: int = 3) -> dict[str, float]:
    """Seconds for many small gangs on an empty cluster, in one session."""
    return _alone(n_nodes, n_gangs, size)


def big_gang(n_nodes: int = GANG_NODES, size: int = GANG_NODES) -> dict[str, float]:
    """Seconds for one gang with a pod for every node."""
    return _alone(n_nodes, 1, size)


def _alone(n_nodes: int, n_gangs: int, size: int) -> dict[str, float]:
    benchmark = SessionBenchmark(n_nodes)
    benchmark.show([benchmark.queue("q")])
    for number in range(n_gangs):
        benchmark.show(list(benchmark.gang(f"g{number}", "q", size, ("1", "1Gi"))))
    gc.collect()
    gc.freeze()
    took = benchmark.session(happened.Synced())
    gc.unfreeze()
    n_bound = benchmark.settle()
    if n_bound != n_gangs * size:
        raise RuntimeError(f"{n_bound} of {n_gangs * size} pods were bound")
    return {f"{n_gangs} of {size}": took}


def session_seconds(n_nodes: int = CROWDED_NODES, repeat: int = 1) -> dict[str, float]:
    """Minimum of `repeat` runs each, in seconds. n_nodes: of the crowded cluster; the other
    clusters have a quarter more."""
    more = n_nodes * GANG_NODES // CROWDED_NODES
    small_gangs(40, 5)
    found: dict[str, list[float]] = {}
    for _ in range(repeat):
        for measured in (
            small_gangs(more, more // 5),
            big_gang(more, more),
            crowded_seconds(n_nodes),
        ):
            for name, seconds in measured.items():
                found.setdefault(name, []).append(seconds)
    return {name: round(min(times), 3) for name, times in found.items()}


def _asks(number: int) -> tuple[str, str]:
    return REQUESTS[number % len(REQUESTS)]


def _node(number: int, n_gpus: int) -> Node:
    name = f"n{number:05d}"
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"z{number % 3}"}
    offered = NODE | ({"nvidia.com/gpu": str(n_gpus)} if n_gpus else {})
    status = NodeStatus(allocatable=dict(offered), capacity=dict(offered))
    return Node(metadata=ObjectMeta(name=name, labels=labels), status=status)
