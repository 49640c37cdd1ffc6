"""Cases of scheduler_perf with churn, preemption, deletions and volumes.

Operations by wall clock happen here per measured pod, as often as in scheduler_perf at the
threshold's rate, or at SchedulingBasic's for workloads without a threshold.

Source: kube-scheduler v1.36, test/integration/scheduler_perf.
"""

from __future__ import annotations

import datetime

from msgspec.structs import replace

from stowplan.benchmarks.benchmark_objects import (
    BenchmarkClient,
    Tree,
    make_object,
    node_tree,
    nodes,
    pod_tree,
)
from stowplan.benchmarks.benchmark_workload import (
    BenchmarkCase,
    BenchmarkWorkload,
    WorkloadSizes,
    arriving_pods,
    nodes_added,
    objects_added,
    pods_added,
)
from stowplan.benchmarks.cases.scheduler_perf_cases import (
    DEFAULT,
    LIGHT,
    NODE_ALLOCATABLE,
    ONE_NODE,
    Spec,
    create,
    one_node,
    plain_nodes,
)
from stowplan.messages import events as happened
from stowplan.messages.events import Event
from stowplan.objects.meta import Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.storage import CSINode, PersistentVolume, PersistentVolumeClaim
from stowplan.objects.workload import Service

LOW: Spec = {"requests": {"cpu": "900m", "memory": "500Mi"}}
HIGH: Spec = {"requests": {"cpu": "3000m", "memory": "500Mi"}, "priority": 10}
LARGE: Spec = {"requests": {"cpu": "9", "memory": "500Mi"}, "priority": 10}
LOW_PER_NODE = 4

EBS = "ebs.csi.aws.com"
EBS_MAX = 39
GROUP = "pv.kubernetes.io"
DELETED = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)


def full_of_low(client: BenchmarkClient, n_nodes: int) -> list[Event]:
    """Nodes with 4 CPUs and four pods of 900m each."""
    trees = (
        pod_tree(f"low-{i}", nodeName=f"node-{i % n_nodes}", **LOW)
        for i in range(n_nodes * LOW_PER_NODE)
    )
    return plain_nodes(n_nodes) + pods_added(client.pods(trees))


def preemption_basic(client: BenchmarkClient, sizes: WorkloadSizes) -> BenchmarkWorkload:
    """Pods that each preempt three pods."""
    before = full_of_low(client, sizes.nodes)
    return arriving_pods(before, create(client, "pod", sizes.pods, HIGH))


def preemption_async(client: BenchmarkClient, sizes: WorkloadSizes) -> BenchmarkWorkload:
    """Pods that fit, and five preempting pods per second."""
    rate = 160
    before = full_of_low(client, sizes.nodes)
    preempting = create(client, "high", sizes.pods * 5 // rate, HIGH)
    pods = create(client, "pod", sizes.pods)
    return arriving_pods(before, pods, pods_added(preempting), rate)


def unschedulable(client: BenchmarkClient, sizes: WorkloadSizes) -> BenchmarkWorkload:
    """Pods that fit, and five unschedulable pods of higher priority per second."""
    rate = 170
    first = create(client, "init", max(sizes.nodes // 50, 1))
    before = plain_nodes(sizes.nodes) + pods_added(first)
    large = create(client, "large", sizes.pods * 5 // rate, LARGE)
    return arriving_pods(before, create(client, "pod", sizes.pods), pods_added(large), rate)


def mixed_churn(client: BenchmarkClient, sizes: WorkloadSizes) -> BenchmarkWorkload:
    """Each second a full node, an unschedulable pod and a service are created again."""
    rate = 265
    rounds = max(sizes.pods // rate, 1)
    no_room = nodes(node_tree(f"node-churn-{i}", {"pods": "0"}) for i in range(rounds))
    large = create(client, "large", rounds, LARGE)
    services = [
        make_object(Service, f"service-churn-{i}", "default", spec={"selector": {"app": "foo"}})
        for i in range(rounds)
    ]
    events: list[Event] = []
    for index in range(rounds):
        if index:
            events.append(happened.NodeDeleted(no_room[index - 1]))
            events.append(happened.PodDeleted(large[index - 1]))
            events.append(happened.ObjectDeleted(services[index - 1]))
        events.append(happened.NodeAdded(no_room[index]))
        events.append(happened.PodAdded(large[index]))
        events.append(happened.ObjectAdded(services[index]))
    return arriving_pods(plain_nodes(sizes.nodes), create(client, "pod", sizes.pods), events, rate)


def while_gated(client: BenchmarkClient, sizes: WorkloadSizes) -> BenchmarkWorkload:
    """One node; half as many gated pods, and fifty deletions of placed pods per second."""
    rate = 130
    gate: Spec = {"schedulingGates": [{"name": "test.k8s.io/hold"}]}
    gated = create(client, "gated", sizes.pods // 2, gate)
    leaving = create(client, "leaving", sizes.pods, {"nodeName": ONE_NODE})
    before = one_node() + pods_added(gated) + pods_added(leaving)
    events: list[Event] = [happened.PodDeleted(pod) for pod in leaving[: sizes.pods * 50 // rate]]
    return arriving_pods(before, create(client, "pod", sizes.pods, LIGHT), events, rate)


def deleted_with_finalizers(client: BenchmarkClient, sizes: WorkloadSizes) -> BenchmarkWorkload:
    """A hundred pods per second that are terminating before their attempt."""
    rate = 270
    leaving = create(client, "leaving", sizes.pods * 100 // rate)
    events: list[Event] = []
    for pod in leaving:
        events += [happened.PodAdded(pod), happened.PodUpdated(_going(client, pod))]
    before = plain_nodes(sizes.nodes)
    return arriving_pods(before, create(client, "pod", sizes.pods, LIGHT), events, rate)


def _going(client: BenchmarkClient, pod: Pod) -> Pod:
    meta = replace(pod.metadata, deletion_timestamp=DELETED)
    return client.again([replace(pod, metadata=meta)])[0]


# Volumes: each pod has its own bound claim.


def with_volume(name: str, source: str) -> tuple[list[Object], Tree]:
    """A volume, its claim, and the pod's volume entry. source: `aws` or `csi`."""
    sources: dict[str, Tree] = {
        "aws": {"awsElasticBlockStore": {"volumeID": f"vol-{name}"}},
        "csi": {"csi": {"driver": EBS, "volumeHandle": f"vol-{name}"}},
    }
    size = {"storage": "1Gi"}
    reading = {"accessModes": ["ReadOnlyMany"]}
    volume = make_object(
        PersistentVolume,
        f"vol-{name}",
        annotations={f"{GROUP}/bound-by-controller": "true"},
        spec={
            **reading,
            **sources[source],
            "capacity": size,
            "claimRef": {"kind": "PersistentVolumeClaim", "namespace": "default", "name": name},
        },
        status={"phase": "Bound"},
    )
    claim = make_object(
        PersistentVolumeClaim,
        name,
        "default",
        annotations={f"{GROUP}/bind-completed": "true"},
        spec={**reading, "resources": {"requests": size}, "volumeName": f"vol-{name}"},
        status={"phase": "Bound"},
    )
    used = {"name": "vol", "persistentVolumeClaim": {"claimName": name}}
    return [volume, claim], {"volumes": [used]}


def _with_volumes(
    client: BenchmarkClient, prefix: str, n_pods: int, source: str, spec: Spec
) -> tuple[list[Event], list[Pod]]:
    objects: list[Object] = []
    trees = []
    for index in range(n_pods):
        name = f"{prefix}-{index}"
        some, used = with_volume(name, source)
        objects += some
        trees.append(pod_tree(name, **spec, **used))
    return objects_added(objects), client.pods(trees)


def _volumes(
    name: str, what: str, sizes: tuple[int, int, int], source: str, *, limited: bool = True
) -> BenchmarkCase:
    """A case of nodes, initial pods and measured pods. limited: by a CSI driver's volume limit."""
    n_nodes, n_init, n_pods = sizes

    def make(client: BenchmarkClient, given: WorkloadSizes) -> BenchmarkWorkload:
        n_first = n_init * given.nodes // n_nodes
        first = _with_volumes(client, "init", n_first, source, DEFAULT)
        then = _with_volumes(client, "pod", given.pods, source, DEFAULT)
        before = _attaching(given.nodes) if limited else plain_nodes(given.nodes)
        return arriving_pods(before + first[0] + then[0] + pods_added(first[1]), then[1])

    return BenchmarkCase(name, what, n_nodes, n_pods, make)


def _attaching(n_nodes: int) -> list[Event]:
    """Nodes with a CSI driver limit of 39 volumes, including migrated in-tree volumes."""
    offers = {**NODE_ALLOCATABLE, f"attachable-volumes-csi-{EBS}": str(EBS_MAX)}
    found: list[Node] = nodes(node_tree(f"node-{i}", offers) for i in range(n_nodes))
    driver = {"name": EBS, "nodeID": "n", "allocatable": {"count": EBS_MAX}}
    migrated = {"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/aws-ebs"}
    return nodes_added(found) + objects_added(
        make_object(CSINode, node.name, annotations=migrated, spec={"drivers": [driver]})
        for node in found
    )


def preemption_with_volumes(client: BenchmarkClient, sizes: WorkloadSizes) -> BenchmarkWorkload:
    """Pods with a volume that each preempt three pods."""
    objects, pods = _with_volumes(client, "pod", sizes.pods, "aws", HIGH)
    return arriving_pods(full_of_low(client, sizes.nodes) + objects, pods)


CHURN = (
    BenchmarkCase("PreemptionBasic", "each takes the place of three", 1000, 1000, preemption_basic),
    BenchmarkCase(
        "PreemptionAsync", "pods that fit, while others preempt", 5000, 5000, preemption_async
    ),
    BenchmarkCase(
        "Unschedulable", "pods that fit, while others do not", 5000, 10_000, unschedulable
    ),
    BenchmarkCase(
        "SchedulingWithMixedChurn", "nodes and pods come and go", 5000, 10_000, mixed_churn
    ),
    BenchmarkCase("SchedulingWhileGated", "one node; gates and deletions", 1, 20_000, while_gated),
    BenchmarkCase(
        "SchedulingDeletedPodsWithFinalizers",
        "among pods that are being deleted",
        5000,
        5000,
        deleted_with_finalizers,
    ),
)
VOLUMES = (
    _volumes(
        "SchedulingInTreePVs", "a bound in-tree volume", (5000, 1000, 2000), "aws", limited=False
    ),
    _volumes(
        "SchedulingMigratedInTreePVs", "a bound volume, by its driver", (5000, 5000, 5000), "aws"
    ),
    _volumes("SchedulingCSIPVs", "a bound CSI volume", (5000, 5000, 5000), "csi"),
    BenchmarkCase("PreemptionPVs", "each takes three places", 1000, 1000, preemption_with_volumes),
)
