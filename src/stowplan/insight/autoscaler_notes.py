"""Notes on node autoscalers that the labels of nodes show."""

from __future__ import annotations

from collections.abc import Iterable

from stowplan.objects.node import Node

AUTOSCALED = {
    "cloud.google.com/gke-nodepool": "GKE node pools",
    "eks.amazonaws.com/nodegroup": "EKS node groups",
    "alpha.eksctl.io/nodegroup-name": "EKS node groups",
    "kubernetes.azure.com/agentpool": "AKS node pools",
    "karpenter.sh/nodepool": "Karpenter node pools",
    "doks.digitalocean.com/node-pool": "DOKS node pools",
}
"""Label of a node -> the groups of nodes that an autoscaler may resize."""


def autoscaler_note(nodes: Iterable[Node], *, is_modelled: bool = False) -> str:
    """Whether the answer models the autoscaler that labels show; "" without such labels."""
    names = {AUTOSCALED[label] for node in nodes for label in node.labels if label in AUTOSCALED}
    if not names:
        return ""
    what = "its pools were modelled as in the file" if is_modelled else "it was not modelled"
    return f"nodes belong to {' and '.join(sorted(names))}, which an autoscaler may resize: {what}"
