"""Config maps, secrets, endpoints, limit ranges and quotas: what is valid in them.

Source: kubernetes v1.36, pkg/apis/core/validation/validation.go.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from typing import Any

from stowplan.apis.machinery.errors import (
    TOO_LONG,
    Cause,
    duplicate,
    forbidden_field,
    invalid,
    required,
)
from stowplan.apis.machinery.resource import ApiCall, ResourceStrategy
from stowplan.apis.schema import canonical_quantity
from stowplan.apis.schema.internal_form import internal_form
from stowplan.apis.validation import field_checks, resource_requirements

Tree = dict[str, Any]

_SIZE_MAX = 1 << 20
_LIMIT_TYPES = ("Container", "PersistentVolumeClaim", "Pod")
_SCOPES = (
    "BestEffort",
    "CrossNamespacePodAffinity",
    "NotBestEffort",
    "NotTerminating",
    "PriorityClass",
    "Terminating",
    "VolumeAttributesClass",
)
_PODS = frozenset({"pods"})
_COMPUTE = frozenset(
    {"cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"}
)
_QUOTA_RESOURCES = (
    _PODS
    | _COMPUTE
    | {"ephemeral-storage", "requests.storage", "requests.ephemeral-storage"}
    | {"limits.ephemeral-storage", "resourcequotas", "services", "replicationcontrollers"}
    | {"secrets", "persistentvolumeclaims", "configmaps", "services.nodeports"}
    | {"services.loadbalancers"}
)
_SCOPED = {
    **dict.fromkeys(_SCOPES, _PODS | _COMPUTE),
    "BestEffort": _PODS,
    "VolumeAttributesClass": frozenset({"persistentvolumeclaims", "requests.storage"}),
}
"""The standard resources that each scope of a quota can be about."""
_EXISTING = frozenset(_SCOPES) - {"PriorityClass", "VolumeAttributesClass"}
_MUST_EXIST = (
    "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating,"
    " ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort,"
    " ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)
_NEEDED = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
}


def config_map(obj: Tree) -> Iterator[Cause]:
    """Keys, and the size of all values together."""
    data, binary = obj.get("data", {}), obj.get("binaryData", {})
    size = 0
    for key, value in sorted(data.items()):
        yield from field_checks.config_key(key, f"data[{key}]")
        if key in binary:
            text = "duplicate of key present in binaryData"
            yield invalid(f"data[{key}]", key, text)
        size += len(value.encode("utf-8", "surrogatepass"))
    for key, value in sorted(binary.items()):
        yield from field_checks.config_key(key, f"binaryData[{key}]")
        size += len(value) * 3 // 4
    if size > _SIZE_MAX:
        text = f"Too long: may not be more than {_SIZE_MAX} bytes"
        yield Cause("", TOO_LONG, text)


def config_map_update(new: Tree, old: Tree) -> Iterator[Cause]:
    """One that is immutable stays as it is."""
    if old.get("immutable"):
        yield from _still_immutable(new)
        for name in ("data", "binaryData"):
            if new.get(name) != old.get(name):
                yield forbidden_field(name, "field is immutable when `immutable` is set")
    yield from config_map(new)


def _still_immutable(new: Tree) -> Iterator[Cause]:
    if not new.get("immutable"):
        yield forbidden_field("immutable", "field is immutable when `immutable` is set")


def secret(obj: Tree) -> Iterator[Cause]:
    """Keys, size, and the keys that a type needs."""
    data = obj.get("data", {})
    size = 0
    for key, value in sorted(data.items()):
        yield from field_checks.config_key(key, f"data[{key}]")
        size += len(base64.b64decode(value or ""))
    if size > _SIZE_MAX:
        yield Cause("data", TOO_LONG, f"Too long: may not be more than {_SIZE_MAX} bytes")
    kind = obj.get("type", "")
    for key in _NEEDED.get(kind, ()):
        if key not in data:
            yield required(f"data[{key}]")
        elif key.startswith(".docker") and not _is_json(data[key]):
            yield invalid(f"data[{key}]", "<secret contents redacted>", "invalid character")
    if kind == "kubernetes.io/basic-auth" and not {"username", "password"} & set(data):
        yield required("data[username]")
        yield required("data[password]")
    if kind == "kubernetes.io/service-account-token":
        annotation = "kubernetes.io/service-account.name"
        if not obj["metadata"].get("annotations", {}).get(annotation):
            yield required(f"metadata.annotations[{annotation}]")


def _is_json(value: str) -> bool:
    try:
        json.loads(base64.b64decode(value))
    except (ValueError, RecursionError):
        return False
    return True


def secret_update(new: Tree, old: Tree) -> Iterator[Cause]:
    """The type stays; one that is immutable stays as it is."""
    yield from field_checks.immutable(new.get("type", ""), old.get("type", ""), "type")
    if old.get("immutable"):
        yield from _still_immutable(new)
        if new.get("data") != old.get("data"):
            yield forbidden_field("data", "field is immutable when `immutable` is set")
    yield from secret(new)


class EndpointsStrategy(ResourceStrategy):
    """Endpoints, which are on their way out."""

    create_on_update = True
    storage_path = "services/endpoints"

    def validate(self, obj: Tree, call: ApiCall) -> Iterable[Cause]:
        return _endpoints(obj)

    def validate_update(self, new: Tree, old: Tree, call: ApiCall) -> Iterable[Cause]:
        return _endpoints(new)


def _endpoints(obj: Tree) -> Iterator[Cause]:
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


def limit_range(obj: Tree) -> Iterator[Cause]:
    """Limits by type, each minimum below its default below its maximum."""
    seen: set[str] = set()
    for at, one in enumerate(obj["spec"]["limits"] or ()):
        here = f"spec.limits[{at}]"
        kind = one["type"]
        if kind not in _LIMIT_TYPES and "/" not in kind:
            text = "must be a standard limit type or fully qualified"
            yield invalid(f"{here}.type", kind, text)
        if kind in seen:
            yield duplicate(f"{here}.type", kind)
        seen.add(kind)
        for name in ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio"):
            for resource in sorted(one.get(name, {})):
                yield from resource_requirements.validate_resource_name(
                    resource, f"{here}.{name}[{resource}]"
                )
        if kind == "Pod":
            for name in ("default", "defaultRequest"):
                if one.get(name):
                    yield forbidden_field(
                        f"{here}.{name}", "may not be specified when `type` is 'Pod'"
                    )
        yield from _ordered(one, here)


def _ordered(one: Tree, path: str) -> Iterator[Cause]:
    order = (("min", "min"), ("defaultRequest", "default request"), ("default", "default"))
    names = [*order, ("max", "max")]
    resources = sorted({name for which, _ in names for name in one.get(which, {})})
    for resource in resources:
        for low, (lower, lower_told) in enumerate(names):
            for upper, upper_told in names[low + 1 :]:
                small = one.get(lower, {}).get(resource)
                large = one.get(upper, {}).get(resource)
                if small is None or large is None or canonical_quantity.compare(small, large) <= 0:
                    continue
                relation = f"{lower_told} value {small} is greater than {upper_told} value {large}"
                yield invalid(f"{path}.{lower}[{resource}]", small, relation)


def resource_quota(obj: Tree) -> Iterator[Cause]:
    """Names and amounts of what is limited, and the scopes."""
    spec = obj["spec"]
    yield from _quota_amounts(spec.get("hard", {}), "spec.hard")
    yield from _scopes(spec)
    if "scopeSelector" in spec:
        yield from _scope_selector(spec)


def _quota_amounts(given: dict[str, str], path: str) -> Iterator[Cause]:
    for name, value in sorted(given.items()):
        here = f"{path}[{name}]"
        yield from resource_requirements.validate_resource_name(name, here)
        huge = name.startswith(("hugepages-", "requests.hugepages-"))
        if "/" not in name and name not in _QUOTA_RESOURCES and not huge:
            yield invalid(here, name, "must be a standard resource for quota")
        yield from resource_requirements.validate_resource_quantity(name, value, here)


def resource_quota_status(new: Tree, old: Tree) -> Iterator[Cause]:
    """What is used of what."""
    for name in ("hard", "used"):
        yield from _quota_amounts(new["status"].get(name, {}), f"status.{name}")


def _scopes(spec: Tree) -> Iterator[Cause]:
    scopes, path = spec.get("scopes", []), "spec.scopes"
    limited = _limited(spec)
    for scope in scopes:
        if scope not in _SCOPES:
            yield invalid(path, scopes, "unsupported scope")
        for _ in _resources_outside_scope(scope, limited):
            yield invalid(path, scopes, "unsupported scope applied to resource")
    yield from _conflicting(set(scopes), path, scopes)


def _limited(spec: Tree) -> list[str]:
    """The standard resources of a quota, which are few however much else it names."""
    return sorted(_QUOTA_RESOURCES.intersection(spec.get("hard", {})))


def _resources_outside_scope(scope: str, limited: list[str]) -> Iterator[str]:
    """Standard resources that the scope has nothing to say of."""
    for name in limited:
        if name not in _SCOPED.get(scope, _QUOTA_RESOURCES):
            yield name


def _conflicting(scopes: set[str], path: str, shown: list[str] | None) -> Iterator[Cause]:
    for pair in (("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating")):
        if scopes.issuperset(pair):
            yield invalid(path, shown, "conflicting scopes")


def _scope_selector(spec: Tree) -> Iterator[Cause]:
    path = "spec.scopeSelector.matchExpressions"
    terms = spec["scopeSelector"].get("matchExpressions") or []
    limited = _limited(spec)
    for term in terms:
        scope, operator, values = term["scopeName"], term["operator"], term.get("values", [])
        if scope not in _SCOPES:
            yield invalid(f"{path}.scopeName", scope, "unsupported scope")
        for _ in _resources_outside_scope(scope, limited):
            shown = internal_form("core/v1.ScopeSelector", spec["scopeSelector"])
            yield invalid(path, shown, "unsupported scope applied to resource")
        if scope in _EXISTING and operator != "Exists":
            yield invalid(f"{path}.operator", operator, _MUST_EXIST)
        if operator in ("In", "NotIn"):
            if not values:
                text = "must be at least one value when `operator` is 'In' or 'NotIn'"
                yield required(f"{path}.values", f"{text} for scope selector")
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                text = "must be no value when `operator` is 'Exist' or 'DoesNotExist'"
                yield invalid(f"{path}.values", values, f"{text} for scope selector")
        else:
            yield invalid(f"{path}.operator", operator, "not a valid selector operator")
    scopes = {term["scopeName"] for term in terms}
    yield from _conflicting(scopes, path, spec.get("scopes"))


def resource_quota_update(new: Tree, old: Tree) -> Iterator[Cause]:
    """Scopes stay."""
    yield from resource_quota(new)
    if set(new["spec"].get("scopes", ())) != set(old["spec"].get("scopes", ())):
        yield invalid("spec.scopes", new["spec"].get("scopes"), field_checks.IMMUTABLE)
