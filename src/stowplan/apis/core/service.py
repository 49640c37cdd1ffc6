"""Service: addresses and ports are allocated from those of the stored services.

Source: kubernetes v1.36, pkg/registry/core/service, pkg/apis/core/validation/validation.go.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from typing import Any

from stowplan.apis.core.service_warnings import service_warnings
from stowplan.apis.kind.printing import NONE, UNKNOWN, PrintedTable, joined_labels
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import StatusStrategy, restore_field, selectable_fields
from stowplan.apis.machinery.errors import (
    Cause,
    duplicate,
    forbidden_field,
    internal_error,
    invalid,
    invalid_object,
    required,
)
from stowplan.apis.machinery.names import label_problems
from stowplan.apis.machinery.resource import ApiCall, ResourceStrategy
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

TYPES = """
ServiceAffinity ServiceType IPFamily IPFamilyPolicy ServiceInternalTrafficPolicy = string
ServiceExternalTrafficPolicy LoadBalancerIPMode = string

Service -- exposes a set of pods under one address.
  +PartialObjectMetadata
  spec ServiceSpec
  status ServiceStatus

ServiceSpec
  ports [ServicePort] ~merge:port
  selector {string} -- the pods that it routes to.
  clusterIP string
  clusterIPs [string]
  type ServiceType =ClusterIP
  externalIPs [string]
  sessionAffinity ServiceAffinity =None
  loadBalancerIP string
  loadBalancerSourceRanges [string]
  externalName string
  externalTrafficPolicy ServiceExternalTrafficPolicy
  healthCheckNodePort int32
  publishNotReadyAddresses bool
  sessionAffinityConfig SessionAffinityConfig?
  ipFamilies [IPFamily]
  ipFamilyPolicy IPFamilyPolicy?
  allocateLoadBalancerNodePorts bool?
  loadBalancerClass string?
  internalTrafficPolicy ServiceInternalTrafficPolicy?
  trafficDistribution string?

ServicePort
  name string
  protocol Protocol =TCP
  appProtocol string?
  port int32!
  targetPort IntOrString
  nodePort int32

SessionAffinityConfig
  clientIP ClientIPConfig?

ClientIPConfig
  timeoutSeconds int32?

ServiceStatus
  loadBalancer LoadBalancerStatus
  conditions [Condition] ~merge:type

LoadBalancerStatus
  ingress [LoadBalancerIngress]

LoadBalancerIngress
  ip string
  hostname string
  ipMode LoadBalancerIPMode?
  ports [PortStatus]

PortStatus
  port int32!
  protocol Protocol!
  error string?
"""
CLUSTER_IP_RANGE = ipaddress.ip_network("10.0.0.0/24")
_NODE_PORTS = range(30000, 32768)
_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_ADDRESS = ("clusterIP", "clusterIPs")
_FAMILIES = ("IPv4", "IPv6")
_POLICIES = ("PreferDualStack", "RequireDualStack", "SingleStack")


def _set_defaults(one: Tree) -> None:
    spec = one["spec"]
    _set_affinity_defaults(spec)
    for port in spec.get("ports", ()):
        if port["targetPort"] in (0, ""):
            port["targetPort"] = port["port"]
    kind = spec["type"]
    outside = kind in ("NodePort", "LoadBalancer") or (
        kind == "ClusterIP" and bool(spec.get("externalIPs"))
    )
    if outside:
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if kind in ("NodePort", "LoadBalancer", "ClusterIP"):
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if kind == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
        for ingress in one["status"]["loadBalancer"].get("ingress", ()):
            if ingress.get("ip"):
                ingress.setdefault("ipMode", "VIP")


def _set_affinity_defaults(spec: Tree) -> None:
    if spec["sessionAffinity"] == "None":
        spec.pop("sessionAffinityConfig", None)
    elif spec["sessionAffinity"] == "ClientIP":
        within = spec.get("sessionAffinityConfig", {}).get("clientIP", {})
        if "timeoutSeconds" not in within:
            spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": 10800}}


class ServiceStrategy(ResourceStrategy):
    """Service."""

    create_on_update = True
    returns_deleted = True
    storage_path = "services/specs"

    def name_problems(self, name: str, prefix: bool) -> list[str]:
        return label_problems(name, prefix)

    def prepare_create(self, obj: Tree, call: ApiCall) -> None:
        obj["status"] = {"loadBalancer": {}}
        spec = obj["spec"]
        if spec.get("clusterIP") and not spec.get("clusterIPs"):
            spec["clusterIPs"] = [spec["clusterIP"]]
        _allocate(obj, None, call)

    def prepare_update(self, new: Tree, old: Tree, call: ApiCall) -> None:
        restore_field(new, old, "status")
        new["status"] = dict(new["status"])
        _keep_allocated(new["spec"], old["spec"])
        _sync_cluster_ip(new["spec"], old["spec"])
        _allocate(new, old, call)
        _drop_unused_fields(new, old)

    def validate(self, obj: Tree, call: ApiCall) -> Iterable[Cause]:
        return _validate(obj)

    def validate_update(self, new: Tree, old: Tree, call: ApiCall) -> Iterable[Cause]:
        yield from _validate_update(new["spec"], old["spec"])
        yield from _validate(new)

    def warnings(self, obj: Tree, old: Tree | None, call: ApiCall) -> Iterable[str]:
        return service_warnings(obj)


def _keep_allocated(spec: Tree, before: Tree) -> None:
    """Keep allocated addresses and ports that an update leaves out."""
    outside = "ExternalName"
    if outside not in (spec["type"], before["type"]):
        for name in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if not spec.get(name):
                restore_field(spec, before, name)
    if _has_node_ports(spec) and _has_node_ports(before):
        used = {one.get("nodePort", 0) for one in before.get("ports", ())}
        used &= {one.get("nodePort", 0) for one in spec.get("ports", ())}
        known = {one.get("name", ""): one.get("nodePort", 0) for one in before.get("ports", ())}
        for one in spec.get("ports", ()):
            number = known.get(one.get("name", ""), 0)
            if not one.get("nodePort") and number and number not in used:
                one["nodePort"] = number


def _has_node_ports(spec: Tree) -> bool:
    if spec["type"] == "LoadBalancer":
        return bool(spec.get("allocateLoadBalancerNodePorts", True))
    return bool(spec["type"] == "NodePort")


def _sync_cluster_ip(spec: Tree, before: Tree) -> None:
    """Apply a change of clusterIP to clusterIPs, for clients that set only clusterIP."""
    one, was = spec.get("clusterIP", ""), before.get("clusterIP", "")
    several, were = spec.get("clusterIPs", []), before.get("clusterIPs", [])
    if were and not several and one == was:
        spec["clusterIPs"] = were
    elif one != was and several == were:
        if was and not one:
            spec.pop("clusterIPs", None)
        else:
            spec["clusterIPs"] = [one]


def _drop_unused_fields(new: Tree, old: Tree) -> None:
    """Drop fields that the new type does not use, unless the client changed them."""
    spec, before = new["spec"], old["spec"]
    kind, was = spec["type"], before["type"]
    if kind == "ExternalName" and was != kind:
        if [spec.get(n) for n in _ADDRESS] == [before.get(n) for n in _ADDRESS]:
            for name in _ADDRESS:
                spec.pop(name, None)
        for name in ("ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"):
            if spec.get(name) == before.get(name):
                spec.pop(name, None)
    if _has_node_ports(before) and not _has_node_ports(spec):
        numbers = [one.get("nodePort", 0) for one in spec.get("ports", ())]
        if set(numbers) == {one.get("nodePort", 0) for one in before.get("ports", ())}:
            for one in spec.get("ports", ()):
                one.pop("nodePort", None)
    if was == "LoadBalancer" and kind != was:
        for name in ("allocateLoadBalancerNodePorts", "loadBalancerClass"):
            if spec.get(name) == before.get(name):
                spec.pop(name, None)
    outside = ("NodePort", "LoadBalancer")
    policy = "externalTrafficPolicy"
    if was in outside and kind not in outside and spec.get(policy) == before.get(policy):
        spec.pop(policy, None)
    if kind != "LoadBalancer":
        new["status"]["loadBalancer"] = {}


def _allocate(obj: Tree, old: Tree | None, call: ApiCall) -> None:
    """Allocate addresses and ports. Raises ApiError 422 for requested ones that are taken."""
    spec = obj["spec"]
    if spec["type"] == "ExternalName":
        return
    headless = spec.get("clusterIP") == "None"
    _choose_families(obj, headless)
    taken, ports = _allocated(obj, call)
    same = old is not None and spec.get("clusterIP") == old["spec"].get("clusterIP")
    if not headless and not (same and spec.get("clusterIP")):
        if spec.get("clusterIP"):
            if old is None or old["spec"]["type"] == "ExternalName":
                _refuse_allocated_address(obj, taken)
        else:
            spec["clusterIP"] = _free_address(taken, call)
            spec["clusterIPs"] = [spec["clusterIP"]]
    if spec["type"] in ("NodePort", "LoadBalancer"):
        own = old["spec"].get("ports", []) if old is not None else []
        _refuse_allocated_ports(obj, ports, {one.get("nodePort", 0) for one in own})
        if _has_node_ports(spec):
            _allocate_node_ports(spec, ports, call)


def _allocated(obj: Tree, call: ApiCall) -> tuple[set[str], set[int]]:
    """Addresses and node ports of the other services."""
    addresses: set[str] = {str(CLUSTER_IP_RANGE[0]), str(CLUSTER_IP_RANGE[-1])}
    ports: set[int] = set()
    uid = obj["metadata"].get("uid")
    for other in call.objects.list(call.resource):
        if other["metadata"].get("uid") == uid:
            continue
        addresses.update(other["spec"].get("clusterIPs", ()))
        ports.update(one["nodePort"] for one in other["spec"].get("ports", ()) if "nodePort" in one)
    return addresses, ports


def _choose_families(obj: Tree, headless: bool) -> None:
    """Set IP families: the cluster has IPv4; headless services without selector may have both."""
    spec = obj["spec"]
    loose = headless and not spec.get("selector")
    policy = spec.setdefault("ipFamilyPolicy", "RequireDualStack" if loose else "SingleStack")
    families = spec.setdefault("ipFamilies", ["IPv4"])
    causes = []
    if policy == "SingleStack" and len(families) > 1:
        text = "must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are"
        causes.append(invalid("spec.ipFamilyPolicy", policy, f"{text} specified"))
    elif loose:
        if policy != "SingleStack" and len(families) == 1:
            families += [family for family in _FAMILIES if family not in families]
    else:
        if policy == "RequireDualStack":
            text = "this cluster is not configured for dual-stack services"
            causes.append(invalid("spec.ipFamilyPolicy", policy, text))
        for at, family in enumerate(families):
            if family == "IPv6":
                text = "not configured on this cluster"
                causes.append(invalid(f"spec.ipFamilies[{at}]", family, text))
    if causes:
        raise invalid_object("", "Service", obj["metadata"].get("name", ""), causes)


def _refuse_allocated_address(obj: Tree, taken: set[str]) -> None:
    wanted = obj["spec"]["clusterIP"]
    text = ""
    try:
        address = ipaddress.ip_address(wanted)
    except ValueError:
        # Validation reports values that are not addresses.
        return
    if address not in CLUSTER_IP_RANGE:
        text = f"the provided IP ({wanted}) is not in the valid range. The range of valid IPs is"
        text = f"{text} {CLUSTER_IP_RANGE}"
    elif wanted in taken:
        text = "provided IP is already allocated"
    if text:
        message = f"failed to allocate IP {wanted}: {text}"
        cause = invalid("spec.clusterIPs", obj["spec"].get("clusterIPs"), message)
        raise invalid_object("", "Service", obj["metadata"].get("name", ""), [cause])


def _refuse_allocated_ports(obj: Tree, taken: set[int], own: set[int]) -> None:
    for at, one in enumerate(obj["spec"].get("ports", ())):
        number = one.get("nodePort", 0)
        if not number or number in own:
            continue
        text = "provided port is already allocated" if number in taken else ""
        if number not in _NODE_PORTS:
            first, last = _NODE_PORTS[0], _NODE_PORTS[-1]
            text = "provided port is not in the valid range. The range of valid ports is"
            text = f"{text} {first}-{last}"
        if text:
            cause = invalid(f"spec.ports[{at}].nodePort", number, text)
            raise invalid_object("", "Service", obj["metadata"].get("name", ""), [cause])


def _free_address(taken: set[str], call: ApiCall) -> str:
    if call.dry_run:
        # Nothing is allocated; the original prints the start of its range.
        return str(CLUSTER_IP_RANGE.network_address)
    free = [str(one) for one in CLUSTER_IP_RANGE.hosts() if str(one) not in taken]
    if not free:
        cause = invalid("spec.clusterIPs", [], "failed to allocate a serviceIP: range is full")
        raise invalid_object("", "Service", call.name, [cause])
    return free[call.rng.integers(len(free)).item()]


def _allocate_node_ports(spec: Tree, taken: set[int], call: ApiCall) -> None:
    for one in spec.get("ports", ()):
        if one.get("nodePort"):
            taken.add(one["nodePort"])
    free = [number for number in _NODE_PORTS if number not in taken]
    for one in spec.get("ports", ()):
        if not one.get("nodePort"):
            if not free:
                raise internal_error("failed to allocate a nodePort: range is full")
            one["nodePort"] = free.pop(call.rng.integers(len(free)).item())
            taken.add(one["nodePort"])


def _validate(obj: Tree) -> Iterator[Cause]:
    spec = obj["spec"]
    kind = spec["type"]
    headless = spec.get("clusterIP") == "None"
    ports = spec.get("ports", [])
    if not ports and not headless and kind != "ExternalName":
        yield required("spec.ports")
    if kind in ("LoadBalancer", "NodePort") and headless:
        yield invalid("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {kind} services")
    if kind == "ExternalName":
        yield from _external_name(spec)
    names: set[str] = set()
    for at, port in enumerate(ports):
        yield from _port(port, len(ports) > 1, headless, names, f"spec.ports[{at}]")
    yield from field_checks.labels(spec.get("selector", {}), "spec.selector")
    yield from field_checks.one_of(
        spec["sessionAffinity"], ("ClientIP", "None"), "spec.sessionAffinity"
    )
    yield from _addresses(spec)
    yield from field_checks.one_of(kind, _TYPES, "spec.type")
    yield from _port_numbers(ports, kind)


def _external_name(spec: Tree) -> Iterator[Cause]:
    for name in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if spec.get(name):
            yield forbidden_field(f"spec.{name}", "may not be set for ExternalName services")
    target = spec.get("externalName", "").removesuffix(".")
    if target:
        yield from field_checks.dns_subdomain(target, "spec.externalName")
    else:
        yield required("spec.externalName")


def _port(one: Tree, several: bool, headless: bool, names: set[str], path: str) -> Iterator[Cause]:
    name = one.get("name", "")
    if several and not name:
        yield required(f"{path}.name")
    elif name:
        yield from field_checks.dns_label(name, f"{path}.name")
        yield from field_checks.unique(name, names, f"{path}.name")
    yield from field_checks.port_number(one["port"], f"{path}.port")
    yield from field_checks.one_of(one["protocol"], _PROTOCOLS, f"{path}.protocol")
    yield from field_checks.port_number_or_name(one["targetPort"], f"{path}.targetPort")
    if "appProtocol" in one:
        yield from field_checks.qualified_name(one["appProtocol"], f"{path}.appProtocol")


def _addresses(spec: Tree) -> Iterator[Cause]:
    if spec["type"] != "ExternalName":
        yield from _cluster_addresses(spec)
    for at, address in enumerate(spec.get("externalIPs", ())):
        yield from field_checks.address(address, f"spec.externalIPs[{at}]")


def _cluster_addresses(spec: Tree) -> Iterator[Cause]:
    path, one, several = "spec.clusterIPs", spec.get("clusterIP"), spec.get("clusterIPs", [])
    if one and not several:
        yield required(path)
    elif one and several[0] != one:
        yield invalid(path, several, "first value must match `clusterIP`")
    elif several and not one:
        yield invalid(path, several, "must be empty when `clusterIP` is not specified")
    families = spec.get("ipFamilies", [])
    known: set[str] = set()
    for at, family in enumerate(families):
        yield from field_checks.one_of(family, _FAMILIES, f"spec.ipFamilies[{at}]")
        yield from field_checks.unique(family, known, f"spec.ipFamilies[{at}]")
    policy = spec.get("ipFamilyPolicy")
    yield from field_checks.one_of(policy, _POLICIES, "spec.ipFamilyPolicy")
    for at, address in enumerate(several):
        if at == 0 and address == "None":
            if len(several) > 1:
                yield invalid(path, several, "'None' must be the first and only value")
            continue
        yield from field_checks.address(address, f"{path}[{at}]")
    if len(several) > 2:
        yield invalid(path, several, "may only hold up to 2 values")


def _port_numbers(ports: list[Tree], kind: str) -> Iterator[Cause]:
    if kind == "ClusterIP":
        for at, one in enumerate(ports):
            if one.get("nodePort"):
                text = "may not be used when `type` is 'ClusterIP'"
                yield forbidden_field(f"spec.ports[{at}].nodePort", text)
    numbers: set[tuple[str, int]] = set()
    for at, one in enumerate(ports):
        number = one.get("nodePort", 0)
        if number and (one["protocol"], number) in numbers:
            yield duplicate(f"spec.ports[{at}].nodePort", number)
        numbers.add((one["protocol"], number))
    seen: set[tuple[str, int]] = set()
    for at, one in enumerate(ports):
        pair = (one["protocol"], one["port"])
        if pair in seen:
            printed = {
                "Name": "",
                "Protocol": one["protocol"],
                "AppProtocol": None,
                "Port": one["port"],
                "TargetPort": 0,
                "NodePort": 0,
            }
            yield duplicate(f"spec.ports[{at}]", printed)
        seen.add(pair)


def _validate_update(new: Tree, old: Tree) -> Iterator[Cause]:
    if old["type"] == "ExternalName" or new["type"] == "ExternalName":
        return
    given, before = new.get("clusterIPs", []), old.get("clusterIPs", [])
    path, fixed = "spec.clusterIPs", "may not change once set"
    if given[:1] == before[:1] == ["None"]:
        return
    if len(given) == len(before):
        for at, (one, was) in enumerate(zip(given, before, strict=True)):
            if one != was:
                yield invalid(f"{path}[{at}]", given, fixed)
    elif not given:
        yield invalid(f"{path}[0]", None, "primary clusterIP can not be unset")
    elif before and given[0] != before[0]:
        yield invalid(f"{path}[0]", given, fixed)
    families, had = new.get("ipFamilies", []), old.get("ipFamilies", [])
    if "None" not in (*given, *before) and families[:1] != had[:1]:
        yield invalid("spec.ipFamilies[0]", families, fixed)


def _validate_status_update(new: Tree, old: Tree) -> Iterator[Cause]:
    """Only load balancers have ingress addresses."""
    ingress = new["status"]["loadBalancer"].get("ingress", [])
    if ingress and new["spec"]["type"] != "LoadBalancer":
        text = "may only be used when `spec.type` is 'LoadBalancer'"
        yield forbidden_field("status.loadBalancer.ingress", text)
    for at, one in enumerate(ingress):
        here = f"status.loadBalancer.ingress[{at}]"
        if one.get("ip"):
            yield from field_checks.address(one["ip"], f"{here}.ip")
        if one.get("hostname"):
            yield from field_checks.dns_subdomain(one["hostname"], f"{here}.hostname")


def _cells(obj: Tree, now: float) -> list[Any]:
    spec = obj["spec"]
    ips = spec.get("clusterIPs") or [NONE]
    ports = ",".join(
        f"{one['port']}:{one['nodePort']}/{one['protocol']}"
        if one.get("nodePort")
        else f"{one['port']}/{one['protocol']}"
        for one in spec.get("ports", ())
    )
    return [ips[0], _external_ip(obj), ports or NONE, joined_labels(spec.get("selector"))]


def _external_ip(obj: Tree) -> str:
    spec = obj["spec"]
    given = spec.get("externalIPs", [])
    match spec["type"]:
        case "ClusterIP" | "NodePort":
            return ",".join(given) or NONE
        case "LoadBalancer":
            ingress = obj["status"]["loadBalancer"].get("ingress", ())
            found = {one.get("ip") or one.get("hostname") or "" for one in ingress} - {""}
            return ",".join([*sorted(found), *given]) or "<pending>"
        case "ExternalName":
            return str(spec.get("externalName", ""))
    return UNKNOWN


KIND = KindRegistration(
    kind="Service",
    types=TYPES,
    defaults={"core/v1.Service": _set_defaults},
    strategy=ServiceStrategy(),
    status=StatusStrategy(_validate_status_update),
    short_names=("svc",),
    categories=("all",),
    table=PrintedTable(
        "Name, Type=spec.type, Cluster-IP, External-IP, Port(s), Age, Selector+", _cells
    ),
    fields=selectable_fields("spec.clusterIP", "spec.type"),
)
