"""The rows of core/v1."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stowplan.cluster.kinds import coretables as tables
from stowplan.cluster.kinds import settings, storing, workloads
from stowplan.cluster.kinds.basics import Plain, StatusOnly, field
from stowplan.cluster.kinds.events import EventStrategy, core_fields
from stowplan.cluster.kinds.nodes import (
    NamespaceStatusStrategy,
    NamespaceStrategy,
    NodeStatusStrategy,
    NodeStrategy,
)
from stowplan.cluster.kinds.pods import PodStatusStrategy, PodStrategy
from stowplan.cluster.kinds.podtable import PodTable
from stowplan.cluster.kinds.rows import NO_COLLECTION, Row
from stowplan.cluster.kinds.services import ServiceStrategy, service_status
from stowplan.cluster.resource import Subresource
from stowplan.cluster.schema import kind_schema
from stowplan.cluster.subresources.binding import bind
from stowplan.cluster.subresources.eviction import evict
from stowplan.cluster.subresources.finalize import NamespaceFinalize
from stowplan.cluster.subresources.scale import REPLICATION_CONTROLLER_SCALE, SCALE

Tree = dict[str, Any]

EVENT_TTL_S = 3600.0
_BINDING = kind_schema("core/v1.Binding")
_SCALE = kind_schema("autoscaling/v1.Scale", "autoscaling")


def scale(plain: bool = False) -> Subresource:
    """The scale of a workload. plain: its selector is a map."""
    return Subresource(
        "scale",
        ("get", "patch", "update"),
        view=REPLICATION_CONTROLLER_SCALE if plain else SCALE,
        group="autoscaling",
        version="v1",
        kind="Scale",
        schema=_SCALE,
    )


def core_rows() -> Iterable[Row]:
    """Every kind of core/v1."""
    yield from _places()
    yield from _pods()
    yield from _settings()
    yield from _reports()
    yield from _storage()


def _places() -> Iterable[Row]:
    yield Row(
        plural="nodes",
        kind="Node",
        type="core/v1.Node",
        namespaced=False,
        strategy=NodeStrategy(),
        status=NodeStatusStrategy(),
        short_names=("no",),
        table=tables.NODES,
        fields={"spec.unschedulable": _unschedulable},
    )
    yield Row(
        plural="namespaces",
        kind="Namespace",
        type="core/v1.Namespace",
        namespaced=False,
        strategy=NamespaceStrategy(),
        status=NamespaceStatusStrategy(),
        short_names=("ns",),
        verbs=NO_COLLECTION,
        table=tables.NAMESPACES,
        fields={"status.phase": field("status.phase")},
        subresources=(Subresource("finalize", ("update",), NamespaceFinalize()),),
    )


def _unschedulable(node: Tree) -> str:
    return "true" if node["spec"].get("unschedulable") else "false"


def _host_network(pod: Tree) -> str:
    return "true" if pod["spec"].get("hostNetwork") else "false"


def _nothing(pod: Tree) -> str:
    return ""


def _pod_ip(pod: Tree) -> str:
    addresses = pod["status"].get("podIPs") or [{}]
    ip: str = addresses[0].get("ip", "")
    return ip


def _pods() -> Iterable[Row]:
    names = (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "status.phase",
        "status.nominatedNodeName",
    )
    yield Row(
        plural="pods",
        kind="Pod",
        type="core/v1.Pod",
        strategy=PodStrategy(),
        status=PodStatusStrategy(),
        short_names=("po",),
        categories=("all",),
        table=PodTable(),
        fields={name: field(name) for name in names}
        # The original takes the last name and finds it empty in every pod.
        | {"spec.hostNetwork": _host_network, "status.podIP": _pod_ip, "status.podIPs": _nothing},
        subresources=(
            Subresource(
                "binding", ("create",), act=bind, version="v1", kind="Binding", schema=_BINDING
            ),
            Subresource(
                "eviction",
                ("create",),
                act=evict,
                group="policy",
                version="v1",
                kind="Eviction",
                schema=kind_schema("policy/v1.Eviction", "policy"),
            ),
        ),
    )
    yield Row(
        plural="bindings",
        kind="Binding",
        type="core/v1.Binding",
        verbs=("create",),
        act=bind,
    )
    yield Row(
        plural="podtemplates",
        kind="PodTemplate",
        type="core/v1.PodTemplate",
        strategy=Plain(workloads.pod_template, counted=("template",), returns_deleted=True),
        table=tables.POD_TEMPLATES,
    )
    yield Row(
        plural="replicationcontrollers",
        kind="ReplicationController",
        type="core/v1.ReplicationController",
        strategy=workloads.Orphaning(
            workloads.replication_controller,
            status={"replicas": 0},
            counted=("spec",),
            storage_path="controllers",
        ),
        status=StatusOnly(workloads.replica_status),
        short_names=("rc",),
        categories=("all",),
        table=tables.REPLICATION_CONTROLLERS,
        fields={"status.replicas": field("status.replicas")},
        subresources=(scale(plain=True),),
    )


def _settings() -> Iterable[Row]:
    yield Row(
        plural="configmaps",
        kind="ConfigMap",
        type="core/v1.ConfigMap",
        strategy=Plain(settings.config_map, settings.config_map_update),
        short_names=("cm",),
        table=tables.CONFIG_MAPS,
    )
    yield Row(
        plural="secrets",
        kind="Secret",
        type="core/v1.Secret",
        strategy=Plain(settings.secret, settings.secret_update),
        table=tables.SECRETS,
        fields={"type": field("type")},
    )
    yield Row(
        plural="serviceaccounts",
        kind="ServiceAccount",
        type="core/v1.ServiceAccount",
        strategy=Plain(returns_deleted=True),
        short_names=("sa",),
        table=tables.SERVICE_ACCOUNTS,
    )
    yield Row(
        plural="services",
        kind="Service",
        type="core/v1.Service",
        strategy=ServiceStrategy(),
        status=StatusOnly(service_status),
        short_names=("svc",),
        categories=("all",),
        table=tables.SERVICES,
        fields={"spec.clusterIP": field("spec.clusterIP"), "spec.type": field("spec.type")},
    )
    yield Row(
        plural="limitranges",
        kind="LimitRange",
        type="core/v1.LimitRange",
        strategy=Plain(settings.limit_range, create_on_update=True),
        short_names=("limits",),
        table=tables.CREATED_AT,
    )
    yield Row(
        plural="resourcequotas",
        kind="ResourceQuota",
        type="core/v1.ResourceQuota",
        strategy=Plain(settings.quota, settings.quota_update, status={}, returns_deleted=True),
        status=StatusOnly(settings.quota_status),
        short_names=("quota",),
        table=tables.QUOTAS,
    )


def _reports() -> Iterable[Row]:
    yield Row(
        plural="componentstatuses",
        kind="ComponentStatus",
        type="core/v1.ComponentStatus",
        namespaced=False,
        verbs=("get", "list"),
        short_names=("cs",),
        deprecation="v1 ComponentStatus is deprecated in v1.19+",
    )
    yield Row(
        plural="endpoints",
        kind="Endpoints",
        type="core/v1.Endpoints",
        strategy=settings.EndpointsStrategy(),
        deprecation="v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
        short_names=("ep",),
        table=tables.ENDPOINTS,
    )
    yield Row(
        plural="events",
        kind="Event",
        type="core/v1.Event",
        strategy=EventStrategy(),
        short_names=("ev",),
        table=tables.EVENTS,
        fields=core_fields(),
        ttl_s=EVENT_TTL_S,
    )


def _storage() -> Iterable[Row]:
    yield Row(
        plural="persistentvolumes",
        kind="PersistentVolume",
        type="core/v1.PersistentVolume",
        namespaced=False,
        strategy=storing.VolumeStrategy(),
        status=storing.VolumeStatusStrategy(),
        short_names=("pv",),
        table=tables.VOLUMES,
    )
    yield Row(
        plural="persistentvolumeclaims",
        kind="PersistentVolumeClaim",
        type="core/v1.PersistentVolumeClaim",
        strategy=storing.ClaimStrategy(),
        status=storing.ClaimStatusStrategy(),
        short_names=("pvc",),
        table=tables.CLAIMS,
    )
