"""A cluster of `stowplan up` with Kueue, used by kubectl."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import yaml

from stowplan.driver.client.api_client import ApiClient
from stowplan.driver.client.kubeconfig_loading import load_client_config
from stowplan.driver.local_cluster import LocalClusterSettings, running_local_cluster
from stowplan.driver.local_scheduler import local_deciders, local_scheduler_service
from tests.driver.embedded import Tree
from tests.driver.test_kueue_up import IN_DEFAULT, kueue
from tests.driver.test_volcano_up import until

KUBECTL = os.environ.get("STOWPLAN_KUBECTL") or shutil.which("kubectl")
QUEUE = "kueue.x-k8s.io/queue-name"
CONFIG = "scheduler: kueue\n"


class KubectlCluster:
    """Commands of kubectl, and what to wait for."""

    def __init__(self, directory: Path, api: ApiClient) -> None:
        self.directory, self.api = directory, api

    async def kubectl(self, *arguments: str, given: list[Tree] | None = None) -> str:
        """Output of a command, which must succeed. given: objects on standard input."""
        return await asyncio.to_thread(self._run, arguments, given)

    def _run(self, arguments: tuple[str, ...], given: list[Tree] | None) -> str:
        assert KUBECTL is not None
        command = [KUBECTL, "--kubeconfig", str(self.directory / "k"), *arguments]
        text = "" if given is None else yaml.safe_dump_all(given)
        ran = subprocess.run(
            command, input=text, capture_output=True, text=True, check=False, timeout=240
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    async def apply(self, *objects: Tree | list[Tree]) -> None:
        """Apply objects."""
        every = [one for held in objects for one in (held if isinstance(held, list) else [held])]
        await self.kubectl("apply", "-f", "-", given=every)

    async def field(self, path: str, *of: str) -> str:
        """A field of an object, as a path of kubectl."""
        return await self.kubectl("get", *of, "-o", f"jsonpath={{{path}}}")

    async def states(self, wanted: dict[str, str]) -> None:
        """Wait until the Workloads of these owners are Admitted, or wait for this reason."""

        def is_reached(found: list[Any]) -> bool:
            known = states(found)
            return {name: known.get(name) for name in wanted} == wanted

        await until(self.api, f"{IN_DEFAULT}/workloads", is_reached)


def run_on_kueue(
    directory: Path,
    steps: Callable[[KubectlCluster], Awaitable[None]],
    config: str = CONFIG,
    nodes: int = 3,
) -> None:
    """Run steps on a cluster of its own."""
    (directory / "kueue.yaml").write_text(config)
    deciders = local_deciders([str(directory / "kueue.yaml")])

    async def run() -> None:
        settings = LocalClusterSettings(
            nodes=nodes, kubeconfig=directory / "k", kueue=deciders.kueue, seed=1
        )
        async with (
            running_local_cluster(settings) as cluster,
            local_scheduler_service(deciders)(cluster),
            ApiClient(load_client_config(str(directory / "k"))) as api,
        ):
            await steps(KubectlCluster(directory, api))

    asyncio.run(asyncio.wait_for(run(), 300))


def state(workload: Tree) -> str:
    """Admitted, or why not."""
    conditions = {
        one["type"]: one for one in (workload.get("status") or {}).get("conditions") or ()
    }
    if (conditions.get("Admitted") or {}).get("status") == "True":
        return "Admitted"
    return str((conditions.get("QuotaReserved") or {}).get("reason"))


def states(workloads: list[Any]) -> dict[str, str]:
    """Name of the first owner -> state."""
    return {
        one["metadata"]["ownerReferences"][0]["name"]: state(one)
        for one in workloads
        if one["metadata"].get("ownerReferences")
    }


def flavors_of(*held: tuple[str, dict[str, Any]]) -> list[Tree]:
    """Flavors of a resource group: name, and resource -> nominal quota, or fields of it."""
    return [
        {
            "name": name,
            "resources": [
                {"name": resource, **(q if isinstance(q, dict) else {"nominalQuota": q})}
                for resource, q in quotas.items()
            ],
        }
        for name, quotas in held
    ]


def cluster_queue(name: str, *groups: list[Tree], **more: Any) -> Tree:
    """A ClusterQueue for all namespaces. groups: the flavors of each resource group."""
    held = [
        {"coveredResources": [one["name"] for one in flavors[0]["resources"]], "flavors": flavors}
        for flavors in groups
    ]
    return kueue("ClusterQueue", name, namespaceSelector={}, resourceGroups=held, **more)


def local_queue(name: str, of: str) -> Tree:
    """A LocalQueue of the default namespace."""
    tree = kueue("LocalQueue", name, clusterQueue=of)
    return {**tree, "metadata": {"name": name, "namespace": "default"}}


def in_queue(tree: Tree, queue: str, labels: dict[str, str] | None = None, **notes: str) -> Tree:
    """A job or pod with the label of a queue."""
    meta = tree["metadata"]
    meta["labels"] = {**(meta.get("labels") or {}), QUEUE: queue, **(labels or {})}
    meta["annotations"] = {**(meta.get("annotations") or {}), **notes}
    return tree


def custom_kind(group: str, version: str, kind: str, *, is_global: bool = False) -> Tree:
    """A CustomResourceDefinition that keeps every field."""
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {
        "name": version, "served": True, "storage": True, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }  # fmt: skip
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    scope = "Cluster" if is_global else "Namespaced"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "names": names, "scope": scope, "versions": [served]},
    }
