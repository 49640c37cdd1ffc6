"""Namespace deletion: deletes all content of a namespace, then finalizes it.

Source: kube-controller-manager v1.36, pkg/controller/namespace.
"""

from __future__ import annotations

from stowplan.apis.machinery.errors import ApiError
from stowplan.controller_runtime.controller import Controller
from stowplan.controller_runtime.event_recorder import EventRecorder
from stowplan.controller_runtime.object_fields import is_deleting, set_condition
from stowplan.controller_runtime.object_index import Key, ObjectIndex, PodFacts, split_key
from stowplan.controller_runtime.resource_paths import NAMESPACES
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import DeleteOptions, Store, WatchEvent

FINALIZER = "kubernetes"
_RETRY_SECONDS = 5.0
_DELETIONS_PER_SYNC_MAX = 200

_NO_FAILURE_CONDITIONS = {
    "NamespaceDeletionDiscoveryFailure": (
        "ResourcesDiscovered",
        "All resources successfully discovered",
    ),
    "NamespaceDeletionGroupVersionParsingFailure": (
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    "NamespaceDeletionContentFailure": (
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    "NamespaceContentRemaining": ("ContentRemoved", "All content successfully removed"),
    "NamespaceFinalizersRemaining": (
        "ContentHasNoFinalizers",
        "All content-preserving finalizers finished",
    ),
}


class NamespaceController(Controller):
    """Empties terminating namespaces and removes their finalizer."""

    name = "namespace"
    path = NAMESPACES

    def __init__(self, api: Store, index: ObjectIndex, recorder: EventRecorder) -> None:
        super().__init__(api, index, recorder)
        self._ending: dict[str, None] = {}

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Queue a terminating namespace, and that of a deleted object."""
        key = split_key(change)
        if change.path == NAMESPACES:
            if change.type == "DELETED":
                self._ending.pop(key[1], None)
            elif b'"deletionTimestamp"' in change.value:
                self._ending[key[1]] = None
                self.queue.add(("", key[1]))
        elif key[0] in self._ending and change.type != "MODIFIED":
            self.queue.add(("", key[0]))

    def sync(self, key: Key) -> None:
        """Delete the content; finalize when nothing is left, else report what is."""
        namespace = self.api.get(NAMESPACES, "", key[1])
        if namespace is None or not is_deleting(namespace):
            self._ending.pop(key[1], None)
            return
        if FINALIZER not in (namespace.get("spec") or {}).get("finalizers", ()):
            return
        counts, finalizers, more = self._empty(key[1])
        if more:
            self.queue.add(key, self.api.now)
            return
        if counts:
            self._write_conditions(namespace, counts, finalizers)
            self.queue.add(key, self.api.now + _RETRY_SECONDS)
            return
        self._write_conditions(namespace, {}, {})
        fresh = self.api.get(NAMESPACES, "", key[1])
        if fresh is not None:
            spec = fresh.setdefault("spec", {})
            spec["finalizers"] = [f for f in spec.get("finalizers", ()) if f != FINALIZER]
            self.api.finalize(fresh)

    def _empty(self, namespace: str) -> tuple[dict[str, int], dict[str, int], bool]:
        """Delete all objects; returns how many of which kind remain, for which finalizers, and
        whether there were too many for one sync."""
        deleted = 0
        counts: dict[str, int] = {}
        finalizers: dict[str, int] = {}
        for path in self.api.paths(namespaced=True):
            for obj in self.api.list(path, namespace):
                if not is_deleting(obj):
                    if deleted == _DELETIONS_PER_SYNC_MAX:
                        return counts, finalizers, True
                    deleted += 1
                    self._delete(path, namespace, obj["metadata"]["name"])
                left = self.api.get(path, namespace, obj["metadata"]["name"])
                if left is None:
                    continue
                counts[path] = counts.get(path, 0) + 1
                for finalizer in left["metadata"].get("finalizers") or ():
                    finalizers[finalizer] = finalizers.get(finalizer, 0) + 1
        return counts, finalizers, False

    def _delete(self, path: str, namespace: str, name: str) -> None:
        try:
            self.api.delete(path, namespace, name, DeleteOptions(propagation="Background"))
        except ApiError as error:
            if error.code not in (404, 409):
                raise

    def _write_conditions(
        self, namespace: Tree, counts: dict[str, int], finalizers: dict[str, int]
    ) -> None:
        """Write the conditions about the progress."""
        status = namespace.setdefault("status", {})
        conditions = status.setdefault("conditions", [])
        changed = False
        for type_, (reason, message) in _NO_FAILURE_CONDITIONS.items():
            entry = {"type": type_, "status": "False", "reason": reason, "message": message}
            if type_ == "NamespaceContentRemaining" and counts:
                entry |= {"status": "True", "reason": "SomeResourcesRemain"}
                entry["message"] = "Some resources are remaining: " + ", ".join(
                    f"{_dotted(path)} has {n} resource instances"
                    for path, n in sorted(counts.items())
                )
            elif type_ == "NamespaceFinalizersRemaining" and finalizers:
                entry |= {"status": "True", "reason": "SomeFinalizersRemain"}
                entry["message"] = "Some content in the namespace has finalizers remaining: " + (
                    ", ".join(
                        f"{name} in {n} resource instances"
                        for name, n in sorted(finalizers.items())
                    )
                )
            changed = set_condition(conditions, entry, self.api.now) or changed
        if changed:
            self.api.update_status(NAMESPACES, namespace)


def _dotted(path: str) -> str:
    """`deployments.apps` of `apps/deployments`; `pods.` of `pods`, as the original writes it."""
    group, _, plural = path.rpartition("/")
    return f"{plural}.{group}"
