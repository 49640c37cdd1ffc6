"""Hollow nodes as objects: their creation, and the status that their kubelets report."""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.apis.resource.node_devices import DEVICES
from stowplan.controller_runtime.object_fields import find_condition
from stowplan.objects.encoding.tree import Tree

DEFAULT_CAPACITY = {"cpu": "8", "memory": "32Gi", "ephemeral-storage": "100Gi", "pods": "110"}
VERSION = "v1.36.2-hollow"


def make_hollow_nodes(
    count: int, zones: int = 3, capacity: dict[str, str] | None = None, devices: str = ""
) -> Iterator[Tree]:
    """Nodes to create: `node-1` and on, spread over zones `zone-1` and on. devices: those of each
    node, see `node_devices`."""
    for n in range(1, count + 1):
        name = f"node-{n}"
        labels = {
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "topology.kubernetes.io/zone": f"zone-{(n - 1) % zones + 1}",
        }
        amounts = {**DEFAULT_CAPACITY, **(capacity or {})}
        meta: Tree = {"name": name, "labels": labels}
        if devices:
            meta["annotations"] = {DEVICES: devices}
        yield {
            "kind": "Node",
            "apiVersion": "v1",
            "metadata": meta,
            "spec": {},
            "status": {
                "capacity": dict(amounts),
                "allocatable": dict(amounts),
                "addresses": [
                    {"type": "InternalIP", "address": f"10.0.{n // 256 % 256}.{n % 256}"},
                    {"type": "Hostname", "address": name},
                ],
            },
        }


def node_status(node: Tree, moment: str) -> Tree:
    """Status of a healthy kubelet; existing fields are kept."""
    status: Tree = dict(node.get("status") or {})
    capacity = status.get("capacity") or status.get("allocatable") or dict(DEFAULT_CAPACITY)
    status["capacity"] = capacity
    status.setdefault("allocatable", dict(capacity))
    if not status.get("addresses"):
        status["addresses"] = [{"type": "Hostname", "address": node["metadata"]["name"]}]
    status["nodeInfo"] = _node_info(status.get("nodeInfo") or {}, node)
    old = status.get("conditions") or []
    status["conditions"] = [
        *(each for each in old if each.get("type") not in _HEALTHY),
        *(_healthy_condition(type_, find_condition(old, type_), moment) for type_ in _HEALTHY),
    ]
    return status


_HEALTHY = {
    "MemoryPressure": ("False", "KubeletHasSufficientMemory", "sufficient memory available"),
    "DiskPressure": ("False", "KubeletHasNoDiskPressure", "no disk pressure"),
    "PIDPressure": ("False", "KubeletHasSufficientPID", "sufficient PID available"),
    "Ready": ("True", "KubeletReady", "posting ready status"),
}


def _healthy_condition(type_: str, old: Tree | None, moment: str) -> Tree:
    status, reason, what = _HEALTHY[type_]
    since = moment
    if old is not None and old.get("status") == status:
        since = old.get("lastTransitionTime") or moment
    return {
        "type": type_,
        "status": status,
        "lastHeartbeatTime": moment,
        "lastTransitionTime": since,
        "reason": reason,
        "message": f"kubelet is {what}" if type_ == "Ready" else f"kubelet has {what}",
    }


def _node_info(reported: Tree, node: Tree) -> Tree:
    """`status.nodeInfo` with every field that the API requires."""
    meta = node["metadata"]
    texts = {
        "machineID": meta.get("uid", ""),
        "systemUUID": meta.get("uid", ""),
        "bootID": meta.get("uid", ""),
        "kernelVersion": "hollow",
        "osImage": "hollow",
        "containerRuntimeVersion": "hollow://1",
        "kubeletVersion": VERSION,
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": "amd64",
    }
    return {**reported, **{name: reported.get(name) or text for name, text in texts.items()}}
