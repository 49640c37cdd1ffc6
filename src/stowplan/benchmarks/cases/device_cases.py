"""Cases with devices: parts of GPU cards by annotations, and ResourceClaims.

Shared GPUs: nodes with eight cards, pods that request parts of one or several. ResourceClaims: a
pod and its claim arrive together, as a watch shows them once the claim was created; writes of
claims are answered by their outcome and by the watch.

Source, of the cases with claims: kube-scheduler v1.36, test/integration/scheduler_perf/dra.
"""

from __future__ import annotations

import json
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
    arriving_pods,
    nodes_added,
    objects_added,
)
from stowplan.messages import events as happened
from stowplan.messages.events import Event
from stowplan.objects.devices.device import DeviceClass, ResourceSlice
from stowplan.objects.devices.device_claim import ResourceClaim
from stowplan.objects.devices.gpu_cards import COUNT_KEY, MILLI_KEY, MODEL_KEY
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.encoding.json_codec import decode, encode
from stowplan.objects.pod import Pod

N_CARDS = 8
MODELS = ("A", "B", "C")
NODE_ALLOCATABLE = {"cpu": "128", "memory": "512Gi", "pods": "250", COUNT_KEY: str(N_CARDS)}

SHAPES = (
    (4, 1, 100), (4, 1, 200), (8, 1, 250), (4, 1, 300), (8, 1, 400), (8, 1, 500), (6, 1, 600),
    (8, 1, 750), (8, 1, 1000), (16, 1, 1000), (16, 2, 1000), (32, 4, 1000), (2, 0, 0),
)  # fmt: skip
"""CPUs, cards, and milli of each."""


def _configuration(policy: str, selection: str) -> str:
    workload = [
        {"cpuMilli": 1000 * cpu, "num": num, "milli": milli, "count": 10 - i // 2}
        for i, (cpu, num, milli) in enumerate(SHAPES)
    ]
    own = [{"name": "GpuShare"}]
    alone = {"disabled": [{"name": "*"}], "enabled": own}
    profile: dict[str, Any] = {
        "plugins": {"multiPoint": {"enabled": own}, "preScore": alone, "score": alone},
        "pluginConfig": [
            {
                "name": "GpuShare",
                "args": {"policy": policy, "gpuSel": selection, "workload": workload},
            }
        ],
    }
    return json.dumps(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [profile],
        }
    )


def _node(index: int) -> Tree:
    labels = {MODEL_KEY: MODELS[index % len(MODELS)]}
    return node_tree(f"node-{index}", NODE_ALLOCATABLE, labels)


def _pod(index: int) -> Tree:
    # Shapes come in no fixed order, as those of users.
    cpu, num, milli = SHAPES[index * index * 7 % 97 % len(SHAPES)]
    tree = pod_tree(f"share-{index}", {"cpu": str(cpu), "memory": "1Gi"})
    if num:
        notes = {COUNT_KEY: str(num), MILLI_KEY: str(milli)}
        if index % 5 == 0:
            notes[MODEL_KEY] = "A|B"
        tree["metadata"]["annotations"] = notes
    return tree


def shares(client: BenchmarkClient, sizes: WorkloadSizes) -> BenchmarkWorkload:
    """Pods of 13 shapes, a fifth of them for two of three models, on empty nodes."""
    before = nodes_added(nodes(map(_node, range(sizes.nodes))))
    return arriving_pods(before, client.pods(map(_pod, range(sizes.pods))))


GPU_SHARE_CASES = tuple(
    BenchmarkCase(
        f"gpu-{name}",
        f"parts of GPU cards on nodes with eight, by {policy}",
        5000,
        10_000,
        shares,
        configuration=_configuration(policy, selection),
    )
    for name, policy, selection in (
        ("fgd", "FGD", "FGDScore"),
        ("bestfit", "BestFit", "best"),
        ("packing", "GpuPacking", "best"),
    )
)


# ResourceClaims.

DRIVER = "gpu.example.com"
CLASS = "gpu"
N_DEVICES = 8
PERF_DEVICES = 10
"""Devices of a node in scheduler_perf (maxClaimsPerNode)."""

CLAIM_NODE_ALLOCATABLE = {"cpu": "128", "memory": "512Gi", "pods": "110"}
CLAIM_POD_REQUESTS = {"cpu": "100m", "memory": "200Mi"}

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
    found = nodes(node_tree(name, CLAIM_NODE_ALLOCATABLE) for name in names)
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
        tree = pod_tree(name, CLAIM_POD_REQUESTS, resourceClaims=[use])
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
