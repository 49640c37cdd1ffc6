"""Usage of a ResourceQuota by a pod, its scopes, and the texts of its refusals.

Source: Kubernetes v1.36, pkg/quota/v1/evaluator/core/pods.go and
apiserver/pkg/admission/plugin/resourcequota/controller.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stowplan.apis.limits.resource_amounts import (
    Amounts,
    format_billionths,
    format_quantity,
    limits_of,
    requests_of,
    to_billionths,
)
from stowplan.objects.limits import ResourceQuota, ScopeRequirement
from stowplan.objects.pod import Container, Pod
from stowplan.objects.pod_requests import is_extended

NATIVE_RESOURCES = ("cpu", "memory", "ephemeral-storage")
_CHECKED = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")
"""Resources that every container must specify under a quota for them."""


def exceeded_text(name: str, hard: Amounts, used: Mapping[str, int], usage: Amounts) -> str:
    """The error if `usage` more does not fit into a quota; "" if it fits.

    used: billionths of a unit. Amounts that are 0 or that the quota does not limit are ignored.
    """
    beyond = []
    for each in sorted(hard.keys() & usage.keys()):
        asked = to_billionths(usage[each])
        if asked and used.get(each, 0) + asked > to_billionths(hard[each]):
            beyond.append(each)
    if not beyond:
        return ""
    requested = {each: format_quantity(usage[each]) for each in beyond}
    taken = {each: format_billionths(used.get(each, 0), hard[each]) for each in beyond}
    limited = {each: format_quantity(hard[each]) for each in beyond}
    return (
        f"exceeded quota: {name}, requested: {_printed(requested)},"
        f" used: {_printed(taken)}, limited: {_printed(limited)}"
    )


def _printed(amounts: Mapping[str, str]) -> str:
    return ",".join(f"{name}={amount}" for name, amount in sorted(amounts.items()))


def usage_of(pod: Pod) -> Amounts:
    """Usage of a pod, by resource names of quotas."""
    found: Amounts = {"count/pods": 1}
    if pod.is_finished:
        return found
    return found | {"pods": 1} | _named(requests_of(pod), limits_of(pod))


def _named(requests: Amounts, limits: Amounts) -> Amounts:
    found: Amounts = {}
    for name, amount in requests.items():
        if name in NATIVE_RESOURCES or name.startswith("hugepages-"):
            found[name] = found[f"requests.{name}"] = amount
        elif is_extended(name):
            found[f"requests.{name}"] = amount
    for name in NATIVE_RESOURCES:
        if name in limits:
            found[f"limits.{name}"] = limits[name]
    return found


def missing_resources(pod: Pod, quota: ResourceQuota) -> str:
    """The error for containers that do not specify a limited resource, "" for none."""
    required = [name for name in _CHECKED if name in quota.spec.hard]
    lacking: dict[str, set[str]] = {}
    for one in (*pod.spec.containers, *pod.spec.init_containers):
        named = _named(dict(one.resources.requests), dict(one.resources.limits))
        for name in required:
            if name not in named:
                lacking.setdefault(name, set()).add(one.name)
    if not lacking:
        return ""
    each = "; ".join(
        f"{name} for: {','.join(sorted(who))}" for name, who in sorted(lacking.items())
    )
    return f"failed quota: {quota.name}: must specify {each}"


# Scopes.


def covers(quota: ResourceQuota, pod: Pod, is_terminating: bool = False) -> bool:
    """True when the scopes of a quota match a pod.

    is_terminating: whether it has `activeDeadlineSeconds`, which `Pod` lacks.
    """
    selector = quota.spec.scope_selector
    terms = [ScopeRequirement(scope_name=scope, operator="Exists") for scope in quota.spec.scopes]
    terms += selector.match_expressions if selector is not None else ()
    return all(_matches(term, pod, is_terminating) for term in terms)


def _matches(term: ScopeRequirement, pod: Pod, is_terminating: bool) -> bool:
    match term.scope_name:
        case "Terminating":
            return is_terminating
        case "NotTerminating":
            return not is_terminating
        case "BestEffort":
            return _is_best_effort(pod)
        case "NotBestEffort":
            return not _is_best_effort(pod)
        case "PriorityClass":
            return _of_class(term, pod.spec.priority_class_name)
        case "CrossNamespacePodAffinity":
            return any(_crosses(pod))
    return False


def _of_class(term: ScopeRequirement, name: str) -> bool:
    match term.operator:
        case "In":
            return name in term.values
        case "NotIn":
            return name not in term.values
        case "DoesNotExist":
            return not name
    return bool(name)


def _is_best_effort(pod: Pod) -> bool:
    spec = pod.spec
    if spec.resources is not None and _asks(spec.resources.requests, spec.resources.limits):
        return False
    return not any(_names(one) for one in (*spec.containers, *spec.init_containers))


def _names(container: Container) -> bool:
    return _asks(container.resources.requests, container.resources.limits)


def _asks(requests: Amounts, limits: Amounts) -> bool:
    return any(
        to_billionths(amounts[name]) > 0
        for amounts in (requests, limits)
        for name in ("cpu", "memory")
        if name in amounts
    )


def _crosses(pod: Pod) -> Iterator[bool]:
    affinity = pod.spec.affinity
    if affinity is None:
        return
    for one in (affinity.pod_affinity, affinity.pod_anti_affinity):
        if one is not None:
            terms = [*one.required, *(weighted.pod_affinity_term for weighted in one.preferred)]
            for term in terms:
                yield bool(term.namespaces) or term.namespace_selector is not None
