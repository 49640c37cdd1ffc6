"""Manifests of nodes with devices, and of pods with claims."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stowplan.forecast.explain import explain
from stowplan.inputs.cluster_reader import Cluster, read_cluster

Tree = dict[str, Any]

DRIVER = "gpu.example.com"
RESOURCE_API = "resource.k8s.io/v1"
CLASS: Tree = {
    "apiVersion": RESOURCE_API,
    "kind": "DeviceClass",
    "metadata": {"name": "gpu"},
    "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]},
}
POD = "default/w"


def node(name: str, taints: tuple[Tree, ...] = (), cpu: str = "8") -> Tree:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {"taints": list(taints)},
        "status": {"allocatable": {"cpu": cpu, "memory": "16Gi", "pods": "110"}},
    }


def card(name: str, memory: str = "80Gi", model: str = "H100", **more: Any) -> Tree:
    attributes = {"model": {"string": model}}
    return {
        "name": name, "attributes": attributes, "capacity": {"memory": {"value": memory}}, **more
    }  # fmt: skip


def slices(node_name: str, *devices: Tree, counters: tuple[Tree, ...] = ()) -> list[Tree]:
    """The slices of a node: its devices, and its counter sets if there are any."""
    pool = {"name": node_name, "generation": 1, "resourceSliceCount": 2 if counters else 1}
    specs: list[Tree] = [{"devices": list(devices)}]
    if counters:
        specs.append({"sharedCounters": list(counters)})
    return [
        {
            "apiVersion": RESOURCE_API,
            "kind": "ResourceSlice",
            "metadata": {"name": f"{node_name}-{at}"},
            "spec": {"driver": DRIVER, "pool": pool, "nodeName": node_name, **spec},
        }
        for at, spec in enumerate(specs)
    ]


def request(name: str = "r", **more: Any) -> Tree:
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1, **more}
    return {"name": name, "exactly": exactly}


def selected_by(*expressions: str) -> list[Tree]:
    return [{"cel": {"expression": one}} for one in expressions]


def claim(*requests: Tree, name: str = "c", **devices: Any) -> Tree:
    return {
        "apiVersion": RESOURCE_API,
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {"devices": {"requests": list(requests), **devices}},
    }


def held(name: str, node_name: str, *devices: str, memory: str = "") -> Tree:
    """A claim that has devices of a node. memory: what it has of each, which others share."""
    shared = {"shareID": f"id-{name}", "consumedCapacity": {"memory": memory}} if memory else {}
    results = [
        {"request": "r", "driver": DRIVER, "pool": node_name, "device": device, **shared}
        for device in devices
    ]
    found = claim(request(count=max(len(devices), 1)), name=name)
    user = {"resource": "pods", "name": "other", "uid": "other"}
    found["status"] = {"allocation": {"devices": {"results": results}}, "reservedFor": [user]}
    return found


def pod(*claims: str, cpu: str = "1") -> Tree:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "w", "namespace": "default", "uid": "w"},
        "spec": {
            "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}],
            "resourceClaims": [{"name": one, "resourceClaimName": one} for one in claims or ("c",)],
        },
    }


def read(manifests: list[Tree], folder: Path) -> Cluster:
    path = folder / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests}))
    return read_cluster(path, validate="ignore")


def can_run(manifests: list[Tree], folder: Path) -> bool:
    return bool(explain(POD, read(manifests, folder), compare_max=-1, changes=False).node)
