"""QueueAllocations: what the placed pods of PodGroups request, by group.

Source: volcano master of 2026-08-20, pkg/scheduler/framework/session.go (updateQueueStatus),
pkg/scheduler/util/scheduler_helper.go (ConvertRes2ResList).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from stowplan.controller_runtime.object_index import Key, PodFacts
from stowplan.framework.deciders.tasks import group_of
from stowplan.objects.encoding.json_codec import decode
from stowplan.objects.pod import Pod
from stowplan.objects.pod_requests import requested
from stowplan.objects.quantity import format_quantity

_NAMED = b"group-name"
"""Part of the annotations by which a pod names its group."""


class QueueAllocations:
    """Pods that have a node and neither end nor terminate, by PodGroup."""

    def __init__(self) -> None:
        self._of_pod: dict[Key, tuple[str, Key]] = {}
        self._of_group: dict[Key, dict[Key, dict[str, int]]] = {}

    def pod_changed(self, key: Key, facts: PodFacts | None, value: bytes) -> Key | None:
        """A pod was written or deleted; returns the group of which the sum has changed. facts: None
        for a deleted pod."""
        counted = self._of_pod.get(key)
        counts = facts is not None and bool(facts.node) and facts.is_active
        if facts is not None and counted is not None and counted[0] == facts.uid and counts:
            return None
        changed = None
        if counted is not None:
            changed = self._of_pod.pop(key)[1]
            del self._of_group[changed][key]
            if not self._of_group[changed]:
                del self._of_group[changed]
        if facts is not None and counts and _NAMED in value:
            pod = decode(value, Pod)
            namespace, _, name = group_of(pod).rpartition("/")
            if name:
                changed = (namespace, name)
                self._of_pod[key] = facts.uid, changed
                self._of_group.setdefault(changed, {})[key] = requested(pod)
        return changed

    def total(self, groups: Iterable[Key]) -> dict[str, str]:
        """What the pods of groups request together, as quantities; `pods` is their number."""
        amounts = Counter({"cpu": 0, "memory": 0})
        for group in groups:
            for request in self._of_group.get(group, {}).values():
                amounts.update(request)
                amounts["pods"] += 1
        return {name: format_quantity(name, amount) for name, amount in amounts.items()}
