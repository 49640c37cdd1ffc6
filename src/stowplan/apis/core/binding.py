"""Binding, and the binding subresource of pods: sets the node of a pod that has none.

Source: kube-apiserver v1.36, pkg/registry/core/pod/storage (BindingREST, LegacyBindingREST).
"""

from __future__ import annotations

import math
from functools import lru_cache, partial

import msgspec

from stowplan.apis.kind.conditions import set_pod_condition
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.machinery.errors import (
    ApiError,
    bad_request,
    conflict,
    not_found,
    not_supported,
    required,
    success_status,
)
from stowplan.apis.machinery.object_meta import set_namespace
from stowplan.apis.machinery.resource import ApiCall, Resource, Subresource, SubresourceResult
from stowplan.apis.machinery.stored_form import decode, encode
from stowplan.apis.schema import kind_schema
from stowplan.objects.encoding.tree import Tree

_META, _LABELS, _STATUS, _UID = b'"metadata":{', b',"labels":', b'},"status":{', b'"uid":'
_SPECIAL = b'"nodeName":', b'"schedulingGates":', b'"deletionTimestamp":'
"""Keys of pods that cannot be bound; quotes within texts are escaped."""
_STATUS_BYTES_MAX = 4096
_PLAIN_KEYS = 4
_PLAIN_META, _PLAIN_TARGET = {"name", "namespace", "uid"}, {"kind", "apiVersion", "name"}

TYPES = """
Binding -- binds a pod to a node.
  +PartialObjectMetadata
  target ObjectReference!
"""


def bind(call: ApiCall, body: Tree) -> SubresourceResult:
    """Bind the pod named in the path (for the old `bindings` resource: in the body)."""
    meta = body.setdefault("metadata", {})
    set_namespace(meta, call.namespace)
    name = meta.get("name", "")
    if call.subresource and name != call.name:
        raise bad_request("name in URL does not match name in Binding object")
    target = body.get("target") or {}
    _check_target(target)
    if not name:
        raise bad_request("Name parameter required.")
    pods = _pods(call)

    def change(pod: Tree) -> None:
        _check_preconditions(pod, meta)
        assign(pod, target["name"], meta, call.now)

    if call.dry_run:
        found = call.objects.get(pods, call.namespace, name)
        if found is not None:
            change(found)
    else:
        if _bind_stored(call, pods, name, target["name"], meta):
            return SubresourceResult(201, success_status(code=201))
        found = call.objects.modify(
            pods, call.namespace, name, change, call.now, "binding", call.user
        )
    if found is None:
        raise not_found("", "pods", name)
    return SubresourceResult(201, success_status(code=201))


def _pods(call: ApiCall) -> Resource:
    found = call.objects.registry.by_path("pods")
    if found is None:
        raise not_found("", "pods", call.name)
    return found


def _check_target(target: Tree) -> None:
    """Raises ApiError 500, as the original does for an invalid target."""
    causes = []
    if target.get("kind") and target["kind"] != "Node":
        causes.append(not_supported("target.kind", target["kind"], ["Node", "<empty>"]))
    if not target.get("name"):
        causes.append(required("target.name"))
    texts = [f"{cause.field}: {cause.message}" for cause in causes]
    if texts:
        raise ApiError(500, "", texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]")


def _check_preconditions(pod: Tree, meta: Tree) -> None:
    """Raises ApiError 409 unless uid and version of the binding, if given, are those of the pod."""
    have = pod["metadata"]
    for what, name in (("UID", "uid"), ("ResourceVersion", "resourceVersion")):
        wanted = meta.get(name)
        if wanted and wanted != have.get(name):
            why = (
                f"StorageError: invalid object, Code: 4, Key: /registry/pods/{have['namespace']}/"
                f"{have['name']}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: "
                f"{what} in precondition: {wanted}, {what} in object meta: {have.get(name)}"
            )
            raise conflict("", "pods", have["name"], why)


def _check_unassigned(pod: Tree) -> None:
    # What is bound in its bytes has no name here, and nothing to refuse.
    name, spec = pod["metadata"].get("name", ""), pod["spec"]
    if pod["metadata"].get("deletionTimestamp"):
        why = f"pod {name} is being deleted, cannot be assigned to a host"
    elif spec.get("nodeName"):
        why = f'pod {name} is already assigned to node "{spec["nodeName"]}"'
    elif spec.get("schedulingGates"):
        why = f"pod {name} has non-empty .spec.schedulingGates"
    else:
        return
    raise conflict("", "pods/binding", name, why)


def assign(pod: Tree, node: str, meta: Tree, now: float) -> None:
    """Set the node of a pod, and add what the binding has for it. Raises ApiError 409 for one that
    cannot be bound."""
    _check_unassigned(pod)
    pod["spec"]["nodeName"] = node
    status = pod.setdefault("status", {})
    status.pop("nominatedNodeName", None)
    for field in ("annotations", "labels"):
        if meta.get(field):
            pod["metadata"][field] = {**(pod["metadata"].get(field) or {}), **meta[field]}
    set_pod_condition(pod, {"type": "PodScheduled", "status": "True"}, now)


def _bind_stored(call: ApiCall, pods: Resource, name: str, node: str, meta: Tree) -> bool:
    """Bind a pod without decoding it; False, and nothing done, for what is not usual."""
    if meta.get("resourceVersion") or meta.get("annotations"):
        return False
    labels, uid = meta.get("labels"), meta.get("uid") or ""
    change = partial(bound_bytes, node=node, uid=uid, labels=labels, now=call.now)
    return call.objects.rewrite(pods, call.namespace, name, change, call.now)


def bound_bytes(value: bytes, node: str, uid: str, labels: Tree | None, now: float) -> bytes | None:
    """The stored bytes of a pod on a node, at the old version. labels: that it gets.

    None for a pod that cannot be bound, has another uid, or is stored in another form.
    """
    at = value.rfind(_STATUS)
    # Searching backwards takes half as long.
    if at < 1 or value[at - 1] == b"{"[0] or max(map(value.rfind, _SPECIAL)) >= 0:
        return None
    if uid and not value.startswith(encode(uid), value.find(_UID) + len(_UID)):
        return None
    if len(value) - at > _STATUS_BYTES_MAX:
        return None
    status = _bound_status(value[at:], math.floor(now))
    head = _with_labels(value[:at], labels) if labels else value[:at]
    if status is None or head is None:
        return None
    return b'%b,"nodeName":%b%b' % (head, encode(node), status)


def _with_labels(head: bytes, labels: Tree) -> bytes | None:
    """Bytes of a pod with more labels; None for a pod without any."""
    start = head.find(b"{", head.index(_META) + len(_META))
    # Labels are the first of the metadata that is no scalar.
    if not head.endswith(_LABELS, 0, start):
        return None
    end = head.find(b"}", start) + 1
    try:
        had = decode(head[start:end])
    except msgspec.DecodeError:
        return None
    return b"%b%b%b" % (head[:start], encode({**had, **labels}), head[end:])


@lru_cache(maxsize=256)
def _bound_status(end: bytes, second: int) -> bytes | None:
    """What follows the node of a pod that ended with `end` before; None if that is something
    else than its status."""
    try:
        pod = decode(b"{" + end[2:])
    except msgspec.DecodeError:
        return None
    if pod.keys() != {"status"}:
        return None
    pod |= {"metadata": {"name": ""}, "spec": {}}
    assign(pod, "", {}, second)
    return b'},"status":%b}' % encode(pod["status"])


def plain_binding(raw: bytes) -> Tree | None:
    """The tree of a body that names a pod and a node and nothing else, as its schema decodes it;
    None for any other."""
    try:
        tree = decode(raw)
    except msgspec.DecodeError:
        return None
    meta, target = tree.get("metadata"), tree.get("target")
    if len(tree) != _PLAIN_KEYS or type(meta) is not dict or type(target) is not dict:
        return None
    if tree.get("kind") != "Binding" or tree.get("apiVersion") != "v1":
        return None
    if not (meta.keys() <= _PLAIN_META and target.keys() <= _PLAIN_TARGET):
        return None
    texts = *meta.values(), *target.values()
    # A key that is repeated has quotes of its own.
    n_quotes = 2 * (_PLAIN_KEYS + 2 + 2 * len(texts))
    return tree if all(map(_is_text, texts)) and raw.count(b'"') == n_quotes else None


def _is_text(value: object) -> bool:
    return type(value) is str and value != ""


KIND = KindRegistration(kind="Binding", types=TYPES, verbs=("create",), act=bind)
BINDING_SUBRESOURCE = Subresource(
    "binding",
    ("create",),
    act=bind,
    version="v1",
    kind="Binding",
    schema=kind_schema("core/v1.Binding"),
    plain=plain_binding,
)
"""Of pods."""
