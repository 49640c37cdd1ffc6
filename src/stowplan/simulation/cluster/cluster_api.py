"""What dispatchers, extenders, node churn and replays need of a cluster in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from stowplan.messages.events import Event
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.simulation.event_queue import EventQueue

CREATED, OK, NOT_FOUND, CONFLICT, GONE = 201, 200, 404, 409, 410
"""HTTP statuses of the API."""


class Pace(msgspec.Struct, frozen=True):
    """Latencies of a cluster, in seconds.

    bind_s: from the Bind request to the binding. start_s: from the binding to the pod's start.
    grace_s: from the deletion of a bound pod to its end.
    """

    bind_s: float = 0.01
    start_s: float = 1.0
    grace_s: float = 1.0


NO_LATENCY = Pace(0.0, 0.0, 0.0)


class ClusterApi(Protocol):
    """A cluster: `SimulatedCluster` in memory, or `ApiCluster` with API server and controllers.

    pods: by NAMESPACE/NAME. on_change: called after every change. on_bound, on_started, on_ended:
    called with the pod; on_ended also with the reason, "" when it succeeded.
    """

    event_queue: EventQueue
    pace: Pace
    pods: dict[str, Pod]
    nodes: dict[str, Node]
    on_change: list[Callable[[], None]]
    on_bound: Callable[[Pod], None]
    on_started: Callable[[Pod], None]
    on_ended: Callable[[Pod, str], None]

    def bind(self, key: str, uid: str, node: str) -> int:
        """Bind a pod that has this uid; the status of the API."""
        ...

    def put_node(self, node: Node) -> None:
        """Create or replace a node."""

    def drop_node(self, name: str) -> None:
        """Delete a node; its pods stay until `clear_node`."""

    def clear_node(self, name: str, why: str) -> None:
        """Delete the pods of a deleted node at once, unless controllers do."""

    def compact(self, version: int) -> None:
        """Drop changes up to a version that all watchers have seen."""


class EventSource(Protocol):
    """The watches of one scheduler. version: of the last delivered change."""

    version: int

    def take(self) -> list[Event]:
        """The events since the last call."""
        ...
