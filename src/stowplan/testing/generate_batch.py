"""Worlds for sessions by dice: nodes, queues, groups and their pods, some of them running."""

from __future__ import annotations

import datetime

from stowplan.batch import Inventory
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.node import HOSTNAME_LABEL, Node, NodeCondition, NodeStatus
from stowplan.objects.pod import Container, Pod, PodSpec, PodStatus, ResourceRequirements
from stowplan.objects.podgroup import GROUP_ANNOTATIONS, PodGroup, PodGroupSpec, Queue, QueueSpec
from stowplan.objects.quantity import Quantity
from stowplan.objects.workload import PriorityClass
from stowplan.testing.dice import Dice, chance, number, pick

SCHEDULER = "kube-batch"
NAMESPACE = "ns"
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
CLASSES = {"low": 1, "high": 10}


def batch_world(dice: Dice) -> Inventory:
    """A small world with jobs that wait, jobs that run, and more wanted than there is."""
    inventory = Inventory(SCHEDULER)
    for name, value in CLASSES.items():
        inventory.class_seen(PriorityClass(metadata=ObjectMeta(name=name), value=value))
    nodes = [_node(dice, index) for index in range(number(dice, 3, 5))]
    for node in nodes:
        inventory.node_seen(node)
    queues = [f"q{index}" for index in range(number(dice, 2, 3))]
    for name in queues:
        spec = QueueSpec(weight=number(dice, 1, 3))
        inventory.queue_seen(Queue(metadata=ObjectMeta(name=name), spec=spec))
    room = {node.name: int(str(node.status.allocatable["cpu"])) for node in nodes}
    for index in range(number(dice, 6, 9)):
        _gang(dice, inventory, index, queues, room)
    return inventory


def _node(dice: Dice, index: int) -> Node:
    offer: dict[str, Quantity] = {
        "cpu": str(number(dice, 4, 8)),
        "memory": f"{number(dice, 8, 32)}Gi",
        "pods": "110",
    }
    meta = ObjectMeta(name=f"n{index}", labels={HOSTNAME_LABEL: f"n{index}"})
    ready = (NodeCondition("Ready", "True"),)
    return Node(metadata=meta, status=NodeStatus(allocatable=offer, conditions=ready))


def _gang(
    dice: Dice, inventory: Inventory, index: int, queues: list[str], room: dict[str, int]
) -> None:
    size = number(dice, 1, 4)
    moment = START + datetime.timedelta(seconds=index)
    meta = ObjectMeta(name=f"g{index}", namespace=NAMESPACE, creation_timestamp=moment)
    spec = PodGroupSpec(
        min_member=number(dice, 1, size),
        queue=pick(dice, queues),
        priority_class_name=pick(dice, ["", *CLASSES]),
    )
    inventory.group_seen(PodGroup(metadata=meta, spec=spec))
    runs = chance(dice, 2)
    for place in range(size):
        cpu = number(dice, 1, 2)
        free = [name for name, left in room.items() if left >= cpu] if runs else []
        node = pick(dice, free) if free else ""
        if node:
            room[node] -= cpu
        inventory.pod_seen(_pod(dice, f"g{index}", place, cpu, node, moment))


def _pod(dice: Dice, group: str, place: int, cpu: int, node: str, moment: datetime.datetime) -> Pod:
    asked: dict[str, Quantity] = {"cpu": str(cpu), "memory": f"{number(dice, 1, 2)}Gi"}
    meta = ObjectMeta(
        name=f"{group}-{place}",
        namespace=NAMESPACE,
        uid=f"{group}-{place}",
        creation_timestamp=moment,
        annotations={GROUP_ANNOTATIONS[0]: group},
    )
    spec = PodSpec(
        containers=(Container(resources=ResourceRequirements(requests=asked)),),
        scheduler_name=SCHEDULER,
        node_name=node,
        priority=pick(dice, [None, 1, 5]),
    )
    return Pod(metadata=meta, spec=spec, status=PodStatus(phase="Running" if node else "Pending"))
