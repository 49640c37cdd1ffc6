"""Node.

Source: kubernetes v1.36, pkg/registry/core/node/strategy.go, pkg/apis/core/validation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from stowplan.apis.core import pod_scheduling
from stowplan.apis.core.pod_lifecycle import node_annotation_problems
from stowplan.apis.kind.printing import NONE, UNKNOWN, PrintedTable
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import restore_field, selectable_flag
from stowplan.apis.machinery.errors import Cause, duplicate, forbidden_field, invalid
from stowplan.apis.machinery.resource import ApiCall, ResourceStrategy
from stowplan.apis.resource.node_devices import device_problems
from stowplan.apis.validation import field_checks, resource_requirements
from stowplan.objects.encoding.tree import Tree

TYPES = """
UniqueVolumeName NodePhase NodeConditionType NodeAddressType = string

Node -- a worker machine.
  +PartialObjectMetadata
  spec NodeSpec -- desired state.
  status NodeStatus -- last observed state.

NodeSpec
  podCIDR string -- addresses for its pods.
  podCIDRs [string] ~merge -- addresses for its pods, one per family.
  providerID string -- name of the machine at its cloud provider.
  unschedulable bool -- no new pods are scheduled here.
  taints [Taint] -- repel pods without a matching toleration.
  configSource NodeConfigSource?
  externalID string

NodeConfigSource
  configMap ConfigMapNodeConfigSource?

ConfigMapNodeConfigSource
  namespace string!
  name string!
  uid UID
  resourceVersion string
  kubeletConfigKey string!

NodeStatus
  capacity ResourceList -- total resources of the node.
  allocatable ResourceList -- resources available for pods.
  phase NodePhase -- no longer used.
  conditions [NodeCondition] ~merge:type -- Ready, MemoryPressure, DiskPressure, PIDPressure.
  addresses [NodeAddress] ~merge:type -- host name and addresses.
  daemonEndpoints NodeDaemonEndpoints -- ports of its daemons.
  nodeInfo NodeSystemInfo -- versions and identifiers of the machine.
  images [ContainerImage] -- container images on the node.
  volumesInUse [UniqueVolumeName] -- attachable volumes that its pods use.
  volumesAttached [AttachedVolume] -- volumes that are attached.
  config NodeConfigStatus?
  runtimeHandlers [NodeRuntimeHandler] -- what its container runtimes can do.
  features NodeFeatures? -- what its container runtime supports.
  declaredFeatures [string] -- features that the scheduler matches with pods.

NodeConfigStatus
  assigned NodeConfigSource?
  active NodeConfigSource?
  lastKnownGood NodeConfigSource?
  error string

NodeDaemonEndpoints
  kubeletEndpoint DaemonEndpoint

DaemonEndpoint
  Port int32!

NodeSystemInfo
  machineID string! -- of /etc/machine-id.
  systemUUID string! -- identifier of the hardware.
  bootID string! -- changes with each boot.
  kernelVersion string! -- as uname -r prints it.
  osImage string! -- name of the operating system's image.
  containerRuntimeVersion string! -- RUNTIME://VERSION.
  kubeletVersion string! -- version of the kubelet.
  kubeProxyVersion string! -- no longer used.
  operatingSystem string! -- linux or windows.
  architecture string! -- amd64, arm64 and others.
  swap NodeSwapStatus?

NodeSwapStatus
  capacity int64?

NodeRuntimeHandler
  name string!
  features NodeRuntimeHandlerFeatures?

NodeRuntimeHandlerFeatures
  recursiveReadOnlyMounts bool?
  userNamespaces bool?

NodeFeatures
  supplementalGroupsPolicy bool?

AttachedVolume
  name UniqueVolumeName! -- name of the volume.
  devicePath string! -- where it is attached.

ContainerImage
  names [string]! -- names by which the image is known.
  sizeBytes int64 -- its size; counts for the ImageLocality score.

NodeCondition
  type NodeConditionType! -- Ready, MemoryPressure and others.
  status ConditionStatus! -- True, False or Unknown.
  lastHeartbeatTime Time -- when the kubelet last reported it.
  +ConditionChange

NodeAddress
  type NodeAddressType! -- Hostname, InternalIP, ExternalIP, InternalDNS or ExternalDNS.
  address string! -- the address.

Taint -- repels pods that do not tolerate it.
  key string! -- key of the taint.
  value string -- value of the taint.
  effect TaintEffect! -- NoSchedule, PreferNoSchedule or NoExecute.
  timeAdded Time? -- when it was added; NoExecute counts from it.
"""
_FEATURE = re.compile(r"([A-Z][A-Za-z0-9]*)(/[A-Za-z0-9]+)*")
_CIDR_ONCE = 'node updates may not change podCIDR except from "" to valid'
_ROLE = "node-role.kubernetes.io/"


def _set_spec_defaults(one: Tree) -> None:
    """podCIDR and the first of podCIDRs are the same."""
    first, several = one.get("podCIDR"), one.get("podCIDRs")
    if first and (not several or several[0] != first):
        one["podCIDRs"] = [first]
    elif several and not first:
        one["podCIDR"] = several[0]


def _set_status_defaults(one: Tree) -> None:
    """allocatable is capacity unless it is set."""
    if "allocatable" not in one and "capacity" in one:
        one["allocatable"] = dict(one["capacity"])


class NodeStrategy(ResourceStrategy):
    """Node."""

    storage_path = "minions"

    def prepare_create(self, obj: Tree, call: ApiCall) -> None:
        obj["spec"].pop("configSource", None)
        obj["status"].pop("config", None)

    def prepare_update(self, new: Tree, old: Tree, call: ApiCall) -> None:
        restore_field(new, old, "status")
        if "configSource" not in old["spec"]:
            new["spec"].pop("configSource", None)

    def validate(self, obj: Tree, call: ApiCall) -> Iterable[Cause]:
        spec = obj["spec"]
        yield from pod_scheduling.taints(spec.get("taints", []), "metadata.taints")
        yield from _validate_amounts(obj)
        yield from _validate_features(obj["status"].get("declaredFeatures", []))
        cidrs = spec.get("podCIDRs", [])
        for at, value in enumerate(cidrs):
            yield from field_checks.network(value, f"spec.podCIDRs[{at}]")
        if len(cidrs) > 1 and (len(cidrs) > 2 or len({":" in one for one in cidrs}) != 2):
            text = "may specify no more than one CIDR for each IP family"
            yield invalid("spec.podCIDRs", cidrs, text)

    def validate_update(self, new: Tree, old: Tree, call: ApiCall) -> Iterable[Cause]:
        yield from self.validate(new, call)
        yield from _validate_update(new, old)

    def warnings(self, obj: Tree, old: Tree | None, call: ApiCall) -> Iterable[str]:
        if "configSource" in obj["spec"]:
            yield "spec.configSource: the feature is removed"
        if obj["spec"].get("externalID"):
            yield "spec.externalID: this field is deprecated, and is unused by Kubernetes"
        notes = obj["metadata"].get("annotations") or {}
        for text in (*node_annotation_problems(notes), *device_problems(notes)):
            yield f"metadata.annotations: {text}"


class NodeStatusStrategy(ResourceStrategy):
    """`nodes/status`."""

    def prepare_update(self, new: Tree, old: Tree, call: ApiCall) -> None:
        restore_field(new, old, "spec")
        if "config" not in old["status"]:
            new["status"].pop("config", None)

    def validate_update(self, new: Tree, old: Tree, call: ApiCall) -> Iterable[Cause]:
        return _validate_update(new, old)


def _validate_update(new: Tree, old: Tree) -> Iterator[Cause]:
    spec, before = new["spec"], old["spec"]
    yield from _validate_amounts(new)
    yield from _validate_features(new["status"].get("declaredFeatures", []))
    seen: set[tuple[str, str]] = set()
    for at, one in enumerate(new["status"].get("addresses", ())):
        pair = (one["type"], one["address"])
        if pair in seen:
            printed = {"Type": one["type"], "Address": one["address"]}
            yield duplicate(f"status.addresses[{at}]", printed)
        seen.add(pair)
    cidrs, were = spec.get("podCIDRs", []), before.get("podCIDRs", [])
    if were and len(cidrs) != len(were):
        yield forbidden_field("spec.podCIDRs", _CIDR_ONCE)
    elif were:
        for value, was in zip(cidrs, were, strict=True):
            if value != was:
                yield forbidden_field("spec.podCIDRs", _CIDR_ONCE)
    if before.get("providerID") and before["providerID"] != spec.get("providerID"):
        text = 'node updates may not change providerID except from "" to valid'
        yield forbidden_field("spec.providerID", text)
    yield from pod_scheduling.taints(spec.get("taints", []), "metadata.taints")
    if spec.get("externalID", "") != before.get("externalID", ""):
        yield forbidden_field("spec.externalID", "may not be updated")


def _validate_amounts(node: Tree) -> Iterator[Cause]:
    for which in ("capacity", "allocatable"):
        for name, value in sorted(node["status"].get(which, {}).items()):
            yield from resource_requirements.validate_resource_quantity(
                name, value, f"status.{which}.{name}"
            )


def _validate_features(given: list[str]) -> Iterator[Cause]:
    for at, name in enumerate(given):
        if not _FEATURE.fullmatch(name):
            text = (
                f"invalid feature name {field_checks.quoted(name)}: must start "
                "with an UpperCamelCase segment, with subsequent segments separated by '/' "
                "(e.g., MyFeature or MyFeature/mySubFeature), and contain only "
                "alphanumeric characters and slashes"
            )
            yield invalid(f"status.declaredFeatures[{at}]", name, text)
        if at + 1 < len(given):
            here = f"status.declaredFeatures[{at + 1}]"
            if name == given[at + 1]:
                yield duplicate(here, name)
            elif name > given[at + 1]:
                yield invalid(here, given[at + 1], "list must be sorted alphabetically")


def _cells(obj: Tree, now: float) -> list[Any]:
    status, spec = obj["status"], obj["spec"]
    ready = [one["status"] for one in status.get("conditions", ()) if one["type"] == "Ready"]
    state = "Unknown"
    if ready:
        state = "Ready" if ready[-1] == "True" else "NotReady"
    if spec.get("unschedulable"):
        state += ",SchedulingDisabled"
    info = status["nodeInfo"]
    kernel = info["kernelVersion"] or UNKNOWN
    if info["architecture"]:
        kernel += f" ({info['architecture']})"
    return [
        state,
        ",".join(_roles(obj["metadata"].get("labels", {}))) or NONE,
        _address(status, "InternalIP"),
        _address(status, "ExternalIP"),
        info["osImage"] or UNKNOWN,
        kernel,
        info["containerRuntimeVersion"] or UNKNOWN,
    ]


def _roles(labels: dict[str, str]) -> list[str]:
    found = set()
    for key, value in labels.items():
        if key.startswith(_ROLE) and key != _ROLE:
            found.add(key.removeprefix(_ROLE))
        elif key == "kubernetes.io/role" and value:
            found.add(value)
    return sorted(found)


def _address(status: Tree, kind: str) -> str:
    for one in status.get("addresses", ()):
        if one["type"] == kind:
            return str(one["address"])
    return NONE


KIND = KindRegistration(
    kind="Node",
    types=TYPES,
    defaults={"core/v1.NodeSpec": _set_spec_defaults, "core/v1.NodeStatus": _set_status_defaults},
    namespaced=False,
    strategy=NodeStrategy(),
    status=NodeStatusStrategy(),
    short_names=("no",),
    table=PrintedTable(
        "Name, Status, Roles, Age, Version=status.nodeInfo.kubeletVersion, Internal-IP+, "
        "External-IP+, OS-Image+, Kernel-Version+, Container-Runtime+",
        _cells,
    ),
    fields={"spec.unschedulable": selectable_flag("spec.unschedulable")},
)
