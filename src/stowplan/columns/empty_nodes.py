"""The nodes of a table without their pods, for a short-lived read."""

from __future__ import annotations

from copy import copy

import numpy as np

from stowplan.columns.array_types import zero_columns
from stowplan.columns.images import ImageIndex
from stowplan.columns.nodetable import NodeTable
from stowplan.columns.ports import PortIndex


def without_pods(table: NodeTable) -> NodeTable:
    """The same rows without pods, their requests and images; valid until `table` changes.

    Rows, labels, taints and allocatable amounts are shared. Read-only.
    """
    bare = copy(table)
    bare.pods = [[] for _ in table.names]
    bare.ports = PortIndex()
    bare.images = ImageIndex()
    bare.extras = {}
    bare._infos = {}
    bare._home, bare._absent, bare._watchers = {}, {}, []
    bare._requested = zero_columns(table._requested.shape)
    bare._nonzero = np.zeros_like(table._nonzero)
    bare._pod_count = np.zeros_like(table._pod_count)
    return bare
