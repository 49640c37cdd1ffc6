"""Where the volumes of a pod of a KAI-Scheduler session let it go, by VolumeBinding as in KAI.

Unproved: no recorded case has volumes. Differs: pods of one session do not get the same volume. In
KAI all but one of their bindings fail, and a gang that needs them all starts in part or never.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from stowplan.assembly.in_tree import registry
from stowplan.batch.queue_models.kai.session_volumes import SessionVolumes
from stowplan.batch.queue_models.kai.state.kai_node import KaiNode
from stowplan.batch.queue_models.kai.state.kai_task import KaiTask
from stowplan.framework import CycleState, FeatureGates, Framework, PluginUse, Profile, Snapshot
from stowplan.framework.plugin import RestrictTo
from stowplan.plugins.volumes.volume_binding import VolumeBindingState
from stowplan.plugins.volumes.volume_reservation import AssumedPodVolumes, assume_pod_volumes

PLUGIN = "VolumeBinding"


class VolumeBindings(SessionVolumes):
    """Volumes by kube-scheduler's plugin. A pod is asked about for all nodes, and again
    once another one takes a volume."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._framework: Framework | None = None
        # By uid of the pod: why, by node, and for all nodes.
        self._known: dict[str, tuple[Mapping[str, str], str]] = {}
        self._states: dict[str, CycleState] = {}
        self._taken: dict[str, AssumedPodVolumes] = {}

    def refusal(self, task: KaiTask, node: KaiNode) -> str:
        """See `SessionVolumes`."""
        return self._refusal(task, node.name)

    def _refusal(self, task: KaiTask, node: str) -> str:
        known = self._known.get(task.uid)
        if known is None:
            known = self._known[task.uid] = self._ask(task)
        return known[0].get(node, known[1])

    def take(self, task: KaiTask) -> None:
        """See `SessionVolumes`."""
        if task.pod.node_name or task.uid in self._taken or self._refusal(task, task.node):
            # On a node already, or placed without asking: the plugin predicates is off.
            return
        volumes: VolumeBindingState | None = self._states[task.uid].find(PLUGIN)
        if volumes is None:
            return
        taken = self._taken[task.uid] = assume_pod_volumes(volumes.found(task.node), task.node)
        if not taken.is_empty:
            taken.apply(self._snapshot.object_store)
            self._known.clear()

    def give_back(self, task: KaiTask) -> None:
        """See `SessionVolumes`."""
        taken = self._taken.pop(task.uid, None)
        if taken is not None and not taken.is_empty:
            taken.revert(self._snapshot.object_store)
            self._known.clear()

    def close(self) -> None:
        """See `SessionVolumes`."""
        for taken in self._taken.values():
            taken.revert(self._snapshot.object_store)
        self._taken.clear()
        self._known.clear()

    def _ask(self, task: KaiTask) -> tuple[Mapping[str, str], str]:
        if self._framework is None:
            sorts: tuple[PluginUse, ...] = (PluginUse("PrioritySort"),)
            asked: tuple[PluginUse, ...] = (PluginUse(PLUGIN),)
            points = {"queueSort": sorts, "preFilter": asked, "filter": asked}
            self._framework = Framework(Profile("kai", points, {}), registry(), FeatureGates())
        (member,) = self._framework.at("preFilter")
        state = self._states[task.uid] = CycleState()
        nodes = self._snapshot.nodes
        answer = member.call("pre_filter", task.pod, self._snapshot, state)
        if not isinstance(answer, RestrictTo):
            if answer.is_skip:
                return {}, ""
            if not answer.is_success:
                return {}, answer.message
        rows = np.arange(nodes.n_nodes, dtype=np.intp)
        verdicts = self._framework.filters_separately(task.pod, nodes, rows, state)[PLUGIN]
        codes = verdicts.codes
        refused = {
            nodes.nodes[row].name: verdicts.explain(int(codes[row])).message
            for row in np.flatnonzero(codes).tolist()
        }
        return refused, ""
