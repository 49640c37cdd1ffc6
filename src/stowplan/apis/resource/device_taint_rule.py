"""DeviceTaintRule of resource.k8s.io/v1beta2, served with the gate DRADeviceTaintRules.

Source: kubernetes v1.36, pkg/registry/resource/devicetaintrule, pkg/apis/resource/v1beta2 and
validation, pkg/printers/internalversion.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stowplan.apis.kind.conditions import validate_conditions
from stowplan.apis.kind.printing import PrintedTable
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import METADATA_RESET_FIELDS, BuiltinStrategy, StatusStrategy
from stowplan.apis.machinery import timestamps
from stowplan.apis.machinery.errors import Cause, too_many
from stowplan.apis.machinery.resource import ApiCall
from stowplan.apis.resource.device_validation import (
    validate_driver_name,
    validate_pool_name,
    validate_taint,
)
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

TYPES = """
DeviceTaintRule -- a taint for the devices that a selector matches.
  +PartialObjectMetadata
  spec DeviceTaintRuleSpec! -- the taint, and for which devices.
  status DeviceTaintRuleStatus! -- last observed state.

DeviceTaintRuleSpec
  deviceSelector DeviceTaintSelector? -- devices that get the taint; none without it.
  taint DeviceTaint! -- the taint.

DeviceTaintSelector
  driver string? -- devices of this driver.
  pool string? -- devices of this pool.
  device string? -- the device of this name.

DeviceTaint
  key string! -- key of the taint.
  value string -- value of the taint.
  effect string! -- None, NoSchedule or NoExecute.
  timeAdded Time? -- when it was added; NoExecute counts from it.

DeviceTaintRuleStatus
  conditions [Condition] ~merge:type
"""
_CONDITIONS_MAX = 8
_SELECTED = {
    "driver": validate_driver_name,
    "pool": validate_pool_name,
    "device": field_checks.dns_label,
}


class DeviceTaintRuleStrategy(BuiltinStrategy):
    """DeviceTaintRule: `timeAdded` says since when the taint has had its effect."""

    def prepare_create(self, obj: Tree, call: ApiCall) -> None:
        super().prepare_create(obj, call)
        obj["spec"]["taint"].setdefault("timeAdded", timestamps.format_time(call.now))

    def prepare_update(self, new: Tree, old: Tree, call: ApiCall) -> None:
        taint, before = new["spec"]["taint"], old["spec"]["taint"]
        is_other = taint["effect"] != before["effect"]
        if "timeAdded" not in taint or (is_other and taint["timeAdded"] == before["timeAdded"]):
            taint["timeAdded"] = timestamps.format_time(call.now)
        super().prepare_update(new, old, call)


def _validate(obj: Tree) -> Iterator[Cause]:
    spec = obj["spec"]
    selector = spec.get("deviceSelector") or {}
    for name, check in _SELECTED.items():
        if name in selector:
            yield from check(selector[name], f"spec.deviceSelector.{name}")
    yield from validate_taint(spec["taint"], "spec.taint")


def _validate_status(new: Tree, old: Tree) -> Iterator[Cause]:
    conditions = new["status"].get("conditions", [])
    yield from validate_conditions(conditions, "status.conditions")
    if len(conditions) > _CONDITIONS_MAX:
        yield too_many("status.conditions", len(conditions), _CONDITIONS_MAX)


def _cells(obj: Tree, now: float) -> list[Any]:
    return [timestamps.human_age(obj["spec"]["taint"].get("timeAdded"), now)]


KIND = KindRegistration(
    group="resource.k8s.io",
    version="v1beta2",
    kind="DeviceTaintRule",
    types=TYPES,
    namespaced=False,
    stored_as="v1alpha3",
    strategy=DeviceTaintRuleStrategy(_validate, counted=("spec",), status={}, returns_deleted=True),
    status=StatusStrategy(_validate_status, meta=METADATA_RESET_FIELDS),
    table=PrintedTable(
        "Name, Key=spec.taint.key, Value=spec.taint.value, Effect=spec.taint.effect, "
        "TimeAdded, Age",
        _cells,
    ),
)
