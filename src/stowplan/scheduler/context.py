"""Context: what the parts of the machine share."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from stowplan.cache import Cache
from stowplan.columns.audit import InvariantBroken
from stowplan.framework import Framework
from stowplan.framework.sessions import SessionDecider
from stowplan.framework.shared import Shared
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event
from stowplan.objects.extender import EXTENDER, Extender
from stowplan.objects.pod import Pod
from stowplan.queue import SchedulingQueue
from stowplan.scheduler.extenders import Extenders
from stowplan.scheduler.options import MachineOptions
from stowplan.scheduler.outbox import Outbox

STORY_LENGTH = 2000
TOLD_MAX = 20


class Context:
    """now: whole nanoseconds, from any beginning that is a whole second. known: the newest version
    of every pod by `NAMESPACE/NAME`, pending and bound.
    """

    def __init__(
        self,
        frameworks: Mapping[str, Framework],
        cache: Cache,
        options: MachineOptions,
        extenders: Iterable[Extender] = (),
        sessions: SessionDecider | None = None,
    ) -> None:
        self.frameworks = dict(frameworks)
        # Whose pods sessions decide.
        self.batch_names = () if sessions is None else sessions.scheduler_names
        if sessions is not None and not frameworks:
            frameworks = dict.fromkeys(sessions.scheduler_names, sessions.framework)
        self.extenders = Extenders(extenders)
        self.cache = cache
        self.known: dict[str, Pod] = {}
        self.options = options
        others = (EXTENDER,) if len(self.extenders) else ()
        self.queue = SchedulingQueue.of(
            frameworks, self.known.get, cache.world, options.queue, others
        )
        cache.nominate_by(self.queue.nominator)
        self.shared: Shared = next(iter(frameworks.values())).shared
        self.now = 0
        self.outbox = Outbox(leads=options.leads, term=options.term)
        # The latest messages; a number is the time of those that come after it.
        self._story: deque[int | Event | Effect] = deque(maxlen=STORY_LENGTH)

    def note(self, now: int, messages: Iterable[Event | Effect]) -> None:
        """Keep messages for the story."""
        self._story.append(now)
        self._story.extend(messages)

    def broken(self, name: str, uid: str) -> InvariantBroken:
        """Our own bug, with the last messages about a pod."""
        lines = []
        at = 0
        for message in self._story:
            if isinstance(message, int):
                at = message
            elif _about(message, uid):
                lines.append(f"{at} {message}")
        return InvariantBroken("\n".join([f"{name}: pod {uid}", *lines[-TOLD_MAX:]]))

    def skip_leaving(self, pod: Pod) -> None:
        """Tell that a pod is not attempted, since it is being deleted."""
        note = f"skip schedule deleting pod: {pod.key}"
        self.outbox.record(pod, "Warning", "FailedScheduling", "Scheduling", note)

    def is_ours(self, pod: Pod) -> bool:
        """True for a pod that one of our profiles or our sessions decide."""
        return pod.spec.scheduler_name in self.frameworks or self.is_batch(pod)

    def is_batch(self, pod: Pod) -> bool:
        """True for a pod that our sessions decide."""
        return pod.spec.scheduler_name in self.batch_names


def _about(message: Event | Effect, uid: str) -> bool:
    pod = getattr(message, "pod", None)
    return getattr(message, "uid", None) == uid or (pod is not None and pod.uid == uid)
