"""QueueEntry: a pending pod and the queue's state about it."""

from __future__ import annotations

from stowplan.framework.plugin import QueuedPod
from stowplan.objects.pod import Pod

NO_PLUGINS: frozenset[str] = frozenset()


class QueueEntry(QueuedPod, gc=False):
    """A pending pod from its arrival until it is bound or deleted; one object for all attempts.

    All times are whole nanoseconds. Only the queue writes these fields; the scheduler sets
    refused_by and pending_on before it returns the entry.

    added_at: time of arrival or of the last failure; ties of equal priority are broken by it.
    attempts: number of pops. refusals: attempts that a plugin rejected. errors: consecutive
    attempts that failed otherwise. initial_attempt: first time in the active queue, None before.
    refused_by, pending_on: plugins of the last rejection, pending_on those that returned Pending;
    includes a plugin that once gated the pod. gated_by: PreEnqueue plugin that keeps the pod out of
    the queue, or "". flushed: requeued by the unschedulable flush since its last failure. cycle:
    cycle of the last pop. tie_break: random number that breaks ties between nodes in every attempt;
    None before the first attempt and where ties are not broken at random.
    """

    key: str = ""
    attempts: int = 0
    refusals: int = 0
    errors: int = 0
    initial_attempt: int | None = None
    refused_by: frozenset[str] = NO_PLUGINS
    pending_on: frozenset[str] = NO_PLUGINS
    gated_by: str = ""
    flushed: bool = False
    cycle: int = 0
    tie_break: int | None = None

    @classmethod
    def of(cls, pod: Pod, now: int) -> QueueEntry:
        """The entry of a pod that arrives now."""
        return cls(pod, now, pod.key)

    @property
    def uid(self) -> str:
        """The uid of the pod."""
        return self.pod.uid

    @property
    def refusers(self) -> frozenset[str]:
        """All plugins that rejected the pod; empty when the last attempt ended with an error."""
        return self.refused_by | self.pending_on if self.pending_on else self.refused_by
