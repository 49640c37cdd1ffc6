"""Node pools: the group of equal nodes that a node belongs to."""

from __future__ import annotations

from stowplan.columns.nodeinfo import allocatable_amounts
from stowplan.objects.node import Node
from stowplan.objects.quantity import format_quantity

POOL_LABELS = (
    "stowplan.dev/pool",
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "alpha.eksctl.io/nodegroup-name",
    "kubernetes.azure.com/agentpool",
    "agentpool",
    "karpenter.sh/nodepool",
    "doks.digitalocean.com/node-pool",
    "lke.linode.com/pool-id",
    "k8s.scaleway.com/pool-name",
    "oke.oraclecloud.com/pool.name",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
)
"""Labels that name the pool of a node; the first that a node has counts."""


def pool_of(node: Node) -> str:
    """The pool of a node: the first of POOL_LABELS that it has, else its allocatable resources."""
    for label in POOL_LABELS:
        if node.labels.get(label):
            return node.labels[label]
    offered = allocatable_amounts(node)
    return ",".join(f"{name}={format_quantity(name, offered[name])}" for name in sorted(offered))
