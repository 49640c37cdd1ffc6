"""Bootstrap objects: namespaces, priority classes, roles and the Service of the API server.

Source: kube-apiserver v1.36, pkg/controlplane/controller (systemnamespaces, kubernetesservice),
pkg/registry/rbac/rest, pkg/registry/scheduling/rest.
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.apis.core.service import CLUSTER_IP_RANGE
from stowplan.apis.machinery.access import AlwaysAllow
from stowplan.apis.machinery.timestamps import format_time
from stowplan.apis.networking.service_addresses import DEFAULT_RANGE_NAME
from stowplan.apis.scheduling.priority_class import system_priority_classes
from stowplan.apiserver.auth.bootstrap_roles import default_bindings, default_roles
from stowplan.apiserver.discovery.local_api_services import built_in_api_services
from stowplan.apiserver.server import ApiServer
from stowplan.objects.encoding.tree import Tree

SYSTEM_NAMESPACES = ("kube-system", "kube-public", "default", "kube-node-lease")


def create_bootstrap_objects(server: ApiServer, now: float, port: int = 6443) -> None:
    """Create the bootstrap objects that are missing. port: of the API server, for its Service."""
    workloads = server.registry.has_group("scheduling.k8s.io", "v1alpha2")
    taint_rules = server.registry.has_group("resource.k8s.io", "v1beta2")
    objects = (
        *built_in_api_services(server.registry),
        *_bootstrap_objects(port),
        *default_roles(workloads=workloads, device_taint_rules=taint_rules),
        *default_bindings(),
    )
    for obj in objects:
        group, _, version = obj["apiVersion"].rpartition("/")
        resource = server.registry.by_kind(group, version, obj["kind"])
        if resource is None:
            continue
        metadata = obj["metadata"]
        namespace = metadata.get("namespace", "")
        if server.get(resource, namespace, metadata["name"]) is None:
            given = {key: value for key, value in obj.items() if key != "status"}
            stored = server.create(resource, given, now, namespace, AlwaysAllow.APISERVER)
            if "status" in obj:
                conditions = [
                    {**one, "lastTransitionTime": format_time(now)} for one in obj["status"]
                ]
                changed = {**stored, "status": {"conditions": conditions}}
                server.update_status(resource, changed, now, AlwaysAllow.APISERVER)


def _bootstrap_objects(port: int) -> Iterator[Tree]:
    for name in SYSTEM_NAMESPACES:
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    yield from system_priority_classes()
    yield _service_range()
    yield _kubernetes_service(port)


def _service_range() -> Tree:
    """The range of service addresses. status: its conditions, without times."""
    ready = {"type": "Ready", "status": "True", "reason": ""}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "ServiceCIDR",
        "metadata": {"name": DEFAULT_RANGE_NAME},
        "spec": {"cidrs": [str(CLUSTER_IP_RANGE)]},
        "status": [{**ready, "message": "Kubernetes default Service CIDR is ready"}],
    }


def _kubernetes_service(port: int) -> Tree:
    """The Service of the API server."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "kubernetes",
            "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "10.0.0.1",
            "clusterIPs": ["10.0.0.1"],
            "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
            "sessionAffinity": "None",
            "internalTrafficPolicy": "Cluster",
            "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": port}],
        },
    }
