"""Requests to the API server as values; the owner of the connections sends them.

Writes about a pod carry its uid wherever the API checks it, so that a new pod of the same name is
not affected.

Source: Kubernetes API v1.36; kube-scheduler v1.36 as recorded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from stowplan.client.resources import NODES, PODS, ApiResource, path_segment, resource_of
from stowplan.messages.effects import (
    AnnotateGroup,
    Bind,
    Evict,
    PatchGroup,
    PatchQueue,
    PatchStatus,
    ReadPod,
    Write,
)
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.kai.bind_request import (
    KAI_BIND_API_VERSION,
    KaiBindRequest,
    KaiBindRequestSpec,
    bind_request_tree,
)
from stowplan.objects.kai.kai_kinds import KAI_GROUP_API_VERSION, KaiPodGroupObject
from stowplan.objects.meta import NamespacedObject, Object
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import PodGroup, Queue
from stowplan.objects.scheduling_group import SCHEDULING_API_VERSION, SchedulingGroup

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
PREEMPTION_REASON = "PreemptionByScheduler"
PATH_SAFE = "/:@!$&'()*+,;=~%"
_PLAIN_PATH = re.compile(f"[a-zA-Z0-9_.{re.escape(PATH_SAFE)}-]*")
"""Nearly every path; a match takes a fourth of the time of `quote`."""
_BIND_REQUESTS = ApiResource(KaiBindRequest, KAI_BIND_API_VERSION, "bindrequests")


class ApiRequest(msgspec.Struct, frozen=True):
    """An HTTP request.

    path: names in it percent-encoded. query: names and values, decoded. content_type: of the body.
    timeout_s: for the complete response; None for a watch, which has no end.
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
        is_plain = _PLAIN_PATH.fullmatch(self.path)
        path = self.path if is_plain else quote(self.path, safe=PATH_SAFE)
        return f"{path}?{urlencode(self.query)}" if self.query else path

    @property
    def is_watch(self) -> bool:
        """True for a request whose response is a stream."""
        return self.timeout_s is None

    @property
    def is_write(self) -> bool:
        """True for a request that changes an object."""
        return self.method != "GET"


# Reading.


def list_request(resource: ApiResource, limit: int, token: str = "") -> ApiRequest:
    """List a page of objects. token: continue token of the page before. limit: 0 for no paging."""
    query = [("fieldSelector", resource.fields)] if resource.fields else []
    if limit:
        query.append(("limit", str(limit)))
    if token:
        query.append(("continue", token))
    return ApiRequest("GET", resource.path(), tuple(query), timeout_s=60.0)


def watch_request(
    resource: ApiResource, version: str, timeout_s: int, *, initial: bool = False
) -> ApiRequest:
    """Watch changes from a version on. initial: send all objects first (a streaming list)."""
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
    """Read a pod."""
    return ApiRequest("GET", PODS.path(effect.name, effect.namespace))


def read_pod_of(namespace: str, name: str) -> ApiRequest:
    """Read a pod by namespace and name."""
    return ApiRequest("GET", PODS.path(name, namespace))


def read_node(name: str) -> ApiRequest:
    """Read a node."""
    return ApiRequest("GET", NODES.path(name))


# Writing about nodes.


def patch_node_annotation(name: str, key: str, text: str | None, version: str) -> ApiRequest:
    """Set an annotation of a node, or with None remove it, if the node has this version."""
    meta: Tree = {"annotations": {key: text}, "resourceVersion": version}
    body = msgspec.json.encode({"metadata": meta})
    return ApiRequest("PATCH", NODES.path(name), body=body, content_type=MERGE_PATCH)


# Writing about pods.


def bind(effect: Bind, annotations: Mapping[str, str]) -> ApiRequest:
    """Bind a pod to a node. annotations: all that go onto the pod."""
    meta: Tree = {"name": effect.name, "namespace": effect.namespace, "uid": effect.uid}
    if annotations:
        meta["annotations"] = annotations
    body = {
        "kind": "Binding",
        "apiVersion": "v1",
        "metadata": meta,
        "target": {"kind": "Node", "name": effect.node},
    }
    return _post_request(f"{PODS.path(effect.name, effect.namespace)}/binding", body)


def create_pod(namespace: str, manifest: Tree) -> ApiRequest:
    """Create a pod."""
    return _post_request(PODS.path(namespace=namespace), manifest)


def patch_owners(pod: Pod, owners: list[dict[str, str]]) -> ApiRequest:
    """Replace the owners of a pod, if it is unchanged."""
    meta = pod.metadata
    head = {"ownerReferences": owners, "resourceVersion": meta.resource_version, "uid": meta.uid}
    body = msgspec.json.encode({"metadata": head})
    path = PODS.path(pod.name, pod.namespace)
    return ApiRequest("PATCH", path, body=body, content_type=MERGE_PATCH)


def delete_reservation(pod: Pod) -> ApiRequest:
    """Delete a pod, if it is unchanged."""
    meta = pod.metadata
    given = {"uid": meta.uid, "resourceVersion": meta.resource_version}
    body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": given}
    path = PODS.path(pod.name, pod.namespace)
    return ApiRequest("DELETE", path, body=msgspec.json.encode(body), content_type=JSON)


def create_bind_request(spec: KaiBindRequestSpec, namespace: str, uid: str) -> ApiRequest:
    """Have KAI's binder bind a pod of this uid."""
    body = bind_request_tree(spec, namespace, uid)
    return _post_request(_BIND_REQUESTS.path(namespace=namespace), body)


def read_bind_request(namespace: str, name: str) -> ApiRequest:
    """Read the request about a pod."""
    return ApiRequest("GET", _BIND_REQUESTS.path(name, namespace))


def delete_bind_request(request: KaiBindRequest) -> ApiRequest:
    """Delete a request, if it is the one that was read."""
    meta = request.metadata
    body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": meta.uid}}
    path = _BIND_REQUESTS.path(meta.name, request.namespace)
    return ApiRequest("DELETE", path, body=msgspec.json.encode(body), content_type=JSON)


def patch_status(effect: PatchStatus, moment: str) -> ApiRequest:
    """Patch the condition PodScheduled and the nominated node. moment: RFC 3339."""
    status: Tree = {}
    if effect.reason:
        reason = {"reason": effect.reason, "message": effect.message}
        status["conditions"] = [_condition("PodScheduled", "False", moment) | reason]
    if effect.nominated_node is not None:
        status["nominatedNodeName"] = effect.nominated_node or None
    return _status_patch(effect.namespace, effect.name, effect.uid, status)


def mark_victim(effect: Evict, moment: str) -> ApiRequest:
    """Patch the condition DisruptionTarget of a victim."""
    reason = {"reason": PREEMPTION_REASON, "message": effect.message}
    status = {"conditions": [_condition("DisruptionTarget", "True", moment) | reason]}
    return _status_patch(effect.namespace, effect.name, effect.uid, status)


def delete_victim(effect: Evict) -> ApiRequest:
    """Delete a victim, on condition that its uid is unchanged."""
    body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": effect.uid}}
    path = PODS.path(effect.name, effect.namespace)
    return ApiRequest("DELETE", path, body=msgspec.json.encode(body), content_type=JSON)


def _condition(kind: str, status: str, moment: str) -> Tree:
    return {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": moment}


def _status_patch(namespace: str, name: str, uid: str, status: Tree) -> ApiRequest:
    body = msgspec.json.encode({"metadata": {"uid": uid}, "status": status})
    path = f"{PODS.path(name, namespace)}/status"
    return ApiRequest("PATCH", path, body=body, content_type=STRATEGIC_PATCH)


# Other objects.


def patch_pod_group(effect: PatchGroup, moment: str, *, whole: bool = False) -> ApiRequest:
    """Patch the status of a PodGroup. moment: transition time of conditions without one. whole:
    patch the object, where its CRD has no status subresource.

    A merge patch keeps fields that it does not name, so zero counts and empty texts are sent too.
    """
    status = effect.status
    conditions: list[Tree] = []
    for condition in status.conditions:
        tree: Tree = {"lastTransitionTime": moment} | msgspec.to_builtins(condition)
        conditions.append(tree)
    if effect.api_version == SCHEDULING_API_VERSION:
        return _patch_conditions(effect, conditions)
    if effect.api_version == KAI_GROUP_API_VERSION:
        return _patch_scheduling_conditions(effect, conditions)
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


def _patch_conditions(effect: PatchGroup, conditions: list[Tree]) -> ApiRequest:
    """Patch the conditions of a PodGroup of scheduling.k8s.io; those of other types stay."""
    for one in conditions:
        one.setdefault("message", "")
        if effect.observed_generation:
            one["observedGeneration"] = effect.observed_generation
    body = {"metadata": {"uid": effect.uid}, "status": {"conditions": conditions}}
    resource = ApiResource(SchedulingGroup, effect.api_version, "podgroups")
    path = resource.path(effect.name, effect.namespace) + "/status"
    return ApiRequest("PATCH", path, body=msgspec.json.encode(body), content_type=STRATEGIC_PATCH)


def _patch_scheduling_conditions(effect: PatchGroup, conditions: list[Tree]) -> ApiRequest:
    """Patch the scheduling conditions of a PodGroup of KAI-Scheduler; what else its status has
    stays. KAI names some reasons, and they are all "Unschedulable" beside that."""
    for one in conditions:
        reason, message = one.get("reason", ""), one.get("message", "")
        one |= {"nodePool": "default", "reason": "Unschedulable"}
        if reason in _KAI_REASONS:
            one["reasons"] = [{"reason": _KAI_REASONS[reason], "message": message}]
    body = {"metadata": {"uid": effect.uid}, "status": {"schedulingConditions": conditions}}
    resource = ApiResource(KaiPodGroupObject, effect.api_version, "podgroups")
    path = resource.path(effect.name, effect.namespace) + "/status"
    return ApiRequest("PATCH", path, body=msgspec.json.encode(body), content_type=MERGE_PATCH)


_KAI_REASONS = {
    "OverLimit": "OverLimit",
    "NonPreemptibleOverQuota": "NonPreemptibleOverQuota",
    "QueueNotFound": "QueueDoesNotExist",
}
"""Reason of a queue model -> KAI's."""


def annotate_group(effect: AnnotateGroup) -> ApiRequest:
    """Patch annotations of a PodGroup of KAI-Scheduler; others stay."""
    body = {"metadata": {"uid": effect.uid, "annotations": effect.annotations}}
    path = ApiResource(KaiPodGroupObject, effect.api_version, "podgroups").path(
        effect.name, effect.namespace
    )
    return ApiRequest("PATCH", path, body=msgspec.json.encode(body), content_type=MERGE_PATCH)


def patch_queue(effect: PatchQueue) -> ApiRequest:
    """Patch `status.allocated` of a Queue; what else its status has stays."""
    body = {"metadata": {"uid": effect.uid}, "status": {"allocated": effect.allocated}}
    path = ApiResource(Queue, effect.api_version, "queues").path(effect.name) + "/status"
    return ApiRequest("PATCH", path, body=msgspec.json.encode(body), content_type=MERGE_PATCH)


def update_object(effect: Write) -> ApiRequest:
    """Patch an object, on condition that its version is unchanged; create one without uid and
    version, delete one with an empty patch. Raises LookupError.

    A patch of the status alone goes to the subresource.
    """
    value = effect.value
    resource = resource_of(value)
    meta = value.metadata
    if not effect.patch:
        return _delete_object(resource, value)
    if not meta.uid and not meta.resource_version:
        head = {"apiVersion": resource.api_version, "kind": resource.kind.__name__}
        namespace = value.namespace if isinstance(value, NamespacedObject) else ""
        return _post_request(resource.path(namespace=namespace), head | effect.patch)
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


def _delete_object(resource: ApiResource, value: Object) -> ApiRequest:
    meta = value.metadata
    given = {"uid": meta.uid, "resourceVersion": meta.resource_version}
    conditions = {key: text for key, text in given.items() if text}
    body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": conditions}
    namespace = value.namespace if isinstance(value, NamespacedObject) else ""
    path = resource.path(value.name, namespace)
    return ApiRequest("DELETE", path, body=msgspec.json.encode(body), content_type=JSON)


def _post_request(path: str, body: Any) -> ApiRequest:
    return ApiRequest("POST", path, body=msgspec.json.encode(body), content_type=JSON)


# Leases.

LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"


def read_lease(namespace: str, name: str, timeout_s: float) -> ApiRequest:
    """Read a lease."""
    return ApiRequest(
        "GET", f"{LEASES.format(path_segment(namespace))}/{path_segment(name)}", timeout_s=timeout_s
    )


def create_lease(namespace: str, body: Tree, timeout_s: float) -> ApiRequest:
    """Create a lease."""
    request = _post_request(LEASES.format(path_segment(namespace)), body)
    return msgspec.structs.replace(request, timeout_s=timeout_s)


def update_lease(namespace: str, name: str, body: Tree, timeout_s: float) -> ApiRequest:
    """Replace a lease, on condition that its version is unchanged."""
    path = f"{LEASES.format(path_segment(namespace))}/{path_segment(name)}"
    return ApiRequest("PUT", path, (), msgspec.json.encode(body), JSON, timeout_s)


# Events.

EVENTS = "/apis/events.k8s.io/v1/namespaces/{}/events"


def create_event(namespace: str, body: Tree) -> ApiRequest:
    """Create an Event."""
    return _post_request(EVENTS.format(path_segment(namespace)), body)


def patch_event(namespace: str, name: str, series: Tree) -> ApiRequest:
    """Patch the series of an Event."""
    body = msgspec.json.encode({"series": series})
    path = f"{EVENTS.format(path_segment(namespace))}/{path_segment(name)}"
    return ApiRequest("PATCH", path, body=body, content_type=STRATEGIC_PATCH)
