"""Context: what the parts of the machine share during one call of `handle`."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from stowplan.cache import Cache
from stowplan.columns.audit import InvariantBroken
from stowplan.framework import Framework
from stowplan.framework.shared import Shared
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event
from stowplan.objects.pod import Pod
from stowplan.queue import QueueOptions, SchedulingQueue

STORY_LENGTH = 2000


class Context:
    """now: whole nanoseconds, from any beginning that is a whole second. term: of leadership.

    known: the newest version of every pod by `NAMESPACE/NAME`, pending and bound.
    """

    def __init__(
        self,
        frameworks: Mapping[str, Framework],
        cache: Cache,
        options: QueueOptions | None = None,
    ) -> None:
        self.frameworks = dict(frameworks)
        self.cache = cache
        self.known: dict[str, Pod] = {}
        self.queue = SchedulingQueue.of(self.frameworks, self.known.get, cache.world, options)
        cache.nominate_by(self.queue.nominator)
        self.shared: Shared = next(iter(self.frameworks.values())).shared
        self.shared.world = cache.world
        self.now = 0
        self.term = 1
        self.outbox: list[Effect] = []
        self._last_id = 0
        self._story: deque[tuple[int, Event | Effect]] = deque(maxlen=STORY_LENGTH)

    def next_id(self) -> int:
        """The id of the next effect."""
        self._last_id += 1
        return self._last_id

    def emit(self, effect: Effect) -> None:
        """Put an effect into the answer of this call."""
        self.outbox.append(effect)
        self._story.append((self.now, effect))

    def note(self, event: Event) -> None:
        """Keep an event for the story."""
        self._story.append((self.now, event))

    def broken(self, name: str, uid: str) -> InvariantBroken:
        """Our own bug, with the last messages about a pod."""
        lines = [f"{at} {message}" for at, message in self._story if _about(message, uid)]
        return InvariantBroken(f"{name}: pod {uid}\n" + "\n".join(lines[-20:]))

    def is_ours(self, pod: Pod) -> bool:
        """True for a pod that one of our profiles decides."""
        return pod.spec.scheduler_name in self.frameworks


def _about(message: Event | Effect, uid: str) -> bool:
    pod = getattr(message, "pod", None)
    return getattr(message, "uid", None) == uid or (pod is not None and pod.uid == uid)
