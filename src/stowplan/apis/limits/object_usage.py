"""Usage of ResourceQuotas by stored objects: pods, claims, services, and objects by number.

Differs: `requests.storage` and the like of a claim count what is requested, not what was allocated
by a failed expansion; devices of claims do not count as `requests.` of the extended resource that
their class provides.

Source: Kubernetes v1.36, pkg/quota/v1/evaluator/core and apiserver/pkg/quota/v1/generic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stowplan.apis.limits.quota_usage import covers, missing_resources, usage_of
from stowplan.apis.limits.resource_amounts import (
    Amounts,
    format_billionths,
    format_quantity,
    to_billionths,
)
from stowplan.objects.devices.device_claim import ALL, ALLOCATION_RESULTS_MAX, EXACT_COUNT
from stowplan.objects.encoding.json_codec import convert
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.limits import ResourceQuota
from stowplan.objects.pod import Pod

PODS = "pods"
CLAIMS = "persistentvolumeclaims"
SERVICES = "services"
COUNTED_BY_NAME = ("configmaps", "replicationcontrollers", "resourcequotas", "secrets")
"""Kinds whose number has a resource name of its own, beside `count/NAME`."""
DEVICE_CLAIMS = "resource.k8s.io/resourceclaims"
_CLASS_SUFFIX = ".storageclass.storage.k8s.io/"
_DEVICES_SUFFIX = ".deviceclass.resource.k8s.io/devices"


def usage_of_object(path: str, obj: Tree) -> Amounts:
    """Usage of an object of any kind, by resource names of quotas. path: its resource path."""
    if path == PODS:
        return usage_of(convert(obj, Pod))
    group, _, plural = path.rpartition("/")
    found: Amounts = {f"count/{plural}{'.' if group else ''}{group}": 1}
    if path in COUNTED_BY_NAME:
        found[path] = 1
    elif path == CLAIMS:
        found |= _usage_of_claim(obj)
    elif path == SERVICES:
        found |= _usage_of_service(obj)
    elif path == DEVICE_CLAIMS:
        found |= _usage_of_device_claim(obj)
    return found


def _usage_of_device_claim(claim: Tree) -> Amounts:
    """Devices by class: of alternatives the most that one of them may take of a class."""
    found: dict[str, int] = {}
    for request in claim["spec"]["devices"].get("requests") or ():
        most: dict[str, int] = {}
        for one in request.get("firstAvailable") or (request.get("exactly"),):
            if one is not None:
                name = f"{one['deviceClassName']}{_DEVICES_SUFFIX}"
                most[name] = max(most.get(name, 0), _devices_at_most(one))
        for name, number in most.items():
            found[name] = found.get(name, 0) + number
    return dict(found)


def _devices_at_most(request: Tree) -> int:
    mode = request.get("allocationMode", EXACT_COUNT)
    if mode == ALL:
        return ALLOCATION_RESULTS_MAX
    count: int = request.get("count", 1)
    return count if mode == EXACT_COUNT else 0


def _usage_of_claim(claim: Tree) -> Amounts:
    storage = (claim["spec"].get("resources") or {}).get("requests", {}).get("storage")
    found: Amounts = {CLAIMS: 1}
    if storage is not None:
        found["requests.storage"] = storage
    storage_class = claim["spec"].get("storageClassName")
    if storage_class:
        found |= {f"{storage_class}{_CLASS_SUFFIX}{name}": q for name, q in found.items()}
    return found


def _usage_of_service(service: Tree) -> Amounts:
    spec = service["spec"]
    ports = spec.get("ports") or ()
    type_ = spec.get("type")
    node_ports = 0
    if type_ == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is False:
        node_ports = sum(bool(port.get("nodePort")) for port in ports)
    elif type_ in ("NodePort", "LoadBalancer"):
        node_ports = len(ports)
    balancers = 1 if type_ == "LoadBalancer" else 0
    return {SERVICES: 1, "services.nodeports": node_ports, "services.loadbalancers": balancers}


def paths_counted(hard: Iterable[str]) -> set[str]:
    """Resource paths of the objects that a quota with these resource names counts."""
    found = set()
    for name in hard:
        if name.startswith("count/"):
            plural, _, group = name.removeprefix("count/").partition(".")
            found.add(f"{group}/{plural}" if group else plural)
        elif name in COUNTED_BY_NAME:
            found.add(name)
        elif name.endswith(_DEVICES_SUFFIX):
            found.add(DEVICE_CLAIMS)
        elif name in (CLAIMS, "requests.storage") or _CLASS_SUFFIX in name:
            found.add(CLAIMS)
        elif name.startswith(SERVICES):
            found.add(SERVICES)
        else:
            found.add(PODS)
    return found


def matches_quota(quota: ResourceQuota, path: str, obj: Tree) -> bool:
    """True when the scopes of a quota match an object; only pods have scopes."""
    if path != PODS:
        return not quota.spec.scopes and quota.spec.scope_selector is None
    is_terminating = (obj.get("spec") or {}).get("activeDeadlineSeconds") is not None
    return covers(quota, convert(obj, Pod), is_terminating)


def missing_text(quota: ResourceQuota, path: str, obj: Tree) -> str:
    """The error for containers of a pod that do not specify a limited resource, "" for none."""
    return missing_resources(convert(obj, Pod), quota) if path == PODS else ""


def used_amounts(
    quota: ResourceQuota, objects: Iterable[tuple[str, Iterable[Tree]]]
) -> dict[str, int]:
    """Usage of a quota, in billionths of a unit. objects: by resource path, of its namespace."""
    used = dict.fromkeys(quota.spec.hard, 0)
    for path, trees in objects:
        for tree in trees:
            if matches_quota(quota, path, tree):
                add_amounts(used, usage_of_object(path, tree))
    return used


def add_amounts(used: dict[str, int], usage: Amounts) -> None:
    """Add usage to the amounts (billionths) that a quota limits."""
    for name in used.keys() & usage.keys():
        used[name] += to_billionths(usage[name])


def growth(new: Amounts, old: Amounts) -> Amounts:
    """How much more the new usage is; nothing for amounts that shrink."""
    found: Amounts = {}
    for name, amount in new.items():
        more = to_billionths(amount) - to_billionths(old.get(name, 0))
        if more > 0:
            found[name] = format_billionths(more, amount)
    return found


def quota_status(hard: Amounts, used: Mapping[str, int]) -> Tree:
    """`status` of a ResourceQuota. used: billionths of a unit."""
    return {
        "hard": {name: format_quantity(amount) for name, amount in hard.items()},
        "used": {name: format_billionths(used.get(name, 0), hard[name]) for name in hard},
    }
