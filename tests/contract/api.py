"""An API server in memory that keeps objects as they are on the wire, for recorded conversations.

It fills in what a real one fills in for the objects of these recordings, and no more.
"""

from __future__ import annotations

import copy
from collections import deque
from typing import Any

from stowplan.messages import events as happened
from stowplan.messages.effects import Evict, PatchStatus
from stowplan.messages.events import Event
from stowplan.objects.encoding.json_codec import convert
from stowplan.objects.meta import Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.workload import PodDisruptionBudget

Tree = dict[str, Any]

EPOCH = "2026-01-01T00:00:00Z"
PRIORITIES = {"low": 10, "mid": 50, "high": 1000}
TOLERATIONS = [
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute"}
    | {"tolerationSeconds": 300}
    for key in ("not-ready", "unreachable")
]
KINDS: dict[str, type[Object]] = {
    "Pod": Pod,
    "Node": Node,
    "PodDisruptionBudget": PodDisruptionBudget,
}


class Api:
    """objects: by kind, namespace and name. watch: what has not been told yet."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Tree] = {}
        self.watch: deque[Event] = deque()
        self.created: list[str] = []
        self._encoded: dict[tuple[str, str], Tree] = {}
        self._n_versions = 0
        self._n_uids = 0

    def encoded(self, value: Object) -> Tree:
        """The whole of an object in the version that somebody has of it."""
        meta = value.metadata
        return self._encoded[meta.uid, meta.resource_version]

    def pod(self, namespace: str, name: str) -> Tree:
        return self.objects["Pod", namespace, name]

    # Requests.

    def create(self, path: str, body: Tree) -> None:
        tree = copy.deepcopy(body)
        place = path.split("/")
        if "namespaces" in place:
            tree["metadata"].setdefault("namespace", place[place.index("namespaces") + 1])
        self._n_uids += 1
        tree["metadata"] |= {"uid": f"uid-{self._n_uids}", "creationTimestamp": EPOCH}
        self.created.append(tree["metadata"]["uid"])
        tree["metadata"]["managedFields"] = [{"manager": "recorder"}]
        if tree["kind"] == "Pod":
            _complete_pod(tree)
        elif tree["kind"] == "Node":
            _complete_node(tree)
        self._store(tree)

    def label(self, path: str, body: Tree) -> None:
        tree = copy.deepcopy(self.objects["Node", "", path.rpartition("/")[2]])
        tree["metadata"]["labels"] |= body["metadata"]["labels"]
        self._store(tree)

    def bind(self, namespace: str, name: str, node: str) -> None:
        tree = copy.deepcopy(self.pod(namespace, name))
        tree["spec"]["nodeName"] = node
        tree["status"].pop("nominatedNodeName", None)
        _condition(tree, {"type": "PodScheduled", "status": "True"})
        self._store(tree)

    def patch_status(self, effect: PatchStatus) -> None:
        tree = copy.deepcopy(self.pod(effect.namespace, effect.name))
        if effect.reason:
            stated = {"reason": effect.reason, "message": effect.message}
            _condition(tree, {"type": "PodScheduled", "status": "False"} | stated)
        if effect.nominated_node is not None:
            tree["status"].pop("nominatedNodeName", None)
            if effect.nominated_node:
                tree["status"]["nominatedNodeName"] = effect.nominated_node
        if tree["status"] != self.pod(effect.namespace, effect.name)["status"]:
            self._store(tree)

    def evict(self, effect: Evict) -> None:
        tree = copy.deepcopy(self.pod(effect.namespace, effect.name))
        stated = {"reason": "PreemptionByScheduler", "message": effect.message}
        _condition(tree, {"type": "DisruptionTarget", "status": "True"} | stated)
        self._store(tree)
        del self.objects["Pod", effect.namespace, effect.name]
        self.watch.append(happened.PodDeleted(_decoded(tree, Pod)))

    def _store(self, tree: Tree) -> None:
        self._n_versions += 1
        meta = tree["metadata"]
        meta["resourceVersion"] = str(self._n_versions)
        key = (tree["kind"], meta.get("namespace", ""), meta["name"])
        is_new = key not in self.objects
        self.objects[key] = self._encoded[meta["uid"], meta["resourceVersion"]] = tree
        value: Any = _decoded(tree, KINDS[tree["kind"]])
        if isinstance(value, Pod):
            self.watch.append(happened.PodAdded(value) if is_new else happened.PodUpdated(value))
        elif isinstance(value, Node):
            self.watch.append(happened.NodeAdded(value) if is_new else happened.NodeUpdated(value))
        else:
            self.watch.append(happened.ObjectAdded(value))


def _decoded(tree: Tree, kind: type[Any]) -> Any:
    return convert(tree, kind)


def _complete_pod(tree: Tree) -> None:
    meta, spec = tree["metadata"], tree["spec"]
    meta["generation"] = 1
    amounts: list[Tree] = []
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        container |= {
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
            "imagePullPolicy": "IfNotPresent",
        }
        resources = container.setdefault("resources", {})
        if "limits" in resources:
            resources["requests"] = resources["limits"] | resources.get("requests", {})
        amounts.append(resources)
    spec |= {
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "tolerations": TOLERATIONS,
        "priority": PRIORITIES.get(spec.get("priorityClassName", ""), 0),
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    spec.setdefault("terminationGracePeriodSeconds", 30)
    qos = "Burstable" if any(amounts) else "BestEffort"
    tree["status"] = {"phase": "Pending", "qosClass": qos}


def _complete_node(tree: Tree) -> None:
    status = tree["status"]
    for condition in status["conditions"]:
        condition |= {"lastHeartbeatTime": None, "lastTransitionTime": None}
    status["daemonEndpoints"] = {"kubeletEndpoint": {"Port": 0}}
    names = "machineID systemUUID bootID kernelVersion osImage containerRuntimeVersion"
    names += " kubeletVersion kubeProxyVersion operatingSystem architecture"
    status["nodeInfo"] = dict.fromkeys(names.split(), "")


def _condition(tree: Tree, stated: Tree) -> None:
    others = [c for c in tree["status"].get("conditions", ()) if c["type"] != stated["type"]]
    whole = {"lastProbeTime": None, "lastTransitionTime": EPOCH} | stated
    if stated["status"] == "False" or stated["type"] == "DisruptionTarget":
        whole["observedGeneration"] = 1
    tree["status"]["conditions"] = [*others, whole]
