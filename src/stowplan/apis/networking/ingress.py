"""Ingress.

Source: kubernetes v1.36, pkg/registry/networking/ingress, pkg/apis/networking/validation,
pkg/printers/internalversion/printers.go.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from typing import Any

from stowplan.apis.kind.printing import NONE, PrintedTable
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import BuiltinStrategy, StatusStrategy
from stowplan.apis.machinery.errors import Cause, invalid, not_supported, required
from stowplan.apis.machinery.names import wildcard_subdomain_problems
from stowplan.apis.machinery.resource import ApiCall
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

TYPES = """
PathType = string

Ingress -- routes HTTP requests from outside to services.
  kind string
  apiVersion string
  metadata ObjectMeta
  spec IngressSpec
  status IngressStatus

IngressSpec
  ingressClassName string? -- the class whose controller implements this ingress.
  defaultBackend IngressBackend?
  tls [IngressTLS]
  rules [IngressRule]

IngressTLS
  hosts [string]
  secretName string

IngressRule
  host string
  http HTTPIngressRuleValue?

HTTPIngressRuleValue
  paths [HTTPIngressPath]!

HTTPIngressPath
  path string
  pathType PathType?!
  backend IngressBackend!

IngressBackend
  service IngressServiceBackend?
  resource core.TypedLocalObjectReference?

IngressServiceBackend
  name string!
  port ServiceBackendPort

ServiceBackendPort
  name string
  number int32

IngressStatus
  loadBalancer IngressLoadBalancerStatus

IngressLoadBalancerStatus
  ingress [IngressLoadBalancerIngress]

IngressLoadBalancerIngress
  ip string
  hostname string
  ports [IngressPortStatus]

IngressPortStatus
  port int32!
  protocol core.Protocol!
  error string?
"""
CLASS_ANNOTATION = "kubernetes.io/ingress.class"
_PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")
_BAD_IN_PATHS = ("//", "/./", "/../", "%2f", "%2F")
_BAD_AT_END = ("/..", "/.")
_PRINTED_MAX, _ADDRESS_WIDTH = 3, 16
_NOT_AN_ADDRESS = "must be a DNS name, not an IP address"


def _validate(obj: Tree) -> Iterator[Cause]:
    spec, path = obj["spec"], "spec"
    if not spec.get("rules") and "defaultBackend" not in spec:
        yield invalid(path, None, "either `defaultBackend` or `rules` must be specified")
    if "defaultBackend" in spec:
        yield from _validate_backend(spec["defaultBackend"], f"{path}.defaultBackend")
    for at, rule in enumerate(spec.get("rules", ())):
        yield from _validate_rule(rule, f"{path}.rules[{at}]")
    for at, tls in enumerate(spec.get("tls", ())):
        for index, host in enumerate(tls.get("hosts", ())):
            yield from _validate_host(host, f"{path}.tls[{at}].hosts[{index}]")
        if tls.get("secretName"):
            here = f"{path}.tls[{at}].secretName"
            yield from field_checks.dns_subdomain(tls["secretName"], here)
    if "ingressClassName" in spec:
        name = spec["ingressClassName"]
        yield from field_checks.dns_subdomain(name, f"{path}.ingressClassName")


def _validate_new(obj: Tree) -> Iterator[Cause]:
    yield from _validate(obj)
    noted = obj["metadata"].get("annotations", {}).get(CLASS_ANNOTATION)
    name = obj["spec"].get("ingressClassName")
    if noted is not None and name is not None and noted != name:
        text = "must match `ingressClassName` when both are specified"
        yield invalid(f"annotations.{CLASS_ANNOTATION}", noted, text)


def _validate_update(new: Tree, old: Tree) -> Iterator[Cause]:
    return _validate(new)


def _validate_host(host: str, path: str) -> Iterator[Cause]:
    if "*" in host:
        for text in wildcard_subdomain_problems(host):
            yield invalid(path, host, text)
    else:
        yield from field_checks.dns_subdomain(host, path)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _validate_rule(rule: Tree, path: str) -> Iterator[Cause]:
    host = rule.get("host", "")
    if host:
        if _is_address(host):
            yield invalid(f"{path}.host", host, _NOT_AN_ADDRESS)
        yield from _validate_host(host, f"{path}.host")
    if "http" in rule:
        paths = rule["http"]["paths"] or []
        if not paths:
            yield required(f"{path}.http.paths")
        for at, one in enumerate(paths):
            yield from _validate_path(one, f"{path}.http.paths[{at}]")


def _validate_path(one: Tree, path: str) -> Iterator[Cause]:
    kind, value = one["pathType"], one.get("path", "")
    if kind is None:
        yield required(f"{path}.pathType", "pathType must be specified")
        return
    here = f"{path}.path"
    if kind not in _PATH_TYPES:
        yield not_supported(f"{path}.pathType", kind, _PATH_TYPES)
    elif not value.startswith("/") and (value or kind != "ImplementationSpecific"):
        yield invalid(here, value, "must be an absolute path")
    if kind in ("Exact", "Prefix"):
        for bad in _BAD_IN_PATHS:
            if bad in value:
                yield invalid(here, value, f"must not contain '{bad}'")
        for bad in _BAD_AT_END:
            if value.endswith(bad):
                yield invalid(here, value, f"cannot end with '{bad}'")
    yield from _validate_backend(one["backend"], f"{path}.backend")


def _validate_backend(backend: Tree, path: str) -> Iterator[Cause]:
    service, resource = backend.get("service"), backend.get("resource")
    if service is not None and resource is not None:
        yield invalid(path, "", "cannot set both resource and service backends")
    elif resource is not None:
        yield from _validate_resource(resource, f"{path}.resource")
    elif service is None:
        yield invalid(path, "", "resource or service backend is required")
    else:
        here = f"{path}.service"
        yield from field_checks.needed(service["name"], field_checks.dns_label, f"{here}.name")
        name, number = service["port"].get("name", ""), service["port"].get("number", 0)
        if name and number:
            yield invalid(path, "", "cannot set both port name & port number")
        elif name:
            yield from field_checks.port_name(name, f"{here}.port.name")
        elif number:
            yield from field_checks.port_number(number, f"{here}.port.number")
        else:
            yield required(path, "port name or number is required")


def _validate_resource(reference: Tree, path: str) -> Iterator[Cause]:
    if "apiGroup" in reference:
        yield from field_checks.dns_subdomain(reference["apiGroup"], f"{path}.apiGroup")
    for name in ("kind", "name"):
        yield from field_checks.needed(reference[name], field_checks.path_segment, f"{path}.{name}")


def _validate_status_update(new: Tree, old: Tree) -> Iterator[Cause]:
    """Addresses and names of load balancers; addresses that are stored already are accepted."""
    path = "status.loadBalancer.ingress"
    known = {one.get("ip") for one in old["status"]["loadBalancer"].get("ingress", ())}
    for at, one in enumerate(new["status"]["loadBalancer"].get("ingress", ())):
        address, name = one.get("ip"), one.get("hostname")
        if address and address not in known:
            yield from field_checks.address(address, f"{path}[{at}].ip")
        if name:
            yield from field_checks.dns_subdomain(name, f"{path}[{at}].hostname")
            if _is_address(name):
                yield invalid(f"{path}[{at}].hostname", name, _NOT_AN_ADDRESS)


class IngressStrategy(BuiltinStrategy):
    """Ingresses: the annotation that once named the class is warned of."""

    def warnings(self, obj: Tree, old: Tree | None, call: ApiCall) -> Iterable[str]:
        annotations = obj["metadata"].get("annotations", {})
        named = "ingressClassName" in obj["spec"]
        if old is None and CLASS_ANNOTATION in annotations and not named:
            yield (
                f'annotation "{CLASS_ANNOTATION}" is deprecated, please use'
                " 'spec.ingressClassName' instead"
            )


def _hosts(rules: list[Tree]) -> str:
    hosts = [rule["host"] for rule in rules if rule.get("host")]
    if not hosts:
        return "*"
    # The original counts every rule, also those without a host, once it has printed three.
    full = [at for at, rule in enumerate(rules) if rule.get("host")][_PRINTED_MAX - 1 :]
    more = len(rules) - _PRINTED_MAX if full and full[0] < len(rules) - 1 else 0
    return ",".join(hosts[:_PRINTED_MAX]) + (f" + {more} more..." if more else "")


def _cells(obj: Tree, now: float) -> list[Any]:
    spec = obj["spec"]
    balancers = obj["status"]["loadBalancer"].get("ingress", ())
    found = {one.get("ip") or one.get("hostname") or "" for one in balancers} - {""}
    addresses = ",".join(sorted(found))
    if len(addresses) > _ADDRESS_WIDTH:
        addresses = f"{addresses[: _ADDRESS_WIDTH - 3]}..."
    return [_hosts(spec.get("rules", [])), addresses, "80, 443" if spec.get("tls") else "80"]


KIND = KindRegistration(
    group="networking.k8s.io",
    kind="Ingress",
    types=TYPES,
    strategy=IngressStrategy(
        _validate_new, _validate_update, status={"loadBalancer": {}}, counted=("spec",)
    ),
    status=StatusStrategy(_validate_status_update),
    short_names=("ing",),
    table=PrintedTable(
        f"Name, Class=spec.ingressClassName|{NONE}, Hosts, Address, Ports, Age", _cells
    ),
)
