"""Stowplan's own cases: nodes with 16 CPUs and 64 GiB in three zones, pods of 100m and 200Mi.

The first five were also measured with kube-scheduler (`baselines`).
"""

from __future__ import annotations

from collections.abc import Callable

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
    event_workload,
    nodes_added,
    objects_added,
    pods_added,
)
from stowplan.messages import events as happened
from stowplan.messages.events import Event
from stowplan.objects.pod import Pod
from stowplan.objects.workload import PodDisruptionBudget

REQUESTS = {"cpu": "100m", "memory": "200Mi"}
NODE_ALLOCATABLE = {"cpu": "16", "memory": "64Gi", "pods": "110"}
N_ZONES = 3
N_GROUPS = 50
N_POOLS = 10
INFEASIBLE_TEMPLATES = 20
VICTIMS_PER_NODE = 4
N_BUDGETS = 20
LOW_PRIORITIES = (-10, -5, 0)
UPDATES_IN_5 = 4
"""Pod updates among five events; the others are node heartbeats."""

_PLACED_PER_NODE = 4
_OLD_PER_NODE = 9

Describe = Callable[[int, WorkloadSizes], Tree]
"""Properties of a pod by number, as arguments of `pod_tree`."""


def node(index: int, sizes: WorkloadSizes, version: str = "1") -> Tree:
    """A node by number, in one of three zones and ten pools of equal size."""
    pool = index // max(sizes.nodes // N_POOLS, 1)
    labels = {ZONE: f"zone-{index % N_ZONES}", "pool": f"pool-{pool}"}
    tree = node_tree(f"node-{index}", NODE_ALLOCATABLE, labels)
    tree["metadata"]["resourceVersion"] = version
    return tree


def cluster(sizes: WorkloadSizes) -> list[Event]:
    """All nodes of the sizes."""
    return nodes_added(nodes(node(i, sizes) for i in range(sizes.nodes)))


def existing(client: BenchmarkClient, sizes: WorkloadSizes) -> list[Event]:
    """Plain pods bound to the nodes."""
    trees = (
        pod_tree(f"old-{i}", REQUESTS, {"app": "old"}, nodeName=f"node-{i % sizes.nodes}")
        for i in range(sizes.existing)
    )
    return pods_added(client.pods(trees))


def _placing(
    name: str, describe: Describe
) -> Callable[[BenchmarkClient, WorkloadSizes], BenchmarkWorkload]:

    def make(client: BenchmarkClient, sizes: WorkloadSizes) -> BenchmarkWorkload:
        before = cluster(sizes) + existing(client, sizes)
        trees = (pod_tree(f"{name}-{i}", **describe(i, sizes)) for i in range(sizes.pods))
        return arriving_pods(before, client.pods(trees))

    return make


def plain_pod(index: int, sizes: WorkloadSizes) -> Tree:
    """Without constraints."""
    return {"requests": REQUESTS, "labels": {"app": "plain"}}


def node_selector_pod(index: int, sizes: WorkloadSizes) -> Tree:
    """Node affinity to one pool."""
    rule = required_nodes("matchExpressions", "pool", f"pool-{index % 2}")
    return {"requests": REQUESTS, "labels": {"app": "affinity"}, "affinity": rule}


def zone_spread_pod(index: int, sizes: WorkloadSizes) -> Tree:
    """Topology spread over zones, maxSkew 1."""
    labels = {"app": "spread"}
    constraint = spread(labels, ZONE, 1, "DoNotSchedule")
    return {"requests": REQUESTS, "labels": labels, "topologySpreadConstraints": [constraint]}


def _group(index: int) -> dict[str, str]:
    return {"group": f"g{index % N_GROUPS}"}


def anti_affinity_pod(index: int, sizes: WorkloadSizes) -> Tree:
    """Anti-affinity on the node within a group."""
    rule = {"podAntiAffinity": required_terms(term(_group(index), HOST))}
    return {"requests": REQUESTS, "labels": _group(index), "affinity": rule}


def preferred_affinity_pod(index: int, sizes: WorkloadSizes) -> Tree:
    """Preferred affinity to the zone of the group."""
    rule = {"podAffinity": preferred_terms(term(_group(index), ZONE))}
    return {"requests": REQUESTS, "labels": _group(index), "affinity": rule}


def template_pod(index: int, sizes: WorkloadSizes) -> Tree:
    """Templates with different requests and labels, in turn."""
    template = index % sizes.templates
    more = 2 * template % 400
    requests = {"cpu": f"{50 + more}m", "memory": f"{100 + more}Mi"}
    return {"requests": requests, "labels": {"app": f"app-{template}"}}


def unique_pod(index: int, sizes: WorkloadSizes) -> Tree:
    """Unique requests and labels per pod."""
    requests = {"cpu": f"{50 + index % 211}m", "memory": f"{200 * 1024 + index}Ki"}
    return {"requests": requests, "labels": {"app": f"app-{index}"}}


def unschedulable_pod(index: int, sizes: WorkloadSizes) -> Tree:
    """Unschedulable for three reasons in turn: too little free, too large, missing pool."""
    template = index % INFEASIBLE_TEMPLATES
    labels = {"app": f"unfit-{template}"}
    if template % 3 == 0:
        return {"requests": {"cpu": f"{2 + template // 3}"}, "labels": labels}
    if template % 3 == 1:
        return {"requests": {"cpu": f"{20 + template}"}, "labels": labels}
    return {"requests": REQUESTS, "labels": labels, "nodeSelector": {"pool": f"none-{template}"}}


def unfit(client: BenchmarkClient, sizes: WorkloadSizes) -> BenchmarkWorkload:
    """Unschedulable pods in a cluster full of pods of the same priority."""
    full = (
        pod_tree(f"full-{i}", {"cpu": "15"}, {"app": "full"}, nodeName=f"node-{i}")
        for i in range(sizes.nodes)
    )
    before = cluster(sizes) + existing(client, sizes) + pods_added(client.pods(full))
    trees = (pod_tree(f"unfit-{i}", **unschedulable_pod(i, sizes)) for i in range(sizes.pods))
    return arriving_pods(before, client.pods(trees))._replace(refused=True)


def preemption(client: BenchmarkClient, sizes: WorkloadSizes) -> BenchmarkWorkload:
    """Nodes full of low-priority pods, and pods that each preempt one."""
    share = {"cpu": "4", "memory": "16Gi"}
    low = (
        pod_tree(
            f"low-{i}", share, {"app": "low"}, priority=-10, nodeName=f"node-{i % sizes.nodes}"
        )
        for i in range(sizes.nodes * VICTIMS_PER_NODE)
    )
    before = cluster(sizes) + pods_added(client.pods(low))
    high = (pod_tree(f"high-{i}", share, {"app": "high"}, priority=1000) for i in range(sizes.pods))
    return arriving_pods(before, client.pods(high))


def preemption_with_budgets(client: BenchmarkClient, sizes: WorkloadSizes) -> BenchmarkWorkload:
    """Nodes full of pods of twenty templates under disruption budgets and of three priorities, and
    pods of twenty templates that each preempt one."""
    share = {"cpu": "4", "memory": "16Gi"}
    low = (
        pod_tree(
            f"low-{i}",
            share,
            {"app": f"low-{i % N_BUDGETS}"},
            priority=LOW_PRIORITIES[i % len(LOW_PRIORITIES)],
            nodeName=f"node-{i // VICTIMS_PER_NODE}",
        )
        for i in range(sizes.nodes * VICTIMS_PER_NODE)
    )
    budgets = (
        make_object(
            PodDisruptionBudget,
            f"budget-{i}",
            "default",
            spec={"selector": {"matchLabels": {"app": f"low-{i}"}}},
            status={"disruptionsAllowed": i % 3},
        )
        for i in range(N_BUDGETS)
    )
    before = cluster(sizes) + objects_added(budgets) + pods_added(client.pods(low))
    high = (
        pod_tree(
            f"high-{i}",
            {"cpu": f"{4000 - 50 * (i % N_BUDGETS)}m", "memory": "16Gi"},
            {"app": f"high-{i % N_BUDGETS}"},
            priority=100 * (1 + i % 3),
        )
        for i in range(sizes.pods)
    )
    return arriving_pods(before, client.pods(high))


def _placed(
    client: BenchmarkClient, sizes: WorkloadSizes, n_pods: int, version: int = 0
) -> list[Pod]:
    """Pods of the templates on all nodes in turn; version 0 is not ready."""

    def tree(index: int) -> Tree:
        node_name = f"node-{index % sizes.nodes}"
        found = pod_tree(f"pod-{index}", **template_pod(index, sizes), nodeName=node_name)
        found["metadata"]["resourceVersion"] = str(version)
        ready = {"type": "Ready", "status": "True" if version % 2 else "False"}
        found["status"] |= {"phase": "Running", "conditions": [ready]}
        return found

    return client.pods(map(tree, range(n_pods)))


def events(client: BenchmarkClient, sizes: WorkloadSizes) -> BenchmarkWorkload:
    """Readiness changes of pods, with node heartbeats in between."""
    n_placed = sizes.nodes * _PLACED_PER_NODE
    before = cluster(sizes) + pods_added(_placed(client, sizes, n_placed))
    n_beats = sizes.pods // (UPDATES_IN_5 + 1)
    beats = nodes(node(i % sizes.nodes, sizes, f"beat-{i}") for i in range(n_beats))
    n_updates = sizes.pods - n_beats
    running: list[Pod] = []
    while len(running) < n_updates:
        version = 1 + len(running) // n_placed
        running += _placed(client, sizes, min(n_updates - len(running), n_placed), version)
    events: list[Event] = []
    for index, pod in enumerate(running):
        events.append(happened.PodUpdated(pod))
        if index % UPDATES_IN_5 == UPDATES_IN_5 - 1 and index // UPDATES_IN_5 < n_beats:
            events.append(happened.NodeUpdated(beats[index // UPDATES_IN_5]))
    return event_workload(before, events)


def memory(client: BenchmarkClient, sizes: WorkloadSizes) -> BenchmarkWorkload:
    """The initial list of a cluster: bound pods of many templates."""
    return event_workload(cluster(sizes), pods_added(_placed(client, sizes, sizes.pods)))


def million(client: BenchmarkClient, sizes: WorkloadSizes) -> BenchmarkWorkload:
    """Plain pods on nodes that have nine each."""
    return _placing("million", plain_pod)(
        client, sizes._replace(existing=sizes.existing or _OLD_PER_NODE * sizes.nodes)
    )


def _shape(name: str, what: str, describe: Describe) -> BenchmarkCase:
    return BenchmarkCase(name, what, 5000, 10_000, _placing(name, describe))


STOWPLAN_CASES = (
    _shape("basic", "no wishes", plain_pod),
    _shape(
        "affinity", "required node affinity to a pool of a tenth of the nodes", node_selector_pod
    ),
    _shape("spread", "zones kept within one pod of each other", zone_spread_pod),
    _shape("anti", "host anti-affinity in 50 groups", anti_affinity_pod),
    _shape("preferred", "preferred pod affinity in 50 groups, by zone", preferred_affinity_pod),
    _shape("templates", "200 templates interleaved, of other requests and labels", template_pod),
    _shape("different", "every pod different in requests and labels", unique_pod),
    BenchmarkCase(
        "unfit", "pods of 20 templates that fit nowhere; until refused", 5000, 10_000, unfit
    ),
    BenchmarkCase("preemption", "nodes full of low-priority pods", 5000, 1000, preemption),
    BenchmarkCase(
        "preemption-pdb",
        "nodes full of pods under disruption budgets, 20 templates, three priorities",
        5000,
        1000,
        preemption_with_budgets,
    ),
    BenchmarkCase(
        "events", "four pod updates to a node's heartbeat", 5000, 50_000, events, "events"
    ),
    BenchmarkCase("memory", "the first list of a big cluster", 5000, 150_000, memory, "events"),
)
"""In the order of runs and output."""

MILLION = BenchmarkCase(
    "million", "plain pods in a cluster that ends with a million", 100_000, 100_000, million
)
