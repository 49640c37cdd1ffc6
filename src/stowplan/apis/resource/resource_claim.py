"""ResourceClaim and ResourceClaimTemplate.

Source: kubernetes v1.36, pkg/registry/resource, pkg/apis/resource/validation/validation.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from stowplan.apis.core import pod_scheduling
from stowplan.apis.kind.printing import NAME_AND_AGE, PrintedTable
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import (
    METADATA_RESET_FIELDS,
    BuiltinStrategy,
    StatusStrategy,
    immutable_fields,
)
from stowplan.apis.machinery.errors import (
    Cause,
    forbidden_field,
    invalid,
    not_supported,
    required,
    too_many,
)
from stowplan.apis.machinery.resource import ApiCall
from stowplan.apis.resource.device_validation import (
    CONFIG_MAX,
    validate_device_config,
    validate_device_selectors,
    validate_driver_name,
    validate_full_attribute_name,
    validate_list,
    validate_set,
    validate_toleration,
)
from stowplan.apis.schema.internal_form import internal_form
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

TYPES = """
FullyQualifiedName DeviceTaintEffect DeviceAllocationMode DeviceTolerationOperator = string
AllocationConfigSource = string

ResourceClaim -- a request for devices.
  +PartialObjectMetadata
  spec ResourceClaimSpec!
  status ResourceClaimStatus

ResourceClaimTemplate -- template of claims that are created per pod.
  +PartialObjectMetadata
  spec ResourceClaimTemplateSpec!

ResourceClaimTemplateSpec
  metadata ObjectMeta
  spec ResourceClaimSpec!

ResourceClaimSpec
  devices DeviceClaim!

DeviceClaim
  requests [DeviceRequest]?!
  constraints [DeviceConstraint]
  config [DeviceClaimConfiguration]

DeviceRequest
  name string!
  exactly ExactDeviceRequest?
  firstAvailable [DeviceSubRequest]

ExactDeviceRequest
  deviceClassName string!
  selectors [DeviceSelector]
  allocationMode DeviceAllocationMode =ExactCount
  count int64
  adminAccess bool?
  tolerations [DeviceToleration]
  capacity CapacityRequirements?

DeviceSubRequest
  name string!
  deviceClassName string!
  selectors [DeviceSelector]
  allocationMode DeviceAllocationMode =ExactCount
  count int64
  tolerations [DeviceToleration]
  capacity CapacityRequirements?

CapacityRequirements
  requests {Quantity}

DeviceConstraint
  requests [string]
  matchAttribute FullyQualifiedName?
  distinctAttribute FullyQualifiedName?

DeviceClaimConfiguration
  requests [string]
  opaque OpaqueDeviceConfiguration?

DeviceToleration
  key string
  operator DeviceTolerationOperator =Equal
  value string
  effect DeviceTaintEffect
  tolerationSeconds int64?

ResourceClaimStatus
  allocation AllocationResult?
  reservedFor [ResourceClaimConsumerReference] ~merge:uid
  devices [AllocatedDeviceStatus]

ResourceClaimConsumerReference
  apiGroup string
  resource string!
  name string!
  uid UID!

AllocationResult
  devices DeviceAllocationResult
  nodeSelector core.NodeSelector?
  allocationTimestamp Time?

DeviceAllocationResult
  results [DeviceRequestAllocationResult]
  config [DeviceAllocationConfiguration]

DeviceRequestAllocationResult
  request string!
  driver string!
  pool string!
  device string!
  adminAccess bool?
  tolerations [DeviceToleration]
  bindingConditions [string]
  bindingFailureConditions [string]
  shareID UID?
  consumedCapacity {Quantity}

DeviceAllocationConfiguration
  source AllocationConfigSource!
  requests [string]
  opaque OpaqueDeviceConfiguration?

AllocatedDeviceStatus
  driver string!
  pool string!
  device string!
  shareID string?
  conditions [Condition]!
  data JSON?
  networkData NetworkDeviceData?

NetworkDeviceData
  interfaceName string
  ips [string]
  hardwareAddress string
"""
_REQUESTS_MAX = 32
_ALLOCATION_MODES = ("All", "ExactCount")
_ALTERNATIVES_MAX, _TOLERATIONS_MAX = 8, 16
ADMIN_ACCESS_LABEL = "resource.kubernetes.io/admin-access"


def _set_request_defaults(one: Tree) -> None:
    if one["allocationMode"] == "ExactCount":
        one.setdefault("count", 1)


def _validate(obj: Tree) -> Iterator[Cause]:
    return _validate_claim_spec(obj["spec"], "spec")


def _validate_claim_spec(spec: Tree, path: str) -> Iterator[Cause]:
    wanted, here = spec["devices"], f"{path}.devices"
    requests = wanted["requests"] or []
    names = _request_names(requests)

    def constraint(one: Tree, there: str) -> Iterator[Cause]:
        yield from _validate_request_names(one.get("requests", []), names, f"{there}.requests")
        yield from _validate_constraint(one, there)

    def config(one: Tree, there: str) -> Iterator[Cause]:
        yield from _validate_request_names(one.get("requests", []), names, f"{there}.requests")
        yield from validate_device_config(one, there)

    yield from validate_set(requests, _REQUESTS_MAX, _validate_request, f"{here}.requests")
    for name, check in (("constraints", constraint), ("config", config)):
        yield from validate_list(wanted.get(name, []), CONFIG_MAX, check, f"{here}.{name}")


def _request_names(requests: list[Tree]) -> set[str]:
    names = {one["name"] for one in requests}
    return names | {
        f"{one['name']}/{sub['name']}" for one in requests for sub in one.get("firstAvailable", ())
    }


def _validate_request(one: Tree, path: str) -> Iterator[Cause]:
    yield from field_checks.dns_label(one["name"], f"{path}.name")
    exact, first = one.get("exactly"), one.get("firstAvailable", [])
    text = "exactly one of `exactly` or `firstAvailable` is required"
    if exact is None and not first:
        yield required(path, text)
    elif exact is not None and first:
        yield invalid(path, None, f"{text}, but multiple fields are set")
    elif exact is not None:
        yield from _validate_exact_request(exact, f"{path}.exactly")
    else:
        there = f"{path}.firstAvailable"
        yield from validate_set(first, _ALTERNATIVES_MAX, _validate_subrequest, there)


def _validate_subrequest(one: Tree, path: str) -> Iterator[Cause]:
    yield from field_checks.dns_label(one["name"], f"{path}.name")
    yield from _validate_exact_request(one, path)


def _validate_exact_request(one: Tree, path: str) -> Iterator[Cause]:
    yield from field_checks.needed(
        one["deviceClassName"], field_checks.dns_subdomain, f"{path}.deviceClassName"
    )
    yield from validate_device_selectors(one.get("selectors", []), f"{path}.selectors")
    mode, count = one["allocationMode"], one.get("count", 0)
    if mode == "All":
        if count:
            text = "must not be specified when allocationMode is 'All'"
            yield invalid(f"{path}.count", count, text)
    elif mode == "ExactCount":
        if count <= 0:
            yield invalid(f"{path}.count", count, field_checks.POSITIVE)
    else:
        yield not_supported(f"{path}.allocationMode", mode, _ALLOCATION_MODES)
    tolerations = one.get("tolerations", [])
    here = f"{path}.tolerations"
    yield from validate_list(tolerations, _TOLERATIONS_MAX, validate_toleration, here)


def _validate_constraint(one: Tree, path: str) -> Iterator[Cause]:
    for name in ("matchAttribute", "distinctAttribute"):
        if name in one:
            yield from validate_full_attribute_name(one[name], f"{path}.{name}")
            return
    text = 'exactly one of "matchAttribute" or "distinctAttribute" is required'
    yield required(path, f"{text}, but multiple fields are set")


def _validate_request_names(given: list[str], names: set[str], path: str) -> Iterator[Cause]:
    def check(name: str, here: str) -> Iterator[Cause]:
        yield from _validate_request_name(name, names, here)

    return validate_set(given, _REQUESTS_MAX, check, path)


def _validate_status_update(new: Tree, old: Tree) -> Iterator[Cause]:
    """The allocation is immutable; a claim is reserved only while it is allocated."""
    status, before = new["status"], old["status"]
    reserved, allocation = status.get("reservedFor", []), status.get("allocation")
    was = before.get("allocation")
    if len(reserved) > 256:
        yield too_many("status.reservedFor", len(reserved), 256)
    seen: set[str] = set()
    for at, one in enumerate(reserved):
        here = f"status.reservedFor[{at}]"
        for name in ("resource", "name", "uid"):
            if not one[name]:
                yield required(f"{here}.{name}")
        yield from field_checks.unique(one["uid"], seen, f"{here}.uid")
    if reserved and allocation is None:
        text = "may not be specified when `allocated` is not set"
        yield forbidden_field("status.reservedFor", text)
    if was is not None and allocation is not None and allocation != was:
        printed = internal_form("resource/v1.AllocationResult", allocation)
        yield invalid("status.allocation", printed, field_checks.IMMUTABLE)
    if allocation is not None:
        yield from _validate_allocation(allocation, new["spec"])


def _validate_allocation(allocation: Tree, spec: Tree) -> Iterator[Cause]:
    names = _request_names(spec["devices"]["requests"] or [])
    path = "status.allocation.devices.results"
    for at, one in enumerate(allocation["devices"].get("results", ())):
        yield from _validate_request_name(one["request"], names, f"{path}[{at}].request")
        yield from validate_driver_name(one["driver"], f"{path}[{at}].driver")
        yield from field_checks.dns_label(one["device"], f"{path}[{at}].device")
    selector = allocation.get("nodeSelector")
    if selector is not None:
        yield from pod_scheduling.node_selector(selector, "status.allocation.nodeSelector")


def _validate_request_name(name: str, names: set[str], path: str) -> Iterator[Cause]:
    parts = name.split("/")
    for part in parts if len(parts) <= 2 else ():
        yield from field_checks.dns_label(part, path)
    if name not in names:
        text = (
            "must be the name of a request in the claim or the name of a request and a subrequest"
        )
        yield invalid(path, name, f"{text} separated by '/'")


class ResourceClaimStrategy(BuiltinStrategy):
    """Claims and templates: an empty list of requests is stored as null."""

    def validate(self, obj: Tree, call: ApiCall) -> Iterable[Cause]:
        yield from super().validate(obj, call)
        yield from _admin_access_causes(obj, call)

    def canonicalize(self, obj: Tree) -> None:
        spec = obj["spec"]
        devices = spec["devices"] if "devices" in spec else spec["spec"]["devices"]
        devices["requests"] = devices["requests"] or None


def _admin_access_causes(obj: Tree, call: ApiCall) -> Iterator[Cause]:
    """Admin access is for namespaces with a label."""
    spec = obj["spec"]
    requests = (spec if "devices" in spec else spec["spec"])["devices"]["requests"] or []
    at = next(
        (at for at, one in enumerate(requests) if one.get("exactly", {}).get("adminAccess")), None
    )
    if at is None:
        return
    kind = call.objects.registry.find("", "v1", "namespaces")
    if kind is None:
        return
    namespace = call.objects.peek(kind, "", call.namespace) or {"metadata": {}}
    if namespace["metadata"].get("labels", {}).get(ADMIN_ACCESS_LABEL) != "true":
        text = f"admin access to devices requires the `{ADMIN_ACCESS_LABEL}: true` label"
        path = f"spec.devices.requests[{at}].adminAccess"
        yield forbidden_field(path, f"{text} on the containing namespace")


def _cells(obj: Tree, now: float) -> list[Any]:
    deleting = bool(obj["metadata"].get("deletionTimestamp"))
    states = ["deleted"] if deleting else []
    if "allocation" not in obj["status"]:
        states += [] if deleting else ["pending"]
    else:
        states.append("allocated")
        if obj["status"].get("reservedFor"):
            states.append("reserved")
    return [",".join(states)]


def _validate_template(obj: Tree) -> Iterator[Cause]:
    return _validate_claim_spec(obj["spec"]["spec"], "spec.spec")


KIND = KindRegistration(
    group="resource.k8s.io",
    kind="ResourceClaim",
    types=TYPES,
    defaults={
        "resource/v1.ExactDeviceRequest": _set_request_defaults,
        "resource/v1.DeviceSubRequest": _set_request_defaults,
    },
    strategy=ResourceClaimStrategy(
        _validate,
        immutable_fields("spec", printed_as="resource/v1.ResourceClaimSpec"),
        status={},
        returns_deleted=True,
    ),
    status=StatusStrategy(_validate_status_update, meta=METADATA_RESET_FIELDS),
    table=PrintedTable("Name, State, Age", _cells),
)
TEMPLATE_KIND = KindRegistration(
    group="resource.k8s.io",
    kind="ResourceClaimTemplate",
    strategy=ResourceClaimStrategy(
        _validate_template,
        immutable_fields("spec", printed_as="resource/v1.ResourceClaimTemplateSpec"),
        returns_deleted=True,
    ),
    table=NAME_AND_AGE,
)
