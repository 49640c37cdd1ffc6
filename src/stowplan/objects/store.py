"""Store: the API objects of one cluster as controllers and kubelets read and write them.

Controllers, volume binder, garbage collector and kubelets are written once, on this protocol. Two
stores have it: the embedded API server's (bytes, validation, admission) and the simulation's (in
memory, no validation). Objects are named by resource path, the prefix of storage keys: `pods`,
`apps/deployments` (`Resource.path`). Errors are `ApiError`, as for a client over HTTP.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from stowplan.objects.encoding.tree import Tree


@dataclass(slots=True)
class DeleteOptions:
    """DeleteOptions of a deletion. grace_s: None if not set.

    propagation: "", "Orphan", "Background", "Foreground". uid, version: preconditions, "" if none.
    """

    grace_s: int | None = None
    propagation: str = ""
    uid: str = ""
    version: str = ""


class WatchEvent(Protocol):
    """One write, as watchers see it. namespace: "" for cluster-scoped kinds.

    type: ADDED, MODIFIED, DELETED. value: JSON after it (DELETED: the last state). previous: JSON
    before it; None when ADDED.
    """

    @property
    def type(self) -> str: ...

    @property
    def path(self) -> str: ...

    @property
    def namespace(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def value(self) -> bytes: ...

    @property
    def previous(self) -> bytes | None: ...


class ComponentErrorLog(Protocol):
    """Where unexpected exceptions of controllers are recorded."""

    def add(self, component: str, about: str, error: Exception) -> None:
        """Record an exception of a component about an object."""


class Store(Protocol):
    """Reads and writes of the objects of one cluster. now: time of this step, Unix seconds.

    There is no watch method: the controller manager passes each WatchEvent to `observe`.
    """

    now: float

    @property
    def faults(self) -> ComponentErrorLog:
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


class BindingStore(Store, Protocol):
    """A store through which pods are bound too."""

    def bind(self, pod: Tree, node: str) -> None:
        """Bind a pod, as read, to a node. Raises ApiError 409 for one that cannot be bound."""
        ...
