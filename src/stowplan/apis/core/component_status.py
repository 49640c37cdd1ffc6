"""ComponentStatus: no components are listed.

Source: kubernetes v1.36, pkg/registry/core/componentstatus.
"""

from __future__ import annotations

from stowplan.apis.kind.registration import KindRegistration

TYPES = """
ComponentConditionType = string

ComponentStatus
  +PartialObjectMetadata
  conditions [ComponentCondition] ~merge:type

ComponentCondition
  type ComponentConditionType!
  status ConditionStatus!
  message string
  error string
"""


KIND = KindRegistration(
    kind="ComponentStatus",
    types=TYPES,
    namespaced=False,
    verbs=("get", "list"),
    short_names=("cs",),
    deprecation="v1 ComponentStatus is deprecated in v1.19+",
)
