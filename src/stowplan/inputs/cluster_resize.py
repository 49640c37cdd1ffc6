"""resized(): a cluster with more or fewer nodes of the same mix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from msgspec.structs import replace

from stowplan.apis.apps.daemon_pods import target_node
from stowplan.inputs.cluster_reader import Cluster
from stowplan.inputs.counts import count_of
from stowplan.inputs.manifests import ManifestInventory
from stowplan.inputs.orphaned_pods import release_pods
from stowplan.inputs.workloads.workload_expansion import expand_workloads
from stowplan.objects.node import HOSTNAME_LABEL, Node
from stowplan.objects.pod import Pod
from stowplan.objects.workload import DaemonSet, PriorityClass

NodeShape = tuple[object, ...]


def resized(cluster: Cluster, n_nodes: int) -> Cluster:
    """The cluster with `n_nodes` nodes: the first of each shape stay, or copies are added.

    Nodes of one shape differ only in name, images and labels that name a single node. Shapes keep
    their shares, rounded to whole nodes. Pods of removed nodes become pending, except those that
    belong to the node (DaemonSets, static pods), which are removed. New nodes get a pod of every
    DaemonSet that selects them.
    """
    kinds: dict[NodeShape, list[Node]] = {}
    for node in cluster.nodes:
        kinds.setdefault(_shape(node), []).append(node)
    wanted = shares([len(nodes) for nodes in kinds.values()], n_nodes)
    chosen: list[Node] = []
    for nodes, count in zip(kinds.values(), wanted, strict=True):
        chosen += nodes[:count]
        chosen += _more(nodes, count - len(nodes), {node.name for node in cluster.nodes})
    place = {node.name: index for index, node in enumerate(cluster.nodes)}
    chosen.sort(key=lambda node: place.get(node.name, len(place)))
    left = {node.name for node in cluster.nodes} - {node.name for node in chosen}
    found = release_pods(cluster.pods, left, set())
    pods = [pod for pod in found.pods if not (_is_daemon(pod) and target_node(pod) in left)]
    note = f"{count_of(n_nodes, 'node')} instead of {len(cluster.nodes)}, of the same mix"
    notes = [*cluster.notes, note]
    n_gone = len(cluster.pods) - len(pods)
    if found.pending:
        notes.append(f"{count_of(len(found.pending), 'pod')} of removed nodes pending again")
    if n_gone:
        what = "removed with their nodes: of DaemonSets, static, or being deleted"
        notes.append(f"{count_of(n_gone, 'pod')} {what}")
    new = [node for node in chosen if node.name not in place]
    pods += _daemon_pods(cluster, new, pods) if new else ()
    return replace(cluster, nodes=chosen, pods=pods, notes=notes)


def shares(counts: list[int], total: int) -> list[int]:
    """`total` divided in proportion to `counts`, by the largest remainder method."""
    whole = sum(counts)
    parts = [count * total // whole for count in counts]
    by_rest = sorted(range(len(counts)), key=lambda i: (-(counts[i] * total % whole), i))
    for place in by_rest[: total - sum(parts)]:
        parts[place] += 1
    return parts


def _shape(node: Node) -> NodeShape:
    labels = frozenset((k, v) for k, v in node.labels.items() if v != node.name)
    amounts = frozenset((k, str(v)) for k, v in node.status.allocatable.items())
    return labels, amounts, node.spec.taints, node.spec.unschedulable


def _more(nodes: list[Node], count: int, taken: set[str]) -> Iterator[Node]:
    """Copies of nodes, in turn, under new names."""
    numbers: Counter[str] = Counter()
    for index in range(count):
        model = nodes[index % len(nodes)]
        name = model.name
        while name in taken:
            numbers[model.name] += 1
            name = f"{model.name}-{numbers[model.name] + 1}"
        taken.add(name)
        labels = {k: name if v == model.name else v for k, v in model.labels.items()}
        labels |= {HOSTNAME_LABEL: name} if HOSTNAME_LABEL in labels else {}
        yield replace(model, metadata=replace(model.metadata, name=name, uid=name, labels=labels))


def _is_daemon(pod: Pod) -> bool:
    return pod.controller is not None and pod.controller.kind == "DaemonSet"


def _daemon_pods(cluster: Cluster, new: list[Node], pods: list[Pod]) -> list[Pod]:
    """The pods that DaemonSets create on new nodes."""
    inventory = ManifestInventory()
    for value in cluster.objects:
        if isinstance(value, DaemonSet | PriorityClass):
            inventory.add(value, "cluster")
    for node in new:
        inventory.add(node, "cluster")
    there = [pod for pod in pods if _is_daemon(pod)]
    for pod in there:
        inventory.add(pod, "cluster")
    known = {pod.key for pod in there}
    return [pod for pod in expand_workloads(inventory).pods if pod.key not in known]
