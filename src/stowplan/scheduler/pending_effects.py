"""PendingEffects: effects with a timeout whose outcome is pending."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from stowplan.objects.timing.due_times import DueHeap
from stowplan.queue.options import seconds_to_ns
from stowplan.scheduler.context import SchedulerContext


class PodRequest(Protocol):
    """What an effect asks for on behalf of a pod."""

    @property
    def uid(self) -> str:
        """Uid of the pod."""


T = TypeVar("T", bound=PodRequest)


class PendingEffects(Generic[T]):
    """Requests in progress, by effect number."""

    def __init__(self, context: SchedulerContext) -> None:
        self._context = context
        self._pending: dict[int, T] = {}
        self._deadlines: DueHeap[int, int] = DueHeap()

    def __len__(self) -> int:
        return len(self._pending)

    def get(self, effect: int) -> T | None:
        """Return the request with this effect number, or None if it has ended."""
        return self._pending.get(effect)

    def add(self, effect: int, request: T, timeout_s: float) -> None:
        """Add a request that times out."""
        self._pending[effect] = request
        self._deadlines.set(effect, self._context.now + seconds_to_ns(timeout_s))

    def end(self, effect: int) -> T | None:
        """Remove a request that has ended; returns None if it was removed before."""
        self._deadlines.clear(effect)
        return self._pending.pop(effect, None)

    def cancel(self, effect: int) -> None:
        """Cancel a request whose result is no longer needed."""
        request = self.end(effect)
        if request is not None:
            self._context.outbox.cancel(request.uid, effect)

    def overdue(self) -> list[int]:
        """Effect numbers of timed-out requests, earliest first; the caller cancels them."""
        return self._deadlines.due(self._context.now)

    def next_deadline(self) -> int | None:
        """The next time at which a request times out; None if there is none."""
        return self._deadlines.next_at()
