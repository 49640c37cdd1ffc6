"""Edits as operations on the objects of the input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from stowplan.cycle.change import ChangedObject, Operation
from stowplan.framework.object_store import key_of
from stowplan.insight.changes.edits import (
    AddNodeEdit,
    Edit,
    FreeEdit,
    NodeEdit,
    ObjectEdit,
    PodEdit,
    in_order,
)
from stowplan.insight.changes.node_edits import manifest_of
from stowplan.objects.devices.device import ResourceSlice
from stowplan.objects.meta import NamespacedObject, Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod, PodSpec
from stowplan.objects.workload import (
    CronJob,
    DaemonSet,
    Deployment,
    Job,
    ReplicaSet,
    ReplicationController,
    StatefulSet,
)

_DEVICES = "resource.k8s.io/v1"

_API_VERSIONS: Mapping[type[Object], str] = {
    Deployment: "apps/v1",
    ReplicaSet: "apps/v1",
    StatefulSet: "apps/v1",
    DaemonSet: "apps/v1",
    Job: "batch/v1",
    ReplicationController: "v1",
}


class PodSource(NamedTuple):
    """The object of the input that has a pod's spec. path: of that spec, as a JSON pointer."""

    api_version: str
    kind: str
    namespace: str
    name: str
    path: str
    spec: PodSpec

    @property
    def is_daemon_set(self) -> bool:
        """True for pods that are each made for one node."""
        return self.kind == "DaemonSet"


def source_of(pod: Pod, origins: Mapping[str, Object | None]) -> PodSource | None:
    """The source of a pod; None when its spec is in no object that a patch can name.

    origins: pods that were not read themselves -> the object that they were made for; of pods that
    got defaults the pod as it was read.
    """
    if pod.key not in origins:
        return PodSource("v1", "Pod", pod.namespace, pod.name, "/spec", pod.spec)
    origin = origins[pod.key]
    if isinstance(origin, Pod):
        return PodSource("v1", "Pod", pod.namespace, pod.name, "/spec", origin.spec)
    if isinstance(origin, CronJob):
        path = "/spec/jobTemplate/spec/template/spec"
        own = origin.spec.job_template.spec.template.spec
        return PodSource("batch/v1", "CronJob", origin.namespace, origin.name, path, own)
    version = _API_VERSIONS.get(type(origin)) if origin is not None else None
    if version is None or not isinstance(origin, NamespacedObject):
        return None
    template: Any = origin
    return PodSource(
        version,
        type(origin).__name__,
        origin.namespace,
        origin.name,
        "/spec/template/spec",
        template.spec.template.spec,
    )


def changed_objects(
    edits: Sequence[Edit], source: PodSource | None, nodes: Mapping[str, Node]
) -> tuple[ChangedObject, ...]:
    """One entry for each object that the edits change. nodes: by name, those that edits name."""
    found: list[ChangedObject] = []
    ordered = in_order(edits)
    own = [edit for edit in ordered if isinstance(edit, PodEdit)]
    if own:
        assert source is not None
        patch: list[Operation] = []
        spec = source.spec
        for pod_edit in own:
            spec, operations = pod_edit.change(spec)
            patch += [{**one, "path": source.path + one["path"]} for one in operations]
        found.append(ChangedObject(*source[:4], patch=tuple(patch)))
    found += _changed_nodes(ordered, nodes)
    found += _changed_others([edit for edit in ordered if isinstance(edit, ObjectEdit)])
    for edit in ordered:
        if isinstance(edit, AddNodeEdit):
            manifest = manifest_of(edit.node)
            found.append(ChangedObject("v1", "Node", name=edit.node.name, manifest=manifest))
            found += (
                ChangedObject(_DEVICES, "ResourceSlice", name=one.name, manifest=_slice(one))
                for one in edit.slices
            )
        elif isinstance(edit, FreeEdit):
            found += [_moved_or_ended(edit, at) for at in range(len(edit.victims))]
    return tuple(found)


def _changed_nodes(ordered: list[Edit], nodes: Mapping[str, Node]) -> list[ChangedObject]:
    patches: dict[str, list[Operation]] = {}
    changed = dict(nodes)
    for edit in ordered:
        if isinstance(edit, NodeEdit):
            changed[edit.node], operations = edit.change(changed[edit.node])
            patches.setdefault(edit.node, []).extend(operations)
    return [
        ChangedObject("v1", "Node", name=name, patch=tuple(patch))
        for name, patch in patches.items()
    ]


def _changed_others(those: Sequence[ObjectEdit]) -> list[ChangedObject]:
    """Changed claims, with the templates that they were made from, and slices."""
    values: dict[tuple[str, str], Object] = {}
    patches: dict[tuple[str, str], list[Operation]] = {}
    templates: dict[tuple[str, str], str] = {}
    for edit in those:
        key = type(edit.value).__name__, key_of(edit.value)
        values[key], operations = edit.change(values.get(key, edit.value))
        patches.setdefault(key, []).extend(operations)
        templates[key] = edit.template
    found: list[ChangedObject] = []
    for key, patch in patches.items():
        value = values[key]
        namespace = value.namespace if isinstance(value, NamespacedObject) else ""
        found.append(ChangedObject(_DEVICES, key[0], namespace, value.name, tuple(patch)))
        if templates[key]:
            inner = tuple({**one, "path": f"/spec{one['path']}"} for one in patch)
            kind, name = "ResourceClaimTemplate", templates[key]
            found.append(ChangedObject(_DEVICES, kind, namespace, name, inner))
    return found


def _slice(value: ResourceSlice) -> dict[str, object]:
    return {"apiVersion": _DEVICES, "kind": "ResourceSlice", **msgspec.to_builtins(value)}


def _moved_or_ended(edit: FreeEdit, at: int) -> ChangedObject:
    pod = edit.victims[at].pod
    target = edit.moves.get(pod.uid)
    if target is None:
        return ChangedObject("v1", "Pod", pod.namespace, pod.name, delete=True)
    operation = {"op": "replace", "path": "/spec/nodeName", "value": target}
    return ChangedObject("v1", "Pod", pod.namespace, pod.name, patch=(operation,))
