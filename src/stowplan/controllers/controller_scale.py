"""The scale of what controls a pod, as disruption budgets count it.

Source: kube-controller-manager v1.36, pkg/controller/disruption/disruption.go (finders).
"""

from __future__ import annotations

from typing import NamedTuple

from stowplan.controller_runtime.object_fields import controller_of
from stowplan.controller_runtime.object_index import PodFacts
from stowplan.controller_runtime.resource_paths import (
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
)
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import Store

_SCALED = {
    "ReplicaSet": REPLICA_SETS,
    "StatefulSet": STATEFUL_SETS,
    "ReplicationController": REPLICATION_CONTROLLERS,
}


class PodWithoutController(Exception):
    """A pod of a percentage budget whose controller has no known scale; text as recorded."""


class ControllerScale(NamedTuple):
    """uid: of the controller."""

    uid: str
    replicas: int


def scale_of_controller(api: Store, pod: PodFacts) -> ControllerScale:
    """That of the Deployment above a ReplicaSet, if there is one. Raises PodWithoutController."""
    path = _SCALED.get(pod.owner_kind)
    found = api.get(path, pod.key[0], pod.owner_name) if path else None
    if found is None or found["metadata"]["uid"] != pod.owner:
        return _scale_by_subresource(api, pod)
    above = controller_of(found)
    if path == REPLICA_SETS and above is not None and above.get("kind") == "Deployment":
        deployment = api.get(DEPLOYMENTS, pod.key[0], above["name"])
        if deployment is not None and deployment["metadata"]["uid"] == above["uid"]:
            found = deployment
    return ControllerScale(found["metadata"]["uid"], found["spec"].get("replicas", 1))


def _scale_by_subresource(api: Store, pod: PodFacts) -> ControllerScale:
    """The scale of any other kind that has one."""
    held = api.get(PODS, *pod.key)
    reference = controller_of(held) if held is not None else None
    missing = PodWithoutController(f'found no controllers for pod "{pod.key[1]}"')
    if reference is None:
        raise missing
    version, kind = reference.get("apiVersion", ""), reference.get("kind", "")
    known = api.path_of(version, kind)
    if known is None:
        raise PodWithoutController(f'no matches for kind "{kind}" in version "{version}"')
    path = known[0]
    replicas = ["spec", "replicas"]
    if path not in (DEPLOYMENTS, *_SCALED.values()):
        group, _, plural = path.rpartition("/")
        name = f"{plural}.{group}" if group else plural
        replicas = _replicas_path(api, name, version)
        if not replicas:
            raise PodWithoutController(f"{name} does not implement the scale subresource")
    found = api.get(path, pod.key[0], pod.owner_name)
    if found is None or found["metadata"]["uid"] != pod.owner:
        raise missing
    return ControllerScale(pod.owner, _number_at(found, replicas))


def _replicas_path(api: Store, name: str, api_version: str) -> list[str]:
    """Where a custom kind has its replicas; empty if it has no scale."""
    definition = api.get(CUSTOM_RESOURCE_DEFINITIONS, "", name)
    for version in definition["spec"]["versions"] if definition is not None else ():
        scale = (version.get("subresources") or {}).get("scale")
        if version["name"] == api_version.rpartition("/")[2] and scale is not None:
            # Validation has the path begin with `.spec.` and have no lists.
            return str(scale["specReplicasPath"]).lstrip(".").split(".")
    return []


def _number_at(tree: Tree, path: list[str]) -> int:
    value: object = tree
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, int) else 0
