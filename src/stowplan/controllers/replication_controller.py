"""ReplicationController controller: as of ReplicaSets, with a map of labels as selector.

Source: kube-controller-manager v1.36, pkg/controller/replication.
"""

from __future__ import annotations

from stowplan.controller_runtime.resource_paths import REPLICATION_CONTROLLERS
from stowplan.controllers.workloads.replica_set import ReplicaSetController
from stowplan.objects.encoding.tree import Tree


class ReplicationControllerController(ReplicaSetController):
    """Creates and deletes pods of ReplicationControllers, and updates their status."""

    name = "replicationcontroller"
    path = REPLICATION_CONTROLLERS
    kind = "ReplicationController"
    api_version = "v1"
    component = "replication-controller"

    def selector_of(self, owner: Tree) -> Tree | None:
        """The labels as a label selector; None without any."""
        labels = (owner.get("spec") or {}).get("selector")
        return {"matchLabels": labels} if labels else None

    def status_fields(self, status: Tree) -> Tree:
        """All but `terminatingReplicas`."""
        return {name: value for name, value in status.items() if name != "terminatingReplicas"}
