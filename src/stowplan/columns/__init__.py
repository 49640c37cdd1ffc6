"""Columns: nodes as rows, and what plugins read about them as arrays."""

from stowplan.columns.nodeinfo import NodeInfo
from stowplan.columns.nodetable import NodeTable, Rows
from stowplan.columns.overlay import Overlay
from stowplan.columns.pods.podinfo import PodInfo
from stowplan.columns.replica import Replica

__all__ = ["NodeInfo", "NodeTable", "Overlay", "PodInfo", "Replica", "Rows"]
