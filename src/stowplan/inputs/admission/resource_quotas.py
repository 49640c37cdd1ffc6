"""ResourceQuotas of a namespace: usage of its pods, and admission of further pods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stowplan.apis.limits.quota_usage import (
    NATIVE_RESOURCES,
    covers,
    exceeded_text,
    missing_resources,
    usage_of,
)
from stowplan.apis.limits.resource_amounts import Amounts, to_billionths
from stowplan.objects.limits import ResourceQuota
from stowplan.objects.pod import Pod
from stowplan.objects.pod_requests import is_extended

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
            why = missing_resources(pod, quota) or exceeded_text(
                quota.name, quota.spec.hard, self._used[place], usage
            )
            if why:
                return why
        for place in covering:
            self._add(place, usage)
        return ""

    def _add(self, place: int, usage: Amounts) -> None:
        used = self._used[place]
        for name in used.keys() & usage.keys():
            used[name] += to_billionths(usage[name])


def unenforced_limits(quotas: NamespaceQuotas) -> Iterator[str]:
    """Limits of quotas that are not enforced: other objects, and unknown scopes."""
    for quota in quotas.quotas:
        for name in quota.spec.hard:
            resource = name.removeprefix("requests.").removeprefix("limits.")
            of_pods = name in ("pods", "count/pods") or resource in NATIVE_RESOURCES
            if not of_pods and not resource.startswith("hugepages-") and not _is_extended(name):
                yield name
        selector = quota.spec.scope_selector
        scopes = [*quota.spec.scopes]
        scopes += (term.scope_name for term in selector.match_expressions) if selector else ()
        yield from (scope for scope in scopes if scope not in _KNOWN_SCOPES)


def _is_extended(name: str) -> bool:
    return name.startswith("requests.") and is_extended(name.removeprefix("requests."))
