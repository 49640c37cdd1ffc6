"""`Cluster.from_kubeconfig` against an embedded API server in this process."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from stowplan import Cluster
from stowplan.client.kubeconfig import ClientConfig
from stowplan.client.requests import ApiRequest
from stowplan.driver.client.api_client import ApiClient
from stowplan.driver.client.kubeconfig_loading import load_client_config
from stowplan.driver.local_cluster import LocalClusterSettings, running_local_cluster

Tree = dict[str, Any]

RBAC = "rbac.authorization.k8s.io"
LISTED = {
    "": ["nodes", "pods", "namespaces", "services", "replicationcontrollers"],
    "apps": ["deployments", "replicasets", "statefulsets", "daemonsets"],
    "batch": ["jobs"],
    "policy": ["poddisruptionbudgets"],
}
"""What the user may list: no volumes, no priority classes."""


def rights() -> list[Tree]:
    rules = [
        {"apiGroups": [group], "resources": kinds, "verbs": ["list"]}
        for group, kinds in LISTED.items()
    ]
    role = {"kind": "ClusterRole", "metadata": {"name": "viewer"}, "rules": rules}
    binding = {
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "viewer"},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "viewer"},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": "viewer"}],
    }
    return [{"apiVersion": f"{RBAC}/v1", **one} for one in (role, binding)]


def deployment(cpu: str) -> Tree:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    meta = {"name": "web", "namespace": "default"}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}


def as_viewer(kubeconfig: Path, folder: Path) -> Path:
    """The kubeconfig with the token of a user who may not list everything."""
    tree = json.loads(kubeconfig.read_text())
    tree["users"][0]["user"] = {"token": "token-of-the-viewer"}
    file = folder / "viewer.kubeconfig"
    file.write_text(json.dumps(tree))
    return file


async def until_created(client_config: ClientConfig, n_pods: int) -> None:
    async with ApiClient(client_config) as api:
        for _ in range(600):
            answer = await api.send(ApiRequest("GET", "/api/v1/pods"))
            if answer.is_done and len(json.loads(answer.body)["items"]) == n_pods:
                return
            await asyncio.sleep(0.05)
    raise AssertionError("no pods")


def ask(file: Path) -> tuple[Cluster, Any, Any, Any]:
    cluster = Cluster.from_kubeconfig(file)
    scaled = cluster.what_if([{"scale": "deploy/web=6"}])
    drained = cluster.what_if([{"remove-node": cluster.nodes[0].name}])
    return cluster, scaled, drained, cluster.eta()


def test_a_live_cluster_answers_and_names_what_may_not_be_listed(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.csv"
    tokens.write_text('token-of-the-viewer,viewer,2,"system:authenticated"\n')
    settings = LocalClusterSettings(
        nodes=2, token_file=tokens, kubeconfig=tmp_path / "admin.kubeconfig"
    )
    documents = [(str(i), one) for i, one in enumerate([*rights(), deployment("1")])]

    async def steps() -> tuple[Cluster, Any, Any, Any]:
        async with running_local_cluster(settings, documents) as local:
            await until_created(load_client_config(str(local.kubeconfig)), 2)
            file = as_viewer(local.kubeconfig, tmp_path)
            return await asyncio.to_thread(ask, file)

    cluster, scaled, drained, starts = asyncio.run(asyncio.wait_for(steps(), 300))
    assert (len(cluster.nodes), len(cluster.pods)) == (2, 2)
    missing = [note for note in cluster.notes if "persistentvolumes could not be listed" in note]
    assert len(missing) == 1
    assert 'User "viewer" cannot list resource "persistentvolumes"' in missing[0]
    for found in (scaled, drained):
        assert missing[0] in found.notes
    # By the template of the Deployment, which is listed: nothing is said of a newest pod.
    assert scaled.summary["placed"] == 4
    assert not any("new pods are like" in note for note in scaled.notes)
    assert drained.summary["nodes"] == 1
    assert missing[0] in starts.assumptions
    assert [pod.state for pod in starts.pods] == ["Pending", "Pending"]
