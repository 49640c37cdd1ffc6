"""The pool of a node."""

from __future__ import annotations

import pytest

from stowplan.insight.node_pools import POOL_LABELS, pool_of
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.node import Node, NodeStatus


@pytest.mark.parametrize(
    ("labels", "pool"),
    [
        ({"stowplan.dev/pool": "own", "cloud.google.com/gke-nodepool": "gke"}, "own"),
        ({"cloud.google.com/gke-nodepool": "gke"}, "gke"),
        ({"eks.amazonaws.com/nodegroup": "eks"}, "eks"),
        ({"kubernetes.azure.com/agentpool": "aks"}, "aks"),
        ({"karpenter.sh/nodepool": "kp", "node.kubernetes.io/instance-type": "m5"}, "kp"),
        ({"node.kubernetes.io/instance-type": "m5.large"}, "m5.large"),
        ({"stowplan.dev/pool": "", "beta.kubernetes.io/instance-type": "m4"}, "m4"),
        ({"kubernetes.io/hostname": "n1"}, "cpu=2,memory=4Gi"),
    ],
)
def test_pool(labels: dict[str, str], pool: str) -> None:
    status = NodeStatus(allocatable={"memory": "4Gi", "cpu": "2"})
    assert pool_of(Node(ObjectMeta(name="n1", labels=labels), status=status)) == pool


def test_pools_are_named_before_instance_types() -> None:
    kinds = [label.endswith("instance-type") for label in POOL_LABELS]
    assert kinds == sorted(kinds)
