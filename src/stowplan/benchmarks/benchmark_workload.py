"""What a measurement plays to the machine: a cluster, then calls with their events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from stowplan.benchmarks.benchmark_objects import BenchmarkClient
from stowplan.messages import events as happened
from stowplan.messages.events import Event
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.meta import Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod

BATCH = 1000
"""Events that the machine is given at once."""

TEMPLATES = 200


class WorkloadSizes(NamedTuple):
    """How big a workload is.

    pods: those that are measured (for shapes without any: events). existing: plain pods that are
    placed beforehand. templates: kinds of pods, where a shape has many.
    """

    nodes: int
    pods: int
    existing: int = 0
    templates: int = TEMPLATES


class HandleCall(NamedTuple):
    """One call of `handle`. at: the machine's time, ns."""

    at: int
    events: list[Event]


class BenchmarkWorkload(NamedTuple):
    """What happens to a cluster.

    before: events ahead of the clock; pods that wait for a node are decided and confirmed then.
    calls: what the clock runs over. awaited: uids of the pods whose end it waits for, all of which
    are added in `calls`; empty where events need only be taken in. refused: they are to be
    refused, not bound.
    """

    before: list[Event]
    calls: list[HandleCall]
    awaited: frozenset[str] = frozenset()
    refused: bool = False


class BenchmarkCase(NamedTuple):
    """A workload by name. what: in a few words. unit: of what its rate counts."""

    name: str
    what: str
    nodes: int
    pods: int
    make: Callable[[BenchmarkClient, WorkloadSizes], BenchmarkWorkload]
    unit: str = "pods"


def nodes_added(nodes: Iterable[Node]) -> list[Event]:
    """An event per node."""
    return [happened.NodeAdded(node) for node in nodes]


def pods_added(pods: Iterable[Pod]) -> list[Event]:
    """An event per pod."""
    return [happened.PodAdded(pod) for pod in pods]


def objects_added(values: Iterable[Object]) -> list[Event]:
    """An event per object that is neither pod nor node."""
    return [happened.ObjectAdded(value) for value in values]


def arriving_pods(
    before: list[Event], pods: Sequence[Pod], others: Sequence[Event] = (), rate: float = 0.0
) -> BenchmarkWorkload:
    """Pods that come one after the other and are to be bound, a thousand a call.

    others: what happens meanwhile, spread evenly over the calls. rate: pods per second of the
    machine's time, 0 for all at the same moment.
    """
    calls = []
    n_told = 0
    for first in range(0, len(pods), BATCH):
        events: list[Event] = []
        for index, pod in enumerate(pods[first : first + BATCH], start=first + 1):
            events.append(happened.PodAdded(pod))
            due = len(others) * index // len(pods)
            events += others[n_told:due]
            n_told = due
        at = SECOND + (int(first / rate * SECOND) if rate else 0)
        calls.append(HandleCall(at, events))
    return BenchmarkWorkload(before, calls, frozenset(pod.uid for pod in pods))


def event_workload(before: list[Event], events: Sequence[Event]) -> BenchmarkWorkload:
    """Events that need only be taken in."""
    calls = [
        HandleCall(SECOND, list(events[first : first + BATCH]))
        for first in range(0, len(events), BATCH)
    ]
    return BenchmarkWorkload(before, calls)
