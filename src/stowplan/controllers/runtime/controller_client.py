"""The API server as controllers and hollow nodes use it: in process, by resource path.

A path is what keys of stored objects begin with: `pods`, `apps/deployments` (`Resource.path`).
Refusals are `ApiError`, as a client over HTTP would get them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from stowplan.apis.machinery.component_errors import ComponentErrors
from stowplan.apis.machinery.resource import DeleteOptions

Tree = dict[str, Any]

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
    """What controllers ask of the server. now: the moment of this step, Unix seconds."""

    now: float

    @property
    def faults(self) -> ComponentErrors:
        """Where failures are noted that nothing expects."""
        ...

    def get(self, path: str, namespace: str, name: str) -> Tree | None:
        """A fresh copy of a stored object; None if there is none."""
        ...

    def list(self, path: str, namespace: str = "") -> Iterator[Tree]:
        """Fresh copies of the objects of a kind, by namespace and name; "": of all namespaces."""
        ...

    def create(self, path: str, obj: Tree) -> Tree:
        """The object as stored; its namespace is `metadata.namespace`."""
        ...

    def update(self, path: str, obj: Tree) -> Tree:
        """The object as stored; a `metadata.resourceVersion` in `obj` is a precondition."""
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
        """The path of a kind and whether it is namespaced; None for a kind that is not served."""
        ...

    def paths(self, namespaced: bool) -> Sequence[str]:
        """The paths of all kinds that can be listed and deleted, of namespaced or other kinds."""
        ...
