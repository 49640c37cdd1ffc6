"""Requests to the API server as values: whoever owns sockets sends them.

What is written about a pod names its uid wherever the API can check it, so that a pod of the same
name in its next life is left alone.

Source: Kubernetes API v1.36; kube-scheduler v1.36 as recorded.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from stowplan.client.resources import PODS, ApiResource, path_segment, resource_of
from stowplan.messages.effects import Bind, Evict, PatchGroup, PatchStatus, ReadPod, Write
from stowplan.objects.meta import NamespacedObject
from stowplan.objects.podgroup import PodGroup

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
PREEMPTION_REASON = "PreemptionByScheduler"

Tree = dict[str, Any]


class ApiRequest(msgspec.Struct, frozen=True):
    """An HTTP request.

    path: names in it percent-encoded. query: names and values, decoded. content_type: of the body.
    timeout_s: for the whole answer; None for a watch, whose answer goes on.
    """

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    content_type: str = ""
    timeout_s: float | None = 30.0

    @property
    def target(self) -> str:
        """Path and query, percent-encoded."""
        path = quote(self.path, safe="/:@!$&'()*+,;=~%")
        return f"{path}?{urlencode(self.query)}" if self.query else path

    @property
    def is_watch(self) -> bool:
        """True for a request whose answer goes on."""
        return self.timeout_s is None

    @property
    def is_write(self) -> bool:
        """True for a request that changes something."""
        return self.method != "GET"


# Reading.


def list_request(resource: ApiResource, limit: int, token: str = "") -> ApiRequest:
    """A page of all objects; token: where the page before ended. limit: 0 for no end."""
    query = [("fieldSelector", resource.fields)] if resource.fields else []
    if limit:
        query.append(("limit", str(limit)))
    if token:
        query.append(("continue", token))
    return ApiRequest("GET", resource.path(), tuple(query), timeout_s=60.0)


def watch_request(
    resource: ApiResource, version: str, timeout_s: int, *, initial: bool = False
) -> ApiRequest:
    """What changes from a version on. initial: begin with all there is (a streaming list)."""
    query = [("allowWatchBookmarks", "true")]
    if resource.fields:
        query.append(("fieldSelector", resource.fields))
    if version:
        query.append(("resourceVersion", version))
    if initial:
        query += [("resourceVersionMatch", "NotOlderThan"), ("sendInitialEvents", "true")]
    query += [("timeoutSeconds", str(timeout_s)), ("watch", "true")]
    return ApiRequest("GET", resource.path(), tuple(query), timeout_s=None)


def read_pod(effect: ReadPod) -> ApiRequest:
    """What became of a pod."""
    return ApiRequest("GET", PODS.path(effect.name, effect.namespace))


# Writing about pods.


def bind(effect: Bind) -> ApiRequest:
    """The binding of a pod."""
    body = {
        "kind": "Binding",
        "apiVersion": "v1",
        "metadata": {"name": effect.name, "namespace": effect.namespace, "uid": effect.uid},
        "target": {"kind": "Node", "name": effect.node},
    }
    return _post_request(f"{PODS.path(effect.name, effect.namespace)}/binding", body)


def patch_status(effect: PatchStatus, moment: str) -> ApiRequest:
    """The condition PodScheduled, and the nomination. moment: the time as the API spells it."""
    status: Tree = {}
    if effect.reason:
        told = {"reason": effect.reason, "message": effect.message}
        status["conditions"] = [_condition("PodScheduled", "False", moment) | told]
    if effect.nominated_node is not None:
        status["nominatedNodeName"] = effect.nominated_node or None
    return _status_patch(effect.namespace, effect.name, effect.uid, status)


def mark_victim(effect: Evict, moment: str) -> ApiRequest:
    """The condition DisruptionTarget of a victim."""
    told = {"reason": PREEMPTION_REASON, "message": effect.message}
    status = {"conditions": [_condition("DisruptionTarget", "True", moment) | told]}
    return _status_patch(effect.namespace, effect.name, effect.uid, status)


def delete_victim(effect: Evict) -> ApiRequest:
    """The deletion of a victim, as long as it is the same pod."""
    body = {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "preconditions": {"uid": effect.uid},
    }
    path = PODS.path(effect.name, effect.namespace)
    return ApiRequest("DELETE", path, body=msgspec.json.encode(body), content_type=JSON)


def _condition(kind: str, status: str, moment: str) -> Tree:
    return {
        "type": kind,
        "status": status,
        "lastProbeTime": None,
        "lastTransitionTime": moment,
    }


def _status_patch(namespace: str, name: str, uid: str, status: Tree) -> ApiRequest:
    body = msgspec.json.encode({"metadata": {"uid": uid}, "status": status})
    path = f"{PODS.path(name, namespace)}/status"
    return ApiRequest("PATCH", path, body=body, content_type=STRATEGIC_PATCH)


# Other objects.


def patch_pod_group(effect: PatchGroup, moment: str, *, whole: bool = False) -> ApiRequest:
    """The status of a PodGroup. moment: for conditions that do not say when. whole: as part of the
    object, where its definition has no subresource for the status.

    A merge patch leaves what it does not name, so numbers that are 0 and texts that are empty are
    named too.
    """
    status = effect.status
    conditions: list[Tree] = []
    for condition in status.conditions:
        tree: Tree = {"lastTransitionTime": moment} | msgspec.to_builtins(condition)
        conditions.append(tree)
    body = {
        "metadata": {"uid": effect.uid},
        "status": {
            "phase": status.phase,
            "conditions": conditions,
            "running": status.running,
            "succeeded": status.succeeded,
            "failed": status.failed,
        },
    }
    resource = ApiResource(PodGroup, effect.api_version, "podgroups")
    path = resource.path(effect.name, effect.namespace) + ("" if whole else "/status")
    return ApiRequest("PATCH", path, body=msgspec.json.encode(body), content_type=MERGE_PATCH)


def update_object(effect: Write) -> ApiRequest:
    """A change of an object, on condition that it still has its version; raises LookupError.

    A patch of the status alone goes to the subresource.
    """
    value = effect.value
    resource = resource_of(value)
    meta = value.metadata
    tree = dict(effect.patch)
    given = {"resourceVersion": meta.resource_version, "uid": meta.uid}
    condition = {key: text for key, text in given.items() if text}
    if condition:
        tree["metadata"] = {**tree.get("metadata", {}), **condition}
    namespace = value.namespace if isinstance(value, NamespacedObject) else ""
    path = resource.path(value.name, namespace)
    if effect.patch.keys() == {"status"}:
        path += "/status"
    return ApiRequest("PATCH", path, body=msgspec.json.encode(tree), content_type=MERGE_PATCH)


def _post_request(path: str, body: Any) -> ApiRequest:
    return ApiRequest("POST", path, body=msgspec.json.encode(body), content_type=JSON)


# Leases.

LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"


def read_lease(namespace: str, name: str, timeout_s: float) -> ApiRequest:
    """The lease of a name."""
    return ApiRequest(
        "GET", f"{LEASES.format(path_segment(namespace))}/{path_segment(name)}", timeout_s=timeout_s
    )


def create_lease(namespace: str, body: Tree, timeout_s: float) -> ApiRequest:
    """A new lease."""
    request = _post_request(LEASES.format(path_segment(namespace)), body)
    return msgspec.structs.replace(request, timeout_s=timeout_s)


def update_lease(namespace: str, name: str, body: Tree, timeout_s: float) -> ApiRequest:
    """A lease in place of the version that its metadata names."""
    path = f"{LEASES.format(path_segment(namespace))}/{path_segment(name)}"
    return ApiRequest("PUT", path, (), msgspec.json.encode(body), JSON, timeout_s)


# Events.

EVENTS = "/apis/events.k8s.io/v1/namespaces/{}/events"


def create_event(namespace: str, body: Tree) -> ApiRequest:
    """A new event."""
    return _post_request(EVENTS.format(path_segment(namespace)), body)


def patch_event(namespace: str, name: str, series: Tree) -> ApiRequest:
    """The series of an event."""
    body = msgspec.json.encode({"series": series})
    path = f"{EVENTS.format(path_segment(namespace))}/{path_segment(name)}"
    return ApiRequest("PATCH", path, body=body, content_type=STRATEGIC_PATCH)
