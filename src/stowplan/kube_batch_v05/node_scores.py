"""Priorities of Kubernetes 1.13 that kube-batch v0.5 calls: scores of nodes from 0 to 10.

Source: kube-batch v0.5, plugins/nodeorder; Kubernetes v1.13, algorithm/priorities.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from stowplan.kube_batch_v05.jobs import KubeBatchTask
from stowplan.kube_batch_v05.nodes import KubeBatchNode
from stowplan.kube_batch_v05.pod_affinity import (
    SCORE_MAX,
    AffinityError,
    preferred_affinity_scores,
)
from stowplan.kube_batch_v05.session import KubeBatchSession
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.pod_requests import NONZERO_CPU_MILLI, NONZERO_MEMORY_BYTES
from stowplan.objects.quantity import amount
from stowplan.objects.selectors import term_matches

_KEPT = "kube-batch v0.5 nonzero"


def node_scores(
    session: KubeBatchSession, task: KubeBatchTask, nodes: Sequence[KubeBatchNode]
) -> list[tuple[int, int, int, int]]:
    """(least requested, balanced resources, node affinity, pod affinity) of each node, all of which
    pass; raises AffinityError if an affinity is malformed."""
    by_affinity = _node_affinity(session, task.pod, nodes)
    by_pods = _pod_affinity(session, task.pod, nodes)
    used = [_used(task.pod, node) for node in nodes]
    return [
        (_least_requested(*use), _balanced(*use), by_node, by_pod)
        for use, by_node, by_pod in zip(used, by_affinity, by_pods, strict=True)
    ]


_Use = tuple[int, int]
"""(requested, allocatable) in base units."""


def _nonzero(pod: Pod) -> tuple[int, int]:
    """(milli-CPU, bytes) of a pod, with defaults for containers without requests."""
    kept: tuple[int, int] | None = pod.spec.__dict__.get(_KEPT)
    if kept is None:
        asked = [container.resources.requests for container in pod.spec.containers]
        kept = pod.spec.__dict__[_KEPT] = (
            sum(amount("cpu", a["cpu"]) if "cpu" in a else NONZERO_CPU_MILLI for a in asked),
            sum(
                amount("memory", a["memory"]) if "memory" in a else NONZERO_MEMORY_BYTES
                for a in asked
            ),
        )
    return kept


def _used(pod: Pod, node: KubeBatchNode) -> tuple[_Use, _Use]:
    """Use of cpu and memory with the pod."""
    assert node.node is not None
    cpu, memory = _nonzero(pod)
    for task in node.tasks.values():
        more_cpu, more_memory = _nonzero(task.pod)
        cpu, memory = cpu + more_cpu, memory + more_memory
    offer = node.node.status.allocatable
    return (
        (cpu, amount("cpu", offer["cpu"]) if "cpu" in offer else 0),
        (memory, amount("memory", offer["memory"]) if "memory" in offer else 0),
    )


def _least_requested(cpu: _Use, memory: _Use) -> int:
    scores = [
        (allocatable - requested) * int(SCORE_MAX) // allocatable
        if allocatable and requested <= allocatable
        else 0
        for requested, allocatable in (cpu, memory)
    ]
    return sum(scores) // 2


def _balanced(cpu: _Use, memory: _Use) -> int:
    first, second = (
        requested / allocatable if allocatable else 1.0 for requested, allocatable in (cpu, memory)
    )
    if first >= 1 or second >= 1:
        return 0
    return int((1 - abs(first - second)) * SCORE_MAX)


def _node_affinity(
    session: KubeBatchSession, pod: Pod, nodes: Sequence[KubeBatchNode]
) -> list[int]:
    """Sums of the weights of preferred terms, scaled to the highest; fields are not read."""
    affinity = pod.spec.affinity
    node_affinity = None if affinity is None else affinity.node_affinity
    terms = [
        (term.weight, replace(term.preference, match_fields=()))
        for term in (() if node_affinity is None else node_affinity.preferred)
        if term.weight != 0
    ]
    for _, preference in terms if session.nodes else ():
        if preference.faults:
            raise AffinityError(preference.faults[0])
    sums = [
        sum(weight for weight, term in terms if term_matches(term, node.node.labels, node.name))
        for node in nodes
        if node.node is not None
    ]
    highest = max(sums, default=0)
    if highest <= 0:
        return sums
    # Go's division truncates toward zero.
    shares = [abs(one) * int(SCORE_MAX) // highest for one in sums]
    return [share if one >= 0 else -share for one, share in zip(sums, shares, strict=True)]


def _pod_affinity(session: KubeBatchSession, pod: Pod, nodes: Sequence[KubeBatchNode]) -> list[int]:
    known: dict[str, Node] = {name: n.node for name, n in session.nodes.items() if n.node}
    held = [(known[n.name], [task.pod for task in n.tasks.values()]) for n in nodes]
    return preferred_affinity_scores(pod, held, known, _node_of_unassigned_pods(session))


def _node_of_unassigned_pods(session: KubeBatchSession) -> Node | None:
    """The first node that holds a pod whose spec names no node; the original assumes all such pods
    there, wherever the session has placed them."""
    for node in session.nodes.values():
        if any(not task.pod.node_name for task in node.tasks.values()):
            return node.node
    return None
