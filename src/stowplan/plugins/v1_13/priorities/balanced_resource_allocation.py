"""BalancedResourceAllocation: prefer nodes whose cpu and memory are used evenly with the pod.

Source: Kubernetes v1.13, priorities/balanced_resource_allocation.go.
"""

from __future__ import annotations

import msgspec
import numpy as np

from stowplan.columns.array_types import Floats, Ints
from stowplan.framework import CycleState, NodeInfo, NodeTable, Rows
from stowplan.framework.functions.priorities import PRIORITY_MAX
from stowplan.framework.plugin import Plugin
from stowplan.objects.pod import Pod
from stowplan.plugins.args_base import PluginArgs
from stowplan.plugins.v1_13.predicates.max_pd_volume_count import (
    ATTACHED_VOLUMES_STATE,
    AttachedVolumeCount,
)
from stowplan.plugins.v1_13.priorities.resource_priorities import (
    RequestedAndAllocatable,
    node_resource_use,
    rows_resource_use,
)
from stowplan.plugins.v1_13.resource_requests import resource_requests_of


class BalancedResourceAllocationArgs(PluginArgs, frozen=True):
    """balance_attached_volumes: whether the share of attached volumes counts as well.

    Only volumes that a predicate of the profile has counted for the pod count.
    """

    balance_attached_volumes: bool = False


class BalancedResourceAllocation:
    """Score 10 where the used shares are equal, less the more they differ."""

    name = "BalancedResourceAllocation"
    declaration = Plugin(name=name, reads=(), row_local=True)
    Args = BalancedResourceAllocationArgs

    def __init__(self, args: BalancedResourceAllocationArgs) -> None:
        self.args = args
        # The attached volumes of a row may differ for the next pod.
        row_local = not args.balance_attached_volumes
        self.declaration = msgspec.structs.replace(type(self).declaration, row_local=row_local)

    def score(self, pod: Pod, node: NodeInfo, state: CycleState) -> int:
        """0 to 10; 0 where a resource would be full."""
        cpu, memory = (_fractions(use) for use in node_resource_use(pod, node))
        volumes = self._volume_fraction(node, state)
        if volumes is None:
            return int(balanced_score(cpu, memory)[0])
        return _balanced_score_with_volumes(float(cpu[0]), float(memory[0]), volumes)

    def score_column(self, pod: Pod, nodes: NodeTable, rows: Rows, state: CycleState) -> Ints:
        """int64 (n_rows,): `score` of each row."""
        cpu, memory = (_fractions(use) for use in rows_resource_use(pod, nodes, rows))
        scores = balanced_score(cpu, memory)
        if self.args.balance_attached_volumes and state.find(ATTACHED_VOLUMES_STATE) is not None:
            numbers = range(rows.start, rows.stop) if isinstance(rows, slice) else rows.tolist()
            for place, row in enumerate(numbers):
                volumes = self._volume_fraction(nodes.info(row), state)
                if volumes is not None:
                    scores[place] = _balanced_score_with_volumes(
                        float(cpu[place]), float(memory[place]), volumes
                    )
        return scores

    def signature(self, pod: Pod) -> object:
        """Requests with the defaults; unique for every pod where volumes count."""
        counts = self.args.balance_attached_volumes and pod.spec.volumes
        return resource_requests_of(pod).nonzero, pod.uid if counts else ""

    def _volume_fraction(self, node: NodeInfo, state: CycleState) -> float | None:
        """The share of the node's free attachments that the pod uses, None where none counts."""
        counted: AttachedVolumeCount | None = state.find(ATTACHED_VOLUMES_STATE)
        if counted is None or counted.fault or not self.args.balance_attached_volumes:
            return None
        n_new, n_free = counted.on(node)
        return n_new / n_free if n_free > 0 else None


def _fractions(use: RequestedAndAllocatable) -> Floats:
    """float64 (n_rows,): requested / allocatable, 1 where nothing is allocatable."""
    requested, allocatable = use
    nothing = allocatable == 0
    shares: Floats = requested / np.where(nothing, 1, allocatable)
    return np.where(nothing, 1.0, shares)


def balanced_score(cpu: Floats, memory: Floats) -> Ints:
    """int64 (n_rows,): the score of two shares, in the original's order of operations."""
    scores = ((1 - np.abs(cpu - memory)) * float(PRIORITY_MAX)).astype(np.int64)
    chosen: Ints = np.where((cpu >= 1) | (memory >= 1), 0, scores)
    return chosen


def _balanced_score_with_volumes(cpu: float, memory: float, volumes: float) -> int:
    """The score of three shares: by their variance."""
    if cpu >= 1 or memory >= 1 or volumes >= 1:
        return 0
    mean = (cpu + memory + volumes) / 3.0
    variance = (
        (cpu - mean) * (cpu - mean)
        + (memory - mean) * (memory - mean)
        + (volumes - mean) * (volumes - mean)
    ) / 3.0
    return int((1 - variance) * float(PRIORITY_MAX))
