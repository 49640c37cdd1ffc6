"""StatefulSet.

Source: kubernetes v1.36, pkg/registry/apps, pkg/apis/apps/validation/validation.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stowplan.apis.core.volume_claim_spec import volume_claim_spec
from stowplan.apis.core.workload_validation import (
    PodTemplateStrategy,
    internal_update_strategy,
    is_zero_int_or_percent,
    validate_int_or_percent,
    validate_percent_at_most_100,
    validate_replica_counts,
    validate_selected_template,
    validate_workload_selector,
)
from stowplan.apis.kind.printing import TEMPLATE_COLUMNS, PrintedTable, containers_of
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import StatusStrategy
from stowplan.apis.machinery.errors import Cause, forbidden_field, invalid
from stowplan.apis.machinery.names import label_problems
from stowplan.apis.subresources.scale import scale_subresource
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

TYPES = """
PodManagementPolicyType StatefulSetUpdateStrategyType StatefulSetConditionType = string
PersistentVolumeClaimRetentionPolicyType = string

StatefulSet -- runs pods with stable identities and storage.
  +PartialObjectMetadata
  spec StatefulSetSpec -- desired state.
  status StatefulSetStatus -- last observed state.

StatefulSetSpec
  replicas int32? =1 -- number of pods.
  selector LabelSelector?! -- its pods; must match the template's labels.
  template core.PodTemplateSpec! -- the pods to run.
  volumeClaimTemplates [core.PersistentVolumeClaim] -- claims that each pod has of its own.
  serviceName string! -- Service that gives the pods their names in DNS.
  podManagementPolicy PodManagementPolicyType =OrderedReady -- OrderedReady or Parallel.
  updateStrategy StatefulSetUpdateStrategy -- how old pods are replaced.
  revisionHistoryLimit int32? =10 -- old revisions to keep.
  minReadySeconds int32 -- time a pod must be ready to count as available.
  persistentVolumeClaimRetentionPolicy StatefulSetPersistentVolumeClaimRetentionPolicy?
  ordinals StatefulSetOrdinals? -- numbers of the pods.

StatefulSetUpdateStrategy
  type StatefulSetUpdateStrategyType -- RollingUpdate or OnDelete.
  rollingUpdate RollingUpdateStatefulSetStrategy? -- bounds of a rolling update.

RollingUpdateStatefulSetStrategy
  partition int32? -- pods with a lower number are not updated.
  maxUnavailable IntOrString? -- number or percentage; 1 by default.

StatefulSetPersistentVolumeClaimRetentionPolicy -- when the claims of the set are deleted.
  whenDeleted PersistentVolumeClaimRetentionPolicyType =Retain -- Retain or Delete.
  whenScaled PersistentVolumeClaimRetentionPolicyType =Retain -- Retain or Delete.

StatefulSetOrdinals
  start int32! -- number of the first pod.

StatefulSetStatus
  observedGeneration int64 -- generation that the controller has seen.
  replicas int32! -- pods of the set.
  readyReplicas int32 -- pods that are ready.
  currentReplicas int32 -- pods of currentRevision.
  updatedReplicas int32 -- pods of updateRevision.
  currentRevision string -- revision of pods that are not updated.
  updateRevision string -- revision of updated pods.
  collisionCount int32? -- collisions of names of revisions.
  conditions [StatefulSetCondition] ~merge:type
  availableReplicas int32! -- pods ready for minReadySeconds.

StatefulSetCondition
  type StatefulSetConditionType!
  status core.ConditionStatus!
  +core.ConditionChange
"""
_MUTABLE_FIELDS = (
    "replicas", "ordinals", "template", "updateStrategy", "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds", "revisionHistoryLimit",
)  # fmt: skip


def _set_defaults(one: Tree) -> None:
    """Rolling updates replace all pods, and claims are retained."""
    spec = one["spec"]
    strategy = spec["updateStrategy"]
    if "type" not in strategy:
        strategy["type"] = "RollingUpdate"
        strategy.setdefault("rollingUpdate", {})
    if strategy["type"] == "RollingUpdate" and "rollingUpdate" in strategy:
        strategy["rollingUpdate"].setdefault("partition", 0)
    policy = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
    policy.setdefault("whenDeleted", "Retain")
    policy.setdefault("whenScaled", "Retain")
    # Templates are claims: Go writes their kind.
    for template in spec.get("volumeClaimTemplates", ()):
        template["kind"], template["apiVersion"] = "PersistentVolumeClaim", "v1"


def _validate(obj: Tree) -> Iterator[Cause]:
    return _spec_causes(obj["spec"], is_new=True)


def _spec_causes(spec: Tree, *, is_new: bool, checks: bool = True) -> Iterator[Cause]:
    """checks: False leaves out the spec of the pod template."""
    policy = spec["podManagementPolicy"]
    if policy not in ("OrderedReady", "Parallel"):
        yield invalid("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'")
    yield from _validate_strategy(spec["updateStrategy"])
    for name in ("whenDeleted", "whenScaled"):
        kept = spec["persistentVolumeClaimRetentionPolicy"][name]
        yield from field_checks.one_of(
            kept, ("Delete", "Retain"), f"spec.persistentVolumeClaimRetentionPolicy.{name}"
        )
    yield from field_checks.not_negative_fields(spec, ("replicas", "minReadySeconds"), "spec")
    start = spec.get("ordinals", {}).get("start", 0)
    yield from field_checks.not_negative(start, "spec.ordinals.start")
    # These cannot be changed.
    for at, one in enumerate(spec.get("volumeClaimTemplates", ()) if is_new else ()):
        yield from volume_claim_spec(one["spec"], f"spec.volumeClaimTemplates[{at}].spec")
    if spec["serviceName"] and is_new:
        yield from field_checks.dns_label(spec["serviceName"], "spec.serviceName")
    yield from validate_workload_selector(spec["selector"], "statefulset")
    template = _completed_template(spec)
    yield from validate_selected_template(spec, "", "StatefulSet", template, checks=checks)


def _completed_template(spec: Tree) -> Tree:
    """The template with the volumes of the claims, and without the names that pods get."""
    template: Tree = spec["template"]
    pod = {
        name: value
        for name, value in template["spec"].items()
        if name not in ("subdomain", "hostname")
    }
    metas = [one.get("metadata") or {} for one in spec.get("volumeClaimTemplates") or ()]
    names = [meta["name"] for meta in metas if meta.get("name")]
    if names:
        claims = [
            {"name": name, "persistentVolumeClaim": {"claimName": name}}
            for name in dict.fromkeys(names)
        ]
        others = [one for one in pod.get("volumes") or () if one.get("name") not in names]
        pod["volumes"] = [*claims, *others]
    return {**template, "spec": pod}


def _validate_strategy(strategy: Tree) -> Iterator[Cause]:
    path = "spec.updateStrategy"
    rolling = strategy.get("rollingUpdate")
    if strategy["type"] == "OnDelete":
        if rolling is not None:
            text = "only allowed for updateStrategy 'RollingUpdate'"
            yield invalid(f"{path}.rollingUpdate", rolling, text)
    elif strategy["type"] == "RollingUpdate":
        if rolling is not None:
            partition = rolling.get("partition", 0)
            yield from field_checks.not_negative(partition, f"{path}.rollingUpdate.partition")
            missing = rolling.get("maxUnavailable")
            if missing is not None:
                here = f"{path}.rollingUpdate.maxUnavailable"
                yield from validate_int_or_percent(missing, here)
                if is_zero_int_or_percent(missing):
                    yield invalid(here, missing, "cannot be 0")
                yield from validate_percent_at_most_100(missing, here)
    else:
        text = "must be 'RollingUpdate' or 'OnDelete'"
        yield invalid(path, internal_update_strategy(strategy), text)


def _validate_update(new: Tree, old: Tree) -> Iterator[Cause]:
    was_good = not any(_spec_causes(old["spec"], is_new=False))
    yield from _spec_causes(new["spec"], is_new=False, checks=was_good)
    rest, before = (
        {name: value for name, value in one["spec"].items() if name not in _MUTABLE_FIELDS}
        for one in (new, old)
    )
    if rest != before:
        text = (
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "
            "'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and "
            "'minReadySeconds' are forbidden"
        )
        yield forbidden_field("spec", text)


def _validate_status_update(new: Tree, old: Tree) -> Iterator[Cause]:
    status = new["status"]
    counts = ("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")
    yield from field_checks.not_negative_fields(status, ("replicas", *counts), "status")
    yield from validate_replica_counts(status, counts, "status.readyReplicas")


def _cells(obj: Tree, now: float) -> list[Any]:
    ready = f"{obj['status'].get('readyReplicas', 0)}/{obj['spec'].get('replicas', 0)}"
    return [ready, *containers_of(obj["spec"]["template"])]


KIND = KindRegistration(
    group="apps",
    kind="StatefulSet",
    types=TYPES,
    defaults={"apps/v1.StatefulSet": _set_defaults},
    strategy=PodTemplateStrategy(
        _validate,
        _validate_update,
        status={"replicas": 0, "availableReplicas": 0},
        counted=("spec",),
        names=label_problems,
    ),
    status=StatusStrategy(_validate_status_update),
    short_names=("sts",),
    categories=("all",),
    table=PrintedTable(f"Name, Ready, Age, {TEMPLATE_COLUMNS}", _cells),
    subresources=(scale_subresource(),),
)
