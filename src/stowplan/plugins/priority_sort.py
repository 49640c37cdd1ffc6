"""PrioritySort: higher priority first, then the earlier time of entry.

Source: kube-scheduler v1.36, plugins/queuesort.
"""

from __future__ import annotations

from stowplan.framework import QueuedPod
from stowplan.framework.plugin import Plugin


class PrioritySort:
    """Orders the active queue."""

    name = "PrioritySort"
    declaration = Plugin(name=name, reads=())

    def less(self, first: QueuedPod, second: QueuedPod) -> bool:
        """True when `first` is to be scheduled before `second`."""
        return self.sort_key(first) < self.sort_key(second)

    def sort_key(self, queued: QueuedPod) -> tuple[int, float]:
        """The same order as a key."""
        return -(queued.pod.spec.priority or 0), queued.added_at
