"""Clusters of Volcano as trees of API objects, and sessions on them, one after the other."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from stowplan.conformance.queue_models.queue_model_cases import QueueModelCase
from stowplan.conformance.queue_models.volcano_cases import answer

Tree = dict[str, Any]

GROUP = "scheduling.k8s.io/group-name"


def tiers(*plugins: str, actions: str = "enqueue, allocate, reclaim") -> str:
    """A configuration file. plugins: of a tier each, separated by spaces; `capacity/` stands for
    capacity with enableHierarchy."""
    lines = [f'actions: "{actions}"', "tiers:"]
    for tier in plugins:
        lines.append("- plugins:")
        for name in tier.split():
            lines.append(f"  - name: {name.rstrip('/')}")
            if name.endswith("/"):
                lines.append("    enableHierarchy: true")
    return "\n".join(lines)


def node(name: str, cpu: int = 8, **more: Any) -> Tree:
    """A node. more: further resources."""
    amounts = {"cpu": str(cpu), "memory": "64Gi", "pods": "100"} | {
        key.replace("gpu", "nvidia.com/gpu"): str(value) for key, value in more.items()
    }
    return {"metadata": {"name": name}, "status": {"allocatable": amounts, "capacity": amounts}}


def queue(name: str, parent: str = "", priority: int = 0, **amounts: Tree) -> Tree:
    """A queue. amounts: deserved, capability, guarantee."""
    spec: Tree = {"weight": 1, "parent": parent, "priority": priority}
    for key, value in amounts.items():
        spec[key] = {"resource": value} if key == "guarantee" else value
    return {"metadata": {"name": name}, "spec": spec, "status": {"state": "Open"}}


class SessionCluster:
    """A cluster between sessions: bound pods run, and evicted ones are pending again."""

    def __init__(self, nodes: list[Tree], queues: list[Tree], config: str) -> None:
        self.nodes, self.queues, self.config = nodes, queues, config
        self.groups: list[Tree] = []
        self.pods: dict[str, Tree] = {}
        self.priority_classes: list[Tree] = []
        self.n_jobs = -1

    def add_job(
        self,
        name: str,
        queue_name: str,
        n_pods: int,
        least: int = 1,
        running: str = "",
        **asks: Any,
    ) -> None:
        """A job of equal pods. running: the node that they run on already."""
        requests = {
            {"gpu": "nvidia.com/gpu"}.get(key, key): str(value) for key, value in asks.items()
        }
        phase = "Running" if running else "Pending"
        self.n_jobs += 1
        created = f"2026-01-01T{self.n_jobs // 60:02}:{self.n_jobs % 60:02}:00Z"
        meta: Tree = {"name": name, "namespace": "ns", "creationTimestamp": created}
        spec = {"minMember": least, "queue": queue_name}
        self.groups.append({"metadata": meta, "spec": spec, "status": {"phase": phase}})
        for i in range(n_pods):
            pod_meta = {"name": f"{name}-{i}", "namespace": "ns", "annotations": {GROUP: name}}
            pod_spec: Tree = {"containers": [{"name": "c", "resources": {"requests": requests}}]}
            if running:
                pod_spec["nodeName"] = running
            self.pods[f"ns/{name}-{i}"] = {
                "metadata": pod_meta | {"creationTimestamp": created},
                "spec": pod_spec,
                "status": {"phase": phase},
            }

    def remove_job(self, name: str) -> None:
        """A job has ended."""
        self.groups = [one for one in self.groups if one["metadata"]["name"] != name]
        self.pods = {
            key: pod
            for key, pod in self.pods.items()
            if pod["metadata"]["annotations"][GROUP] != name
        }

    def run(self, compat: str = "") -> Tree:
        """Run one session, carry out what it decided, and return it."""
        cluster = {
            "nodes": self.nodes,
            "queues": self.queues,
            "podGroups": self.groups,
            "pods": list(self.pods.values()),
            "priorityClasses": self.priority_classes,
        }
        case = QueueModelCase("case", "volcano", "made", self.config, cluster)
        (found,) = answer(case, compat)["sessions"]
        for key, name in found["binds"].items():
            self.pods[key]["spec"]["nodeName"] = name
            self.pods[key]["status"] = {"phase": "Running"}
        for key, name in found["nominated"].items():
            self.pods[key]["status"]["nominatedNodeName"] = name
        for key in found["evicts"]:
            del self.pods[key]["spec"]["nodeName"]
            self.pods[key]["status"] = {"phase": "Pending"}
        for group in self.groups:
            key = "ns/" + group["metadata"]["name"]
            group["status"] = {"phase": found["phases"].get(key, "")}
        session: Tree = found
        return session

    def used(self, queue_name: str, promised: Collection[str] = ()) -> int:
        """cpu of the running pods of a queue and of those below it. promised: pods that count,
        too."""
        below = {queue_name}
        for _ in self.queues:
            below |= {
                one["metadata"]["name"] for one in self.queues if one["spec"]["parent"] in below
            }
        names = {
            group["metadata"]["name"] for group in self.groups if group["spec"]["queue"] in below
        }
        return sum(
            int(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])
            for key, pod in self.pods.items()
            if ("nodeName" in pod["spec"] or key in promised)
            and pod["metadata"]["annotations"][GROUP] in names
        )
