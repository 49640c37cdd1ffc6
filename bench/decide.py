"""Decisions per second by shape: one pod decided after the other, each placed before the next.

The shapes are those of kube-scheduler's own benchmark: nodes of 16 CPU / 64 Gi in 3 zones, pods of
100m / 200Mi. The clock runs over decide() and the placement in the columns; making the objects
does not count. Run: python bench/decide.py [SHAPE...] [--nodes N] [--pods N] [--repeat N].
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator

import msgspec

from stowplan.assembly import configuration_of, frameworks_for
from stowplan.columns.nodetable import NodeTable, table_of
from stowplan.cycle import decide
from stowplan.framework import Framework, Snapshot
from stowplan.objects.codec import convert
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
N_GROUPS = 50
POOL = 500

Spec = dict[str, object]


def node(index: int) -> Node:
    """A node of 16 CPU and 64 Gi, in one of 3 zones and one of the pools of 500."""
    name = f"node-{index}"
    labels = {HOST: name, ZONE: f"zone-{index % 3}", "pool": f"pool-{index // POOL}"}
    offers = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    return convert(
        {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": offers}}, Node
    )


def plain(_: int) -> tuple[dict[str, str], Spec]:
    """No wishes."""
    return {"app": "plain"}, {}


def required_node_affinity(index: int) -> tuple[dict[str, str], Spec]:
    """Only nodes of one pool."""
    wanted = {"key": "pool", "operator": "In", "values": [f"pool-{index % 2}"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return {"app": "affinity"}, {"affinity": affinity}


def zone_spread(_: int) -> tuple[dict[str, str], Spec]:
    """Zones kept within one pod of each other."""
    constraint = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "spread"}},
    }
    return {"app": "spread"}, {"topologySpreadConstraints": [constraint]}


def host_anti_affinity(index: int) -> tuple[dict[str, str], Spec]:
    """No two pods of a group on one node."""
    group = {"group": f"g{index % N_GROUPS}"}
    term = {"topologyKey": HOST, "labelSelector": {"matchLabels": group}}
    wish = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return group, {"affinity": {"podAntiAffinity": wish}}


def preferred_pod_affinity(index: int) -> tuple[dict[str, str], Spec]:
    """Rather in a zone with others of the group."""
    group = {"group": f"g{index % N_GROUPS}"}
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": group}}
    wish = {
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]
    }
    return group, {"affinity": {"podAffinity": wish}}


SHAPES: dict[str, Callable[[int], tuple[dict[str, str], Spec]]] = {
    "basic": plain,
    "affinity": required_node_affinity,
    "spread": zone_spread,
    "anti": host_anti_affinity,
    "preferred": preferred_pod_affinity,
}


def pods(shape: str, n_pods: int) -> Iterator[Pod]:
    """The pods of a shape; those of one group share their spec, as a template's pods do."""
    kept: dict[str, Pod] = {}
    requests = {"cpu": "100m", "memory": "200Mi"}
    containers = [{"name": "c", "image": "app", "resources": {"requests": requests}}]
    for index in range(n_pods):
        labels, wishes = SHAPES[shape](index)
        key = str(labels) + str(wishes)
        if key not in kept:
            tree = {"metadata": {"labels": labels}, "spec": {"containers": containers, **wishes}}
            kept[key] = convert(tree, Pod)
        like = kept[key]
        meta = ObjectMeta(name=f"{shape}-{index}", namespace="default", labels=like.labels)
        yield msgspec.structs.replace(like, metadata=meta)


def place_all(table: NodeTable, framework: Framework, waiting: list[Pod]) -> tuple[float, int]:
    """Decide and place every pod; returns seconds and how many were placed."""
    snapshot = Snapshot(table)
    placed = 0
    began = time.perf_counter()
    for pod in waiting:
        decision = decide(pod, snapshot, framework)
        if decision.node_name:
            table.add_pod(pod, decision.node_name)
            placed += 1
    return time.perf_counter() - began, placed


def default_framework() -> Framework:
    """The default profile."""
    configuration, registry = configuration_of(None, "default")
    return frameworks_for(configuration, registry)["default-scheduler"]


def measure(shape: str, n_nodes: int, n_pods: int, n_existing: int) -> tuple[float, int]:
    """Pods per second of a shape on a fresh cluster, and how many were placed."""
    table = table_of(node(index) for index in range(n_nodes))
    framework = default_framework()
    for index, pod in enumerate(pods("basic", n_existing)):
        meta = msgspec.structs.replace(pod.metadata, name=f"existing-{index}")
        table.add_pod(msgspec.structs.replace(pod, metadata=meta), f"node-{index % n_nodes}")
    place_all(table, framework, list(pods(shape, 10)))
    seconds, placed = place_all(table, framework, [renamed(pod) for pod in pods(shape, n_pods)])
    return n_pods / seconds, placed


def renamed(pod: Pod) -> Pod:
    """The pod under a name that the warm-up did not use."""
    meta = msgspec.structs.replace(pod.metadata, name=f"timed-{pod.name}")
    return msgspec.structs.replace(pod, metadata=meta)


def main() -> None:
    """Print a line per shape: the median of the repeats and the spread."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shapes", nargs="*", default=list(SHAPES), metavar="SHAPE")
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--existing", type=int, default=0, help="plain pods placed beforehand")
    parser.add_argument("--repeat", type=int, default=3)
    given = parser.parse_args()
    print(f"{given.nodes} nodes, {given.existing} pods on them, {given.pods} pods to place")
    for shape in given.shapes:
        runs = [
            measure(shape, given.nodes, given.pods, given.existing) for _ in range(given.repeat)
        ]
        rates = [rate for rate, _ in runs]
        print(
            f"{shape:>10}  {statistics.median(rates):>8,.0f} pods/s"
            f"  (min {min(rates):,.0f}, max {max(rates):,.0f}; {runs[0][1]} placed)",
            flush=True,
        )


if __name__ == "__main__":
    main()
