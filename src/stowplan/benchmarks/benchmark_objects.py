"""Objects of benchmarks, built as a client gets them: decoded from JSON, templates interned."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from stowplan.columns.pods.podinfo import PodInfo
from stowplan.objects.encoding.json_codec import convert, decode, encode
from stowplan.objects.meta import Object
from stowplan.objects.node import HOSTNAME_LABEL, Node
from stowplan.objects.pod import Pod
from stowplan.objects.pod_templates import PodTemplates

Tree = dict[str, Any]
T = TypeVar("T", bound=Object)

ZONE = "topology.kubernetes.io/zone"
HOST = HOSTNAME_LABEL
CREATED = "2026-01-01T00:00:00Z"

_AT_ONCE = 1000


class BenchmarkClient:
    """Decodes objects like a watch. decoded, seconds: number of decoded pods, and the time."""

    def __init__(self) -> None:
        self.decoded = 0
        self.seconds = 0.0
        self._templates = PodTemplates(prepare=PodInfo.of)

    def pods(self, trees: Iterable[Tree]) -> list[Pod]:
        """Pods, each decoded from its own JSON and interned."""
        pods: list[Pod] = []
        waiting: list[bytes] = []
        for tree in trees:
            waiting.append(encode(tree))
            if len(waiting) == _AT_ONCE:
                pods += self.read(waiting)
                waiting.clear()
        return pods + self.read(waiting)

    def read(self, texts: Iterable[bytes]) -> list[Pod]:
        """Pods of JSON texts."""
        intern = self._templates.intern
        began = time.perf_counter()
        pods = [intern(decode(text, Pod)) for text in texts]
        self.seconds += time.perf_counter() - began
        self.decoded += len(pods)
        return pods

    def again(self, pods: Iterable[Pod]) -> list[Pod]:
        """Equal pods, decoded again, as from another message."""
        return self.read([encode(pod) for pod in pods])


def nodes(trees: Iterable[Tree]) -> list[Node]:
    """Nodes, each decoded from its own JSON."""
    return [decode(encode(tree), Node) for tree in trees]


def make_object(kind: type[T], name: str, namespace: str = "", **rest: Any) -> T:
    """An object of another kind. rest: fields; `labels` and `annotations` go to the metadata."""
    meta: Tree = {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}"}
    for key in ("labels", "annotations"):
        if key in rest:
            meta[key] = rest.pop(key)
    return convert({"metadata": meta, **rest}, kind)


def node_tree(
    name: str, offers: Mapping[str, str], labels: Mapping[str, str] | None = None, **spec: Any
) -> Tree:
    """A node as JSON tree. offers: allocatable resources."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "creationTimestamp": CREATED,
            "labels": {HOST: name, **(labels or {})},
        },
        "spec": spec,
        "status": {
            "capacity": dict(offers),
            "allocatable": dict(offers),
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": CREATED}],
        },
    }


def pod_tree(
    name: str,
    requests: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    namespace: str = "default",
    **spec: Any,
) -> Tree:
    """A pending pod with one container as JSON tree. spec: further fields."""
    container: Tree = {"name": "c", "image": "app", "imagePullPolicy": "Always"}
    if requests:
        container["resources"] = {"requests": dict(requests)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{namespace}-{name}",
            "creationTimestamp": CREATED,
            "labels": dict(labels or {}),
        },
        "spec": {
            "containers": [container],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "schedulerName": "default-scheduler",
            **spec,
        },
        "status": {"phase": "Pending", "qosClass": "Burstable"},
    }


def required_terms(*terms: Tree) -> Tree:
    """Required pod affinity or anti-affinity."""
    return {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}


def preferred_terms(*terms: Tree) -> Tree:
    """Preferred pod affinity or anti-affinity, weight 1 per term."""
    wishes = [{"weight": 1, "podAffinityTerm": term} for term in terms]
    return {"preferredDuringSchedulingIgnoredDuringExecution": wishes}


def term(labels: Mapping[str, str], topology: str, **rest: Any) -> Tree:
    """A pod affinity term: labels of the pods, and the topology key."""
    return {"labelSelector": {"matchLabels": dict(labels)}, "topologyKey": topology, **rest}


def required_nodes(kind: str, key: str, *values: str) -> Tree:
    """Required node affinity. kind: `matchExpressions` or `matchFields`."""
    one = {kind: [{"key": key, "operator": "In", "values": list(values)}]}
    terms = {"nodeSelectorTerms": [one]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def spread(labels: Mapping[str, str], topology: str, skew: int, when: str, **rest: Any) -> Tree:
    """A topology spread constraint. when: `DoNotSchedule` or `ScheduleAnyway`."""
    return {
        "maxSkew": skew,
        "topologyKey": topology,
        "whenUnsatisfiable": when,
        "labelSelector": {"matchLabels": dict(labels)},
        **rest,
    }
