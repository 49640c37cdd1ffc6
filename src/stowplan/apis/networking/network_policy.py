"""NetworkPolicy: stored and validated; nothing enforces it, as there is no network.

Source: kubernetes v1.36, pkg/registry/networking/networkpolicy, pkg/apis/networking/validation.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from typing import Any

from stowplan.apis.kind.printing import PrintedTable, selector_text
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import BuiltinStrategy
from stowplan.apis.machinery.errors import (
    Cause,
    forbidden_field,
    invalid,
    not_supported,
    required,
)
from stowplan.apis.machinery.resource import ApiCall
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

TYPES = """
PolicyType = string

NetworkPolicy -- which traffic pods accept and send.
  +PartialObjectMetadata
  spec NetworkPolicySpec

NetworkPolicySpec
  podSelector LabelSelector
  ingress [NetworkPolicyIngressRule]
  egress [NetworkPolicyEgressRule]
  policyTypes [PolicyType]

NetworkPolicyIngressRule
  ports [NetworkPolicyPort]
  from [NetworkPolicyPeer]

NetworkPolicyEgressRule
  ports [NetworkPolicyPort]
  to [NetworkPolicyPeer]

NetworkPolicyPort
  protocol core.Protocol? =TCP
  port IntOrString?
  endPort int32?

NetworkPolicyPeer
  podSelector LabelSelector?
  namespaceSelector LabelSelector?
  ipBlock IPBlock?

IPBlock
  cidr string!
  except [string]
"""
_PROTOCOLS = ("TCP", "UDP", "SCTP")
_TYPES = ("Egress", "Ingress")
_PEERS = {"ingress": "from", "egress": "to"}


def _set_defaults(one: Tree) -> None:
    """A policy without types is about ingress, and about egress if it has such rules."""
    spec = one["spec"]
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]


def _validate(obj: Tree, known: frozenset[str] = frozenset()) -> Iterator[Cause]:
    spec = obj["spec"]
    yield from field_checks.selector(spec["podSelector"], "spec.podSelector")
    for direction, peers in _PEERS.items():
        for at, rule in enumerate(spec.get(direction, ())):
            path = f"spec.{direction}[{at}]"
            for index, port in enumerate(rule.get("ports", ())):
                yield from _validate_port(port, f"{path}.ports[{index}]")
            for index, peer in enumerate(rule.get(peers, ())):
                yield from _validate_peer(peer, known, f"{path}.{peers}[{index}]")
    types = spec.get("policyTypes", [])
    if len(types) > len(_TYPES):
        yield invalid("spec.policyTypes", types, "may not specify more than two policyTypes")
        return
    for at, name in enumerate(types):
        if name not in _TYPES:
            yield not_supported(f"spec.policyTypes[{at}]", name, _TYPES)


def _validate_update(new: Tree, old: Tree) -> Iterator[Cause]:
    return _validate(new, frozenset(_ranges(old["spec"])))


def _ranges(spec: Tree) -> Iterator[str]:
    """Ranges of addresses that a stored policy has: they are not checked again."""
    for direction, peers in _PEERS.items():
        for rule in spec.get(direction, ()):
            for peer in rule.get(peers, ()):
                block = peer.get("ipBlock")
                if block is not None:
                    yield block["cidr"]
                    yield from block.get("except", ())


def _validate_port(one: Tree, path: str) -> Iterator[Cause]:
    protocol, port, end = one.get("protocol"), one.get("port"), one.get("endPort")
    if protocol is not None and protocol not in _PROTOCOLS:
        yield not_supported(f"{path}.protocol", protocol, _PROTOCOLS)
    here = f"{path}.endPort"
    if port is None:
        if end is not None:
            yield invalid(here, end, "may not be specified when `port` is not specified")
    elif isinstance(port, int):
        yield from field_checks.port_number(port, f"{path}.port")
        if end is not None:
            if end < port:
                yield invalid(here, port, "must be greater than or equal to `port`")
            yield from field_checks.port_number(end, here)
    else:
        if end is not None:
            yield invalid(here, end, "may not be specified when `port` is non-numeric")
        yield from field_checks.port_name(port, f"{path}.port")


def _validate_peer(peer: Tree, known: frozenset[str], path: str) -> Iterator[Cause]:
    given = [name for name in ("podSelector", "namespaceSelector") if name in peer]
    for name in given:
        yield from field_checks.selector(peer[name], f"{path}.{name}")
    if "ipBlock" in peer:
        yield from _validate_block(peer["ipBlock"], known, f"{path}.ipBlock")
        if given:
            yield forbidden_field(path, "may not specify both ipBlock and another peer")
    elif not given:
        yield required(path, "must specify a peer")


def _validate_block(block: Tree, known: frozenset[str], path: str) -> Iterator[Cause]:
    whole = block["cidr"]
    if not whole:
        yield required(f"{path}.cidr")
        return
    if whole not in known:
        yield from field_checks.network(whole, f"{path}.cidr")
    within = _network(whole)
    if within is None:
        return
    for at, text in enumerate(block.get("except", ())):
        here = f"{path}.except[{at}]"
        if text not in known:
            yield from field_checks.network(text, here)
        left_out = _network(text)
        if left_out is None:
            continue
        inside = left_out.network_address in within and left_out.prefixlen > within.prefixlen
        if not inside:
            yield invalid(here, text, "must be a strict subset of `cidr`")


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


class NetworkPolicyStrategy(BuiltinStrategy):
    """Policies: ranges of addresses that are not in their standard form are warned of."""

    def warnings(self, obj: Tree, old: Tree | None, call: ApiCall) -> Iterable[str]:
        for direction, peers in _PEERS.items():
            for at, rule in enumerate(obj["spec"].get(direction, ())):
                for index, peer in enumerate(rule.get(peers, ())):
                    block = peer.get("ipBlock")
                    path = f"spec.{direction}[{at}].{peers}[{index}].ipBlock"
                    if block is not None:
                        yield from _range_warnings(block["cidr"], f"{path}.cidr")
                        for place, text in enumerate(block.get("except", ())):
                            yield from _range_warnings(text, f"{path}.except[{place}]")


def _range_warnings(text: str, path: str) -> Iterator[str]:
    try:
        given = ipaddress.ip_interface(text)
    except ValueError:
        return
    if given.ip != given.network.network_address:
        alone = f"{given.ip}/{given.max_prefixlen}"
        yield (
            f'{path}: CIDR value "{text}" is ambiguous in this context (should be'
            f' "{given.network}" or "{alone}"?)'
        )


def _cells(obj: Tree, now: float) -> list[Any]:
    return [selector_text(obj["spec"]["podSelector"])]


KIND = KindRegistration(
    group="networking.k8s.io",
    kind="NetworkPolicy",
    types=TYPES,
    defaults={"networking/v1.NetworkPolicy": _set_defaults},
    strategy=NetworkPolicyStrategy(_validate, _validate_update, counted=("spec",)),
    short_names=("netpol",),
    table=PrintedTable("Name, Pod-Selector, Age", _cells),
)
