"""Nodes on which a GPU could be given twice, since pods get GPUs there in several ways.

What a node registers counts whatever the conventions of a profile are: its device plugins give
cards without asking. `nvidia.com/gpu` is a count for the kubelet, which chooses the card: a pod
that requests it, and says by no annotation which card it has, and pods by milli exclude each other
on a node.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from stowplan.columns.array_types import Bools, Ints
from stowplan.columns.column_cache import ColumnCache
from stowplan.columns.nodetable import NodeTable, Rows
from stowplan.framework import NodeInfo, PodInfo
from stowplan.objects.devices.gpu_cards import COUNT_KEY, MILLI_KEY
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.plugins.gpu_share.conventions import (
    aliyun_gpu_mem,
    hami,
    kai_fractions,
    volcano_vgpu,
)
from stowplan.plugins.gpu_share.conventions.convention import offered
from stowplan.plugins.gpu_share.conventions.counted_gpus import COUNTED, MIG_PREFIX

REGISTERS = {
    volcano_vgpu.REGISTER: f"registered by {volcano_vgpu.CONVENTION.label}",
    hami.REGISTER: f"registered by {hami.CONVENTION.label}",
}
"""Annotation of a node -> who gives parts of its GPUs."""
_ANNOTATIONS = {MILLI_KEY, kai_fractions.FRACTION, kai_fractions.MEMORY}
BY_MILLI = f"counted as {COUNT_KEY}"


def gpu_sources(node: Node) -> tuple[str, ...]:
    """How pods get parts of the node's GPUs, as messages call it; safe with one at most."""
    notes, found = node.metadata.annotations, []
    found += [label for key, label in REGISTERS.items() if key in notes]
    if aliyun_gpu_mem.MEMORY in node.status.allocatable:
        found.append(f"offered as {aliyun_gpu_mem.MEMORY}")
    if is_by_milli(node):
        found.append(BY_MILLI)
    return tuple(found)


def is_by_milli(node: Node) -> bool:
    """True where the cards of a node are counted by milli."""
    return offered(node, COUNT_KEY) > 0


def mixed_problem(node: Node) -> str:
    """Why no pod gets a part of the node's GPUs, "" where that is safe."""
    found = gpu_sources(node)
    if len(found) < 2:
        return ""
    return f"gpus: {' and '.join(found)}; parts would be given twice"


def is_on_unknown_card(pod: Pod, requested: Mapping[str, int]) -> bool:
    """True for a pod with GPUs that the kubelet, or KAI's binder, chooses. requested: base
    units."""
    notes = pod.metadata.annotations
    if MILLI_KEY in notes:
        return False
    is_fraction = kai_fractions.FRACTION in notes or kai_fractions.MEMORY in notes
    return is_fraction or _counts_gpus(requested)


def may_request_gpus(pod: Pod) -> bool:
    """False for a pod that requests no GPU in any way, which is found out at little cost."""
    if not _ANNOTATIONS.isdisjoint(pod.metadata.annotations):
        return True
    return any(
        "/" in name
        for container in pod.spec.containers
        for amounts in (container.resources.limits, container.resources.requests)
        for name in amounts
    )


def requests_counted_gpus(pod: Pod) -> bool:
    """True for a pod that requests GPUs by count only."""
    return is_on_unknown_card(pod, PodInfo.of(pod).footprint.requested)


def _counts_gpus(requested: Mapping[str, int]) -> bool:
    return any(
        amount > 0 and (name in COUNTED or name.startswith(MIG_PREFIX))
        for name, amount in requested.items()
    )


def holds_unknown_cards(node: NodeInfo) -> bool:
    """True where pods by milli must not go: on the node run pods that the kubelet gave GPUs."""
    return is_by_milli(node.node) and any(
        is_on_unknown_card(info.pod, info.footprint.requested) for info in node.pods
    )


def has_nodes_by_milli(nodes: NodeTable) -> bool:
    """True where a node's cards are counted by milli."""

    def evaluate(rows: Rows) -> Bools:
        numbers = np.arange(nodes.n_nodes)[rows].tolist()
        return np.array([is_by_milli(nodes.nodes[row]) for row in numbers], dtype=np.bool_)

    return bool(ColumnCache.of(nodes).of_nodes("gpus by milli", nodes, evaluate).any())


def mixed_column(nodes: NodeTable) -> Bools:
    """bool (n_nodes,): rows with a `mixed_problem`; read-only."""
    column: Bools = _n_sources(nodes) > 1
    return column


def shared_column(nodes: NodeTable) -> Bools:
    """bool (n_nodes,): rows of whose GPUs pods get parts; read-only."""
    column: Bools = _n_sources(nodes) > 0
    return column


def _n_sources(nodes: NodeTable) -> Ints:
    def evaluate(rows: Rows) -> Ints:
        numbers = np.arange(nodes.n_nodes)[rows].tolist()
        return np.array([len(gpu_sources(nodes.nodes[row])) for row in numbers], dtype=np.int64)

    column: Ints = ColumnCache.of(nodes).of_nodes("gpu sources", nodes, evaluate)
    return column
