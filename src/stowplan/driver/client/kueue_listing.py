"""Kueue's objects of a cluster with an API server, listed once."""

from __future__ import annotations

import asyncio

from stowplan.client.kubeconfig import ClientConfig
from stowplan.driver.client.api_client import ApiClient
from stowplan.driver.client.object_listing import ListedKind, list_objects
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
