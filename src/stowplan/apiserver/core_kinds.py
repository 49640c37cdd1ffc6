"""The rows of core/v1."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stowplan.apis.apps import workloads
from stowplan.apis.core import config_and_quota
from stowplan.apis.core.event import EventStrategy, core_v1_fields
from stowplan.apis.core.node_and_namespace import (
    NamespaceStatusStrategy,
    NamespaceStrategy,
    NodeStatusStrategy,
    NodeStrategy,
)
from stowplan.apis.core.pod import PodStatusStrategy, PodStrategy
from stowplan.apis.core.pod_table import PodTable
from stowplan.apis.core.service import ServiceStrategy, service_status
from stowplan.apis.kind import core_tables as tables
from stowplan.apis.kind.registration import NO_COLLECTION, KindRegistration
from stowplan.apis.kind.strategy import BuiltinStrategy, StatusStrategy, selectable_field
from stowplan.apis.machinery.resource import Subresource
from stowplan.apis.schema import kind_schema
from stowplan.apis.storage import volumes_and_csi
from stowplan.apis.subresources.binding import bind
from stowplan.apis.subresources.namespace_finalize import NamespaceFinalizeStrategy
from stowplan.apis.subresources.scale import REPLICATION_CONTROLLER_SCALE, SCALE
from stowplan.apiserver.subresources.eviction import evict

Tree = dict[str, Any]

EVENT_TTL_S = 3600.0
_BINDING = kind_schema("core/v1.Binding")
_SCALE = kind_schema("autoscaling/v1.Scale", "autoscaling")


def scale_subresource(plain: bool = False) -> Subresource:
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


def core_kinds() -> Iterable[KindRegistration]:
    """Every kind of core/v1."""
    yield from _node_kinds()
    yield from _pod_kinds()
    yield from _config_kinds()
    yield from _event_kinds()
    yield from _volume_kinds()


def _node_kinds() -> Iterable[KindRegistration]:
    yield KindRegistration(
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
    yield KindRegistration(
        plural="namespaces",
        kind="Namespace",
        type="core/v1.Namespace",
        namespaced=False,
        strategy=NamespaceStrategy(),
        status=NamespaceStatusStrategy(),
        short_names=("ns",),
        verbs=NO_COLLECTION,
        table=tables.NAMESPACES,
        fields={"status.phase": selectable_field("status.phase")},
        subresources=(Subresource("finalize", ("update",), NamespaceFinalizeStrategy()),),
    )


def _unschedulable(node: Tree) -> str:
    return "true" if node["spec"].get("unschedulable") else "false"


def _host_network(pod: Tree) -> str:
    return "true" if pod["spec"].get("hostNetwork") else "false"


def _always_empty(pod: Tree) -> str:
    return ""


def _pod_ip(pod: Tree) -> str:
    addresses = pod["status"].get("podIPs") or [{}]
    ip: str = addresses[0].get("ip", "")
    return ip


def _pod_kinds() -> Iterable[KindRegistration]:
    names = (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "status.phase",
        "status.nominatedNodeName",
    )
    yield KindRegistration(
        plural="pods",
        kind="Pod",
        type="core/v1.Pod",
        strategy=PodStrategy(),
        status=PodStatusStrategy(),
        short_names=("po",),
        categories=("all",),
        table=PodTable(),
        fields={name: selectable_field(name) for name in names}
        # The original takes the last name and finds it empty in every pod.
        | {
            "spec.hostNetwork": _host_network,
            "status.podIP": _pod_ip,
            "status.podIPs": _always_empty,
        },
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
    yield KindRegistration(
        plural="bindings",
        kind="Binding",
        type="core/v1.Binding",
        verbs=("create",),
        act=bind,
    )
    yield KindRegistration(
        plural="podtemplates",
        kind="PodTemplate",
        type="core/v1.PodTemplate",
        strategy=BuiltinStrategy(
            workloads.pod_template, counted=("template",), returns_deleted=True
        ),
        table=tables.POD_TEMPLATES,
    )
    yield KindRegistration(
        plural="replicationcontrollers",
        kind="ReplicationController",
        type="core/v1.ReplicationController",
        strategy=workloads.OrphaningStrategy(
            workloads.replication_controller,
            status={"replicas": 0},
            counted=("spec",),
            storage_path="controllers",
        ),
        status=StatusStrategy(workloads.replica_status),
        short_names=("rc",),
        categories=("all",),
        table=tables.REPLICATION_CONTROLLERS,
        fields={"status.replicas": selectable_field("status.replicas")},
        subresources=(scale_subresource(plain=True),),
    )


def _config_kinds() -> Iterable[KindRegistration]:
    yield KindRegistration(
        plural="configmaps",
        kind="ConfigMap",
        type="core/v1.ConfigMap",
        strategy=BuiltinStrategy(config_and_quota.config_map, config_and_quota.config_map_update),
        short_names=("cm",),
        table=tables.CONFIG_MAPS,
    )
    yield KindRegistration(
        plural="secrets",
        kind="Secret",
        type="core/v1.Secret",
        strategy=BuiltinStrategy(config_and_quota.secret, config_and_quota.secret_update),
        table=tables.SECRETS,
        fields={"type": selectable_field("type")},
    )
    yield KindRegistration(
        plural="serviceaccounts",
        kind="ServiceAccount",
        type="core/v1.ServiceAccount",
        strategy=BuiltinStrategy(returns_deleted=True),
        short_names=("sa",),
        table=tables.SERVICE_ACCOUNTS,
    )
    yield KindRegistration(
        plural="services",
        kind="Service",
        type="core/v1.Service",
        strategy=ServiceStrategy(),
        status=StatusStrategy(service_status),
        short_names=("svc",),
        categories=("all",),
        table=tables.SERVICES,
        fields={
            "spec.clusterIP": selectable_field("spec.clusterIP"),
            "spec.type": selectable_field("spec.type"),
        },
    )
    yield KindRegistration(
        plural="limitranges",
        kind="LimitRange",
        type="core/v1.LimitRange",
        strategy=BuiltinStrategy(config_and_quota.limit_range, create_on_update=True),
        short_names=("limits",),
        table=tables.CREATED_AT,
    )
    yield KindRegistration(
        plural="resourcequotas",
        kind="ResourceQuota",
        type="core/v1.ResourceQuota",
        strategy=BuiltinStrategy(
            config_and_quota.resource_quota,
            config_and_quota.resource_quota_update,
            status={},
            returns_deleted=True,
        ),
        status=StatusStrategy(config_and_quota.resource_quota_status),
        short_names=("quota",),
        table=tables.QUOTAS,
    )


def _event_kinds() -> Iterable[KindRegistration]:
    yield KindRegistration(
        plural="componentstatuses",
        kind="ComponentStatus",
        type="core/v1.ComponentStatus",
        namespaced=False,
        verbs=("get", "list"),
        short_names=("cs",),
        deprecation="v1 ComponentStatus is deprecated in v1.19+",
    )
    yield KindRegistration(
        plural="endpoints",
        kind="Endpoints",
        type="core/v1.Endpoints",
        strategy=config_and_quota.EndpointsStrategy(),
        deprecation="v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
        short_names=("ep",),
        table=tables.ENDPOINTS,
    )
    yield KindRegistration(
        plural="events",
        kind="Event",
        type="core/v1.Event",
        strategy=EventStrategy(),
        short_names=("ev",),
        table=tables.EVENTS,
        fields=core_v1_fields(),
        ttl_s=EVENT_TTL_S,
    )


def _volume_kinds() -> Iterable[KindRegistration]:
    yield KindRegistration(
        plural="persistentvolumes",
        kind="PersistentVolume",
        type="core/v1.PersistentVolume",
        namespaced=False,
        strategy=volumes_and_csi.PersistentVolumeStrategy(),
        status=volumes_and_csi.PersistentVolumeStatusStrategy(),
        short_names=("pv",),
        table=tables.VOLUMES,
    )
    yield KindRegistration(
        plural="persistentvolumeclaims",
        kind="PersistentVolumeClaim",
        type="core/v1.PersistentVolumeClaim",
        strategy=volumes_and_csi.PersistentVolumeClaimStrategy(),
        status=volumes_and_csi.PersistentVolumeClaimStatusStrategy(),
        short_names=("pvc",),
        table=tables.CLAIMS,
    )
