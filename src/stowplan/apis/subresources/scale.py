"""The scale subresource: the number of replicas of workloads and custom kinds.

Source: kube-apiserver v1.36, pkg/registry/apps (ScaleREST), apiextensions-apiserver
pkg/registry/customresource.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stowplan.apis.machinery.errors import bad_request, conflict, invalid, invalid_object, not_found
from stowplan.apis.machinery.resource import ApiCall, Subresource
from stowplan.apis.schema import kind_schema
from stowplan.objects.encoding.tree import Tree

TYPES = """
Scale -- the scale of a workload.
  +PartialObjectMetadata
  spec ScaleSpec
  status ScaleStatus

ScaleSpec
  replicas int32

ScaleStatus
  replicas int32!
  selector string
"""
_UNSET = -(2**31)
"""Stands for missing replicas while a patch is applied."""


@dataclass(frozen=True, slots=True)
class ScaleView:
    """The view of kinds with `spec.replicas`, `spec.selector` and `status.replicas`.

    plain_selector: `spec.selector` is a map of labels (ReplicationController).
    """

    plain_selector: bool = False

    def read(self, obj: Tree, call: ApiCall) -> Tree:
        selector = obj["spec"].get("selector") or {}
        labels = {"matchLabels": selector} if self.plain_selector else selector
        status: Tree = {"replicas": (obj.get("status") or {}).get("replicas", 0)}
        text = selector_text(labels)
        if text:
            status["selector"] = text
        return _scale(obj, obj["spec"].get("replicas", 0), status)

    def write(self, obj: Tree, body: Tree, call: ApiCall) -> Tree:
        """A copy of the object with the replicas of `body`, whose version is a precondition."""
        _check_uid(obj, body, call)
        replicas = (body.get("spec") or {}).get("replicas", 0)
        if replicas < 0:
            cause = invalid("spec.replicas", replicas, "must be greater than or equal to 0")
            raise invalid_object("autoscaling", "Scale", obj["metadata"]["name"], [cause])
        changed = copy.deepcopy(obj)
        changed["spec"]["replicas"] = replicas
        version = (body.get("metadata") or {}).get("resourceVersion")
        if version:
            changed["metadata"]["resourceVersion"] = version
        return changed


@dataclass(frozen=True, slots=True)
class CustomScaleView:
    """The view of a custom kind; paths as in its definition (`.spec.replicas`)."""

    spec_path: str
    status_path: str
    selector_path: str = ""

    def read(self, obj: Tree, call: ApiCall) -> Tree:
        """The scale of an object. Raises ApiError 400 for a GET of one without replicas."""
        wanted = _value_at(obj, self.spec_path)
        if wanted is None:
            if call.verb == "get":
                # Differs: the original answers this with 500.
                raise bad_request(f'the spec replicas field "{self.spec_path}" does not exist')
            wanted = _UNSET
        status: Tree = {"replicas": _value_at(obj, self.status_path) or 0}
        selector = _value_at(obj, self.selector_path) if self.selector_path else None
        if selector:
            status["selector"] = selector
        return _scale(obj, wanted, status)

    def write(self, obj: Tree, body: Tree, call: ApiCall) -> Tree:
        """A copy of the object with the replicas of `body` at the path of the definition."""
        replicas = (body.get("spec") or {}).get("replicas", 0)
        if replicas == _UNSET:
            raise bad_request(f'the spec replicas field "{self.spec_path}" cannot be empty')
        if replicas < 0:
            cause = invalid(self.spec_path, replicas, "should be a non-negative integer")
            kind = call.resource.kind
            raise invalid_object(call.resource.group, kind, obj["metadata"]["name"], [cause])
        changed = copy.deepcopy(obj)
        place = changed
        *above, last = _steps(self.spec_path)
        for step in above:
            place = place.setdefault(step, {})
        place[last] = replicas
        version = (body.get("metadata") or {}).get("resourceVersion")
        if version:
            changed["metadata"]["resourceVersion"] = version
        return changed


def scale_subresource(plain_selector: bool = False) -> Subresource:
    """The scale subresource of a workload. plain_selector: as in `ScaleView`."""
    return Subresource(
        "scale",
        ("get", "patch", "update"),
        view=ScaleView(plain_selector),
        group="autoscaling",
        version="v1",
        kind="Scale",
        schema=kind_schema("autoscaling/v1.Scale", "autoscaling"),
    )


def selector_text(selector: Mapping[str, Any]) -> str:
    """A label selector as a query string, keys in order."""
    parts = [(key, f"{key}={value}") for key, value in (selector.get("matchLabels") or {}).items()]
    for each in selector.get("matchExpressions") or ():
        values = ",".join(sorted(each.get("values") or ()))
        key = each["key"]
        printed = {
            "In": f"{key} in ({values})",
            "NotIn": f"{key} notin ({values})",
            "Exists": key,
            "DoesNotExist": f"!{key}",
        }
        parts.append((key, printed.get(each.get("operator", ""), key)))
    return ",".join(text for _, text in sorted(parts, key=lambda part: part[0]))


def _scale(obj: Tree, replicas: int, status: Tree) -> Tree:
    names = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    meta = {name: obj["metadata"][name] for name in names if name in obj["metadata"]}
    spec = {"replicas": replicas} if replicas else {}
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": meta,
        "spec": spec,
        "status": status,
    }


def _check_uid(obj: Tree, body: Tree, call: ApiCall) -> None:
    wanted = (body.get("metadata") or {}).get("uid")
    have = obj["metadata"].get("uid")
    if wanted and wanted != have:
        why = f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {have}"
        plural = f"{call.resource.plural}/scale"
        name = obj["metadata"]["name"]
        raise conflict(call.resource.group, plural, name, why)
    if not obj["metadata"].get("resourceVersion"):
        raise not_found(call.resource.group, f"{call.resource.plural}/scale", call.name)


def _steps(path: str) -> list[str]:
    return [step for step in path.split(".") if step]


def _value_at(obj: Tree, path: str) -> Any:
    place: Any = obj
    for step in _steps(path):
        if not isinstance(place, dict):
            return None
        place = place.get(step)
    return place
