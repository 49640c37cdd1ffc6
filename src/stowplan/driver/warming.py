"""Warming: compiled kernels loaded, and compiled where this computer has none yet, before the first
pod that counts. It takes some seconds once per computer, and a fraction of one after that."""

from __future__ import annotations

from stowplan.assembly.deciders import deciders_of
from stowplan.cycle.engine.start import Mode
from stowplan.messages import events as happened
from stowplan.messages.events import Event
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.node import Node, NodeStatus
from stowplan.objects.pod import Container, Pod, PodSpec, ResourceRequirements
from stowplan.objects.quantity import Quantity

_NODES, _PODS = 8, 200


def warm() -> None:
    """Place some pods that nobody has asked for on nodes that are not there."""
    machine = deciders_of(()).machine(engine=Mode.COMPILED.value)
    amounts: dict[str, Quantity] = {"cpu": "64", "memory": "64Gi", "pods": "110"}
    status = NodeStatus(allocatable=amounts)
    events: list[Event] = [
        happened.NodeAdded(Node(ObjectMeta(f"n{i}"), status=status)) for i in range(_NODES)
    ]
    for i in range(_PODS):
        spec = PodSpec((Container("c", resources=_asked(f"{10 + i % 3}m")),))
        events.append(happened.PodAdded(Pod(ObjectMeta(f"p{i}", "default", f"uid{i}"), spec)))
    machine.handle(events, 0)


def _asked(cpu: str) -> ResourceRequirements:
    return ResourceRequirements(requests={"cpu": cpu, "memory": "1Mi"})
