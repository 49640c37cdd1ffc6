"""Loaded cluster: a scheduler that follows versions of a cluster at the cost of what differs.

Deciding the pending pods of a version gives what `simulate` gives for it: the same scheduler, the
same order of pods, the same seed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from stowplan.assembly.deciders import Deciders
from stowplan.assembly.extenders import extenders_of
from stowplan.framework.object_store import key_of
from stowplan.inputs.cluster_reader import Cluster
from stowplan.insight.pod_placement import Placement, frameworks_of
from stowplan.objects.node import Node, zone_key
from stowplan.objects.pod import Pod
from stowplan.simulation.cluster.simulated_extenders import SimulatedExtenderFactory
from stowplan.simulation.placement_run import PlacementRun, Progress, with_uid
from stowplan.simulation.simulate import assign_profile, fill_of

LATER_PODS = 10
"""One of so many pods may be placed by one question; it decides which kernels are loaded."""


class LoadedCluster:
    """A placement run that goes from one version of a cluster to another.

    It is loaded again where following would not give what loading gives: where nodes return or
    change their zone, volumes were bound, plugins or extenders may keep state. n_loads: how often
    that was done.
    """

    def __init__(self, deciders: Deciders, seed: int = 0, profile: str | None = None) -> None:
        self.deciders = deciders
        self.seed = seed
        self.profile = profile
        self.n_loads = 0
        self._version: Cluster | None = None
        self._placed: list[str] = []
        self._is_stale = True

    @property
    def run(self) -> PlacementRun:
        """The run; `follow` first."""
        return self._run

    def decide(
        self, version: Cluster, n_pods: int = 0, on_progress: Progress | None = None
    ) -> list[Placement]:
        """Place the pending pods of a version, in arrival order; they stay placed until `follow`.

        n_pods: how many pods will be placed at most by later calls, which chooses the kernels.
        """
        self.follow(version, n_pods)
        if self.profile is not None:
            version = assign_profile(self.profile, version)
        self._run_rng.bit_generator.state = self._rng_state
        pending = version.pending()
        placements = self._run.place_all(pending, on_progress)
        self._placed = [one.pod for one in placements if one.node]
        self._is_stale = self._is_stale or not self._is_repeatable
        return placements

    def follow(self, version: Cluster, n_pods: int = 0) -> None:
        """Hold a version, before its pending pods are placed."""
        before = self._version
        if before is None or self._is_stale or self._has_written() or _reorders(before, version):
            self._load(version, max(n_pods, len(version.pending())))
            return
        simulated = self._run.cluster
        for key in self._placed:
            if key in simulated.pods:
                simulated.drop_pod(key, "undone")
        self._placed = []
        if version is not before:
            self._take_nodes_and_pods(before, version)
            self._take_objects(before.objects, version.objects)
        self._settle(version)

    def put(self, pod: Pod) -> None:
        """Add a bound pod until the next `follow`."""
        self._run.cluster.put_pod(pod)
        self._deliver()

    def drop(self, keys: Iterable[str]) -> None:
        """Remove pods until the next `follow`."""
        for key in keys:
            self._run.cluster.drop_pod(key, "evicted")
        self._deliver()

    def _load(self, version: Cluster, n_pods: int) -> None:
        self.n_loads += 1
        rng = np.random.default_rng(self.seed)
        self._run_rng, self._rng_state = rng, rng.bit_generator.state
        configuration, registry = self.deciders.configuration, self.deciders.registry
        # Later questions may move more pods than the first one.
        n_pods = max(n_pods, len(version.pods) // LATER_PODS)
        self._run = fill_of(version, configuration, registry, rng, n_pods, self.deciders.gates)
        SimulatedExtenderFactory(extenders_of(configuration), ()).of(self._run.instance)
        frameworks = frameworks_of(self._run.scheduler).values()
        self._is_repeatable = not self._run.scheduler.has_extenders and all(
            member.in_tree for one in frameworks for member in one.members.values()
        )
        if any(one.profile.percentage_of_nodes_to_score for one in frameworks):
            # The next search starts where the last one ended.
            self._is_repeatable = False
        self._placed = []
        self._is_stale = False
        self._settle(version)

    def _settle(self, version: Cluster) -> None:
        self._version = version
        self._deliver()
        self._objects = dict(self._run.cluster.objects)

    def _deliver(self) -> None:
        """Let the scheduler see the changes."""
        event_queue = self._run.cluster.event_queue
        # A call may be delayed where many follow each other at one moment.
        while self._run.instance.is_due:
            event_queue.step()
        self._run.cluster.compact(self._run.instance.streams[0].version)

    def _has_written(self) -> bool:
        """True where placing pods has changed objects: claims were bound, devices allocated."""
        now = self._run.cluster.objects
        if len(now) != len(self._objects):
            return True
        return any(now[key] is not one for key, one in self._objects.items())

    def _take_nodes_and_pods(self, before: Cluster, version: Cluster) -> None:
        simulated = self._run.cluster
        old_nodes = {node.name: node for node in before.nodes}
        new_nodes = {node.name: node for node in version.nodes}
        # Pods are compared by identity: their keys would be computed for every one of them.
        old_pods = {id(pod): pod for pod in before.pods}
        new_pods = {id(pod): pod for pod in version.pods}
        for pod in [pod for known, pod in old_pods.items() if known not in new_pods]:
            if pod.node_name and not pod.is_finished:
                simulated.drop_pod(pod.key, "changed")
        for name in old_nodes:
            if name not in new_nodes:
                simulated.drop_node(name)
        for name, node in new_nodes.items():
            if old_nodes.get(name) is not node:
                simulated.put_node(node)
        for pod in [pod for known, pod in new_pods.items() if known not in old_pods]:
            if pod.node_name and not pod.is_finished:
                simulated.put_pod(pod)

    def _take_objects(self, before: Iterable[Any], version: Iterable[Any]) -> None:
        simulated = self._run.cluster
        old = {(type(one), key_of(one)): one for one in before}
        new = {(type(one), key_of(one)): one for one in version}
        for kind, key in old:
            if (kind, key) not in new:
                simulated.drop_object(kind, key)
        for identity, one in new.items():
            if old.get(identity) is not one:
                simulated.put_object(with_uid(one))


def _reorders(before: Cluster, version: Cluster) -> bool:
    """True where following gives another order of nodes than loading."""
    if before.nodes is version.nodes:
        return False
    old = {node.name: node for node in before.nodes}
    new: dict[str, Node] = {node.name: node for node in version.nodes}
    followed = [name for name in old if name in new]
    followed += [name for name in new if name not in old]
    if followed != list(new):
        return True
    if any(zone_key(old[name]) != zone_key(new[name]) for name in old if name in new):
        return True
    # Nodes are in the order of their zones, too, which is that of the first node of each.
    zones = dict.fromkeys(zone_key(node) for node in new.values())
    followed_zones = dict.fromkeys(zone_key(node) for node in (*old.values(), *new.values()))
    return [zone for zone in followed_zones if zone in zones] != list(zones)
