"""Pod garbage collector: deletes pods of deleted nodes, and finished pods above a threshold.

Source: kube-controller-manager v1.36, pkg/controller/podgc.
"""

from __future__ import annotations

from heapq import nsmallest

from stowplan.controller_runtime.controller import Controller
from stowplan.controller_runtime.event_recorder import EventRecorder
from stowplan.controller_runtime.object_fields import set_condition
from stowplan.controller_runtime.object_index import Key, ObjectIndex, PodFacts, split_key
from stowplan.controller_runtime.resource_paths import NODES, PODS
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import DeleteOptions, Store, WatchEvent

QUARANTINE_SECONDS = 40.0
"""How long a node must be missing before its pods are deleted."""


TERMINATED_PODS_MAX = 12_500
"""How many finished pods are kept; the oldest are deleted first."""
_DELETIONS_PER_SYNC_MAX = 200
_TERMINATED: Key = ("", "")


class PodGarbageCollector(Controller):
    """Deletes such pods. Keys are ("", node), and ("", "") for finished pods."""

    name = "pod-garbage"

    def __init__(self, api: Store, index: ObjectIndex, recorder: EventRecorder) -> None:
        super().__init__(api, index, recorder)
        self._ended: dict[Key, float] = {}

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Queue a deleted node, and the missing node of a bound pod."""
        key = split_key(change)
        if change.path == NODES and change.type == "DELETED":
            self.queue.add(("", key[1]), self.api.now + QUARANTINE_SECONDS)
        elif change.path == PODS:
            pod = self.index.pods.get(key)
            self._note_end(key, pod)
            if pod is not None and pod.node and pod.node not in self.index.nodes:
                self.queue.add(("", pod.node), self.api.now + QUARANTINE_SECONDS)

    def sync(self, key: Key) -> None:
        """Delete all pods of a node that is still missing, or the oldest finished pods."""
        if key == _TERMINATED:
            self._thin_out()
            return
        if self.api.get(NODES, "", key[1]) is not None:
            return
        for facts in self.index.on_node(key[1]):
            pod = self.api.get(PODS, *facts.key)
            if pod is None:
                continue
            if not facts.is_finished:
                self._fail(pod)
            self.api.delete(PODS, *facts.key, DeleteOptions(grace_s=0, uid=facts.uid))

    def _note_end(self, key: Key, pod: PodFacts | None) -> None:
        if pod is None or not pod.is_finished or pod.deleting:
            self._ended.pop(key, None)
            return
        self._ended[key] = pod.created
        if len(self._ended) > TERMINATED_PODS_MAX:
            self.queue.add(_TERMINATED)

    def _thin_out(self) -> None:
        surplus = len(self._ended) - TERMINATED_PODS_MAX
        oldest = nsmallest(
            min(surplus, _DELETIONS_PER_SYNC_MAX), self._ended.items(), key=lambda e: e[::-1]
        )
        for key, _ in oldest:
            self.api.delete(PODS, *key, DeleteOptions(grace_s=0))
        if surplus > _DELETIONS_PER_SYNC_MAX:
            self.queue.add(_TERMINATED)

    def _fail(self, pod: Tree) -> None:
        entry = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByPodGC",
            "message": "PodGC: node no longer exists",
        }
        status = pod.setdefault("status", {})
        status["phase"] = "Failed"
        set_condition(status.setdefault("conditions", []), entry, self.api.now)
        self.api.update_status(PODS, pod)
