"""Pod group protection: a PodGroup that is deleted stays as long as an unfinished pod names it.

Source: kube-controller-manager v1.36, pkg/controller/scheduling/podgroupprotection.
"""

from __future__ import annotations

from typing import Any

from stowplan.apis.scheduling.workload_groups import POD_GROUP_PROTECTION
from stowplan.controller_runtime.controller import Controller
from stowplan.controller_runtime.object_fields import is_deleting
from stowplan.controller_runtime.object_index import Key, PodFacts, split_key
from stowplan.controller_runtime.resource_paths import POD_GROUPS, PODS
from stowplan.objects.store import WatchEvent

_MARK = b'"schedulingGroup":'
_DELETING = b'"deletionTimestamp":'


class PodGroupProtectionController(Controller):
    """Keys are those of PodGroups of scheduling.k8s.io."""

    name = "podgroup-protection-controller"
    path = POD_GROUPS

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Queue a group that is being deleted, and that of a pod that ends."""
        value = change.value or b""
        if change.path == POD_GROUPS:
            if _DELETING in value and change.type != "DELETED":
                self.queue.add(split_key(change))
        elif (
            change.path == PODS
            and (change.type == "DELETED" or self._is_finished(change))
            and _MARK in value
        ):
            name = _group_of(self.decoded(value) or {})
            if name:
                self.queue.add((split_key(change)[0], name))

    def _is_finished(self, change: WatchEvent) -> bool:
        pod = self.index.pods.get(split_key(change))
        return pod is not None and pod.is_finished

    def sync(self, key: Key) -> None:
        """Remove the finalizer of a deleted group that no unfinished pod names."""
        group = self.api.get(POD_GROUPS, *key)
        if group is None or not is_deleting(group):
            return
        held = group["metadata"].get("finalizers") or []
        if POD_GROUP_PROTECTION not in held:
            return
        for facts in self.index.in_namespace(key[0]):
            pod = None if facts.is_finished else self.api.get(PODS, *facts.key)
            if pod is not None and _group_of(pod) == key[1]:
                return
        group["metadata"]["finalizers"] = [one for one in held if one != POD_GROUP_PROTECTION]
        self.api.update(POD_GROUPS, group)


def _group_of(pod: dict[str, Any]) -> str:
    """The name of the group that a pod names, "" for none."""
    group = pod.get("spec", {}).get("schedulingGroup") or {}
    return str(group.get("podGroupName") or "")
