"""The rows of the named groups."""

from __future__ import annotations

from collections.abc import Iterable

from stowplan.apis.apps import workloads
from stowplan.apis.batch import job
from stowplan.apis.batch.job_status import validate_job_status_update
from stowplan.apis.core.event import EventStrategy, EventsV1Table, EventsV1Twin, events_v1_fields
from stowplan.apis.kind import core_tables
from stowplan.apis.kind import group_tables as tables
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import (
    METADATA_RESET_FIELDS,
    PATH_SEGMENT_NAME,
    BuiltinStrategy,
    StatusStrategy,
    selectable_field,
)
from stowplan.apis.machinery.resource import ResourceStrategy
from stowplan.apis.policy import pod_disruption_budget
from stowplan.apis.rbac import role
from stowplan.apis.resource import devices
from stowplan.apis.scheduling import leases_and_classes
from stowplan.apis.storage import volumes_and_csi
from stowplan.apiserver.auth.access_reviews import REVIEW_ACTIONS
from stowplan.apiserver.core_kinds import EVENT_TTL_S, scale_subresource
from stowplan.apiserver.crd.definition_strategy import DefinitionStatusStrategy, DefinitionStrategy

_RBAC = "rbac.authorization.k8s.io"
_STORAGE = "storage.k8s.io"
_DEVICES = "resource.k8s.io"


def group_kinds() -> Iterable[KindRegistration]:
    """Every kind that is not of core."""
    yield from _apps_kinds()
    yield from _batch_kinds()
    yield from _storage_kinds()
    yield from _scheduling_kinds()
    yield from _rbac_kinds()
    yield from _device_kinds()
    yield KindRegistration(
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
        table=core_tables.CREATED_AT,
    )


def _apps_kinds() -> Iterable[KindRegistration]:
    def row(
        plural: str, kind: str, strategy: ResourceStrategy, short: str, scales: bool = True
    ) -> KindRegistration:
        return KindRegistration(
            group="apps",
            plural=plural,
            kind=kind,
            type=f"apps/v1.{kind}",
            strategy=strategy,
            status=StatusStrategy(
                workloads.STATUS_CHECKS[kind], meta=("labels",) if kind == "Deployment" else ()
            ),
            short_names=(short,),
            categories=("all",),
            table=workloads.TABLES[kind],
            subresources=(scale_subresource(),) if scales else (),
        )

    yield row("deployments", "Deployment", workloads.DEPLOYMENT, "deploy")
    yield row("replicasets", "ReplicaSet", workloads.REPLICA_SET, "rs")
    yield row("statefulsets", "StatefulSet", workloads.STATEFUL_SET, "sts")
    yield row("daemonsets", "DaemonSet", workloads.DAEMON_SET, "ds", scales=False)
    yield KindRegistration(
        group="apps",
        plural="controllerrevisions",
        kind="ControllerRevision",
        type="apps/v1.ControllerRevision",
        strategy=BuiltinStrategy(
            workloads.controller_revision, workloads.controller_revision_update
        ),
        table=tables.REVISIONS,
    )


def _batch_kinds() -> Iterable[KindRegistration]:
    yield KindRegistration(
        group="batch",
        plural="jobs",
        kind="Job",
        type="batch/v1.Job",
        strategy=job.JobStrategy(),
        status=StatusStrategy(validate_job_status_update),
        categories=("all",),
        table=tables.JOBS,
        fields={"status.successful": job.successful_field},
    )
    yield KindRegistration(
        group="batch",
        plural="cronjobs",
        kind="CronJob",
        type="batch/v1.CronJob",
        strategy=job.CRON_JOB,
        status=StatusStrategy(),
        short_names=("cj",),
        categories=("all",),
        table=tables.CRON_JOBS,
    )
    yield KindRegistration(
        group="policy",
        plural="poddisruptionbudgets",
        kind="PodDisruptionBudget",
        type="policy/v1.PodDisruptionBudget",
        strategy=pod_disruption_budget.POD_DISRUPTION_BUDGET,
        status=StatusStrategy(pod_disruption_budget.pod_disruption_budget_status),
        short_names=("pdb",),
        table=tables.BUDGETS,
    )


def _storage_kinds() -> Iterable[KindRegistration]:
    def row(plural: str, kind: str, strategy: ResourceStrategy, **more: object) -> KindRegistration:
        return KindRegistration(
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
        volumes_and_csi.STORAGE_CLASS,
        short_names=("sc",),
        table=tables.STORAGE_CLASSES,
    )
    yield row(
        "volumeattachments",
        "VolumeAttachment",
        volumes_and_csi.VOLUME_ATTACHMENT,
        status=StatusStrategy(volumes_and_csi.volume_attachment_status, meta=METADATA_RESET_FIELDS),
        table=tables.ATTACHMENTS,
    )
    yield row("csinodes", "CSINode", volumes_and_csi.CSI_NODE, table=tables.CSI_NODES)
    yield row("csidrivers", "CSIDriver", volumes_and_csi.CSI_DRIVER, table=tables.CSI_DRIVERS)
    yield row(
        "csistoragecapacities",
        "CSIStorageCapacity",
        volumes_and_csi.CSI_STORAGE_CAPACITY,
        namespaced=True,
        table=core_tables.CREATED_AT,
    )
    yield row(
        "volumeattributesclasses",
        "VolumeAttributesClass",
        volumes_and_csi.VOLUME_ATTRIBUTES_CLASS,
        short_names=("vac",),
        table=tables.ATTRIBUTES_CLASSES,
    )


def _scheduling_kinds() -> Iterable[KindRegistration]:
    yield KindRegistration(
        group="scheduling.k8s.io",
        plural="priorityclasses",
        kind="PriorityClass",
        type="scheduling/v1.PriorityClass",
        namespaced=False,
        strategy=leases_and_classes.PRIORITY_CLASS,
        short_names=("pc",),
        table=tables.PRIORITIES,
    )
    yield KindRegistration(
        group="coordination.k8s.io",
        plural="leases",
        kind="Lease",
        type="coordination/v1.Lease",
        strategy=leases_and_classes.LEASE,
        table=tables.LEASES,
    )
    yield KindRegistration(
        group="node.k8s.io",
        plural="runtimeclasses",
        kind="RuntimeClass",
        type="node/v1.RuntimeClass",
        namespaced=False,
        strategy=leases_and_classes.RUNTIME_CLASS,
        table=tables.RUNTIME_CLASSES,
    )
    yield KindRegistration(
        group="events.k8s.io",
        plural="events",
        kind="Event",
        type="events/v1.Event",
        strategy=EventStrategy(),
        short_names=("ev",),
        table=EventsV1Table(),
        fields=events_v1_fields(),
        ttl_s=EVENT_TTL_S,
        alias=EventsV1Twin(),
    )


def _rbac_kinds() -> Iterable[KindRegistration]:
    for plural, kind, namespaced in (
        ("roles", "Role", True),
        ("clusterroles", "ClusterRole", False),
        ("rolebindings", "RoleBinding", True),
        ("clusterrolebindings", "ClusterRoleBinding", False),
    ):
        binds = kind.endswith("Binding")
        yield KindRegistration(
            group=_RBAC,
            plural=plural,
            kind=kind,
            type=f"rbac/v1.{kind}",
            namespaced=namespaced,
            strategy=BuiltinStrategy(
                *role.CHECKS[kind], names=PATH_SEGMENT_NAME, create_on_update=True
            ),
            table=tables.BINDINGS if binds else tables.ROLES,
        )
    for kind, act in REVIEW_ACTIONS.items():
        authentication = kind in ("TokenReview", "SelfSubjectReview")
        group = "authentication" if authentication else "authorization"
        yield KindRegistration(
            group=f"{group}.k8s.io",
            plural=f"{kind.lower()}s",
            kind=kind,
            type=f"{group}/v1.{kind}",
            namespaced=kind == "LocalSubjectAccessReview",
            verbs=("create",),
            act=act,
        )


def _device_kinds() -> Iterable[KindRegistration]:
    yield KindRegistration(
        group=_DEVICES,
        plural="deviceclasses",
        kind="DeviceClass",
        type="resource/v1.DeviceClass",
        namespaced=False,
        strategy=BuiltinStrategy(devices.device_class, counted=("spec",), returns_deleted=True),
        table=core_tables.NAMED,
    )
    yield KindRegistration(
        group=_DEVICES,
        plural="resourceclaims",
        kind="ResourceClaim",
        type="resource/v1.ResourceClaim",
        strategy=devices.ResourceClaimStrategy(
            devices.resource_claim, devices.resource_claim_update, status={}, returns_deleted=True
        ),
        status=StatusStrategy(devices.resource_claim_status, meta=METADATA_RESET_FIELDS),
        table=tables.RESOURCE_CLAIMS,
    )
    yield KindRegistration(
        group=_DEVICES,
        plural="resourceclaimtemplates",
        kind="ResourceClaimTemplate",
        type="resource/v1.ResourceClaimTemplate",
        strategy=devices.ResourceClaimStrategy(
            devices.resource_claim_template,
            devices.resource_claim_template_update,
            returns_deleted=True,
        ),
        table=core_tables.NAMED,
    )
    yield KindRegistration(
        group=_DEVICES,
        plural="resourceslices",
        kind="ResourceSlice",
        type="resource/v1.ResourceSlice",
        namespaced=False,
        strategy=devices.RESOURCE_SLICE,
        table=tables.RESOURCE_SLICES,
        fields={
            "spec.nodeName": selectable_field("spec.nodeName"),
            "spec.driver": selectable_field("spec.driver"),
        },
    )
