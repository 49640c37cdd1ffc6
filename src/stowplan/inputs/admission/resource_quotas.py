"""ResourceQuotas of a namespace: usage of its pods, and admission of further pods.

Source: Kubernetes v1.36, pkg/quota/v1/evaluator/core/pods.go and
apiserver/pkg/admission/plugin/resourcequota/controller.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from stowplan.inputs.admission.resource_amounts import (
    Amounts,
    format_billionths,
    format_quantity,
    limits_of,
    requests_of,
    to_billionths,
)
from stowplan.objects.limits import ResourceQuota, ScopeRequirement
from stowplan.objects.pod import Pod
from stowplan.objects.pod_requests import is_extended

_NATIVE = ("cpu", "memory", "ephemeral-storage")
_CHECKED = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")
"""Resources that every container must specify under a quota for them."""
_KNOWN_SCOPES = (
    "NotTerminating", "BestEffort", "NotBestEffort", "PriorityClass",
    "CrossNamespacePodAffinity",
)  # fmt: skip


class NamespaceQuotas:
    """Quotas of a namespace and their usage, in billionths of a unit."""

    def __init__(self, quotas: Sequence[ResourceQuota]) -> None:
        self.quotas = quotas
        self._used: list[dict[str, int]] = [dict.fromkeys(one.spec.hard, 0) for one in quotas]

    def charge(self, pod: Pod) -> None:
        """Charge an existing pod; finished pods use only `count/pods`."""
        usage = usage_of(pod)
        for place, quota in enumerate(self.quotas):
            if covers(quota, pod):
                self._add(place, usage)

    def admit(self, pod: Pod) -> str:
        """Why a pod is rejected; "" when admitted, and then charged."""
        usage = usage_of(pod)
        covering = [place for place, quota in enumerate(self.quotas) if covers(quota, pod)]
        for place in covering:
            quota = self.quotas[place]
            why = _missing(pod, quota) or self._exceeded(place, usage)
            if why:
                return why
        for place in covering:
            self._add(place, usage)
        return ""

    def _add(self, place: int, usage: Amounts) -> None:
        used = self._used[place]
        for name in used.keys() & usage.keys():
            used[name] += to_billionths(usage[name])

    def _exceeded(self, place: int, usage: Amounts) -> str:
        quota, used = self.quotas[place], self._used[place]
        hard = quota.spec.hard
        beyond = sorted(
            name
            for name in hard.keys() & usage.keys()
            if used[name] + to_billionths(usage[name]) > to_billionths(hard[name])
        )
        if not beyond:
            return ""
        requested = {name: format_quantity(usage[name]) for name in beyond}
        taken = {name: format_billionths(used[name], hard[name]) for name in beyond}
        limited = {name: format_quantity(hard[name]) for name in beyond}
        return (
            f"exceeded quota: {quota.name}, requested: {_printed(requested)},"
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
        if name in _NATIVE or name.startswith("hugepages-"):
            found[name] = found[f"requests.{name}"] = amount
        elif is_extended(name):
            found[f"requests.{name}"] = amount
    for name in _NATIVE:
        if name in limits:
            found[f"limits.{name}"] = limits[name]
    return found


def _missing(pod: Pod, quota: ResourceQuota) -> str:
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


def covers(quota: ResourceQuota, pod: Pod) -> bool:
    """True when the scopes of a quota match a pod."""
    selector = quota.spec.scope_selector
    terms = [ScopeRequirement(scope_name=scope, operator="Exists") for scope in quota.spec.scopes]
    terms += selector.match_expressions if selector is not None else ()
    return all(_matches(term, pod) for term in terms)


def _matches(term: ScopeRequirement, pod: Pod) -> bool:
    match term.scope_name:
        case "NotTerminating":
            # Differs: activeDeadlineSeconds is not read, so every pod counts as NotTerminating.
            return True
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
    given = (one.resources for one in (*spec.containers, *spec.init_containers))
    return not any(_asks(one.requests, one.limits) for one in given)


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


def unenforced_limits(quotas: NamespaceQuotas) -> Iterator[str]:
    """Limits of quotas that are not enforced: other objects, and unknown scopes."""
    for quota in quotas.quotas:
        for name in quota.spec.hard:
            resource = name.removeprefix("requests.").removeprefix("limits.")
            of_pods = name in ("pods", "count/pods") or resource in _NATIVE
            if not of_pods and not resource.startswith("hugepages-") and not _is_extended(name):
                yield name
        selector = quota.spec.scope_selector
        scopes = [*quota.spec.scopes]
        scopes += (term.scope_name for term in selector.match_expressions) if selector else ()
        yield from (scope for scope in scopes if scope not in _KNOWN_SCOPES)


def _is_extended(name: str) -> bool:
    return name.startswith("requests.") and is_extended(name.removeprefix("requests."))
