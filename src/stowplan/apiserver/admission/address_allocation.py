"""IPAddress objects of services: made before a service is stored, removed with it.

The original does it where it allocates addresses; here it is the last plugin, when nothing but a
taken name can refuse the service any more.

Source: kube-apiserver v1.36, pkg/registry/core/service/ipallocator.
"""

from __future__ import annotations

from stowplan.apis.machinery.resource import ApiCall
from stowplan.apis.networking.service_addresses import ADDRESS_PATH, service_address
from stowplan.apiserver.admission.admission_plugin import AdmissionPluginBase, targets
from stowplan.objects.encoding.tree import Tree

SERVICES = "services"


class ServiceAddresses(AdmissionPluginBase):
    """Follows the cluster IPs of services."""

    repeatable = True
    paths = (SERVICES,)

    def validate(self, call: ApiCall, obj: Tree | None, old: Tree | None) -> None:
        if call.dry_run or not targets(call, SERVICES):
            return
        kind = call.objects.registry.by_path(ADDRESS_PATH)
        if kind is None or (old is None and self._is_taken(call, obj)):
            return
        before, after = _addresses(old), _addresses(obj)
        if obj is None:
            kept = (old or {"metadata": {}})["metadata"].get("finalizers")
            after = before if kept else []
        elif obj["metadata"].get("deletionTimestamp") and not obj["metadata"].get("finalizers"):
            after = []
        meta = ((obj or old) or {"metadata": {}})["metadata"]
        for address in after:
            if address not in before and call.objects.peek(kind, "", address) is None:
                made = service_address(address, meta.get("namespace", ""), meta["name"])
                call.objects.create(kind, made, call.now)
        for address in before:
            if address not in after and call.objects.peek(kind, "", address) is not None:
                call.objects.delete(kind, "", address, call.now)

    def _is_taken(self, call: ApiCall, obj: Tree | None) -> bool:
        """True for a new service that will be refused: its name is taken."""
        meta = (obj or {"metadata": {}})["metadata"]
        name = meta.get("name", "")
        return call.objects.peek(call.resource, meta.get("namespace", ""), name) is not None


def _addresses(service: Tree | None) -> list[str]:
    spec = (service or {}).get("spec") or {}
    return [one for one in spec.get("clusterIPs") or () if one and one != "None"]
