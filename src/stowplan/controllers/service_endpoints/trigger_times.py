"""When the change happened that made a controller write endpoints: an annotation of slices.

Source: k8s.io/endpointslice v0.36, trigger_time_tracker.go.
"""

from __future__ import annotations

from stowplan.controller_runtime.object_fields import find_condition
from stowplan.controller_runtime.object_index import Key
from stowplan.objects.encoding.tree import Tree

TRIGGER_ANNOTATION = "endpoints.kubernetes.io/last-change-trigger-time"


class TriggerTimes:
    """The times of Services and of their pods that were seen at the last look, per Service."""

    def __init__(self) -> None:
        self._seen: dict[Key, tuple[str, dict[str, str]]] = {}

    def changed_at(self, key: Key, service: Tree, pods: list[Tree]) -> str:
        """The earliest change since the last look; "" for none."""
        before, pods_before = self._seen.get(key, ("", {}))
        created = service["metadata"]["creationTimestamp"]
        times = {pod["metadata"]["name"]: _ready_since(pod) for pod in pods}
        self._seen[key] = (created, times)
        changed = [at for name, at in times.items() if at > pods_before.get(name, "")]
        if created > before:
            changed.append(created)
        return min(changed, default="")

    def forget(self, key: Key) -> None:
        """A Service is gone."""
        self._seen.pop(key, None)


def _ready_since(pod: Tree) -> str:
    """When the readiness of a pod changed; times in their form are in order."""
    ready = find_condition(pod["status"].get("conditions") or (), "Ready") or {}
    return str(ready.get("lastTransitionTime") or "")
