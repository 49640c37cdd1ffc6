"""ResourceClaim and ResourceClaimTemplate.

Source: kubernetes v1.36, pkg/registry/resource, pkg/apis/resource/validation/validation.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from stowplan.apis.kind.printing import NAME_AND_AGE, PrintedTable
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import (
    BuiltinStrategy,
    immutable_fields,
)
from stowplan.apis.machinery.errors import (
    Cause,
    invalid,
    not_supported,
    required,
)
from stowplan.apis.machinery.resource import ApiCall
from stowplan.apis.resource.claim_status import ClaimStatusStrategy, admin_access_causes
from stowplan.apis.resource.claim_status_validation import (
    REQUESTS_MAX,
    request_names,
    validate_claim_status,
    validate_request_names,
)
from stowplan.apis.resource.device_validation import (
    CONFIG_MAX,
    validate_device_config,
    validate_device_selectors,
    validate_full_attribute_name,
    validate_list,
    validate_set,
    validate_toleration,
)
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

TYPES = """
FullyQualifiedName DeviceTaintEffect DeviceAllocationMode DeviceTolerationOperator = string
AllocationConfigSource = string

ResourceClaim -- a request for devices.
  +PartialObjectMetadata
  spec ResourceClaimSpec! -- what is asked for; cannot be changed.
  status ResourceClaimStatus -- what was allocated, and who uses it.

ResourceClaimTemplate -- template of claims that are created per pod.
  +PartialObjectMetadata
  spec ResourceClaimTemplateSpec! -- the claims; cannot be changed.

ResourceClaimTemplateSpec
  metadata ObjectMeta -- labels and annotations of the claims.
  spec ResourceClaimSpec! -- what the claims ask for.

ResourceClaimSpec
  devices DeviceClaim! -- requests, constraints and configuration.

DeviceClaim
  requests [DeviceRequest]?! -- devices that are asked for; all must be met.
  constraints [DeviceConstraint] -- conditions on devices of several requests.
  config [DeviceClaimConfiguration] -- parameters for the drivers.

DeviceRequest
  name string! -- name by which containers and constraints refer to it.
  exactly ExactDeviceRequest? -- one way to meet the request.
  firstAvailable [DeviceSubRequest] -- ways in order of preference; the first that works.

ExactDeviceRequest
  deviceClassName string! -- class of the devices.
  selectors [DeviceSelector] -- CEL expressions; all must be true of a device.
  allocationMode DeviceAllocationMode =ExactCount -- ExactCount or All.
  count int64 -- number of devices with ExactCount; 1 by default.
  adminAccess bool? -- use devices without allocating them.
  tolerations [DeviceToleration] -- taints of devices that are tolerated.
  capacity CapacityRequirements? -- part of a device that is consumed.

DeviceSubRequest
  name string! -- name of this way; REQUEST/NAME in constraints.
  deviceClassName string! -- class of the devices.
  selectors [DeviceSelector] -- CEL expressions; all must be true of a device.
  allocationMode DeviceAllocationMode =ExactCount -- ExactCount or All.
  count int64 -- number of devices with ExactCount; 1 by default.
  tolerations [DeviceToleration] -- taints of devices that are tolerated.
  capacity CapacityRequirements? -- part of a device that is consumed.

CapacityRequirements
  requests {Quantity} -- amount of each capacity.

DeviceConstraint
  requests [string] -- requests it applies to; all where left out.
  matchAttribute FullyQualifiedName? -- attribute that must be equal in all devices.
  distinctAttribute FullyQualifiedName? -- attribute that must differ in all devices.

DeviceClaimConfiguration
  requests [string] -- requests it applies to; all where left out.
  opaque OpaqueDeviceConfiguration? -- parameters that only the driver reads.

DeviceToleration
  key string -- key of the taint; empty with Exists is every taint.
  operator DeviceTolerationOperator =Equal -- Equal or Exists.
  value string -- value of the taint, with Equal.
  effect DeviceTaintEffect -- NoSchedule or NoExecute; empty is every effect.
  tolerationSeconds int64? -- time that NoExecute is tolerated.

ResourceClaimStatus
  allocation AllocationResult? -- devices; empty while nothing is allocated.
  reservedFor [ResourceClaimConsumerReference] ~merge:uid -- pods and groups that may use the claim.
  devices [AllocatedDeviceStatus] -- state of the devices, written by drivers.

ResourceClaimConsumerReference
  apiGroup string -- API group; empty for core.
  resource string! -- pods, or podgroups.
  name string! -- name of the consumer.
  uid UID! -- uid of the consumer.

AllocationResult
  devices DeviceAllocationResult -- allocated devices and their configuration.
  nodeSelector core.NodeSelector? -- nodes where the devices can be used.
  allocationTimestamp Time? -- when it was allocated.

DeviceAllocationResult
  results [DeviceRequestAllocationResult] -- one entry per device.
  config [DeviceAllocationConfiguration] -- configuration from classes and claim.

DeviceRequestAllocationResult
  request string! -- request, or REQUEST/SUBREQUEST.
  driver string! -- driver of the device.
  pool string! -- pool of the device.
  device string! -- name of the device.
  adminAccess bool? -- the device is not allocated for it.
  tolerations [DeviceToleration] -- copied from the request.
  bindingConditions [string] -- must be True before pods are bound.
  bindingFailureConditions [string] -- one that is True frees the claim.
  shareID UID? -- which share of the device.
  consumedCapacity {Quantity} -- part of the device that is consumed.

DeviceAllocationConfiguration
  source AllocationConfigSource! -- FromClass or FromClaim.
  requests [string] -- requests it applies to; all where left out.
  opaque OpaqueDeviceConfiguration? -- parameters that only the driver reads.

AllocatedDeviceStatus
  driver string! -- driver of the device.
  pool string! -- pool of the device.
  device string! -- name of the device.
  shareID string? -- which share of the device.
  conditions [Condition]! -- state of the device.
  data JSON? -- what the driver reports.
  networkData NetworkDeviceData? -- addresses of a network device.

NetworkDeviceData
  interfaceName string -- name of the interface in the pod.
  ips [string] -- addresses with prefix length.
  hardwareAddress string -- MAC address.
"""
_ALLOCATION_MODES = ("All", "ExactCount")
_ALTERNATIVES_MAX, _TOLERATIONS_MAX = 8, 16


def _set_request_defaults(one: Tree) -> None:
    if one["allocationMode"] == "ExactCount":
        one.setdefault("count", 1)


def _validate(obj: Tree) -> Iterator[Cause]:
    return _validate_claim_spec(obj["spec"], "spec")


def _validate_claim_spec(spec: Tree, path: str) -> Iterator[Cause]:
    wanted, here = spec["devices"], f"{path}.devices"
    requests = wanted["requests"] or []
    names = request_names(requests)

    def constraint(one: Tree, there: str) -> Iterator[Cause]:
        yield from validate_request_names(one.get("requests", []), names, f"{there}.requests")
        yield from _validate_constraint(one, there)

    def config(one: Tree, there: str) -> Iterator[Cause]:
        yield from validate_request_names(one.get("requests", []), names, f"{there}.requests")
        yield from validate_device_config(one, there)

    yield from validate_set(requests, REQUESTS_MAX, _validate_request, f"{here}.requests")
    for name, check in (("constraints", constraint), ("config", config)):
        yield from validate_list(wanted.get(name, []), CONFIG_MAX, check, f"{here}.{name}")


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
    yield from admin_access_causes(f"spec.devices.requests[{at}].adminAccess", call)


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
    status=ClaimStatusStrategy(validate_claim_status),
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
