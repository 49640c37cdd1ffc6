"""Cases of pods whose claims are not bound yet: the scheduler finds or asks for their volumes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from stowplan.benchmarks.benchmark_objects import (
    HOST,
    BenchmarkClient,
    Tree,
    make_object,
    pod_tree,
    required_nodes,
)
from stowplan.benchmarks.benchmark_workload import (
    BenchmarkCase,
    BenchmarkWorkload,
    WorkloadSizes,
    arriving_pods,
    objects_added,
)
from stowplan.benchmarks.cases.stowplan_cases import REQUESTS, cluster
from stowplan.objects.meta import Object
from stowplan.objects.storage import (
    CSIDriver,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)

DRIVER = "csi.example.com"
CLASS = "on-demand"
N_VOLUMES = 2000

Describe = Callable[[WorkloadSizes], Iterator[Object]]
"""The objects of a case beside nodes, claims and pods."""


def claim_of(name: str) -> Object:
    """A claim of one gibibyte that waits for its first consumer."""
    return make_object(
        PersistentVolumeClaim,
        name,
        "default",
        spec={
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": CLASS,
            "resources": {"requests": {"storage": "1Gi"}},
        },
        status={"phase": "Pending"},
    )


def storage_class(provisioner: str) -> Object:
    """The class of all claims."""
    return make_object(
        StorageClass, CLASS, provisioner=provisioner, volumeBindingMode="WaitForFirstConsumer"
    )


def provisioned(sizes: WorkloadSizes) -> Iterator[Object]:
    """Volumes are made on demand, anywhere."""
    yield storage_class(DRIVER)
    yield make_object(CSIDriver, DRIVER, spec={})


def static_volumes(sizes: WorkloadSizes) -> Iterator[Object]:
    """Local volumes of the nodes in turn; there is no provisioner."""
    yield storage_class("kubernetes.io/no-provisioner")
    for index in range(max(N_VOLUMES, sizes.pods)):
        affinity = required_nodes("matchExpressions", HOST, f"node-{index % sizes.nodes}")
        required = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        yield make_object(
            PersistentVolume,
            f"local-{index}",
            spec={
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": CLASS,
                "capacity": {"storage": f"{1 + index % 3}Gi"},
                "nodeAffinity": {"required": required},
            },
            status={"phase": "Available"},
        )


def with_capacity(sizes: WorkloadSizes) -> Iterator[Object]:
    """Volumes are made on demand, where the driver has reported enough storage: on nine nodes of
    ten."""
    yield storage_class(DRIVER)
    yield make_object(CSIDriver, DRIVER, spec={"storageCapacity": True})
    for index in range(sizes.nodes):
        yield make_object(
            CSIStorageCapacity,
            f"capacity-{index}",
            "default",
            nodeTopology={"matchLabels": {HOST: f"node-{index}"}},
            storageClassName=CLASS,
            capacity="100Gi" if index % 10 else "1Mi",
        )


def _case(name: str, what: str, describe: Describe) -> BenchmarkCase:

    def make(client: BenchmarkClient, sizes: WorkloadSizes) -> BenchmarkWorkload:
        objects = list(describe(sizes))
        objects += [claim_of(f"data-{index}") for index in range(sizes.pods)]
        trees = (_pod_tree(index) for index in range(sizes.pods))
        return arriving_pods(cluster(sizes) + objects_added(objects), client.pods(trees))

    return BenchmarkCase(name, what, 5000, 1000, make)


def _pod_tree(index: int) -> Tree:
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": f"data-{index}"}}
    return pod_tree(f"pod-{index}", REQUESTS, {"app": "data"}, volumes=[volume])


UNBOUND_VOLUMES = (
    _case("wffc", "a claim whose volume is provisioned for the node", provisioned),
    _case("static-volumes", "a claim that takes one of 2,000 local volumes", static_volumes),
    _case("storage-capacity", "as wffc, where drivers report capacity by node", with_capacity),
)
