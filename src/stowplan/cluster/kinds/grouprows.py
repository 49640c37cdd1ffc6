"""The rows of the named groups."""

from __future__ import annotations

from collections.abc import Iterable

from stowplan.cluster.crd.definitions import DefinitionStatusStrategy, DefinitionStrategy
from stowplan.cluster.kinds import (
    coretables,
    devices,
    disruption,
    jobs,
    leases,
    roles,
    storing,
    workloads,
)
from stowplan.cluster.kinds import grouptables as tables
from stowplan.cluster.kinds.basics import RESET, SEGMENT, Plain, StatusOnly, field
from stowplan.cluster.kinds.corerows import EVENT_TTL_S, scale
from stowplan.cluster.kinds.events import EventStrategy, EventsView, ViewTable, view_fields
from stowplan.cluster.kinds.jobstatus import job_status
from stowplan.cluster.kinds.rows import Row
from stowplan.cluster.resource import Strategy
from stowplan.cluster.reviews import ACTS

_RBAC = "rbac.authorization.k8s.io"
_STORAGE = "storage.k8s.io"
_DEVICES = "resource.k8s.io"


def group_rows() -> Iterable[Row]:
    """Every kind that is not of core."""
    yield from _apps()
    yield from _batch()
    yield from _storage()
    yield from _scheduling()
    yield from _rights()
    yield from _devices()
    yield Row(
        group="apiextensions.k8s.io",
        plural="customresourcedefinitions",
        kind="CustomResourceDefinition",
        type="apiextensions/v1.CustomResourceDefinition",
        namespaced=False,
        strategy=DefinitionStrategy(),
        status=DefinitionStatusStrategy(),
        short_names=("crd", "crds"),
        categories=("api-extensions",),
        stored_as="v1beta1",
        table=coretables.CREATED_AT,
    )


def _apps() -> Iterable[Row]:
    def row(plural: str, kind: str, strategy: Strategy, short: str, scales: bool = True) -> Row:
        return Row(
            group="apps",
            plural=plural,
            kind=kind,
            type=f"apps/v1.{kind}",
            strategy=strategy,
            status=StatusOnly(
                workloads.STATUS_CHECKS[kind], meta=("labels",) if kind == "Deployment" else ()
            ),
            short_names=(short,),
            categories=("all",),
            table=workloads.TABLES[kind],
            subresources=(scale(),) if scales else (),
        )

    yield row("deployments", "Deployment", workloads.DEPLOYMENT, "deploy")
    yield row("replicasets", "ReplicaSet", workloads.REPLICA_SET, "rs")
    yield row("statefulsets", "StatefulSet", workloads.STATEFUL_SET, "sts")
    yield row("daemonsets", "DaemonSet", workloads.DAEMON_SET, "ds", scales=False)
    yield Row(
        group="apps",
        plural="controllerrevisions",
        kind="ControllerRevision",
        type="apps/v1.ControllerRevision",
        strategy=Plain(workloads.revision, workloads.revision_update),
        table=tables.REVISIONS,
    )


def _batch() -> Iterable[Row]:
    yield Row(
        group="batch",
        plural="jobs",
        kind="Job",
        type="batch/v1.Job",
        strategy=jobs.JobStrategy(),
        status=StatusOnly(job_status),
        categories=("all",),
        table=tables.JOBS,
        fields={"status.successful": jobs.succeeded},
    )
    yield Row(
        group="batch",
        plural="cronjobs",
        kind="CronJob",
        type="batch/v1.CronJob",
        strategy=jobs.CRON_JOB,
        status=StatusOnly(),
        short_names=("cj",),
        categories=("all",),
        table=tables.CRON_JOBS,
    )
    yield Row(
        group="policy",
        plural="poddisruptionbudgets",
        kind="PodDisruptionBudget",
        type="policy/v1.PodDisruptionBudget",
        strategy=disruption.BUDGET,
        status=StatusOnly(disruption.budget_status),
        short_names=("pdb",),
        table=tables.BUDGETS,
    )


def _storage() -> Iterable[Row]:
    def row(plural: str, kind: str, strategy: Strategy, **more: object) -> Row:
        return Row(
            group=_STORAGE,
            plural=plural,
            kind=kind,
            type=f"storage/v1.{kind}",
            strategy=strategy,
            **{"namespaced": False, **more},  # type: ignore[arg-type]
        )

    yield row(
        "storageclasses",
        "StorageClass",
        storing.STORAGE_CLASS,
        short_names=("sc",),
        table=tables.STORAGE_CLASSES,
    )
    yield row(
        "volumeattachments",
        "VolumeAttachment",
        storing.ATTACHMENT,
        status=StatusOnly(storing.attachment_status, meta=RESET),
        table=tables.ATTACHMENTS,
    )
    yield row("csinodes", "CSINode", storing.CSI_NODE, table=tables.CSI_NODES)
    yield row("csidrivers", "CSIDriver", storing.CSI_DRIVER, table=tables.CSI_DRIVERS)
    yield row(
        "csistoragecapacities",
        "CSIStorageCapacity",
        storing.CSI_CAPACITY,
        namespaced=True,
        table=coretables.CREATED_AT,
    )
    yield row(
        "volumeattributesclasses",
        "VolumeAttributesClass",
        storing.ATTRIBUTES_CLASS,
        short_names=("vac",),
        table=tables.ATTRIBUTES_CLASSES,
    )


def _scheduling() -> Iterable[Row]:
    yield Row(
        group="scheduling.k8s.io",
        plural="priorityclasses",
        kind="PriorityClass",
        type="scheduling/v1.PriorityClass",
        namespaced=False,
        strategy=leases.PRIORITY_CLASS,
        short_names=("pc",),
        table=tables.PRIORITIES,
    )
    yield Row(
        group="coordination.k8s.io",
        plural="leases",
        kind="Lease",
        type="coordination/v1.Lease",
        strategy=leases.LEASE,
        table=tables.LEASES,
    )
    yield Row(
        group="node.k8s.io",
        plural="runtimeclasses",
        kind="RuntimeClass",
        type="node/v1.RuntimeClass",
        namespaced=False,
        strategy=leases.RUNTIME_CLASS,
        table=tables.RUNTIME_CLASSES,
    )
    yield Row(
        group="events.k8s.io",
        plural="events",
        kind="Event",
        type="events/v1.Event",
        strategy=EventStrategy(),
        short_names=("ev",),
        table=ViewTable(),
        fields=view_fields(),
        ttl_s=EVENT_TTL_S,
        twin=EventsView(),
    )


def _rights() -> Iterable[Row]:
    for plural, kind, namespaced in (
        ("roles", "Role", True),
        ("clusterroles", "ClusterRole", False),
        ("rolebindings", "RoleBinding", True),
        ("clusterrolebindings", "ClusterRoleBinding", False),
    ):
        binds = kind.endswith("Binding")
        yield Row(
            group=_RBAC,
            plural=plural,
            kind=kind,
            type=f"rbac/v1.{kind}",
            namespaced=namespaced,
            strategy=Plain(*roles.CHECKS[kind], names=SEGMENT, create_on_update=True),
            table=tables.BINDINGS if binds else tables.ROLES,
        )
    for kind, act in ACTS.items():
        authentication = kind in ("TokenReview", "SelfSubjectReview")
        group = "authentication" if authentication else "authorization"
        yield Row(
            group=f"{group}.k8s.io",
            plural=f"{kind.lower()}s",
            kind=kind,
            type=f"{group}/v1.{kind}",
            namespaced=kind == "LocalSubjectAccessReview",
            verbs=("create",),
            act=act,
        )


def _devices() -> Iterable[Row]:
    yield Row(
        group=_DEVICES,
        plural="deviceclasses",
        kind="DeviceClass",
        type="resource/v1.DeviceClass",
        namespaced=False,
        strategy=Plain(devices.device_class, counted=("spec",), returns_deleted=True),
        table=coretables.NAMED,
    )
    yield Row(
        group=_DEVICES,
        plural="resourceclaims",
        kind="ResourceClaim",
        type="resource/v1.ResourceClaim",
        strategy=devices.ClaimStrategy(
            devices.claim, devices.claim_update, status={}, returns_deleted=True
        ),
        status=StatusOnly(devices.claim_status, meta=RESET),
        table=tables.RESOURCE_CLAIMS,
    )
    yield Row(
        group=_DEVICES,
        plural="resourceclaimtemplates",
        kind="ResourceClaimTemplate",
        type="resource/v1.ResourceClaimTemplate",
        strategy=devices.ClaimStrategy(
            devices.template, devices.template_update, returns_deleted=True
        ),
        table=coretables.NAMED,
    )
    yield Row(
        group=_DEVICES,
        plural="resourceslices",
        kind="ResourceSlice",
        type="resource/v1.ResourceSlice",
        namespaced=False,
        strategy=devices.SLICE,
        table=tables.RESOURCE_SLICES,
        fields={"spec.nodeName": field("spec.nodeName"), "spec.driver": field("spec.driver")},
    )
