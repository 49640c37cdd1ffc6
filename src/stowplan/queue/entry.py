"""QueueEntry: a pending pod with all that the queue knows of it."""

from __future__ import annotations

from stowplan.framework.plugin import QueuedPod
from stowplan.objects.pod import Pod

NO_PLUGINS: frozenset[str] = frozenset()


class QueueEntry(QueuedPod, gc=False):
    """A pod from its arrival until it is bound or gone; the same object through all attempts.

    All times are whole nanoseconds. Only the queue writes here, except that whoever attempts to
    schedule the pod names the plugins that refused it before giving it back.

    added_at: when it arrived or last failed; a younger pod of equal priority comes later.
    attempts: pops so far. refusals: attempts that some plugin refused.
    errors: attempts in a row that failed otherwise. initial_attempt: first time it was ready to
    be scheduled, None until then. refused_by, pending_on: plugins of the last refusal, pending_on
    those that answered Pending; with them a plugin that once gated the pod.
    gated_by: the PreEnqueue plugin that keeps the pod out of the queue now, or "".
    flushed: it was tried again, since it last failed, because it had waited too long.
    cycle: which pop of the queue the last one was. draw: what breaks ties between nodes for it, at
    every attempt; None before the first one, and where nothing is drawn.
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
        """All plugins that refused the pod; none means that the last attempt was an error."""
        return self.refused_by | self.pending_on if self.pending_on else self.refused_by
