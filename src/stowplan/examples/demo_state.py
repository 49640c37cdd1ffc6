"""What the demonstration sees of its cluster: where every pod is, and how long it waited.

It follows the API as any client does; nothing is taken from the scheduler's own state.
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
    """A pod's life as it was seen. Times are of the steady clock in ns, 0: not yet.

    target, told: why it has to leave, as its DisruptionTarget condition says, in a word and in
    more; "" where none does.
    """

    pod: Pod
    created_at: int
    placed_at: int = 0
    gone_at: int = 0
    target: str = ""
    message: str = ""

    @property
    def app(self) -> str:
        """What it is part of."""
        return self.pod.labels.get(APP, "")

    @property
    def is_live(self) -> bool:
        """True until it is gone, or told to go."""
        return not self.gone_at and self.pod.metadata.deletion_timestamp is None

    @property
    def wait_s(self) -> float:
        """From when it was there to when it had a node."""
        return (self.placed_at - self.created_at) / 1e9


class ObservedCluster:
    """Nodes, groups, queues and pods, those that are gone too. All by name, pods by uid."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.groups: dict[str, PodGroup] = {}
        self.queues: dict[str, Queue] = {}
        self.pods: dict[str, ObservedPod] = {}

    def tell(self, events: Iterable[Event]) -> None:
        """Take in what has happened."""
        now = monotonic_ns()
        for event in events:
            match event:
                case happened.PodAdded(pod) | happened.PodUpdated(pod):
                    self._seen(pod, now)
                case happened.PodDeleted(pod):
                    self._seen(pod, now).gone_at = now
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
                one.target, one.message = condition.reason, condition.message
        return one

    def snapshot(self) -> ClusterListing:
        """All there is at this moment."""
        pods = [one.pod for one in self.pods.values() if not one.gone_at]
        objects = [*self.groups.values(), *self.queues.values()]
        return ClusterListing(list(self.nodes.values()), pods, objects)

    # Questions.

    def live(self, *apps: str) -> Iterator[ObservedPod]:
        """The pods that are there to stay. apps: of these only; none: of all."""
        for one in self.pods.values():
            if one.is_live and (not apps or one.app in apps):
                yield one

    def placed(self, *apps: str) -> list[ObservedPod]:
        """Those of them that have a node."""
        return [one for one in self.live(*apps) if one.pod.node_name]

    def running(self, *apps: str) -> int:
        """How many of them run."""
        return sum(one.pod.status.phase == "Running" for one in self.placed(*apps))

    def waiting(self, *apps: str) -> list[ObservedPod]:
        """Those that have no node yet."""
        return [one for one in self.live(*apps) if not one.pod.node_name]

    def evicted(self, *apps: str) -> list[ObservedPod]:
        """Pods that were told to go to make room."""
        return [one for one in self.pods.values() if one.target and (not apps or one.app in apps)]

    def per_node(self, *apps: str) -> Counter[str]:
        """Node -> how many pods of these apps."""
        return Counter(one.pod.node_name for one in self.placed(*apps))

    def per_zone(self, *apps: str) -> Counter[str]:
        """Zone -> how many pods of these apps."""
        return Counter(
            zone_of(self.nodes[one.pod.node_name])
            for one in self.placed(*apps)
            if one.pod.node_name in self.nodes
        )

    def is_up(self, node: str) -> bool:
        """True while the node is not known to be silent."""
        return all(taint.effect != "NoExecute" for taint in self.nodes[node].taints)

    def unschedulable_message(self, group: str) -> str:
        """Why a gang cannot start, as its PodGroup says; "" if it says nothing."""
        found = self.groups.get(group)
        for condition in found.status.conditions if found is not None else ():
            if condition.type == "Unschedulable" and condition.status == "True":
                return f"{condition.reason}: {condition.message}"
        return ""

    def written(self, app: str) -> list[str]:
        """What the scheduler has written about pods of an app that had to go."""
        counts = Counter(f"{one.target}: {one.message}" for one in self.evicted(app))
        return [f"{n} evicted, {text}" for text, n in counts.items()]

    def waits_s(self, batch: bool) -> list[float]:
        """How long pods waited that have got a node, sorted. batch: those that sessions decide."""
        return sorted(
            one.wait_s
            for one in self.pods.values()
            if one.placed_at and (one.pod.spec.scheduler_name == BATCH) == batch
        )


def zone_of(node: Node) -> str:
    """The zone that a node is in."""
    return node.labels.get(ZONE, "")


def cores_of(pod: Pod) -> float:
    """CPU that a pod asks for."""
    asked = (box.resources.requests.get("cpu", "0") for box in pod.spec.containers)
    return sum(map(milli_value, asked)) / 1000


def quantile(sorted_values: list[float], part: float) -> float:
    """The value that so large a part does not exceed; of no values 0."""
    if not sorted_values:
        return 0.0
    return sorted_values[min(len(sorted_values) - 1, int(part * len(sorted_values)))]
