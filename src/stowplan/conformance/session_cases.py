"""Session cases: the format of an input line.

A case has a cluster, a file with `actions` and `tiers`, and a number of sessions with events
between them; or entries of resource arithmetic.
"""

from __future__ import annotations

from typing import Any

from stowplan.conformance.case_lines import case_reader
from stowplan.objects.meta import Time, Value
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import PodGroup
from stowplan.objects.quantity import Quantity
from stowplan.objects.workload import PodDisruptionBudget, PriorityClass


class SessionCaseQueue(Value, frozen=True, gc=True):
    """A queue of a case."""

    name: str
    weight: int = 0
    creation_timestamp: Time | None = None


class SessionCaseEvent(Value, frozen=True, gc=True):
    """An event before a session; the fields used depend on `type`."""

    before: int
    type: str
    pod: Pod | str = ""
    phase: str = ""
    pod_group: PodGroup | None = None
    node: Node | str = ""
    queue: SessionCaseQueue | str = ""


class ArithmeticEntry(Value, frozen=True, gc=True):
    """An entry of resource arithmetic."""

    op: str
    a: dict[str, Quantity] = {}
    b: dict[str, Quantity] = {}
    r: float = 0.0


class SessionCase(Value, frozen=True, gc=True):
    """A cluster with sessions and events; or `units`."""

    id: str
    conf: str | None = None
    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    queues: tuple[SessionCaseQueue, ...] = ()
    pod_groups: tuple[PodGroup, ...] = ()
    pdbs: tuple[PodDisruptionBudget, ...] = ()
    pdb_last: bool = False
    priority_classes: tuple[PriorityClass, ...] = ()
    default_queue: str = "default"
    sessions: int = 0
    bound_phase: str = "Running"
    evict_grace: int = 0
    recreate_evicted: bool = False
    events: tuple[SessionCaseEvent, ...] = ()
    units: tuple[ArithmeticEntry, ...] | None = None


read_case = case_reader(SessionCase)

Answer = dict[str, Any]
