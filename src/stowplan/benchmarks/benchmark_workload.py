"""Benchmark workload: a cluster, then `handle` calls with their events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from stowplan.benchmarks.benchmark_objects import BenchmarkClient
from stowplan.framework.feature_gates import FeatureGates
from stowplan.messages import events as happened
from stowplan.messages.events import Event
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.meta import Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod

BATCH = 1000
"""Events per `handle` call."""

TEMPLATES = 200


class WorkloadSizes(NamedTuple):
    """Size of a workload.

    pods: measured pods (or events). existing: plain pods that are placed before. templates: number
    of pod templates, for cases with several.
    """

    nodes: int
    pods: int
    existing: int = 0
    templates: int = TEMPLATES


class HandleCall(NamedTuple):
    """One `handle` call. at: its `now`, in nanoseconds."""

    at: int
    events: list[Event]


class BenchmarkWorkload(NamedTuple):
    """Events of a benchmark.

    before: events before the measurement; pending pods are decided and confirmed then. calls:
    measured calls. awaited: uids of pods, all added in `calls`, until whose end time is measured;
    empty when events only need to be handled. refused: the pods end as unschedulable, not bound.
    """

    before: list[Event]
    calls: list[HandleCall]
    awaited: frozenset[str] = frozenset()
    refused: bool = False


class BenchmarkCase(NamedTuple):
    """A named workload. what: short description. unit: what its rate counts. configuration: text
    of the scheduler's; the default one if empty. gates: that are on."""

    name: str
    what: str
    nodes: int
    pods: int
    make: Callable[[BenchmarkClient, WorkloadSizes], BenchmarkWorkload]
    unit: str = "pods"
    configuration: str = ""
    gates: FeatureGates = FeatureGates()


def nodes_added(nodes: Iterable[Node]) -> list[Event]:
    """Node events."""
    return [happened.NodeAdded(node) for node in nodes]


def pods_added(pods: Iterable[Pod]) -> list[Event]:
    """Pod events."""
    return [happened.PodAdded(pod) for pod in pods]


def objects_added(values: Iterable[Object]) -> list[Event]:
    """Events of other objects."""
    return [happened.ObjectAdded(value) for value in values]


def arriving_pods(
    before: list[Event], pods: Sequence[Pod], others: Sequence[Event] = (), rate: float = 0.0
) -> BenchmarkWorkload:
    """Pods that are created in batches of a thousand per call and must be bound.

    others: further events, spread evenly over the calls. rate: pods per second of the scheduler's
    time, 0 for all at one time.
    """
    calls = []
    n_reported = 0
    for first in range(0, len(pods), BATCH):
        events: list[Event] = []
        for index, pod in enumerate(pods[first : first + BATCH], start=first + 1):
            events.append(happened.PodAdded(pod))
            due = len(others) * index // len(pods)
            events += others[n_reported:due]
            n_reported = due
        at = SECOND + (int(first / rate * SECOND) if rate else 0)
        calls.append(HandleCall(at, events))
    return BenchmarkWorkload(before, calls, frozenset(pod.uid for pod in pods))


def event_workload(before: list[Event], events: Sequence[Event]) -> BenchmarkWorkload:
    """Events that only need to be handled."""
    calls = [
        HandleCall(SECOND, list(events[first : first + BATCH]))
        for first in range(0, len(events), BATCH)
    ]
    return BenchmarkWorkload(before, calls)
