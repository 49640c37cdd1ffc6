"""The objects of a cluster that Volcano schedules, listed once."""

from __future__ import annotations

import asyncio

from stowplan.client.kubeconfig import ClientConfig
from stowplan.driver.client.api_client import ApiClient
from stowplan.driver.client.object_listing import ListedKind, ObjectListing, list_objects

_READ = {
    "v1": ("Node", "Pod"),
    "scheduling.volcano.sh/v1beta1": ("PodGroup", "Queue"),
    "batch.volcano.sh/v1alpha1": ("Job",),
}
_MAY_BE_READ = {
    "v1": ("ConfigMap", "Namespace", "PersistentVolume", "PersistentVolumeClaim", "LimitRange"),
    "batch.volcano.sh/v1alpha1": ("CronJob",),
    "topology.volcano.sh/v1alpha1": ("HyperNode",),
    "nodeinfo.volcano.sh/v1alpha1": ("Numatopology",),
    "flow.volcano.sh/v1alpha1": ("JobFlow", "JobTemplate"),
    "bus.volcano.sh/v1alpha1": ("Command",),
    "scheduling.k8s.io/v1": ("PriorityClass",),
    "policy/v1": ("PodDisruptionBudget",),
    "storage.k8s.io/v1": ("StorageClass", "CSINode", "CSIDriver", "CSIStorageCapacity"),
    "resource.k8s.io/v1": ("ResourceClaim", "ResourceSlice", "DeviceClass"),
}
"""Kinds that the user need not be allowed to list."""
_PLURALS = {"StorageClass": "storageclasses", "PriorityClass": "priorityclasses",
            "DeviceClass": "deviceclasses", "Numatopology": "numatopologies",
            "CSIStorageCapacity": "csistoragecapacities"}  # fmt: skip


def list_volcano_cluster(client_config: ClientConfig) -> ObjectListing:
    """All objects that an import reads; `refused` says which kinds could not be listed.

    Raises ServerUnreachable and CredentialError.
    """
    return asyncio.run(_list_cluster(client_config))


async def _list_cluster(client_config: ClientConfig) -> ObjectListing:
    found = ObjectListing([])
    refusals = []
    async with ApiClient(client_config) as api:
        for optional, versions in ((False, _READ), (True, _MAY_BE_READ)):
            for version, kinds in versions.items():
                for kind in kinds:
                    one = _listed(version, kind, optional)
                    listing = await list_objects(api, client_config, one)
                    found.trees += listing.trees
                    if listing.refused:
                        refusals.append(listing.refused)
    found.refused = "; ".join(refusals)
    return found


def _listed(version: str, kind: str, is_optional: bool) -> ListedKind:
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    plural = _PLURALS.get(kind, f"{kind.lower()}s")
    return ListedKind(f"{root}/{plural}", version, kind, is_optional)
