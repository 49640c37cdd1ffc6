"""Endpoints, deprecated in favour of EndpointSlice.

Source: kubernetes v1.36, pkg/registry/core/endpoint, pkg/apis/core/validation/validation.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stowplan.apis.kind.printing import NONE, PrintedTable
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import BuiltinStrategy
from stowplan.apis.machinery.errors import Cause, required
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

TYPES = """
Endpoints
  +PartialObjectMetadata
  subsets [EndpointSubset]

EndpointSubset
  addresses [EndpointAddress]
  notReadyAddresses [EndpointAddress]
  ports [EndpointPort]

EndpointAddress
  ip string!
  hostname string
  nodeName string?
  targetRef ObjectReference?

EndpointPort
  name string
  port int32!
  protocol Protocol =TCP
  appProtocol string?
"""


def _validate(obj: Tree) -> Iterator[Cause]:
    for at, subset in enumerate(obj.get("subsets", ())):
        here = f"subsets[{at}]"
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            yield required(here, "must specify `addresses` or `notReadyAddresses`")
        for name in ("addresses", "notReadyAddresses"):
            for index, one in enumerate(subset.get(name, ())):
                yield from field_checks.address(one["ip"], f"{here}.{name}[{index}].ip")
                if one.get("hostname"):
                    yield from field_checks.dns_label(
                        one["hostname"], f"{here}.{name}[{index}].hostname"
                    )
        ports = subset.get("ports", [])
        for index, port in enumerate(ports):
            there = f"{here}.ports[{index}]"
            if len(ports) > 1 and not port.get("name"):
                yield required(f"{there}.name")
            elif port.get("name"):
                yield from field_checks.dns_label(port["name"], f"{there}.name")
            yield from field_checks.port_number(port["port"], f"{there}.port")
            yield from field_checks.supported_value(
                port["protocol"], ("SCTP", "TCP", "UDP"), f"{there}.protocol"
            )


def _cells(obj: Tree, now: float) -> list[Any]:
    printed: list[str] = []
    for subset in obj.get("subsets", ()):
        addresses = [one["ip"] for one in subset.get("addresses", ())]
        ports = subset.get("ports", [])
        if not ports:
            printed += addresses
        printed += [
            f"[{ip}]:{port['port']}" if ":" in ip else f"{ip}:{port['port']}"
            for port in ports
            for ip in addresses
        ]
    text = ",".join(printed[:3])
    if len(printed) > 3:
        text += f" + {len(printed) - 3} more..."
    return [text if obj.get("subsets") else NONE]


KIND = KindRegistration(
    kind="Endpoints",
    types=TYPES,
    strategy=BuiltinStrategy(_validate, create_on_update=True, storage_path="services/endpoints"),
    deprecation="v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
    short_names=("ep",),
    table=PrintedTable("Name, Endpoints, Age", _cells),
)
