"""Node rotation of a long run: nodes under names that are never reused are added and removed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.node import ContainerImage, Node, Taint
from stowplan.objects.pod import Pod
from stowplan.testing.builders import node
from stowplan.testing.generators.choices import chance, random_int

if TYPE_CHECKING:
    from tests.fault_runs.long_run import LongRun

UP = 3 * 3600 * SECOND
DRAINED_IN = 300 * SECOND
IMAGES_MAX = 12
"""Images that a kubelet keeps; the oldest is removed first."""


class NodeRotation:
    """Keeps `count` nodes, except for those that are being replaced."""

    def __init__(self, run: LongRun, count: int) -> None:
        self._run = run
        self._count = count
        self._n_created = 0
        for place in range(count):
            self._arrive(place)
        run.every(UP // count, self._replace_node)
        run.every(1800 * SECOND, self._relabel_node)

    @property
    def n_created(self) -> int:
        """Number of nodes created so far."""
        return self._n_created

    def _arrive(self, place: int) -> None:
        """Create a node; its place determines zone and taints."""
        self._n_created += 1
        self._run.cluster.put_node(
            node(
                f"n{self._n_created}",
                cpu="8",
                memory="64Gi",
                zone="abc"[place % 3],
                labels={
                    "place": str(place),
                    "pool": f"pool-{self._n_created // 40}",
                    "disk": "ssd",
                },
                taints=("edge=yes:NoSchedule",) if place % 5 == 0 else (),
            )
        )

    def _any(self) -> Node:
        nodes = list(self._run.cluster.nodes.values())
        return nodes[random_int(self._run.rng, 0, len(nodes) - 1)]

    def _replace_node(self) -> None:
        """Drain and delete a node, or let it fail; a new one or the same one follows."""
        one = self._any()
        if one.spec.unschedulable or len(self._run.cluster.nodes) < self._count:
            return
        if chance(self._run.rng, 3):
            self._gone(one.name, comes_back=True)
            return
        going = Taint("ToBeDeleted", str(self._run.event_queue.now // SECOND), "NoSchedule")
        spec = replace(one.spec, unschedulable=True, taints=(*one.spec.taints, going))
        self._run.cluster.put_node(replace(one, spec=spec))
        self._run.event_queue.after(DRAINED_IN, self._gone, one.name)

    def _gone(self, name: str, *, comes_back: bool = False) -> None:
        cluster = self._run.cluster
        one = cluster.nodes[name]
        cluster.clear_node(name, "node left")
        cluster.drop_node(name)
        after = random_int(self._run.rng, 1, 900) * SECOND
        if comes_back:
            self._run.event_queue.after(after, cluster.put_node, one)
        else:
            self._run.event_queue.after(after, self._arrive, int(one.labels["place"]))

    def _relabel_node(self) -> None:
        """Give a node a label whose value is always new."""
        one = self._any()
        labels = {**one.labels, "checked": str(self._run.event_queue.now // SECOND)}
        self._run.cluster.put_node(replace(one, metadata=replace(one.metadata, labels=labels)))

    def pull_images(self, pod: Pod) -> None:
        """Add the images of a started pod to its node."""
        one = self._run.cluster.nodes.get(pod.node_name)
        if one is None:
            return
        wanted = {container.image for container in pod.spec.containers if container.image}
        missing = wanted - {name for image in one.status.images for name in image.names}
        if missing:
            more = (ContainerImage((name,), 2**28) for name in sorted(missing))
            images = (*one.status.images, *more)[-IMAGES_MAX:]
            self._run.cluster.put_node(replace(one, status=replace(one.status, images=images)))
