"""Binding, and the binding subresource of pods: sets the node of a pod that has none.

Source: kube-apiserver v1.36, pkg/registry/core/pod/storage (BindingREST, LegacyBindingREST).
"""

from __future__ import annotations

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
from stowplan.apis.schema import kind_schema
from stowplan.objects.encoding.tree import Tree

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
    name = pod["metadata"]["name"]
    spec = pod["spec"]
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


KIND = KindRegistration(kind="Binding", types=TYPES, verbs=("create",), act=bind)
BINDING_SUBRESOURCE = Subresource(
    "binding",
    ("create",),
    act=bind,
    version="v1",
    kind="Binding",
    schema=kind_schema("core/v1.Binding"),
)
"""Of pods."""
