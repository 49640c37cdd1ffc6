"""ReplicationController.

Source: kubernetes v1.36, pkg/registry/core/replicationcontroller, pkg/apis/core/validation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stowplan.apis.core.workload_validation import (
    TEMPLATE_PATH,
    validate_pod_template,
    validate_replica_status_update,
)
from stowplan.apis.kind.printing import (
    REPLICA_COLUMNS,
    TEMPLATE_COLUMNS,
    PrintedTable,
    containers_of,
    joined_labels,
)
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import BuiltinStrategy, StatusStrategy, selectable_fields
from stowplan.apis.machinery.errors import Cause, invalid, not_supported, required
from stowplan.apis.subresources.scale import scale_subresource
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

TYPES = """
ReplicationControllerConditionType = string

ReplicationController -- maintains a number of replica pods; predecessor of ReplicaSet.
  +PartialObjectMetadata
  spec ReplicationControllerSpec
  status ReplicationControllerStatus

ReplicationControllerSpec
  replicas int32? =1
  minReadySeconds int32
  selector {string}
  template PodTemplateSpec?

ReplicationControllerStatus
  replicas int32!
  fullyLabeledReplicas int32
  readyReplicas int32
  availableReplicas int32
  observedGeneration int64
  conditions [ReplicationControllerCondition] ~merge:type

ReplicationControllerCondition
  type ReplicationControllerConditionType!
  status ConditionStatus!
  +ConditionChange
"""


def _set_defaults(one: Tree) -> None:
    """Selector and labels default to the labels of the template."""
    labels = one["spec"].get("template", {}).get("metadata", {}).get("labels")
    if labels:
        if not one["spec"].get("selector"):
            one["spec"]["selector"] = dict(labels)
        if not one["metadata"].get("labels"):
            one["metadata"]["labels"] = dict(labels)


class OrphaningStrategy(BuiltinStrategy):
    """A kind whose dependents are orphaned unless the deletion has a policy."""

    orphans_by_default = True


def _validate(obj: Tree) -> Iterator[Cause]:
    """The selector is a map of labels; it matches the labels of the template."""
    spec = obj["spec"]
    yield from field_checks.not_negative(spec.get("minReadySeconds", 0), "spec.minReadySeconds")
    selector = spec.get("selector", {})
    if not selector:
        yield required("spec.selector")
    yield from field_checks.not_negative(spec.get("replicas", 0), "spec.replicas")
    template = spec.get("template")
    if template is None:
        yield required(TEMPLATE_PATH)
        return
    found = template["metadata"].get("labels", {})
    if any(found.get(key) != value for key, value in selector.items()):
        text = "`selector` does not match template `labels`"
        yield invalid(f"{TEMPLATE_PATH}.metadata.labels", found or None, text)
    yield from validate_pod_template(template, TEMPLATE_PATH)
    if template["spec"]["restartPolicy"] != "Always":
        yield not_supported(
            f"{TEMPLATE_PATH}.spec.restartPolicy", template["spec"]["restartPolicy"], ["Always"]
        )


def _cells(obj: Tree, now: float) -> list[Any]:
    spec = obj["spec"]
    return [*containers_of(spec.get("template")), joined_labels(spec.get("selector"))]


KIND = KindRegistration(
    kind="ReplicationController",
    types=TYPES,
    defaults={"core/v1.ReplicationController": _set_defaults},
    strategy=OrphaningStrategy(
        _validate, status={"replicas": 0}, counted=("spec",), storage_path="controllers"
    ),
    status=StatusStrategy(validate_replica_status_update),
    short_names=("rc",),
    categories=("all",),
    table=PrintedTable(f"{REPLICA_COLUMNS}, {TEMPLATE_COLUMNS}, Selector+", _cells),
    fields=selectable_fields("status.replicas"),
    subresources=(scale_subresource(plain_selector=True),),
)
