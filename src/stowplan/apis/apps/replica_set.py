"""ReplicaSet.

Source: kubernetes v1.36, pkg/registry/apps, pkg/apis/apps/validation/validation.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stowplan.apis.core.workload_validation import (
    PodTemplateStrategy,
    validate_replica_status_update,
    validate_selected_template,
    validate_workload_selector,
)
from stowplan.apis.kind.printing import (
    REPLICA_COLUMNS,
    TEMPLATE_COLUMNS,
    PrintedTable,
    containers_of,
    selector_text,
)
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import StatusStrategy, immutable_fields
from stowplan.apis.machinery.errors import Cause
from stowplan.apis.subresources.scale import scale_subresource
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

TYPES = """
ReplicaSetConditionType = string

ReplicaSet -- maintains a number of replica pods.
  +PartialObjectMetadata
  spec ReplicaSetSpec -- desired state.
  status ReplicaSetStatus -- last observed state.

ReplicaSetSpec
  replicas int32? =1 -- number of pods.
  minReadySeconds int32 -- time a pod must be ready to count as available.
  selector LabelSelector?! -- its pods; must match the template's labels.
  template core.PodTemplateSpec -- the pods to run.

ReplicaSetStatus
  replicas int32! -- pods of the set.
  fullyLabeledReplicas int32 -- pods with all labels of the template.
  readyReplicas int32 -- pods that are ready.
  availableReplicas int32 -- pods ready for minReadySeconds.
  terminatingReplicas int32? -- pods that are being deleted.
  observedGeneration int64 -- generation that the controller has seen.
  conditions [ReplicaSetCondition] ~merge:type

ReplicaSetCondition
  type ReplicaSetConditionType!
  status core.ConditionStatus!
  +core.ConditionChange
"""


def _validate(obj: Tree) -> Iterator[Cause]:
    spec = obj["spec"]
    yield from field_checks.not_negative_fields(spec, ("replicas", "minReadySeconds"), "spec")
    yield from validate_workload_selector(spec["selector"], "deployment")
    yield from validate_selected_template(spec, "invalid label selector")


def _cells(obj: Tree, now: float) -> list[Any]:
    return [*containers_of(obj["spec"]["template"]), selector_text(obj["spec"]["selector"])]


KIND = KindRegistration(
    group="apps",
    kind="ReplicaSet",
    types=TYPES,
    strategy=PodTemplateStrategy(
        _validate,
        immutable_fields("spec.selector", check=_validate),
        status={"replicas": 0},
        counted=("spec",),
    ),
    status=StatusStrategy(validate_replica_status_update),
    short_names=("rs",),
    categories=("all",),
    table=PrintedTable(f"{REPLICA_COLUMNS}, {TEMPLATE_COLUMNS}, Selector+", _cells),
    subresources=(scale_subresource(),),
)
