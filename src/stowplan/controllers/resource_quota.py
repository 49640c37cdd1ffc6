"""ResourceQuota controller: keeps the usage in the status of quotas.

Admission charges new objects; this controller counts again when objects are deleted, pods finish,
or a quota changes.

Source: kube-controller-manager v1.36, pkg/controller/resourcequota.
"""

from __future__ import annotations

from stowplan.apis.limits.object_usage import paths_counted, quota_status, used_amounts
from stowplan.controller_runtime.controller import Controller
from stowplan.controller_runtime.event_recorder import EventRecorder
from stowplan.controller_runtime.object_fields import is_deleting
from stowplan.controller_runtime.object_index import Key, ObjectIndex, PodFacts, split_key
from stowplan.controller_runtime.resource_paths import PODS, RESOURCE_QUOTAS
from stowplan.objects.encoding.json_codec import convert
from stowplan.objects.limits import ResourceQuota
from stowplan.objects.store import Store, WatchEvent

DELETION_SECONDS = 1.0
ADDITION_SECONDS = 5.0
"""How long changes are batched before a quota is counted again. Additions are charged by admission
already, except those of objects that are restored."""


class ResourceQuotaController(Controller):
    """Counts what the objects of a namespace use of its quotas."""

    name = "resourcequota"
    path = RESOURCE_QUOTAS

    def __init__(self, api: Store, index: ObjectIndex, recorder: EventRecorder) -> None:
        super().__init__(api, index, recorder)
        self._counted: dict[str, dict[str, set[str]]] = {}

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Queue a changed quota, and those that count a changed object."""
        key = split_key(change)
        namespace = change.namespace
        if change.path == RESOURCE_QUOTAS:
            self._note_quota(change, key)
        found = self._counted.get(namespace)
        if not found:
            return
        wait = ADDITION_SECONDS if change.type == "ADDED" else DELETION_SECONDS
        if change.type == "MODIFIED":
            now = self.index.pods.get(key) if change.path == PODS else None
            if now is None or before is None or now.is_finished == before.is_finished:
                return
        for quota, paths in found.items():
            if change.path in paths:
                self.queue.add((namespace, quota), self.api.now + wait)

    def sync(self, key: Key) -> None:
        """Count the usage of a quota, and write it if it differs."""
        tree = self.api.get(RESOURCE_QUOTAS, *key)
        if tree is None or is_deleting(tree):
            return
        quota = convert(tree, ResourceQuota)
        paths = sorted(paths_counted(quota.spec.hard))
        used = used_amounts(quota, ((path, self.api.list(path, key[0])) for path in paths))
        status = quota_status(quota.spec.hard, used)
        if tree.get("status") != status:
            tree["status"] = status
            self.api.update_status(RESOURCE_QUOTAS, tree)

    def _note_quota(self, change: WatchEvent, key: Key) -> None:
        namespace, name = key
        known = self._counted.setdefault(namespace, {})
        if change.type == "DELETED":
            known.pop(name, None)
            return
        spec = (self.decoded(change.value) or {}).get("spec") or {}
        hard = spec.get("hard") or {}
        old = (self.decoded(change.previous) or {}).get("spec")
        known[name] = paths_counted(hard)
        if spec != old:
            self.queue.add(key)
