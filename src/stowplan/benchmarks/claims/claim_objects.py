"""Objects of cases with ResourceClaims: devices of nodes, pods and the claims made for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stowplan.benchmarks.benchmark_objects import (
    BenchmarkClient,
    Tree,
    make_object,
    node_tree,
    nodes,
    pod_tree,
)
from stowplan.benchmarks.benchmark_workload import nodes_added, objects_added
from stowplan.messages import events as happened
from stowplan.messages.events import Event
from stowplan.objects.devices.device import DeviceClass, ResourceSlice
from stowplan.objects.devices.device_claim import ResourceClaim
from stowplan.objects.encoding.json_codec import decode, encode
from stowplan.objects.pod import Pod

DRIVER = "gpu.example.com"
CLASS = "gpu"
DRA_LABEL = "node-with-dra"
NODE_ALLOCATABLE = {"cpu": "128", "memory": "512Gi", "pods": "110"}
POD_REQUESTS = {"cpu": "100m", "memory": "200Mi"}

MakeClaim = Callable[[int], Tree]
"""`spec` of the claim of a pod by number."""


def device_class(name: str = CLASS, expression: str = "", **spec: Any) -> DeviceClass:
    """Devices of the driver, or of an expression."""
    cel = {"expression": expression or f'device.driver == "{DRIVER}"'}
    return make_object(DeviceClass, name, spec={"selectors": [{"cel": cel}], **spec})


def card(name: str, **fields: Any) -> Tree:
    """A device."""
    attributes = {"model": {"string": "H100"}}
    return {"name": name, "attributes": attributes, "capacity": {"memory": {"value": "80Gi"}},
            **fields}  # fmt: skip


def cards(n_devices: int) -> list[Tree]:
    """Equal devices."""
    return [card(f"gpu-{i}") for i in range(n_devices)]


def slice_of(name: str, pool: str, n_slices: int = 1, **spec: Any) -> ResourceSlice:
    """A slice of a pool. spec: its content and for which nodes it is."""
    whole = {"name": pool, "generation": 1, "resourceSliceCount": n_slices}
    return make_object(ResourceSlice, name, spec={"driver": DRIVER, "pool": whole, **spec})


def node_slice(name: str, devices: Sequence[Tree]) -> ResourceSlice:
    """The only slice of a node."""
    return slice_of(f"{name}-{DRIVER}", name, nodeName=name, devices=list(devices))


def claim_nodes(n_nodes: int) -> tuple[list[str], list[Event]]:
    """Nodes without devices: their names and events."""
    names = [f"node-{i}" for i in range(n_nodes)]
    trees = (node_tree(name, NODE_ALLOCATABLE, {DRA_LABEL: "true"}) for name in names)
    return names, nodes_added(nodes(trees))


def device_cluster(n_nodes: int, devices: Sequence[Tree]) -> list[Event]:
    """Nodes, each with a slice of these devices, and the class."""
    names, added = claim_nodes(n_nodes)
    slices = [node_slice(name, devices) for name in names]
    return added + objects_added([device_class(), *slices])


def request_of(name: str = "gpu", **fields: Any) -> Tree:
    """A request for one device of the class."""
    exactly = {"deviceClassName": CLASS, "allocationMode": "ExactCount", "count": 1, **fields}
    return {"name": name, "exactly": exactly}


def one_device(index: int) -> Tree:
    """One device of the class."""
    return {"devices": {"requests": [request_of()]}}


def claiming_pods(
    client: BenchmarkClient, prefix: str, n_pods: int, make_claim: MakeClaim
) -> list[tuple[ResourceClaim, Pod]]:
    """Pods and the claims that were made for them, in order."""
    trees = []
    claims = []
    for index in range(n_pods):
        name = f"{prefix}-{index}"
        use = {"name": "devices", "resourceClaimTemplateName": "template"}
        tree = pod_tree(name, POD_REQUESTS, resourceClaims=[use])
        made = {"name": "devices", "resourceClaimName": f"{name}-devices"}
        tree["status"]["resourceClaimStatuses"] = [made]
        trees.append(tree)
        claims.append(claim_tree(f"{name}-devices", make_claim(index), tree))
    read = [decode(encode(tree), ResourceClaim) for tree in claims]
    return list(zip(read, client.pods(trees), strict=True))


def claim_tree(name: str, spec: Tree, pod: Tree | None = None) -> Tree:
    """A claim as JSON tree. pod: for which it was made."""
    owners: list[Tree] = []
    if pod is not None:
        meta = pod["metadata"]
        owners.append({
            "apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"],
            "controller": True, "blockOwnerDeletion": True,
        })  # fmt: skip
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-claim-{name}",
            "resourceVersion": "1",
            "ownerReferences": owners,
        },
        "spec": spec,
    }


def events_of(found: Sequence[tuple[ResourceClaim, Pod]]) -> list[Event]:
    """A claim and its pod arrive together, as a watch shows them once the claim was created."""
    events: list[Event] = []
    for claim, pod in found:
        events += [happened.ObjectAdded(claim), happened.PodAdded(pod)]
    return events
