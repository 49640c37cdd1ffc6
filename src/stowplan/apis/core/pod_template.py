"""PodTemplate.

Source: kubernetes v1.36, pkg/registry/core/podtemplate, pkg/apis/core/validation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stowplan.apis.core.workload_validation import validate_pod_template
from stowplan.apis.kind.printing import PrintedTable, containers_of, joined_labels
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import BuiltinStrategy
from stowplan.apis.machinery.errors import Cause
from stowplan.objects.encoding.tree import Tree

TYPES = """
PodTemplate -- a template of pods.
  +PartialObjectMetadata
  template PodTemplateSpec

PodTemplateSpec -- metadata and spec of the pods of a workload.
  metadata ObjectMeta
  spec PodSpec
"""


def _validate(obj: Tree) -> Iterator[Cause]:
    return validate_pod_template(obj["template"], "template")


def _cells(obj: Tree, now: float) -> list[Any]:
    template = obj["template"]
    return [*containers_of(template), joined_labels(template["metadata"].get("labels"))]


KIND = KindRegistration(
    kind="PodTemplate",
    types=TYPES,
    strategy=BuiltinStrategy(_validate, counted=("template",), returns_deleted=True),
    table=PrintedTable("Name, Containers, Images, Pod Labels", _cells),
)
