"""Fleet: nodes that come under names that never come back, age, and leave."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.node import ContainerImage, Node, Taint
from stowplan.objects.pod import Pod
from stowplan.testing.builders import node
from stowplan.testing.generators.choices import chance, random_int

if TYPE_CHECKING:
    from tests.fault_runs.long_run import Month

UP = 3 * 3600 * SECOND
DRAINED_IN = 300 * SECOND
IMAGES_MAX = 12
"""How many images a kubelet keeps; the oldest goes first."""


class Fleet:
    """So many nodes, but for those that are being replaced."""

    def __init__(self, month: Month, count: int) -> None:
        self._month = month
        self._count = count
        self._born = 0
        for place in range(count):
            self._arrive(place)
        month.every(UP // count, self._one_leaves)
        month.every(1800 * SECOND, self._one_changes)

    @property
    def n_born(self) -> int:
        """How many nodes there have been."""
        return self._born

    def _arrive(self, place: int) -> None:
        """A node takes a place, which says what it is like."""
        self._born += 1
        self._month.world.put_node(
            node(
                f"n{self._born}",
                cpu="8",
                memory="64Gi",
                zone="abc"[place % 3],
                labels={"place": str(place), "pool": f"pool-{self._born // 40}", "disk": "ssd"},
                taints=("edge=yes:NoSchedule",) if place % 5 == 0 else (),
            )
        )

    def _any(self) -> Node:
        nodes = list(self._month.world.nodes.values())
        return nodes[random_int(self._month.rng, 0, len(nodes) - 1)]

    def _one_leaves(self) -> None:
        """A node is emptied and leaves, or breaks; another arrives, or the same."""
        one = self._any()
        if one.spec.unschedulable or len(self._month.world.nodes) < self._count:
            return
        if chance(self._month.rng, 3):
            self._gone(one.name, comes_back=True)
            return
        going = Taint("ToBeDeleted", str(self._month.event_queue.now // SECOND), "NoSchedule")
        spec = replace(one.spec, unschedulable=True, taints=(*one.spec.taints, going))
        self._month.world.put_node(replace(one, spec=spec))
        self._month.event_queue.after(DRAINED_IN, self._gone, one.name)

    def _gone(self, name: str, *, comes_back: bool = False) -> None:
        world = self._month.world
        one = world.nodes[name]
        world.clear_node(name, "node left")
        world.drop_node(name)
        after = random_int(self._month.rng, 1, 900) * SECOND
        if comes_back:
            self._month.event_queue.after(after, world.put_node, one)
        else:
            self._month.event_queue.after(after, self._arrive, int(one.labels["place"]))

    def _one_changes(self) -> None:
        """A node is annotated, or labelled with what changes all the time."""
        one = self._any()
        labels = {**one.labels, "checked": str(self._month.event_queue.now // SECOND)}
        self._month.world.put_node(replace(one, metadata=replace(one.metadata, labels=labels)))

    def pulled(self, pod: Pod) -> None:
        """A pod has started: its node has its images."""
        one = self._month.world.nodes.get(pod.node_name)
        if one is None:
            return
        wanted = {container.image for container in pod.spec.containers if container.image}
        missing = wanted - {name for image in one.status.images for name in image.names}
        if missing:
            more = (ContainerImage((name,), 2**28) for name in sorted(missing))
            images = (*one.status.images, *more)[-IMAGES_MAX:]
            self._month.world.put_node(replace(one, status=replace(one.status, images=images)))
