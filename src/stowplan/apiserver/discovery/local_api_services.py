"""An APIService for each version of a group that this server serves.

Source: kube-apiserver v1.36, pkg/controlplane/apiserver/aggregator.go,
pkg/controlplane/controller/crdregistration; kube-aggregator, pkg/controllers/status.

Differs: requests for a version with a Service are not passed on to it.
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.apis.apiregistration.api_service import AUTOMANAGED, GROUP, PATH, available
from stowplan.apis.machinery.access import AlwaysAllow
from stowplan.apis.machinery.resource import Resource, ResourceRegistry, ServerContext, StoreChange
from stowplan.apis.machinery.stored_form import decode
from stowplan.objects.encoding.tree import Tree

_GROUP_PRIORITIES = {
    "": 18000, "apps": 17800, "events.k8s.io": 17750, "authentication.k8s.io": 17700,
    "authorization.k8s.io": 17600, "autoscaling": 17500, "batch": 17400,
    "certificates.k8s.io": 17300, "networking.k8s.io": 17200, "policy": 17100,
    "rbac.authorization.k8s.io": 17000, "storage.k8s.io": 16800,
    "admissionregistration.k8s.io": 16700, "apiextensions.k8s.io": 16700,
    "scheduling.k8s.io": 16600, "coordination.k8s.io": 16500, "node.k8s.io": 16300,
    "discovery.k8s.io": 16200, "resource.k8s.io": 16200, "flowcontrol.apiserver.k8s.io": 16100,
}  # fmt: skip
_VERSION_PRIORITIES = {
    ("", "v1"): 1, ("autoscaling", "v2"): 30, ("flowcontrol.apiserver.k8s.io", "v1"): 21,
    ("resource.k8s.io", "v1"): 21, ("scheduling.k8s.io", "v1alpha2"): 9,
}  # fmt: skip
_DEFINITIONS_PATH = "apiextensions.k8s.io/customresourcedefinitions"


def built_in_api_services(registry: ResourceRegistry) -> Iterator[Tree]:
    """The APIServices of built-in groups."""
    served = {(one.group, one.version) for one in registry.all() if not one.custom}
    for group, version in sorted(served):
        if group in _GROUP_PRIORITIES:
            number = _VERSION_PRIORITIES.get((group, version), 15)
            yield _api_service(group, version, "onstart", (_GROUP_PRIORITIES[group], number))


def _api_service(group: str, version: str, managed: str, priorities: tuple[int, int]) -> Tree:
    spec: Tree = {"group": group} if group else {}
    spec["version"] = version
    spec["groupPriorityMinimum"], spec["versionPriority"] = priorities
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "APIService",
        "metadata": {"name": f"{version}.{group}", "labels": {AUTOMANAGED: managed}},
        "spec": spec,
    }


class LocalApiServices:
    """Keeps the APIServices of custom kinds (`resource.ChangeObserver`)."""

    def changed(self, server: ServerContext, change: StoreChange, now: float) -> None:
        if change.resource.path == PATH and change.type != "DELETED":
            _set_availability(server, change, now)
        if change.resource.path != _DEFINITIONS_PATH:
            return
        resource = server.registry.by_path(PATH)
        if resource is None:
            return
        group = decode(change.value)["spec"]["group"]
        served = {one.version for one in server.registry.all() if one.custom and one.group == group}
        for name, version in _managed_versions(server, resource, group):
            if version not in served:
                server.delete(resource, "", name, now, user=AlwaysAllow.APISERVER)
        for version in sorted(served):
            if server.get(resource, "", f"{version}.{group}") is None:
                made = _api_service(group, version, "true", (1000, 100))
                server.create(resource, made, now, user=AlwaysAllow.APISERVER)


def _managed_versions(
    server: ServerContext, resource: Resource, group: str
) -> list[tuple[str, str]]:
    """Names and versions of the APIServices of a group that are kept here."""
    return [
        (one["metadata"]["name"], one["spec"].get("version", ""))
        for one in server.peek_all(resource)
        if one["spec"].get("group", "") == group
        and (one["metadata"].get("labels") or {}).get(AUTOMANAGED) == "true"
    ]


def _set_availability(server: ServerContext, change: StoreChange, now: float) -> None:
    """A version that a Service serves is not available: requests are not passed on."""
    tree = decode(change.value)
    service = tree["spec"].get("service")
    if service is None or tree.get("status", {}).get("conditions"):
        return
    current = server.get(change.resource, "", tree["metadata"]["name"])
    if current is None or current["metadata"]["resourceVersion"] != str(change.version):
        return
    place = f'service/{service["name"]} in "{service["namespace"]}"'
    reason, text = "ServiceNotFound", f"{place} is not present"
    services = server.registry.by_path("services")
    if services is not None and server.peek(services, service["namespace"], service["name"]):
        reason, text = "ServiceAccessError", f"{place} is not called by this server"
    current["status"] = {"conditions": [available("False", reason, text, now)]}
    server.update_status(change.resource, current, now, AlwaysAllow.APISERVER)
