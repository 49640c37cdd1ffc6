"""API client of controllers and kubelets: in process, by resource path.

A path is the prefix of storage keys: `pods`, `apps/deployments` (`Resource.path`). Errors are
`ApiError`, as for a client over HTTP.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from stowplan.apis.machinery.component_errors import ComponentErrors
from stowplan.apis.machinery.resource import DeleteOptions
from stowplan.objects.encoding.tree import Tree

PODS = "pods"
NODES = "nodes"
NAMESPACES = "namespaces"
EVENTS = "events"
CLAIMS = "persistentvolumeclaims"
VOLUMES = "persistentvolumes"
LEASES = "coordination.k8s.io/leases"
DEPLOYMENTS = "apps/deployments"
REPLICA_SETS = "apps/replicasets"
STATEFUL_SETS = "apps/statefulsets"
JOBS = "batch/jobs"
BUDGETS = "policy/poddisruptionbudgets"
STORAGE_CLASSES = "storage.k8s.io/storageclasses"


class ControllerClient(Protocol):
    """Requests of controllers to the API server. now: time of this step, Unix seconds."""

    now: float

    @property
    def faults(self) -> ComponentErrors:
        """Where unexpected exceptions are recorded."""
        ...

    def get(self, path: str, namespace: str, name: str) -> Tree | None:
        """A fresh copy of a stored object; None if it does not exist."""
        ...

    def list(self, path: str, namespace: str = "") -> Iterator[Tree]:
        """Fresh copies of the objects of a kind, by namespace and name; "": of all namespaces."""
        ...

    def create(self, path: str, obj: Tree) -> Tree:
        """Create; returns the stored object. Its namespace is `metadata.namespace`."""
        ...

    def update(self, path: str, obj: Tree) -> Tree:
        """Update; returns the stored object. A `metadata.resourceVersion` in `obj` is a
        precondition."""
        ...

    def update_status(self, path: str, obj: Tree) -> Tree:
        """As `update`, through the status subresource."""
        ...

    def delete(
        self, path: str, namespace: str, name: str, deletion: DeleteOptions | None = None
    ) -> None:
        """Delete as a DELETE request would, with grace and finalizers."""
        ...

    def finalize(self, obj: Tree) -> Tree:
        """As `update` of a namespace, through its finalize subresource."""
        ...

    def path_of(self, api_version: str, kind: str) -> tuple[str, bool] | None:
        """Resource path of a kind and whether it is namespaced; None for a kind that is not
        served."""
        ...

    def paths(self, namespaced: bool) -> Sequence[str]:
        """Resource paths of all kinds that support list and delete, namespaced or cluster-wide."""
        ...
