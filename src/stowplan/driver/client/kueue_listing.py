"""Kueue's objects of a cluster with an API server, listed once."""

from __future__ import annotations

import asyncio

import msgspec

from stowplan.client.kubeconfig import ClientConfig
from stowplan.client.requests import ApiRequest
from stowplan.client.responses import error_message
from stowplan.driver.client.api_client import ApiClient
from stowplan.driver.client.one_shot_requests import ServerUnreachable
from stowplan.objects.encoding.tree import Tree

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
                found += await _list_kind(api, client_config, version, plural, kind)
            if found:
                return found
    return []


async def _list_kind(
    api: ApiClient, client_config: ClientConfig, version: str, plural: str, kind: str
) -> list[Tree]:
    """Objects of a kind; none where it is not served."""
    path = f"/apis/kueue.x-k8s.io/{version}/{plural}"
    answer = await api.send(ApiRequest("GET", path))
    if answer.status == 404:
        return []
    if answer.status != 200:
        what = error_message(answer) if answer.status else "request failed"
        raise ServerUnreachable(f"{client_config.server}: unable to list {plural}: {what}")
    tree = msgspec.json.decode(answer.body)
    about = {"apiVersion": f"kueue.x-k8s.io/{version}", "kind": kind}
    return [{**one, **about} for one in tree.get("items") or ()]
