"""Cases of scheduler_perf, kube-scheduler's benchmark, under their original names.

Node and pod counts are those of the workload with a threshold, or of the largest one. Operations
by wall clock (churn, deletions) happen here per measured pod, as often as in scheduler_perf at the
threshold's rate.

Left out are cases that allocate devices (DRA) and cases of single queueing hints
(EventHandling...).

Source: kube-scheduler v1.36, test/integration/scheduler_perf.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from stowplan.benchmarks.benchmark_objects import (
    HOST,
    ZONE,
    BenchmarkClient,
    Tree,
    make_object,
    node_tree,
    nodes,
    pod_tree,
    preferred_terms,
    required_nodes,
    required_terms,
    spread,
    term,
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
from stowplan.framework.feature_gates import FeatureGates
from stowplan.messages.events import Event
from stowplan.objects.pod import Pod
from stowplan.objects.scheduling_group import SchedulingGroup
from stowplan.objects.workload import Namespace, Service

NODE_ALLOCATABLE = {"cpu": "4", "memory": "32Gi", "pods": "110"}
REQUESTS = {"cpu": "100m", "memory": "500Mi"}
ONE_NODE = "scheduler-perf-node"
ONE_ZONE = ("zone1",)
MOONS = ("moon-1", "moon-2", "moon-3")
INIT = "sched-0"
MEASURED = "sched-1"
BOTH = {"namespaces": [MEASURED, INIT]}
DEVOPS = {"namespaceSelector": {"matchLabels": {"team": "devops"}}}
N_NAMESPACES = 100
N_FEATURES = 20

Spec = Mapping[str, Any]
"""Properties of a pod, as arguments of `pod_tree`."""

DEFAULT: Spec = {"requests": REQUESTS}
LIGHT: Spec = {}
LABELLED: Spec = {"labels": {"app": "scheduler-perf"}}
POD_LEVEL: Spec = {"resources": {"requests": {"cpu": "100m", "memory": "200Mi"}}}
SECRET: Spec = {
    "requests": REQUESTS,
    "volumes": [{"name": "secret", "secret": {"secretName": "secret"}}],
}
IN_ZONES: Spec = {
    "requests": REQUESTS,
    "affinity": required_nodes("matchExpressions", ZONE, "zone1", "zone2"),
}
ON_ONE_NODE: Spec = {"affinity": required_nodes("matchFields", "metadata.name", ONE_NODE)}


def _colored(color: str, **affinity: Tree) -> Spec:
    wishes = {"affinity": affinity} if affinity else {}
    return {"requests": REQUESTS, "labels": {"color": color}, **wishes}


def _term(color: str, topology: str, where: Tree) -> Tree:
    return term({"color": color}, topology, **where)


def required_affinity(where: Tree) -> Spec:
    """Required affinity to others in a zone."""
    return _colored("blue", podAffinity=required_terms(_term("blue", ZONE, where)))


def required_anti_affinity(where: Tree) -> Spec:
    """Required anti-affinity on the node."""
    return _colored("green", podAntiAffinity=required_terms(_term("green", HOST, where)))


def preferred_affinity(where: Tree) -> Spec:
    """Preferred affinity on the node."""
    return _colored("red", podAffinity=preferred_terms(_term("red", HOST, where)))


def preferred_anti_affinity(where: Tree, color: str = "yellow") -> Spec:
    """Preferred anti-affinity on the node."""
    return _colored(color, podAntiAffinity=preferred_terms(_term(color, HOST, where)))


def _spread_out(when: str) -> Spec:
    constraint = spread({"color": "blue"}, ZONE, 5, when)
    return {**_colored("blue"), "topologySpreadConstraints": [constraint]}


# Clusters.


def plain_nodes(n_nodes: int, zones: Sequence[str] = (), prefix: str = "node") -> list[Event]:
    """Nodes with 4 CPUs and 32 GiB."""

    def tree(index: int) -> Tree:
        labels = {ZONE: zones[index % len(zones)]} if zones else {}
        return node_tree(f"{prefix}-{index}", NODE_ALLOCATABLE, labels)

    return nodes_added(nodes(map(tree, range(n_nodes))))


def one_node() -> list[Event]:
    """A node with a limit of 90,000 pods."""
    return nodes_added(nodes([node_tree(ONE_NODE, {**NODE_ALLOCATABLE, "pods": "90000"})]))


def create(
    client: BenchmarkClient,
    prefix: str,
    n_pods: int,
    spec: Spec = DEFAULT,
    namespace: str = "default",
) -> list[Pod]:
    """Pods that differ in their names only."""
    trees = (pod_tree(f"{prefix}-{i}", namespace=namespace, **spec) for i in range(n_pods))
    return client.pods(trees)


# Cases.


def _case(
    name: str,
    what: str,
    sizes: tuple[int, int, int],
    spec: Spec,
    *,
    init: Spec | None = None,
    zones: Sequence[str] = (),
    namespaces: tuple[str, str] = ("default", "default"),
) -> BenchmarkCase:
    """A case of nodes, initial pods and measured pods; `sizes` in this order.

    init: properties of initial pods, if different. namespaces: of initial and measured pods.
    """
    n_nodes, n_init, n_pods = sizes

    def make(client: BenchmarkClient, given: WorkloadSizes) -> BenchmarkWorkload:
        some = n_init * given.nodes // n_nodes
        first = create(client, "init", some, spec if init is None else init, namespaces[0])
        before = plain_nodes(given.nodes, zones) + pods_added(first)
        return arriving_pods(before, create(client, "pod", given.pods, spec, namespaces[1]))

    return BenchmarkCase(name, what, n_nodes, n_pods, make)


def mixed(client: BenchmarkClient, sizes: WorkloadSizes) -> BenchmarkWorkload:
    """Plain pods in a cluster with pods of four kinds of pod affinity."""
    n_each = sizes.nodes * 2 // 5
    kinds = {
        "plain": DEFAULT,
        "affine": required_affinity(BOTH),
        "repelling": required_anti_affinity(BOTH),
        "rather-affine": preferred_affinity(BOTH),
        "rather-repelling": preferred_anti_affinity(BOTH),
    }
    before = plain_nodes(sizes.nodes, ONE_ZONE)
    for prefix, spec in kinds.items():
        before += pods_added(create(client, prefix, n_each, spec, INIT))
    return arriving_pods(before, create(client, "pod", sizes.pods))


def _by_namespaces(
    name: str, what: str, sizes: tuple[int, int, int], spec: Spec, zones: Sequence[str] = ()
) -> BenchmarkCase:
    """Pods whose terms select namespaces by label: a hundred initial namespaces, one measured."""
    n_nodes, n_per_namespace, n_pods = sizes

    def make(client: BenchmarkClient, given: WorkloadSizes) -> BenchmarkWorkload:
        n_namespaces = N_NAMESPACES * given.nodes // n_nodes
        names = [f"init-ns-{i}" for i in range(n_namespaces)]
        labels = {"team": "devops"}
        spaces = [make_object(Namespace, one, labels=labels) for one in [*names, "measure-ns-0"]]
        before = plain_nodes(given.nodes, zones) + objects_added(spaces)
        for one in names:
            before += pods_added(create(client, "init", n_per_namespace, spec, one))
        return arriving_pods(before, create(client, "pod", given.pods, spec, "measure-ns-0"))

    return BenchmarkCase(name, what, n_nodes, n_pods, make)


def daemonset(client: BenchmarkClient, sizes: WorkloadSizes) -> BenchmarkWorkload:
    """Pods with node affinity to a single node name."""
    before = one_node() + plain_nodes(sizes.nodes)
    return arriving_pods(before, create(client, "pod", sizes.pods, ON_ONE_NODE))


def gated_with_affinity(client: BenchmarkClient, sizes: WorkloadSizes) -> BenchmarkWorkload:
    """One node; gated pods with pod affinity to the measured pods."""
    rule = {"podAffinity": required_terms(term({"app": "scheduler-perf"}, HOST))}
    gates = [{"name": "scheduling-gate-1"}]
    spec: Spec = {**LABELLED, "affinity": rule, "schedulingGates": gates}
    before = one_node() + pods_added(create(client, "gated", sizes.pods // 2, spec))
    return arriving_pods(before, create(client, "pod", sizes.pods, LABELLED))


def extended_resource(client: BenchmarkClient, sizes: WorkloadSizes) -> BenchmarkWorkload:
    """An extended resource per node, and a pod that requests it."""
    offers = [{**NODE_ALLOCATABLE, f"foo.com/bar-{i}": "1"} for i in range(sizes.nodes)]
    labels = {"node-with-extended-resource": "true"}
    trees = (node_tree(f"node-{i}", offer, labels) for i, offer in enumerate(offers))
    before = nodes_added(nodes(trees))
    asking = (
        pod_tree(f"pod-{i}", {f"foo.com/bar-{i % sizes.nodes}": "1"}, namespace="test")
        for i in range(sizes.pods)
    )
    return arriving_pods(before, client.pods(asking))


def declared_features(client: BenchmarkClient, sizes: WorkloadSizes) -> BenchmarkWorkload:
    """Large nodes with declared features, and pods with pod-level requests."""
    declared = [f"Feature{i}" for i in range(N_FEATURES)]

    def tree(index: int) -> Tree:
        offers = {"cpu": "128", "memory": "16Gi", "pods": "110"}
        found = node_tree(f"node-{index}", offers)
        found["status"]["declaredFeatures"] = declared
        return found

    first = create(client, "init", sizes.nodes, POD_LEVEL, "init")
    before = nodes_added(nodes(map(tree, range(sizes.nodes)))) + pods_added(first)
    return arriving_pods(before, create(client, "pod", sizes.pods, POD_LEVEL, "test"))


def default_spreading(client: BenchmarkClient, sizes: WorkloadSizes) -> BenchmarkWorkload:
    """Pods of a service, under the default topology spread constraints."""
    service = make_object(
        Service, "service", "service-ns", spec={"selector": {"app": "scheduler-perf"}}
    )
    before = plain_nodes(sizes.nodes, MOONS) + objects_added([service])
    before += pods_added(create(client, "init", sizes.nodes))
    return arriving_pods(before, create(client, "pod", sizes.pods, LABELLED, "service-ns"))


def inclusion_policy(client: BenchmarkClient, sizes: WorkloadSizes) -> BenchmarkWorkload:
    """One pod per node; a fifth of the nodes is tainted and does not count."""
    n_tainted = sizes.nodes // 5
    taints = [{"key": "foo", "effect": "NoSchedule"}]
    tainted = (node_tree(f"tainted-{i}", NODE_ALLOCATABLE, taints=taints) for i in range(n_tainted))
    before = plain_nodes(sizes.nodes - n_tainted) + nodes_added(nodes(tainted))
    labels = {"foo": "bar"}
    honor = {"nodeAffinityPolicy": "Honor", "nodeTaintsPolicy": "Honor"}
    constraint = spread(labels, HOST, 1, "DoNotSchedule", **honor)
    spec = {"requests": REQUESTS, "labels": labels, "topologySpreadConstraints": [constraint]}
    return arriving_pods(before, create(client, "pod", sizes.pods, spec))


AFFINITY = (
    _case(
        "SchedulingPodAntiAffinity",
        "one pod a node, by anti-affinity",
        (5000, 1000, 2000),
        required_anti_affinity(BOTH),
        namespaces=(INIT, MEASURED),
    ),
    _case(
        "SchedulingPodMatchingAntiAffinity",
        "plain pods that those with anti-affinity keep away",
        (5000, 1000, 5000),
        _colored("green"),
        init=required_anti_affinity(BOTH),
        namespaces=(INIT, MEASURED),
    ),
    _case(
        "SchedulingPodAffinity",
        "required pod affinity by zone",
        (5000, 5000, 5000),
        required_affinity(BOTH),
        zones=ONE_ZONE,
        namespaces=(INIT, MEASURED),
    ),
    _case(
        "SchedulingPreferredPodAffinity",
        "preferred pod affinity by host",
        (5000, 5000, 5000),
        preferred_affinity(BOTH),
        namespaces=(INIT, MEASURED),
    ),
    _case(
        "SchedulingPreferredPodAntiAffinity",
        "preferred pod anti-affinity by host",
        (5000, 5000, 5000),
        preferred_anti_affinity(BOTH),
        namespaces=(INIT, MEASURED),
    ),
    _case(
        "SchedulingNodeAffinity",
        "required node affinity to zones",
        (5000, 5000, 10_000),
        IN_ZONES,
        zones=ONE_ZONE,
    ),
    BenchmarkCase(
        "MixedSchedulingBasePod", "plain pods among all kinds of pod affinity", 5000, 5000, mixed
    ),
    _by_namespaces(
        "SchedulingRequiredPodAntiAffinityWithNSSelector",
        "one pod a node, over a hundred namespaces",
        (6000, 40, 2000),
        required_anti_affinity(DEVOPS),
    ),
    _by_namespaces(
        "SchedulingPreferredAntiAffinityWithNSSelector",
        "preferred anti-affinity over a hundred namespaces",
        (5000, 40, 2000),
        preferred_anti_affinity(DEVOPS, "green"),
    ),
    _by_namespaces(
        "SchedulingRequiredPodAffinityWithNSSelector",
        "required affinity over a hundred namespaces",
        (5000, 50, 2000),
        required_affinity(DEVOPS),
        ONE_ZONE,
    ),
    _by_namespaces(
        "SchedulingPreferredAffinityWithNSSelector",
        "preferred affinity over a hundred namespaces",
        (5000, 50, 5000),
        preferred_affinity(DEVOPS),
    ),
    BenchmarkCase(
        "SchedulingGatedPodsWithPodAffinityImpactForThroughput",
        "one node, while gated pods have affinity to those that come",
        1,
        20_000,
        gated_with_affinity,
    ),
)
SPREADING = (
    _case(
        "TopologySpreading",
        "hard spread over zones",
        (5000, 5000, 5000),
        _spread_out("DoNotSchedule"),
        init=DEFAULT,
        zones=MOONS,
    ),
    _case(
        "PreferredTopologySpreading",
        "soft spread over zones",
        (5000, 5000, 5000),
        _spread_out("ScheduleAnyway"),
        init=DEFAULT,
        zones=MOONS,
    ),
    BenchmarkCase(
        "DefaultTopologySpreading",
        "pods of a service, by the default constraints",
        5000,
        10_000,
        default_spreading,
    ),
    BenchmarkCase(
        "SchedulingWithNodeInclusionPolicy",
        "spread over hosts, not counting tainted ones",
        5000,
        4000,
        inclusion_policy,
    ),
)
PLACING = (
    _case("SchedulingBasic", "no wishes", (5000, 1000, 10_000), DEFAULT),
    BenchmarkCase("SchedulingDaemonset", "pods that name their node", 15_000, 30_000, daemonset),
    _case("SchedulingSecrets", "a secret as a volume", (5000, 1000, 10_000), SECRET),
    BenchmarkCase(
        "SchedulingWithExtendedResource", "5,000 resources", 5000, 5000, extended_resource
    ),
    BenchmarkCase(
        "NodeDeclaredFeatures", "nodes that declare features", 5000, 5000, declared_features
    ),
)


GANG_GATES = FeatureGates(generic_workload=True, gang_scheduling=True)


TOPOLOGY_GATES = msgspec.structs.replace(GANG_GATES, topology_aware_workload_scheduling=True)
RACK = "rack"
N_RACKS = 50


def _gangs_of(
    size: int, n_racks: int = 0, *, in_turn: bool = False
) -> Callable[[BenchmarkClient, WorkloadSizes], BenchmarkWorkload]:
    """Gangs of pods that come one after the other; the last one may be smaller. n_racks: each gang
    goes to one of so many racks; 0 for no constraint. in_turn: the first pods of all gangs come
    first, then the second ones."""

    def make(client: BenchmarkClient, sizes: WorkloadSizes) -> BenchmarkWorkload:
        trees = [
            node_tree(
                f"node-{i}", NODE_ALLOCATABLE, {RACK: f"rack-{i % n_racks}"} if n_racks else None
            )
            for i in range(sizes.nodes)
        ]
        groups, members = [], []
        requests = {"cpu": "100m", "memory": "100Mi"}
        constraint = {"schedulingConstraints": {"topology": [{"key": RACK}]}} if n_racks else {}
        for first in range(0, sizes.pods, size):
            name, n_pods = f"gang-{first // size}", min(size, sizes.pods - first)
            spec = {"schedulingPolicy": {"gang": {"minCount": n_pods}}, **constraint}
            groups.append(make_object(SchedulingGroup, name, MEASURED, spec=spec))
            named = {"podGroupName": name}
            members += [
                pod_tree(f"pod-{i}", requests, namespace=MEASURED, schedulingGroup=named)
                for i in range(first, first + n_pods)
            ]
        if in_turn:
            members = [one for first in range(size) for one in members[first::size]]
        before = nodes_added(nodes(trees)) + objects_added(groups)
        return arriving_pods(before, client.pods(members))

    return make


def _gang_case(n_gangs: int, size: int) -> BenchmarkCase:
    what = f"gangs of {size:,} pods, with the gates of pod groups"
    name = f"GangScheduling{n_gangs}x{size}"
    pods = n_gangs * size
    return BenchmarkCase(name, what, 5000, pods, _gangs_of(size), gates=GANG_GATES)


def _rack_case(n_gangs: int, size: int) -> BenchmarkCase:
    what = f"gangs of {size:,} pods, each in one of {N_RACKS} racks"
    name, pods = f"GangTopology{n_gangs}x{size}", n_gangs * size
    make = _gangs_of(size, N_RACKS)
    return BenchmarkCase(name, what, 5000, pods, make, gates=TOPOLOGY_GATES)


GANGS = (
    *(
        _gang_case(n_gangs, size)
        for n_gangs, size in (
            (1000, 3), (2000, 3), (3000, 3), (9, 1000), (10, 5000), (1000, 5), (1, 5000),
        )
    ),
    BenchmarkCase(
        "GangsInTurn1000x3", "gangs of 3 pods, of which the first all come first", 5000, 3000,
        _gangs_of(3, in_turn=True), gates=GANG_GATES,
    ),
    *(_rack_case(n_gangs, size) for n_gangs, size in ((1000, 5), (50, 100))),
)  # fmt: skip
"""scheduler_perf's GangScheduling, under the number of gangs and their size, others like it, and
gangs with a topology constraint."""
