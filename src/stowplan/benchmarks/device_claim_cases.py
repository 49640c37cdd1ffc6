"""Cases with ResourceClaims: devices in ResourceSlices, pods with a claim from one template.

A pod and its claim arrive together, as a watch shows them once the claim was created. Writes of
claims are answered by their outcome and by the watch.

Source: kube-scheduler v1.36, test/integration/scheduler_perf/dra.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stowplan.benchmarks.benchmark_objects import (
    BenchmarkClient,
    Tree,
    make_object,
    node_tree,
    nodes,
    pod_tree,
)
from stowplan.benchmarks.benchmark_workload import (
    BATCH,
    BenchmarkCase,
    BenchmarkWorkload,
    HandleCall,
    WorkloadSizes,
    nodes_added,
    objects_added,
)
from stowplan.messages import events as happened
from stowplan.messages.events import Event
from stowplan.objects.devices.device import DeviceClass, ResourceSlice
from stowplan.objects.devices.device_claim import ResourceClaim
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.encoding.json_codec import decode, encode
from stowplan.objects.pod import Pod

DRIVER = "gpu.example.com"
CLASS = "gpu"
N_DEVICES = 8
PERF_DEVICES = 10
"""Devices of a node in scheduler_perf (maxClaimsPerNode)."""

NODE_ALLOCATABLE = {"cpu": "128", "memory": "512Gi", "pods": "110"}
REQUESTS = {"cpu": "100m", "memory": "200Mi"}

MakeClaim = Callable[[int], Tree]
"""`spec` of the claim of a pod by number."""


def device_class() -> DeviceClass:
    """Devices of the driver."""
    expression = f'device.driver == "{DRIVER}"'
    return make_object(
        DeviceClass, CLASS, spec={"selectors": [{"cel": {"expression": expression}}]}
    )


def node_slice(name: str, n_devices: int) -> ResourceSlice:
    """The slice of a node with equal devices."""
    attributes = {"model": {"string": "H100"}}
    capacity = {"memory": {"value": "80Gi"}}
    devices = [
        {"name": f"gpu-{i}", "attributes": attributes, "capacity": capacity}
        for i in range(n_devices)
    ]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec: Tree = {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": devices}
    return make_object(ResourceSlice, f"{name}-{DRIVER}", spec=spec)


def one_device(index: int) -> Tree:
    """One device of the class."""
    exactly = {"deviceClassName": CLASS, "allocationMode": "ExactCount", "count": 1}
    return {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}


def device_cluster(n_nodes: int, n_devices: int) -> list[Event]:
    """Nodes with their slices, and the class."""
    names = [f"node-{i}" for i in range(n_nodes)]
    slices = [node_slice(name, n_devices) for name in names]
    found = nodes(node_tree(name, NODE_ALLOCATABLE) for name in names)
    return nodes_added(found) + objects_added([device_class(), *slices])


def claiming_pods(
    client: BenchmarkClient, prefix: str, n_pods: int, make_claim: MakeClaim
) -> list[tuple[ResourceClaim, Pod]]:
    """Pods and the claims that were made for them, in order."""
    trees = []
    claims = []
    for index in range(n_pods):
        name = f"{prefix}-{index}"
        use = {"name": "devices", "resourceClaimTemplateName": "template"}
        tree = pod_tree(name, REQUESTS, resourceClaims=[use])
        made = {"name": "devices", "resourceClaimName": f"{name}-devices"}
        tree["status"]["resourceClaimStatuses"] = [made]
        trees.append(tree)
        claims.append(_claim_tree(tree, make_claim(index)))
    read = [decode(encode(tree), ResourceClaim) for tree in claims]
    return list(zip(read, client.pods(trees), strict=True))


def _claim_tree(pod: Tree, spec: Tree) -> Tree:
    meta = pod["metadata"]
    owner: dict[str, Any] = {
        "apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"],
        "controller": True, "blockOwnerDeletion": True,
    }  # fmt: skip
    name = f"{meta['name']}-devices"
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": name,
            "namespace": meta["namespace"],
            "uid": f"uid-claim-{name}",
            "resourceVersion": "1",
            "ownerReferences": [owner],
        },
        "spec": spec,
    }


def _events_of(found: list[tuple[ResourceClaim, Pod]]) -> list[Event]:
    events: list[Event] = []
    for claim, pod in found:
        events += [happened.ObjectAdded(claim), happened.PodAdded(pod)]
    return events


def claims_from_one_template(n_devices: int, n_first: int) -> Callable[..., BenchmarkWorkload]:
    """Pods with a claim each. n_first: pods that are placed before, per measured pod in percent."""

    def make(client: BenchmarkClient, sizes: WorkloadSizes) -> BenchmarkWorkload:
        before = device_cluster(sizes.nodes, n_devices)
        n_before = sizes.pods * n_first // 100
        before += _events_of(claiming_pods(client, "init", n_before, one_device))
        found = claiming_pods(client, "pod", sizes.pods, one_device)
        calls = [
            HandleCall(SECOND, _events_of(found[first : first + BATCH]))
            for first in range(0, len(found), BATCH)
        ]
        return BenchmarkWorkload(before, calls, frozenset(pod.uid for _, pod in found))

    return make


DEVICE_CLAIM_CASES = (
    BenchmarkCase(
        "dra",
        "a claim for one of eight devices of a node, from one template",
        500,
        4000,
        claims_from_one_template(N_DEVICES, 0),
    ),
    BenchmarkCase(
        "SchedulingWithResourceClaimTemplate",
        "a claim for one of ten devices of a node; half are in use",
        500,
        2500,
        claims_from_one_template(PERF_DEVICES, 100),
    ),
)
