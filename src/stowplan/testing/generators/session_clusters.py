"""Generated clusters for sessions: nodes, queues, pod groups and their pods, some of them
running."""

from __future__ import annotations

import datetime

from stowplan.batch import StandaloneInventory
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.node import HOSTNAME_LABEL, Node, NodeCondition, NodeStatus
from stowplan.objects.pod import Container, Pod, PodSpec, PodStatus, ResourceRequirements
from stowplan.objects.podgroup import GROUP_ANNOTATIONS, PodGroup, PodGroupSpec, Queue, QueueSpec
from stowplan.objects.quantity import Quantity
from stowplan.objects.workload import PriorityClass
from stowplan.testing.generators.choices import RandomSource, chance, pick, random_int

SCHEDULER = "kube-batch"
NAMESPACE = "ns"
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
CLASSES = {"low": 1, "high": 10}


def generate_session_cluster(rng: RandomSource) -> StandaloneInventory:
    """A small cluster with waiting and running jobs that request more than there is."""
    inventory = StandaloneInventory(SCHEDULER)
    for name, value in CLASSES.items():
        inventory.priority_class_updated(PriorityClass(metadata=ObjectMeta(name=name), value=value))
    nodes = [_node(rng, index) for index in range(random_int(rng, 3, 5))]
    for node in nodes:
        inventory.node_updated(node)
    queues = [f"q{index}" for index in range(random_int(rng, 2, 3))]
    for name in queues:
        spec = QueueSpec(weight=random_int(rng, 1, 3))
        inventory.queue_updated(Queue(metadata=ObjectMeta(name=name), spec=spec))
    room = {node.name: int(str(node.status.allocatable["cpu"])) for node in nodes}
    for index in range(random_int(rng, 6, 9)):
        _gang(rng, inventory, index, queues, room)
    return inventory


def _node(rng: RandomSource, index: int) -> Node:
    offer: dict[str, Quantity] = {
        "cpu": str(random_int(rng, 4, 8)),
        "memory": f"{random_int(rng, 8, 32)}Gi",
        "pods": "110",
    }
    meta = ObjectMeta(name=f"n{index}", labels={HOSTNAME_LABEL: f"n{index}"})
    ready = (NodeCondition("Ready", "True"),)
    return Node(metadata=meta, status=NodeStatus(allocatable=offer, conditions=ready))


def _gang(
    rng: RandomSource,
    inventory: StandaloneInventory,
    index: int,
    queues: list[str],
    room: dict[str, int],
) -> None:
    size = random_int(rng, 1, 4)
    moment = START + datetime.timedelta(seconds=index)
    meta = ObjectMeta(name=f"g{index}", namespace=NAMESPACE, creation_timestamp=moment)
    spec = PodGroupSpec(
        min_member=random_int(rng, 1, size),
        queue=pick(rng, queues),
        priority_class_name=pick(rng, ["", *CLASSES]),
    )
    inventory.group_updated(PodGroup(metadata=meta, spec=spec))
    runs = chance(rng, 2)
    for place in range(size):
        cpu = random_int(rng, 1, 2)
        free = [name for name, left in room.items() if left >= cpu] if runs else []
        node = pick(rng, free) if free else ""
        if node:
            room[node] -= cpu
        inventory.pod_updated(_pod(rng, f"g{index}", place, cpu, node, moment))


def _pod(
    rng: RandomSource, group: str, place: int, cpu: int, node: str, moment: datetime.datetime
) -> Pod:
    asked: dict[str, Quantity] = {"cpu": str(cpu), "memory": f"{random_int(rng, 1, 2)}Gi"}
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
        priority=pick(rng, [None, 1, 5]),
    )
    return Pod(metadata=meta, spec=spec, status=PodStatus(phase="Running" if node else "Pending"))
