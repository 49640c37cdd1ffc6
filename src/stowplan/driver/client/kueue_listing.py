"""Kueue's objects of a cluster with an API server, listed once."""

from __future__ import annotations

import asyncio

from stowplan.client.kubeconfig import ClientConfig
from stowplan.driver.client.api_client import ApiClient
from stowplan.driver.client.object_listing import ListedKind, ObjectListing, list_objects
from stowplan.objects.encoding.tree import Tree

GROUP = "kueue.x-k8s.io"
KINDS = {
    "clusterqueues": "ClusterQueue",
    "localqueues": "LocalQueue",
    "cohorts": "Cohort",
    "resourceflavors": "ResourceFlavor",
    "topologies": "Topology",
    "admissionchecks": "AdmissionCheck",
    "workloadpriorityclasses": "WorkloadPriorityClass",
    "workloads": "Workload",
}
VERSIONS = ("v1beta2", "v1beta1")
"""Versions of Kueue's API; the first one that is served is read."""
_READ = {"v1": ("nodes/Node", "pods/Pod"), "batch/v1": ("jobs/Job",)}
_MAY_BE_READ = {
    "v1": ("namespaces/Namespace", "limitranges/LimitRange"),
    "scheduling.k8s.io/v1": ("priorityclasses/PriorityClass",),
    "jobset.x-k8s.io/v1alpha2": ("jobsets/JobSet",),
    "kubeflow.org/v1": ("pytorchjobs/PyTorchJob",),
    "trainer.kubeflow.org/v1alpha1": (
        "trainjobs/TrainJob", "trainingruntimes/TrainingRuntime",
        "clustertrainingruntimes/ClusterTrainingRuntime",
    ),
}  # fmt: skip
"""Kinds that the user need not be allowed to list."""


def list_kueue_objects(client_config: ClientConfig) -> list[Tree]:
    """Objects of Kueue as they are stored; empty where Kueue is not installed.

    Raises ServerUnreachable and CredentialError.
    """
    return asyncio.run(_list_objects(client_config))


async def _list_objects(client_config: ClientConfig) -> list[Tree]:
    async with ApiClient(client_config) as api:
        for version in VERSIONS:
            found: list[Tree] = []
            for plural, kind in KINDS.items():
                path, about = f"/apis/{GROUP}/{version}/{plural}", f"{GROUP}/{version}"
                one = ListedKind(path, about, kind)
                found += (await list_objects(api, client_config, one)).trees
            if found:
                return found
    return []


def list_kueue_cluster(client_config: ClientConfig) -> ObjectListing:
    """All objects that a replay of a cluster with Kueue reads; `refused` says which kinds could not
    be listed.

    Raises ServerUnreachable and CredentialError.
    """
    return asyncio.run(_list_cluster(client_config))


async def _list_cluster(client_config: ClientConfig) -> ObjectListing:
    found, refusals = ObjectListing(await _list_objects(client_config)), []
    async with ApiClient(client_config) as api:
        for optional, versions in ((False, _READ), (True, _MAY_BE_READ)):
            for version, kinds in versions.items():
                root = f"/apis/{version}" if "/" in version else f"/api/{version}"
                for name in kinds:
                    plural, _, kind = name.partition("/")
                    one = ListedKind(f"{root}/{plural}", version, kind, is_optional=optional)
                    listing = await list_objects(api, client_config, one)
                    found.trees += listing.trees
                    if listing.refused:
                        refusals.append(listing.refused)
    found.refused = "; ".join(refusals)
    return found
