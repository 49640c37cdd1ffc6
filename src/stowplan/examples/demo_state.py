"""State of the demo's cluster as observed over the API: where each pod is, and how long it waited.

It watches the API like any client; nothing is taken from the scheduler's own state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from stowplan.driver.client.one_shot_requests import ClusterListing
from stowplan.driver.clocks import monotonic_ns
from stowplan.examples.demo_manifests import APP, BATCH, ZONE
from stowplan.messages import events as happened
from stowplan.messages.events import Event
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import PodGroup, Queue
from stowplan.objects.quantity import milli_value

DISRUPTION_TARGET = "DisruptionTarget"


class ObservedPod(msgspec.Struct):
    """The observed lifecycle of a pod. Times are ns of a monotonic clock, 0: not yet.

    reason, message: of its DisruptionTarget condition; "" for none.
    """

    pod: Pod
    created_at: int
    placed_at: int = 0
    deleted_at: int = 0
    reason: str = ""
    message: str = ""

    @property
    def app(self) -> str:
        """Its app label."""
        return self.pod.labels.get(APP, "")

    @property
    def is_live(self) -> bool:
        """True until it is deleted, terminating or evicted."""
        return not self.deleted_at and self.pod.metadata.deletion_timestamp is None

    @property
    def wait_s(self) -> float:
        """From its creation to having a node."""
        return (self.placed_at - self.created_at) / 1e9


class ObservedCluster:
    """Nodes, groups, queues and pods, deleted ones included. All by name, pods by uid."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.groups: dict[str, PodGroup] = {}
        self.queues: dict[str, Queue] = {}
        self.pods: dict[str, ObservedPod] = {}

    def handle(self, events: Iterable[Event]) -> None:
        """Apply events."""
        now = monotonic_ns()
        for event in events:
            match event:
                case happened.PodAdded(pod) | happened.PodUpdated(pod):
                    self._seen(pod, now)
                case happened.PodDeleted(pod):
                    self._seen(pod, now).deleted_at = now
                case happened.NodeAdded(node) | happened.NodeUpdated(node):
                    self.nodes[node.name] = node
                case happened.ObjectAdded(value) | happened.ObjectUpdated(value):
                    if isinstance(value, PodGroup):
                        self.groups[value.name] = value
                    elif isinstance(value, Queue):
                        self.queues[value.name] = value
                case happened.ObjectDeleted(PodGroup() as group):
                    self.groups.pop(group.name, None)

    def _seen(self, pod: Pod, now: int) -> ObservedPod:
        one = self.pods.get(pod.uid)
        if one is None:
            one = self.pods[pod.uid] = ObservedPod(pod, now)
        one.pod = pod
        if pod.node_name and not one.placed_at:
            one.placed_at = now
        for condition in pod.status.conditions:
            if condition.type == DISRUPTION_TARGET and condition.status == "True":
                one.reason, one.message = condition.reason, condition.message
        return one

    def snapshot(self) -> ClusterListing:
        """All current objects."""
        pods = [one.pod for one in self.pods.values() if not one.deleted_at]
        objects = [*self.groups.values(), *self.queues.values()]
        return ClusterListing(list(self.nodes.values()), pods, objects)

    # Queries.

    def live(self, *apps: str) -> Iterator[ObservedPod]:
        """Live pods. apps: of these only; empty: of all."""
        for one in self.pods.values():
            if one.is_live and (not apps or one.app in apps):
                yield one

    def placed(self, *apps: str) -> list[ObservedPod]:
        """Live pods with a node."""
        return [one for one in self.live(*apps) if one.pod.node_name]

    def running(self, *apps: str) -> int:
        """Number of running pods."""
        return sum(one.pod.status.phase == "Running" for one in self.placed(*apps))

    def waiting(self, *apps: str) -> list[ObservedPod]:
        """Live pods without a node."""
        return [one for one in self.live(*apps) if not one.pod.node_name]

    def evicted(self, *apps: str) -> list[ObservedPod]:
        """Pods that were evicted to make room."""
        return [one for one in self.pods.values() if one.reason and (not apps or one.app in apps)]

    def per_node(self, *apps: str) -> Counter[str]:
        """Node -> number of pods of these apps."""
        return Counter(one.pod.node_name for one in self.placed(*apps))

    def per_zone(self, *apps: str) -> Counter[str]:
        """Zone -> number of pods of these apps."""
        return Counter(
            zone_of(self.nodes[one.pod.node_name])
            for one in self.placed(*apps)
            if one.pod.node_name in self.nodes
        )

    def is_up(self, node: str) -> bool:
        """True while the node is not marked unreachable."""
        return all(taint.effect != "NoExecute" for taint in self.nodes[node].taints)

    def unschedulable_message(self, group: str) -> str:
        """Why a gang cannot start, from its PodGroup; "" if there is no message."""
        found = self.groups.get(group)
        for condition in found.status.conditions if found is not None else ():
            if condition.type == "Unschedulable" and condition.status == "True":
                return f"{condition.reason}: {condition.message}"
        return ""

    def written(self, app: str) -> list[str]:
        """Messages that the scheduler wrote about evicted pods of an app."""
        counts = Counter(f"{one.reason}: {one.message}" for one in self.evicted(app))
        return [f"{n} evicted, {text}" for text, n in counts.items()]

    def waits_s(self, batch: bool) -> list[float]:
        """Sorted scheduling latencies of pods with a node. batch: those of sessions."""
        return sorted(
            one.wait_s
            for one in self.pods.values()
            if one.placed_at and (one.pod.spec.scheduler_name == BATCH) == batch
        )


def zone_of(node: Node) -> str:
    """The zone of a node."""
    return node.labels.get(ZONE, "")


def cores_of(pod: Pod) -> float:
    """CPU request of a pod."""
    asked = (box.resources.requests.get("cpu", "0") for box in pod.spec.containers)
    return sum(map(milli_value, asked)) / 1000


def quantile(sorted_values: list[float], part: float) -> float:
    """The value below which this part of the values lies; 0 of no values."""
    if not sorted_values:
        return 0.0
    return sorted_values[min(len(sorted_values) - 1, int(part * len(sorted_values)))]
