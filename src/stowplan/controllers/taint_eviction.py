"""Taint eviction controller: deletes pods that do not tolerate a NoExecute taint of their node.

Source: kube-controller-manager v1.36, pkg/controller/tainteviction.
"""

from __future__ import annotations

from stowplan.controller_runtime.controller import Controller
from stowplan.controller_runtime.event_recorder import EventRecorder
from stowplan.controller_runtime.object_fields import set_condition
from stowplan.controller_runtime.object_index import Key, ObjectIndex, PodFacts, split_key
from stowplan.controller_runtime.resource_paths import NODES, PODS
from stowplan.objects.encoding.json_codec import convert
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.node import Taint
from stowplan.objects.pod import Toleration
from stowplan.objects.store import Store, WatchEvent
from stowplan.objects.taints import tolerates

COMPONENT = "taint-eviction-controller"


class TaintEvictionController(Controller):
    """Deletes pods from nodes with NoExecute taints, at once or when their toleration expires."""

    name = "taint-eviction"
    path = PODS

    def __init__(self, api: Store, index: ObjectIndex, recorder: EventRecorder) -> None:
        super().__init__(api, index, recorder)
        self._taints: dict[str, tuple[Taint, ...]] = {}
        self._since: dict[Key, float] = {}

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Queue the pods of a node whose NoExecute taints changed, and new pods of such a node."""
        key = split_key(change)
        if change.path == NODES:
            gone = change.type == "DELETED"
            found = () if gone else _no_execute(self.decoded(change.value) or {})
            if found != self._taints.get(key[1], ()):
                self._taints[key[1]] = found
                if not found:
                    del self._taints[key[1]]
                for pod in self.index.on_node(key[1]):
                    self.queue.add(pod.key)
        elif change.path == PODS:
            pod_now = self.index.pods.get(key)
            if pod_now is None:
                self._since.pop(key, None)
            elif pod_now.node in self._taints and not pod_now.deleting:
                self.queue.add(key)

    def sync(self, key: Key) -> None:
        """Delete a pod, or schedule its deletion."""
        facts = self.index.pods.get(key)
        pod = self.api.get(PODS, *key) if facts is not None and not facts.deleting else None
        if facts is None or pod is None:
            self._since.pop(key, None)
            return
        allowed = self._allowed(pod, self._taints.get(facts.node, ()))
        if allowed is None:
            if self._since.pop(key, None) is not None:
                self._record(pod, f"Cancelling deletion of Pod {key[0]}/{key[1]}")
            return
        since = self._since.get(key, self.api.now)
        if since + allowed > self.api.now:
            self._since[key] = since
            self.queue.add(key, since + allowed)
            return
        self._since.pop(key, None)
        self._evict(pod, key)

    def _allowed(self, pod: Tree, taints: tuple[Taint, ...]) -> float | None:
        """Seconds that a pod may stay; None: without limit."""
        tolerations = [convert(one, Toleration) for one in pod["spec"].get("tolerations") or ()]
        pairs = list(zip(tolerations, pod["spec"].get("tolerations") or (), strict=True))
        limits: list[float] = []
        for taint in taints:
            covering = next((tree for one, tree in pairs if tolerates(one, taint)), None)
            if covering is None:
                return 0.0
            if covering.get("tolerationSeconds") is not None:
                limits.append(max(0.0, float(covering["tolerationSeconds"])))
        return min(limits, default=None)

    def _evict(self, pod: Tree, key: Key) -> None:
        self._record(pod, f"Marking for deletion Pod {key[0]}/{key[1]}")
        entry = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByTaintManager",
            "message": "Taint manager: deleting due to NoExecute taint",
        }
        conditions = pod.setdefault("status", {}).setdefault("conditions", [])
        if set_condition(conditions, entry, self.api.now):
            self.api.update_status(PODS, pod)
        self.api.delete(PODS, *key)

    def _record(self, pod: Tree, message: str) -> None:
        self.recorder.record(
            pod, COMPONENT, "TaintManagerEviction", message, object_kind="Pod", api_version="v1"
        )


def _no_execute(node: Tree) -> tuple[Taint, ...]:
    taints = (node.get("spec") or {}).get("taints") or ()
    return tuple(convert(each, Taint) for each in taints if each.get("effect") == "NoExecute")
