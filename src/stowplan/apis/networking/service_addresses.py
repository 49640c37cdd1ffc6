"""IPAddress and ServiceCIDR: the addresses of services and the ranges that they are from.

Source: kubernetes v1.36, pkg/registry/networking, pkg/apis/networking/validation.

Differs: services get addresses from the range that every cluster has; another range is stored,
and none is taken from it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Any

from stowplan.apis.kind.printing import NONE, PrintedTable
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import (
    METADATA_RESET_FIELDS,
    BuiltinStrategy,
    StatusStrategy,
    immutable_fields,
)
from stowplan.apis.machinery.errors import Cause, invalid, required
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

TYPES = """
IPAddress -- an address that a service has.
  +PartialObjectMetadata
  spec IPAddressSpec

IPAddressSpec
  parentRef ParentReference?

ParentReference
  group string
  resource string
  namespace string
  name string

ServiceCIDR -- ranges of addresses for services.
  kind string
  apiVersion string
  metadata ObjectMeta
  spec ServiceCIDRSpec
  status ServiceCIDRStatus

ServiceCIDRSpec
  cidrs [string] ~atomic

ServiceCIDRStatus
  conditions [Condition] ~merge:type
"""
ADDRESS_PATH = "networking.k8s.io/ipaddresses"
FAMILY_LABEL = "ipaddress.kubernetes.io/ip-family"
MANAGER_LABEL = "ipaddress.kubernetes.io/managed-by"
ALLOCATOR = "ipallocator.k8s.io"
DEFAULT_RANGE_NAME = "kubernetes"
_RANGES_MAX = 2


def _address_name_problems(name: str, prefix: bool) -> list[str]:
    return [
        cause.message.partition(": ")[2].partition(": ")[2]
        for cause in field_checks.canonical_address(name, "")
    ]


def _validate_address(obj: Tree) -> Iterator[Cause]:
    parent = obj["spec"].get("parentRef")
    if parent is None:
        yield required("spec.parentRef")
        return
    path = "spec.parentRef"
    if parent.get("group"):
        yield from field_checks.dns_subdomain(parent["group"], f"{path}.group")
    for name in ("resource", "name"):
        yield from field_checks.needed(
            parent.get(name, ""), field_checks.path_segment, f"{path}.{name}"
        )
    if parent.get("namespace"):
        yield from field_checks.path_segment(parent["namespace"], f"{path}.namespace")


def _validate_range(obj: Tree) -> Iterator[Cause]:
    given, path = obj["spec"].get("cidrs", []), "spec.cidrs"
    if not given:
        yield required(path, "at least one CIDR required")
        return
    if len(given) > _RANGES_MAX:
        yield invalid(path, {"CIDRs": given}, "may only hold up to 2 values")
        return
    problems = [
        cause
        for at, one in enumerate(given)
        for cause in field_checks.canonical_network(one, f"{path}[{at}]")
    ]
    yield from problems
    families = [_family(one) for one in given]
    if len(given) == _RANGES_MAX and families[0] == families[1] != 0:
        text = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and"
        yield invalid(path, given, f"{text} 2001:db8::/64")


def _family(text: str) -> int:
    """4 or 6; 0 if the text is no range."""
    try:
        return ipaddress.ip_network(text, strict=False).version
    except ValueError:
        return 0


def _validate_range_update(new: Tree, old: Tree) -> Iterator[Cause]:
    """Ranges stay; a second one may be added to the first."""
    given, before = (one["spec"].get("cidrs", []) for one in (new, old))
    path = "spec.cidrs"
    if len(given) == len(before) or (len(before), len(given)) == (1, 2):
        for at, (one, was) in enumerate(zip(given, before, strict=False)):
            yield from field_checks.immutable(one, was, f"{path}[{at}]")
        if len(given) != len(before):
            yield from _validate_range(new)
    else:
        yield invalid(path, given, field_checks.IMMUTABLE)


def _parent_cell(obj: Tree, now: float) -> list[Any]:
    parent = obj["spec"].get("parentRef")
    if parent is None:
        return [NONE]
    group = f".{parent['group']}" if parent.get("group") else ""
    place = f"/{parent['namespace']}" if parent.get("namespace") else ""
    return [f"{parent.get('resource', '')}{group}".lower() + f"{place}/{parent.get('name', '')}"]


def _range_cell(obj: Tree, now: float) -> list[Any]:
    return [",".join(obj["spec"].get("cidrs", ()))]


def service_address(address: str, namespace: str, service: str) -> Tree:
    """The IPAddress of a service."""
    family = f"IPv{ipaddress.ip_address(address).version}"
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "IPAddress",
        "metadata": {"name": address, "labels": {FAMILY_LABEL: family, MANAGER_LABEL: ALLOCATOR}},
        "spec": {"parentRef": {"resource": "services", "namespace": namespace, "name": service}},
    }


KIND = KindRegistration(
    group="networking.k8s.io",
    kind="IPAddress",
    types=TYPES,
    namespaced=False,
    strategy=BuiltinStrategy(
        _validate_address, immutable_fields("spec.parentRef"), names=_address_name_problems
    ),
    short_names=("ip",),
    table=PrintedTable("Name, ParentRef, Age", _parent_cell),
)
RANGE_KIND = KindRegistration(
    group="networking.k8s.io",
    kind="ServiceCIDR",
    namespaced=False,
    strategy=BuiltinStrategy(_validate_range, _validate_range_update, status={}),
    status=StatusStrategy(meta=METADATA_RESET_FIELDS),
    table=PrintedTable("Name, CIDRs, Age", _range_cell),
)
