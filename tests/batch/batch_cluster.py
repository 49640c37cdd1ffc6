"""Small clusters for tests of sessions: nodes, queues, pod groups, and a session on them."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

from stowplan.assembly.sessions.session_config import (
    batch_configuration,
    rules_for,
    session_options,
)
from stowplan.batch import Session, StandaloneInventory
from stowplan.batch.session_close import PodFitError, PodGroupStatusUpdate
from stowplan.batch.state.nodes import SessionNodes
from stowplan.kube_batch_v05.session_cache import KubeBatchCache
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.node import Node, NodeCondition, NodeSpec, NodeStatus
from stowplan.objects.pod import Container, Pod, PodSpec, PodStatus, ResourceRequirements
from stowplan.objects.podgroup import PodGroup, PodGroupSpec, Queue, QueueSpec, QueueStatus
from stowplan.objects.quantity import Quantity
from stowplan.objects.workload import PriorityClass
from tests.scenarios.group_commands import ACTIONS, TIERS

START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
GPU = "nvidia.com/gpu"


class BatchCluster:
    """An inventory with one-line setup methods; it applies its sessions' decisions."""

    def __init__(
        self,
        actions: str = ACTIONS,
        tiers: str = TIERS,
        inventory: StandaloneInventory | KubeBatchCache | None = None,
    ) -> None:
        self.inventory: Any = inventory or StandaloneInventory("kube-batch", "default")
        configuration = batch_configuration(f'actions: "{actions}"{tiers}', "test")
        self.options = session_options(configuration, rules_for())
        self.pods: dict[str, Pod] = {}
        self.session: Session | None = None
        self.writes: list[PodGroupStatusUpdate] = []
        self.notes: list[PodFitError] = []
        self._made = 0
        self._sessions = 0
        self.queue("default")

    def node(
        self,
        name: str,
        cpu: Quantity,
        memory: Quantity = "64Gi",
        pods: int = 110,
        *,
        gpus: int = 0,
        ready: str = "True",
        cordoned: bool = False,
    ) -> None:
        offer: dict[str, Quantity] = {"cpu": cpu, "memory": memory, "pods": pods}
        if gpus:
            offer[GPU] = gpus
        conditions = (NodeCondition("Ready", ready),) if ready else ()
        status = NodeStatus(allocatable=offer, capacity=offer, conditions=conditions)
        meta = ObjectMeta(name=name, labels={"kubernetes.io/hostname": name})
        spec = NodeSpec(unschedulable=cordoned)
        self.inventory.node_updated(Node(metadata=meta, spec=spec, status=status))

    def queue(
        self,
        name: str,
        weight: int = 1,
        capability: Mapping[str, Quantity] | None = None,
        *,
        reclaimable: bool | None = None,
        state: str = "",
    ) -> None:
        spec = QueueSpec(weight, dict(capability or {}), reclaimable)
        meta = ObjectMeta(name=name)
        self.inventory.queue_updated(Queue(metadata=meta, spec=spec, status=QueueStatus(state)))

    def priority(self, name: str, value: int) -> None:
        self.inventory.priority_class_updated(
            PriorityClass(metadata=ObjectMeta(name=name), value=value)
        )

    def group(self, name: str, least: int, queue: str = "default", priority: str = "") -> None:
        """A pod group without pods."""
        meta = ObjectMeta(name=name, namespace="ns", creation_timestamp=self._moment())
        spec = PodGroupSpec(min_member=least, queue=queue, priority_class_name=priority)
        self.inventory.group_updated(PodGroup(metadata=meta, spec=spec))

    def pod(
        self,
        name: str,
        group: str = "",
        cpu: Quantity | None = "1",
        *,
        node: str = "",
        priority: int | None = None,
        init_cpu: Quantity | None = None,
        gpus: int = 0,
        memory: Quantity | None = None,
        leaving: bool = False,
    ) -> Pod:
        """Add a pod, pending or running on a node. leaving: it is terminating."""
        asked: dict[str, Quantity] = {} if cpu is None else {"cpu": cpu}
        if memory is not None:
            asked["memory"] = memory
        if gpus:
            asked[GPU] = gpus
        initial = ResourceRequirements(requests={} if init_cpu is None else {"cpu": init_cpu})
        spec = PodSpec(
            containers=(Container(resources=ResourceRequirements(requests=asked)),),
            init_containers=() if init_cpu is None else (Container(resources=initial),),
            scheduler_name="kube-batch",
            node_name=node,
            priority=priority,
        )
        meta = ObjectMeta(
            name=name,
            namespace="ns",
            uid=name,
            creation_timestamp=self._moment(),
            annotations={"scheduling.k8s.io/group-name": group} if group else {},
            deletion_timestamp=START if leaving else None,
        )
        status = PodStatus(phase="Running" if node else "Pending")
        pod = Pod(metadata=meta, spec=spec, status=status)
        self.pods[name] = pod
        self.inventory.pod_updated(pod)
        return pod

    def gang(
        self,
        name: str,
        size: int,
        cpu: Quantity = "1",
        *,
        least: int | None = None,
        queue: str = "default",
        priority: str = "",
        node: str = "",
        gpus: int = 0,
        memory: Quantity | None = None,
    ) -> None:
        """Add a pod group and its pods NAME-0, NAME-1 and so on."""
        self.group(name, size if least is None else least, queue, priority)
        for number in range(size):
            self.pod(f"{name}-{number}", name, cpu, node=node, gpus=gpus, memory=memory)

    def run(self) -> tuple[dict[str, str], list[str]]:
        """Run a session; returns pod -> node of the bound pods, and the evicted pods, by name."""
        self._sessions += 1
        inventory = self.inventory
        inventory.bound.clear()
        inventory.evicted.clear()
        opened = inventory.open()
        uid = f"session-{self._sessions}"
        self.session = Session(opened, self.options, inventory, uid, START)
        self.session.run()
        self.writes, self.notes = self.session.close()
        inventory.settle()
        bound = {task.pod.name: task.node for task in inventory.bound}
        return bound, [task.pod.name for task, _ in inventory.evicted]

    @property
    def nodes(self) -> SessionNodes:
        """Nodes as the next session will find them."""
        nodes: SessionNodes = self.inventory.open().nodes
        return nodes

    # What tests of differences ask of both implementations.

    def cpu(self, node: str) -> tuple[float, float]:
        """Idle and releasing milli-CPU of a node between sessions."""
        nodes = self.nodes
        row = nodes.row(node)
        return nodes.idle.amount(row).cpu, nodes.releasing.amount(row).cpu

    def releasing_in_session(self, node: str) -> float:
        """Releasing milli-CPU of a node after the last session."""
        return self.cpu(node)[1]

    def phases(self) -> dict[str, str]:
        """Phase of each group whose status the last session wrote."""
        return {write.group.name: write.status.phase for write in self.writes}

    def conditions(self) -> list[str]:
        """Status of each condition that the last session wrote."""
        return [c.status for write in self.writes for c in write.status.conditions]

    def messages(self) -> list[str]:
        """Why pods have no node."""
        return [note.message for note in self.notes]

    def gone(self, name: str) -> None:
        """Delete a pod."""
        self.inventory.pod_deleted(self.pods.pop(name).uid)

    def _moment(self) -> datetime.datetime:
        self._made += 1
        return START + datetime.timedelta(seconds=self._made)
