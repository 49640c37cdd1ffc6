"""EndpointSlice.

Source: kubernetes v1.36, pkg/registry/discovery/endpointslice, pkg/apis/discovery/validation,
pkg/printers/internalversion/printers.go.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from typing import Any

from stowplan.apis.kind.printing import UNSET, PrintedTable
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import BuiltinStrategy
from stowplan.apis.machinery.errors import Cause, duplicate, invalid, required, too_many
from stowplan.apis.machinery.names import label_value_problems
from stowplan.apis.machinery.resource import ApiCall
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

TYPES = """
AddressType = string

EndpointSlice -- some of the endpoints of a Service.
  kind string
  apiVersion string
  metadata ObjectMeta
  addressType AddressType!
  endpoints [Endpoint]!
  ports [EndpointPort]!

Endpoint
  addresses [string]!
  conditions EndpointConditions
  hostname string?
  targetRef core.ObjectReference?
  deprecatedTopology {string}
  nodeName string?
  zone string?
  hints EndpointHints?

EndpointConditions
  ready bool?
  serving bool?
  terminating bool?

EndpointHints
  forZones [ForZone]
  forNodes [ForNode]

ForZone
  name string!

ForNode
  name string!

EndpointPort
  name string?
  protocol core.Protocol? =TCP
  port int32?
  appProtocol string?
"""
SERVICE_NAME_LABEL = "kubernetes.io/service-name"
MANAGED_BY_LABEL = "endpointslice.kubernetes.io/managed-by"
HINTS_MAX = 8
PORTS_MAX = 20_000
ENDPOINTS_MAX = 1000
"""Endpoints of one slice."""
_ADDRESSES_MAX = 100
_ADDRESS_TYPES = ("FQDN", "IPv4", "IPv6")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_PRINTED_MAX = 3


def _set_port_defaults(one: Tree) -> None:
    one.setdefault("name", "")


def _validate(obj: Tree, old: Tree | None = None) -> Iterator[Cause]:
    yield from field_checks.supported_value(obj["addressType"], _ADDRESS_TYPES, "addressType")
    yield from _validate_ports(obj.get("ports") or [])
    endpoints = obj.get("endpoints") or []
    if old is not None and endpoints == (old.get("endpoints") or []):
        return
    if len(endpoints) > ENDPOINTS_MAX:
        yield too_many("endpoints", len(endpoints), ENDPOINTS_MAX)
        return
    for at, endpoint in enumerate(endpoints):
        yield from _validate_endpoint(endpoint, obj["addressType"], f"endpoints[{at}]")


def _validate_ports(ports: list[Tree]) -> Iterator[Cause]:
    seen: set[str] = set()
    if len(ports) > PORTS_MAX:
        yield too_many("ports", len(ports), PORTS_MAX)
        return
    for at, port in enumerate(ports):
        here, name = f"ports[{at}]", port.get("name", "")
        if name:
            yield from field_checks.dns_label(name, f"{here}.name")
        if name in seen:
            yield duplicate(f"{here}.name", name)
        seen.add(name)
        yield from field_checks.supported_value(
            port.get("protocol", ""), _PROTOCOLS, f"{here}.protocol"
        )
        if "appProtocol" in port:
            yield from field_checks.qualified_name(port["appProtocol"], f"{here}.appProtocol")


def _validate_endpoint(endpoint: Tree, address_type: str, path: str) -> Iterator[Cause]:
    addresses = endpoint["addresses"] or []
    if not addresses:
        yield required(f"{path}.addresses", "must contain at least 1 address")
    elif len(addresses) > _ADDRESSES_MAX:
        yield too_many(f"{path}.addresses", len(addresses), _ADDRESSES_MAX)
    for at, address in enumerate(addresses):
        if address_type == "FQDN":
            yield from field_checks.domain_name(address, f"{path}.addresses[{at}]")
            continue
        if address_type not in _ADDRESS_TYPES:
            continue
        causes = list(field_checks.address(address, f"{path}.addresses[{at}]"))
        yield from causes
        if causes:
            continue
        if f"IPv{ipaddress.ip_address(address).version}" != address_type:
            yield invalid(f"{path}.addresses", address, f"must be an {address_type} address")
        yield from field_checks.endpoint_address(address, f"{path}.addresses[{at}]")
    if "nodeName" in endpoint:
        yield from field_checks.dns_subdomain(endpoint["nodeName"], f"{path}.nodeName")
    if "hostname" in endpoint:
        yield from field_checks.dns_label(endpoint["hostname"], f"{path}.hostname")
    for name, check in (("forZones", _zone_name), ("forNodes", field_checks.dns_subdomain)):
        hints = (endpoint.get("hints") or {}).get(name) or []
        if len(hints) > HINTS_MAX:
            yield too_many(f"{path}.hints.{name}", len(hints), HINTS_MAX)
            return
        seen: set[str] = set()
        for at, hint in enumerate(hints):
            here = f"{path}.hints.{name}[{at}].name"
            yield from field_checks.unique(hint["name"], seen, here)
            yield from check(hint["name"], here)


def _zone_name(name: str, path: str) -> Iterator[Cause]:
    for text in label_value_problems(name):
        yield invalid(path, name, text)


def _validate_update(new: Tree, old: Tree) -> Iterator[Cause]:
    """The address type is immutable."""
    yield from _validate(new, old)
    yield from field_checks.immutable(new["addressType"], old["addressType"], "addressType")


class EndpointSliceStrategy(BuiltinStrategy):
    """Slices: addresses that are domain names are warned of."""

    def warnings(self, obj: Tree, old: Tree | None, call: ApiCall) -> Iterable[str]:
        if obj["addressType"] == "FQDN":
            yield "spec.addressType: FQDN endpoints are deprecated"


def _joined(texts: list[str]) -> str:
    if not texts:
        return UNSET
    more = len(texts) - _PRINTED_MAX
    return ",".join(texts[:_PRINTED_MAX]) + (f" + {more} more..." if more > 0 else "")


def _cells(obj: Tree, now: float) -> list[Any]:
    ports = [str(port.get("port", port.get("name", "*"))) for port in obj.get("ports") or ()]
    endpoints = obj.get("endpoints") or ()
    addresses = [address for endpoint in endpoints for address in endpoint["addresses"]]
    return [_joined(ports), _joined(addresses)]


KIND = KindRegistration(
    group="discovery.k8s.io",
    kind="EndpointSlice",
    types=TYPES,
    defaults={"discovery/v1.EndpointPort": _set_port_defaults},
    strategy=EndpointSliceStrategy(
        _validate, _validate_update, counted=("addressType", "endpoints", "ports")
    ),
    table=PrintedTable("Name, AddressType=addressType, Ports, Endpoints, Age", _cells),
)
