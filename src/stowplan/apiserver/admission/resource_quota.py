"""ResourceQuota: refuses objects beyond the quotas of their namespace, and charges the others.

Differs: a quota whose status has no usage yet is counted at once, where the original refuses.

Source: kube-apiserver v1.36, apiserver/pkg/admission/plugin/resourcequota.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from stowplan.apis.limits.object_usage import (
    CLAIMS,
    SERVICES,
    add_amounts,
    growth,
    matches_quota,
    missing_text,
    paths_counted,
    quota_status,
    usage_of_object,
    used_amounts,
)
from stowplan.apis.limits.quota_usage import exceeded_text
from stowplan.apis.limits.resource_amounts import Amounts, to_billionths
from stowplan.apis.machinery.access import AlwaysAllow
from stowplan.apis.machinery.resource import ApiCall
from stowplan.apiserver.admission.admission_plugin import (
    AdmissionPluginBase,
    ObjectsByNamespace,
    admission_forbidden,
    stored_object,
)
from stowplan.objects.encoding.json_codec import convert
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.limits import ResourceQuota

_PATH = "resourcequotas"
_GROWING = (CLAIMS, SERVICES)
"""Kinds whose updates may use more."""


class ResourceQuotaAdmission(AdmissionPluginBase):
    """Checks creates, and updates of claims and services, against `status.used`."""

    repeatable = True
    only_objects = True

    def __init__(self) -> None:
        self._quotas = ObjectsByNamespace(_PATH)

    def validate(self, call: ApiCall, obj: Tree | None, old: Tree | None) -> None:
        """Raises ApiError 403; writes the status of the quotas that the object uses."""
        if obj is None or not call.namespace or call.subresource:
            return
        quotas = self._quotas.of(call, call.namespace)
        if not quotas or (old is not None and call.resource.path not in _GROWING):
            return
        path, name = call.resource.path, obj["metadata"].get("name", "")
        charged = list(self._charged(call, quotas, obj, old))
        # A create that ends in AlreadyExists uses nothing, but is refused like any other.
        is_taken = old is None and stored_object(call, path, call.namespace, name) is not None
        if call.dry_run or is_taken:
            return
        for tree in charged:
            resource = call.objects.registry.by_path(_PATH)
            assert resource is not None, "quotas are stored, so their kind is served"
            call.objects.update_status(resource, tree, call.now, AlwaysAllow.APISERVER)

    def _charged(
        self, call: ApiCall, quotas: Iterable[Tree], obj: Tree, old: Tree | None
    ) -> Iterator[Tree]:
        """The quotas whose usage grows, with their new status. Raises ApiError."""
        path = call.resource.path
        usage: Amounts | None = None
        for tree in quotas:
            quota = convert(tree, ResourceQuota)
            if path not in paths_counted(quota.spec.hard) or not matches_quota(quota, path, obj):
                continue
            text = missing_text(quota, path, obj)
            if usage is None:
                usage = usage_of_object(path, obj)
                if old is not None:
                    usage = growth(usage, usage_of_object(path, old))
            used = _used(call, quota, tree)
            text = text or exceeded_text(quota.name, quota.spec.hard, used, usage)
            if text:
                raise admission_forbidden(call, obj, text)
            before = dict(used)
            add_amounts(used, usage)
            if used != before:
                yield {**tree, "status": quota_status(quota.spec.hard, used)}


def _used(call: ApiCall, quota: ResourceQuota, tree: Tree) -> dict[str, int]:
    """Usage of a quota in billionths: of its status, else counted."""
    status = tree.get("status") or {}
    used = status.get("used") or {}
    if used.keys() >= quota.spec.hard.keys():
        return {name: to_billionths(used[name]) for name in quota.spec.hard}
    objects = []
    for path in sorted(paths_counted(quota.spec.hard)):
        resource = call.objects.registry.by_path(path)
        if resource is not None:
            objects.append((path, call.objects.list(resource, call.namespace)))
    return used_amounts(quota, objects)
