"""The state that requested changes change: the objects of a cluster, and what was done to them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec
from msgspec.structs import replace

from stowplan.inputs.cluster_reader import Cluster
from stowplan.insight.what_if.owned_pods import (
    PodCopies,
    is_created_again,
    is_of_daemon_set,
    is_static,
)
from stowplan.objects.meta import Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod


class ChangedCluster(msgspec.Struct):
    """A cluster after changes.

    pods: of the cluster, by key. effects: what each change did, in words. deleted, lost: pod -> why
    it is there no more; lost ones have no owner that creates them again. recreated: pod -> the node
    that it had to leave. budgets: recreated pod -> keys of the disruption budgets by which a drain
    evicted it, in the order of eviction. blocked: pod -> the budget that keeps it on a drained
    node. daemons: number of pods of DaemonSets and of static pods that went with their nodes.
    submitted: keys of new pods. changed: keys of pods whose priority is another.
    """

    cluster: Cluster
    pods: Mapping[str, Pod] = {}
    effects: list[str] = []
    deleted: dict[str, str] = {}
    lost: dict[str, str] = {}
    recreated: dict[str, str] = {}
    budgets: dict[str, tuple[str, ...]] = {}
    blocked: dict[str, str] = {}
    daemons: int = 0
    submitted: dict[str, None] = {}
    changed: list[str] = []
    notes: list[str] = []


class ChangeState:
    """The objects of a cluster while changes are applied to them.

    nodes, pods: by name and by key, in their order. given_nodes: those of the cluster as given.
    leaving: names of nodes that are cordoned, drained or removed.
    """

    def __init__(
        self,
        given: Cluster,
        namespace: str,
        leaving: Collection[str],
        pods: Mapping[str, Pod] | None = None,
    ) -> None:
        """pods: those of the cluster by key, if that is known; they are not changed."""
        self.given = given
        self.leaving = leaving
        self.namespace = namespace
        self.nodes: dict[str, Node] = {node.name: node for node in given.nodes}
        self.pods: dict[str, Pod] = dict(pods or {pod.key: pod for pod in given.pods})
        self.objects: list[Object] = list(given.objects)
        self.given_nodes: Mapping[str, Node] = dict(self.nodes)
        self.copies = PodCopies()
        self.found = ChangedCluster(given)
        self.origins = dict(given.origins)

    def remove_pod(self, pod: Pod) -> None:
        """Remove a pod of the input."""
        self.pods.pop(pod.key, None)

    def create_again(self, pod: Pod, why: str) -> None:
        """Let the owner create a pod again; a pod without one is lost."""
        self.remove_pod(pod)
        if is_created_again(pod):
            self.pods[pod.key] = self.copies.again(pod)
            self.found.recreated[pod.key] = pod.node_name
        elif is_of_daemon_set(pod) or is_static(pod):
            self.found.daemons += 1
        else:
            self.found.lost[pod.key] = why

    def insert(self, new: list[Pod], made: list[str], origin: Object) -> None:
        """Add pods of a workload after those that reading made for it, or at the end.

        made: keys of the latter.
        """
        self.origins.update({pod.key: origin for pod in new})
        there = [key for key in made if key in self.pods]
        if not there:
            self.pods.update({pod.key: pod for pod in new})
            return
        found: dict[str, Pod] = {}
        for key, pod in self.pods.items():
            found[key] = pod
            if key == there[-1]:
                found.update({one.key: one for one in new})
        self.pods = found

    def replace_object(self, before: Object, after: Object | None) -> None:
        """Replace an object of the cluster; None deletes it."""
        at = next(i for i, one in enumerate(self.objects) if one is before)
        self.objects[at : at + 1] = [] if after is None else [after]

    def on_node(self, name: str) -> list[Pod]:
        """The unfinished pods of a node."""
        return [p for p in self.pods.values() if p.node_name == name and not p.is_finished]

    def cluster(self) -> Cluster:
        """The cluster as it is now."""
        origins = {key: one for key, one in self.origins.items() if key in self.pods}
        return replace(
            self.given,
            nodes=list(self.nodes.values()),
            pods=list(self.pods.values()),
            objects=self.objects,
            origins=origins,
        )
