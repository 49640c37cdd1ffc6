"""Descheduling: which pods to evict so that GPUs are less fragmented.

Source: hkust-adsl/kubernetes-scheduler-simulator, pkg/simulator/deschedule.go.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Container, Sequence
from enum import StrEnum

import msgspec
from msgspec import structs

from stowplan.objects.devices.gpu_cards import CardState, GpuShareRequest
from stowplan.plugins.gpu_share.fragmentation import TypicalPod, fragment_of

CPU_LEFT_MAX = 2_000
"""cosSim looks at nodes with less CPU milli left."""
CARD_LEFT_MIN = 500
"""cosSim looks at nodes with more milli left on some card."""


class DeschedulingPolicy(StrEnum):
    """cosSim: of nodes without CPU the pod that is least like what is left. fragOnePod,
    fragMultiPod: pods whose eviction removes most fragment, at most one per node or several."""

    COS_SIM = "cosSim"
    FRAG_ONE_POD = "fragOnePod"
    FRAG_MULTI_POD = "fragMultiPod"


class PodWithCards(msgspec.Struct, frozen=True):
    """A pod and its cards."""

    name: str
    request: GpuShareRequest
    cards: tuple[int, ...] = ()


class NodeWithCards(msgspec.Struct, frozen=True):
    """A node and its pods."""

    name: str
    state: CardState
    pods: tuple[PodWithCards, ...]


def victims(
    policy: DeschedulingPolicy,
    nodes: Sequence[NodeWithCards],
    ratio: float,
    typical: Sequence[TypicalPod],
    kept: Container[str] = (),
) -> list[str]:
    """Names of the pods to evict, in order; at most `ratio` of all pods, rounded up.

    kept: names of pods that stay; they count among all pods.
    """
    n_victims_max = math.ceil(ratio * sum(len(node.pods) for node in nodes))
    if kept:
        nodes = [
            structs.replace(node, pods=tuple(pod for pod in node.pods if pod.name not in kept))
            for node in nodes
        ]
    match policy:
        case DeschedulingPolicy.COS_SIM:
            found = _least_similar(nodes)
        case DeschedulingPolicy.FRAG_ONE_POD:
            found = _one_per_node(nodes, typical)
        case DeschedulingPolicy.FRAG_MULTI_POD:
            found = _several_per_node(nodes, typical, n_victims_max)
    return found[:n_victims_max]


def _without(state: CardState, pod: PodWithCards) -> CardState:
    """The state with the cards and the CPU of a pod given back."""
    request = pod.request
    back = GpuShareRequest(-request.cpu_milli, request.num, -request.milli)
    return state.with_pod(back, pod.cards)


# By similarity.


def _least_similar(nodes: Sequence[NodeWithCards]) -> list[str]:
    short_of_cpu = [
        node
        for node in nodes
        if node.state.cpu_left < CPU_LEFT_MAX
        and any(left > CARD_LEFT_MIN for left in node.state.left)
    ]
    short_of_cpu.sort(key=lambda node: (-node.state.total_left, node.name))
    found = []
    for node in short_of_cpu:
        lowest, victim = 1.0, None
        for pod in _by_name(node.pods):
            similarity = _cosine(node.state, pod.request)
            if similarity is not None and similarity < lowest:
                lowest, victim = similarity, pod
        if victim is not None:
            found.append(victim.name)
    return found


def _by_name(pods: Sequence[PodWithCards]) -> list[PodWithCards]:
    return sorted(pods, key=lambda pod: pod.name)


def _cosine(state: CardState, request: GpuShareRequest) -> float | None:
    """Cosine between what the node has without the pod and the request; None for no request."""
    cpu, milli = request.cpu_milli, request.total_milli
    cpu_free, milli_free = state.cpu_left + cpu, state.total_left + milli
    lengths = math.sqrt(cpu_free**2 + milli_free**2) * math.sqrt(cpu**2 + milli**2)
    return (cpu_free * cpu + milli_free * milli) / lengths if lengths else None


# By fragment.


def _best_victim(
    state: CardState, pods: Sequence[PodWithCards], before: float, typical: Sequence[TypicalPod]
) -> tuple[PodWithCards, float] | None:
    """The pod whose eviction removes most of `before`, whole milli, and the fragment after it."""
    best, most = None, 0
    for pod in _by_name(pods):
        after = fragment_of(_without(state, pod), typical)
        gain = int(before - after)
        if gain > most:
            best, most = (pod, after), gain
    return best


def _one_per_node(nodes: Sequence[NodeWithCards], typical: Sequence[TypicalPod]) -> list[str]:
    fragments = {node.name: fragment_of(node.state, typical) for node in nodes}
    found = []
    for node in sorted(nodes, key=lambda node: (-fragments[node.name], node.name)):
        victim = _best_victim(node.state, node.pods, fragments[node.name], typical)
        if victim is not None:
            found.append(victim[0].name)
    return found


def _several_per_node(
    nodes: Sequence[NodeWithCards], typical: Sequence[TypicalPod], n_victims_max: int
) -> list[str]:
    """As the original: the state of a node stays that of the beginning, though its fragment is
    that after its latest victim."""
    heap = [(-fragment_of(node.state, typical), node.name, node) for node in nodes]
    heapq.heapify(heap)
    gone: set[str] = set()
    found: list[str] = []
    while heap and len(found) < n_victims_max:
        negative, name, node = heapq.heappop(heap)
        pods = [pod for pod in node.pods if pod.name not in gone]
        victim = _best_victim(node.state, pods, -negative, typical)
        if victim is None:
            continue
        pod, after = victim
        gone.add(pod.name)
        found.append(pod.name)
        heapq.heappush(heap, (-after, name, node))
    return found
