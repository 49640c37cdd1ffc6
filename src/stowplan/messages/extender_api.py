"""Scheduler extender protocol: extenders, requests and responses as values.

The protocol is JSON over HTTP; this module does no I/O. A call is a POST to `HTTPExtender.url` with
the body of `encode_body`. Only status 200 is a success.

Source: Kubernetes v1.36, kube-scheduler/extender/v1 and scheduler/extender.go.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Annotated, Any

import msgspec

from stowplan.objects.encoding.go_json import (
    GoDecodeError,
    GoInt64,
    GoMap,
    GoObject,
    GoSlice,
    GoString,
    GoStruct,
    GoType,
    read,
)
from stowplan.objects.meta import Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.quantity import INT64_MAX

OK_CODE = 200
BOUND_BODY = b"{}"
"""Body of an extender's answer to Bind when it has bound the pod."""
EXTENDER = "Extender"
"""Name of the rejecter where extenders rejected a pod, in place of a plugin's."""

ObjectEncoder = Callable[[Object], dict[str, Any]]
"""Encodes an object as the API server does, with the fields that scheduling ignores."""


class ExtenderVerb(Enum):
    """Verbs of an extender."""

    FILTER = "filter"
    PRIORITIZE = "prioritize"
    PREEMPT = "preempt"
    BIND = "bind"


class HTTPExtender(msgspec.Struct, frozen=True):
    """A configured extender.

    place: index in the configuration. verbs: verb -> path appended to url_prefix. weight: factor of
    its scores, after `scale`: what a score of 1 counts, as extenders score to 10 and plugins to
    100. timeout_s: of a whole call. node_cache_capable: it gets node names in place of nodes.
    managed_resources: it is called only for pods that request one of them; empty: for all pods.
    ignorable: its failures are ignored.
    """

    place: int
    url_prefix: str
    verbs: Mapping[ExtenderVerb, str] = {}
    weight: int = 1
    scale: int = 10
    timeout_s: float = 5.0
    node_cache_capable: bool = False
    managed_resources: frozenset[str] = frozenset()
    ignorable: bool = False

    def url(self, verb: ExtenderVerb) -> str:
        """URL of a call."""
        return f"{self.url_prefix.rstrip('/')}/{self.verbs[verb]}"

    def is_interested(self, pod: Pod) -> bool:
        """True when a container of the pod requests a resource that the extender manages."""
        if not self.managed_resources:
            return True
        return any(
            not self.managed_resources.isdisjoint((*of.requests, *of.limits))
            for containers in (pod.spec.containers, pod.spec.init_containers)
            for of in (container.resources for container in containers)
        )


def in_call_order(extenders: tuple[HTTPExtender, ...]) -> tuple[HTTPExtender, ...]:
    """Call order: ignorable extenders last."""
    return tuple(sorted(extenders, key=lambda extender: extender.ignorable))


# Requests. A tree in place of a node is one that another extender returned.


class ExtenderArgs(msgspec.Struct, frozen=True):
    """Arguments of filter and prioritize: nodes, or their names; the other field is None."""

    pod: Pod
    nodes: tuple[Node | dict[str, Any], ...] | None = None
    node_names: tuple[str, ...] | None = None


class Victims(msgspec.Struct, frozen=True):
    """Pods to evict from a node. num_pdb_violations: number of violated disruption budgets."""

    pods: tuple[Pod, ...]
    num_pdb_violations: int = 0


class ExtenderPreemptionArgs(msgspec.Struct, frozen=True):
    """Arguments of preempt: node -> victims. is_meta: victims by uid."""

    pod: Pod
    victims: dict[str, Victims]
    is_meta: bool = False


class ExtenderBindingArgs(msgspec.Struct, frozen=True):
    """Arguments of bind."""

    pod_name: str
    pod_namespace: str
    pod_uid: str
    node: str


ExtenderRequestBody = ExtenderArgs | ExtenderPreemptionArgs | ExtenderBindingArgs


class ExtenderRequest(msgspec.Struct, frozen=True):
    """A call to make."""

    extender: HTTPExtender
    verb: ExtenderVerb
    body: ExtenderRequestBody


class ExtenderResponse(msgspec.Struct, frozen=True):
    """Response of a call. code: HTTP status, 0 without response; reason tells why."""

    code: int = 0
    body: bytes = b""
    reason: str = ""


# Encoding of requests.

_NODE_INFO = (
    "machineID",
    "systemUUID",
    "bootID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeletVersion",
    "kubeProxyVersion",
    "operatingSystem",
    "architecture",
)


def object_tree(value: Object) -> dict[str, Any]:
    """An object with all known fields."""
    tree: dict[str, Any] = msgspec.to_builtins(value)
    return tree


def encode_body(body: ExtenderRequestBody, whole: ObjectEncoder = object_tree) -> bytes:
    """Body of a call, as JSON."""
    return msgspec.json.encode(body_tree(body, whole))


def body_tree(body: ExtenderRequestBody, whole: ObjectEncoder = object_tree) -> dict[str, Any]:
    """Body of a call, with keys in the original's order."""
    if isinstance(body, ExtenderBindingArgs):
        return {
            "PodName": body.pod_name,
            "PodNamespace": body.pod_namespace,
            "PodUID": body.pod_uid,
            "Node": body.node,
        }
    pod = _pod_tree(body.pod, whole)
    if isinstance(body, ExtenderArgs):
        nodes = None
        if body.nodes is not None:
            nodes = {"metadata": {}, "items": [_node_tree(node, whole) for node in body.nodes]}
        return {"Pod": pod, "Nodes": nodes, "NodeNames": body.node_names}
    victims = {node: _victims_tree(body, node, whole) for node in sorted(body.victims)}
    return {
        "Pod": pod,
        "NodeNameToVictims": None if body.is_meta else victims,
        "NodeNameToMetaVictims": victims if body.is_meta else None,
    }


def _victims_tree(body: ExtenderPreemptionArgs, node: str, whole: ObjectEncoder) -> dict[str, Any]:
    victims = body.victims[node]
    pods = [
        {"UID": pod.metadata.uid} if body.is_meta else _pod_tree(pod, whole) for pod in victims.pods
    ]
    return {"Pods": pods, "NumPDBViolations": victims.num_pdb_violations}


def _pod_tree(pod: Pod, whole: ObjectEncoder) -> dict[str, Any]:
    """Without kind and version, and without managedFields, which schedulers drop from pods."""
    tree = _without_type_meta(whole(pod))
    meta = {key: value for key, value in tree["metadata"].items() if key != "managedFields"}
    return tree | {"metadata": meta}


def _node_tree(node: Node | dict[str, Any], whole: ObjectEncoder) -> dict[str, Any]:
    """With the fields that every node has, even if empty."""
    tree = node if isinstance(node, dict) else _without_type_meta(whole(node))
    status = tree.get("status") or {}
    info = dict.fromkeys(_NODE_INFO, "") | (status.get("nodeInfo") or {})
    ports = {"kubeletEndpoint": {"Port": 0}} | (status.get("daemonEndpoints") or {})
    status = status | {"daemonEndpoints": ports, "nodeInfo": info}
    meta = tree.get("metadata") or {}
    return tree | {"metadata": meta, "spec": tree.get("spec") or {}, "status": status}


def _without_type_meta(tree: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in tree.items() if key not in ("kind", "apiVersion")}


# Responses.


class ExtenderFilterResult(msgspec.Struct, frozen=True):
    """Response of filter: the remaining nodes, in order, and why the others failed.

    node_names, nodes: None where absent; a node is the tree of the response. failed: evictions may
    help; unresolvable: they cannot.
    """

    node_names: tuple[str, ...] | None = None
    nodes: tuple[dict[str, Any], ...] | None = None
    failed: dict[str, str] = {}
    unresolvable: dict[str, str] = {}


class HostPriority(msgspec.Struct, frozen=True):
    """Response of prioritize: score of a node, 0 to 10 by convention; not checked."""

    host: str
    score: int


class MetaVictims(msgspec.Struct, frozen=True):
    """Response of preempt: pods to evict from a node, by uid."""

    uids: tuple[str, ...] = ()
    num_pdb_violations: int = 0


_NAMES = GoSlice("[]string", GoString())
_REASONS = GoMap("v1.FailedNodesMap", GoString())
_NODES = GoStruct("v1.NodeList", {"items": GoSlice("[]v1.Node", GoObject("v1.Node"))})
_FILTERED = GoStruct(
    "v1.ExtenderFilterResult",
    {
        "Nodes": _NODES,
        "NodeNames": _NAMES,
        "FailedNodes": _REASONS,
        "FailedAndUnresolvableNodes": _REASONS,
        "Error": GoString(),
    },
)
_PRIORITY = GoStruct("v1.HostPriority", {"Host": GoString(), "Score": GoInt64()})
_PRIORITIES = GoSlice("v1.HostPriorityList", _PRIORITY)
_META_VICTIMS = GoStruct(
    "v1.MetaVictims",
    {
        "Pods": GoSlice("[]*v1.MetaPod", GoStruct("v1.MetaPod", {"UID": GoString()})),
        "NumPDBViolations": GoInt64(),
    },
)
_PREEMPTED = GoStruct(
    "v1.ExtenderPreemptionResult",
    {"NodeNameToMetaVictims": GoMap("map[string]*v1.MetaVictims", _META_VICTIMS)},
)
_BOUND = GoStruct("v1.ExtenderBindingResult", {"Error": GoString()})


# Most responses are written as the original would, and decoded directly. Any deviation, such as a
# key in another case, is left to the tolerant Go-compatible decoder.

_Int64 = Annotated[int, msgspec.Meta(ge=-INT64_MAX - 1, le=INT64_MAX)]


class _Exact(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of responses with expected keys only."""


class _ExactList(_Exact, frozen=True):
    items: list[dict[str, Any]]
    metadata: dict[str, Any] | None = None


class _ExactFilter(_Exact, frozen=True, rename="pascal"):
    node_names: list[str] | None = None
    nodes: _ExactList | None = None
    failed_nodes: dict[str, str] | None = None
    failed_and_unresolvable_nodes: dict[str, str] | None = None
    error: str = ""


class _ExactPriority(_Exact, frozen=True, rename="pascal"):
    host: str
    score: _Int64


_exact_filter = msgspec.json.Decoder(_ExactFilter)
_exact_priorities = msgspec.json.Decoder(list[_ExactPriority])


def read_filter_result(
    question: ExtenderRequest, reply: ExtenderResponse
) -> ExtenderFilterResult | GoDecodeError:
    """Response of filter, or its error."""
    if reply.code == OK_CODE:
        try:
            exact = _exact_filter.decode(reply.body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass
        else:
            return _from_exact(exact)
    found = _read(question, reply, _FILTERED)
    if isinstance(found, GoDecodeError):
        return found
    names, nodes = found.get("NodeNames"), found.get("Nodes")
    return ExtenderFilterResult(
        None if names is None else tuple(name or "" for name in names),
        None if nodes is None else tuple(node or {} for node in nodes.get("items") or ()),
        _reasons(found.get("FailedNodes")),
        _reasons(found.get("FailedAndUnresolvableNodes")),
    )


def _from_exact(exact: _ExactFilter) -> ExtenderFilterResult | GoDecodeError:
    if exact.error:
        return GoDecodeError(exact.error)
    return ExtenderFilterResult(
        None if exact.node_names is None else tuple(exact.node_names),
        None if exact.nodes is None else tuple(exact.nodes.items),
        exact.failed_nodes or {},
        exact.failed_and_unresolvable_nodes or {},
    )


def read_priorities(
    question: ExtenderRequest, reply: ExtenderResponse
) -> tuple[HostPriority, ...] | GoDecodeError:
    """Response of prioritize, or its error."""
    if reply.code == OK_CODE:
        try:
            exact = _exact_priorities.decode(reply.body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass
        else:
            return tuple(HostPriority(one.host, one.score) for one in exact)
    found = _read(question, reply, _PRIORITIES)
    if isinstance(found, GoDecodeError):
        return found
    entries = (entry or {} for entry in found or ())
    return tuple(HostPriority(one.get("Host") or "", one.get("Score") or 0) for one in entries)


def read_preemption_result(
    question: ExtenderRequest, reply: ExtenderResponse
) -> dict[str, MetaVictims] | GoDecodeError:
    """Response of preempt, node -> victims, or its error."""
    found = _read(question, reply, _PREEMPTED)
    if isinstance(found, GoDecodeError):
        return found
    victims: dict[str, MetaVictims] = {}
    for node, entry in (found.get("NodeNameToMetaVictims") or {}).items():
        entry = entry or {}
        uids = tuple((pod or {}).get("UID") or "" for pod in entry.get("Pods") or ())
        victims[node] = MetaVictims(uids, entry.get("NumPDBViolations") or 0)
    return victims


def read_binding_result(question: ExtenderRequest, reply: ExtenderResponse) -> GoDecodeError | None:
    """Error of a bind response, None for success."""
    found = _read(question, reply, _BOUND)
    return found if isinstance(found, GoDecodeError) else None


def timeout_response(question: ExtenderRequest) -> ExtenderResponse:
    """Response of a call that timed out."""
    url = redact_password(question.extender.url(question.verb))
    late = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
    return ExtenderResponse(reason=f'Post "{url}": {late}')


def _reasons(found: dict[str, Any] | None) -> dict[str, str]:
    return {node: reason or "" for node, reason in (found or {}).items()}


def _read(question: ExtenderRequest, reply: ExtenderResponse, kind: GoType) -> Any | GoDecodeError:
    """The decoded response, {} or [] for null, or its error."""
    if not reply.code:
        return GoDecodeError(reply.reason)
    if reply.code != OK_CODE:
        url = redact_password(question.extender.url(question.verb))
        verb = question.extender.verbs[question.verb]
        return GoDecodeError(f"failed {verb} with extender at URL {url}, code {reply.code}")
    found = read(reply.body, kind)
    if found is None:
        return {}
    if isinstance(found, dict) and found.get("Error"):
        return GoDecodeError(found["Error"])
    return found


_PASSWORD = re.compile(r"^([a-z][a-z0-9+.-]*://[^/?#@:]*):[^/?#]*@", re.IGNORECASE)


def redact_password(url: str) -> str:
    """A URL without its password, for messages.

    Differs: the original shows the password in `failed filter with extender at URL ...`.
    """
    return _PASSWORD.sub(r"\1:***@", url)
