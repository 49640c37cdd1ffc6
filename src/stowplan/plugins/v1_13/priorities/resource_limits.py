"""ResourceLimitsPriority: break ties for nodes that satisfy the pod's limits.

Source: Kubernetes v1.13, priorities/resource_limits.go.
"""

from __future__ import annotations

import numpy as np

from stowplan.columns.array_types import Ints
from stowplan.framework import NodeInfo, NodeTable, Rows
from stowplan.framework.plugin import Plugin
from stowplan.objects.pod import Pod
from stowplan.plugins.arithmetic import n_rows_of
from stowplan.plugins.v1_13.priorities.resource_priorities import SCORED_RESOURCES
from stowplan.plugins.v1_13.resource_requests import resource_requests_of


class ResourceLimitsPriority:
    """Score 1 where the node's allocatable covers the pod's limit of cpu or of memory, else 0."""

    name = "ResourceLimitsPriority"
    declaration = Plugin(name=name, reads=(), row_local=True)

    def score(self, pod: Pod, node: NodeInfo) -> int:
        """1 or 0."""
        offered = (node.allocatable.get(name, 0) for name in SCORED_RESOURCES)
        limits = resource_requests_of(pod).limits
        return int(
            any(_satisfies_limit(limit, have) for limit, have in zip(limits, offered, strict=True))
        )

    def score_column(self, pod: Pod, nodes: NodeTable, rows: Rows) -> Ints:
        """int64 (n_rows,): `score` of each row."""
        scores = np.zeros(n_rows_of(rows), dtype=np.int64)
        for name, limit in zip(SCORED_RESOURCES, resource_requests_of(pod).limits, strict=True):
            if limit != 0:
                offered = nodes.allocatable(name)[rows]
                scores[(offered != 0) & (offered >= limit)] = 1
        return scores

    def signature(self, pod: Pod) -> object:
        """The limits."""
        return resource_requests_of(pod).limits


def _satisfies_limit(limit: int, offered: int) -> bool:
    return limit != 0 and offered != 0 and limit <= offered
