"""The nodes of a table as if no pod ran on them, to be read and soon forgotten."""

from __future__ import annotations

from copy import copy

import numpy as np

from stowplan.columns.images import ImageIndex
from stowplan.columns.nodetable import NodeTable
from stowplan.columns.ports import PortIndex


def without_pods(table: NodeTable) -> NodeTable:
    """The same rows, without pods, what they take up, and images: true until `table` changes.

    Rows, labels, taints and what nodes offer are shared. It must not be changed.
    """
    bare = copy(table)
    bare.pods = [[] for _ in table.names]
    bare.ports = PortIndex()
    bare.images = ImageIndex()
    bare.extras = {}
    bare._infos = {}
    bare._home, bare._absent, bare._watchers = {}, {}, []
    bare._requested = np.zeros_like(table._requested)
    bare._nonzero = np.zeros_like(table._nonzero)
    bare._pod_count = np.zeros_like(table._pod_count)
    return bare
