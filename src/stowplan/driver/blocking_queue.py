"""The scheduling queue for several threads, and for asyncio: `pop` waits until a pod is ready.

It is also a priority task queue with retry and backoff for other programs. A task is a pod:
`task("mail-7", priority=5)`. A task that failed with an error is retried after 1 s, 2 s, 4 s, at
most 10 s. A rejected task waits until an event may help it; after such an event an idle worker
takes it before its backoff has ended.

    queue = BlockingQueue.of_tasks()
    queue.add(task("mail-7", priority=5))

    def worker() -> None:
        with contextlib.suppress(QueueClosed):
            while (entry := queue.pop()) is not None:
                try:
                    send(entry.pod.name)
                except QuotaReached:
                    queue.add_unschedulable_if_not_present(entry, refused_by={"quota"})
                except OSError:
                    queue.add_unschedulable_if_not_present(entry)  # retry after backoff
                else:
                    queue.done(entry.uid)

    queue.move(ANYTHING, None, None)   # quota is free again: retry rejected tasks
    queue.close()                      # every worker gets QueueClosed

`AsyncQueue` is the same for the tasks of one event loop; its `pop` is awaited.

The two periodic flushes (backoff every second, unschedulable pods every 30 seconds) need no thread:
a caller that waits in `pop` does them when they are due.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Self, TypeVar

from stowplan._deprecated import deprecated_method
from stowplan.driver.clocks import monotonic_ns
from stowplan.framework.clusterevents import ClusterEvent
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.pod import Pod, PodSpec
from stowplan.queue import PodRecord, QueueingHintMap, QueueOptions, SchedulingQueue, seconds_to_ns
from stowplan.queue.pod_record import NO_PLUGINS
from stowplan.queue.pre_enqueue import PreEnqueueGates

T = TypeVar("T")

Clock = Callable[[], int]
"""Returns nanoseconds since any point in time that is a whole second."""


class QueueClosed(Exception):
    """The queue is closed: it accepts and returns no more pods."""


def task(name: str, priority: int = 0, uid: str = "") -> Pod:
    """A pod that stands for a task. uid: needed if two tasks of one name are queued at once."""
    return Pod(metadata=ObjectMeta(name=name, uid=uid), spec=PodSpec(priority=priority))


def task_queue(options: QueueOptions | None = None) -> SchedulingQueue:
    """A queue without plugins: higher priority first, then first in, first out."""

    def rank(entry: PodRecord) -> tuple[int, float]:
        return -entry.pod.priority, entry.added_at

    return SchedulingQueue(
        rank, PreEnqueueGates({}), QueueingHintMap({}), lambda key: None, options=options
    )


def _after(now: int, period: int) -> int:
    """The first multiple of `period` after now."""
    return (now // period + 1) * period


class BaseBlockingQueue(ABC):
    """Common part of the two queues: everything but locking and waiting."""

    def __init__(self, queue: SchedulingQueue, clock: Clock = monotonic_ns) -> None:
        """queue: used by nothing else from now on."""
        self._queue = queue
        self._now = clock
        self._closed = False
        self._backoff_period = seconds_to_ns(queue.options.flush_backoff_s)
        self._unschedulable_flush_period = seconds_to_ns(queue.options.flush_unschedulable_s)
        self._flush_backoff_at = _after(clock(), self._backoff_period)
        self._flush_unschedulable_at = clock() + self._unschedulable_flush_period

    @classmethod
    def of_tasks(cls, options: QueueOptions | None = None, clock: Clock = monotonic_ns) -> Self:
        """A queue for tasks, without plugins."""
        return cls(task_queue(options), clock)

    def add(self, pod: Pod) -> bool:
        """Add a new pod; True when it is ready. Raises QueueClosed."""

        def act(now: int) -> bool:
            if self._closed:
                raise QueueClosed
            return self._queue.add(pod, now)

        return self._change(act)

    def update(self, old: Pod, new: Pod) -> tuple[ClusterEvent, ...]:
        """Handle a changed pod; returns the kind of change."""
        return self._change(lambda now: self._queue.update(old, new, now))

    def delete(self, pod: Pod) -> None:
        """Remove a pod. A pod in flight stays until its attempt ends."""
        self._change(lambda now: self._queue.delete(pod))

    def move(
        self, event: ClusterEvent, old: Any, new: Any, only: Callable[[Pod], bool] | None = None
    ) -> None:
        """Requeue the unschedulable pods that an event may help."""
        self._change(lambda now: self._queue.move(event, old, new, now, only))

    def activate(self, pods: Iterable[Pod]) -> None:
        """Move these pods to the active queue at once."""
        self._change(lambda now: self._queue.activate(pods, now))

    def done(self, uid: str) -> None:
        """End the attempt of a pod that needs the queue no more."""
        self._change(lambda now: self._queue.done(uid), wakes=False)

    def add_unschedulable_if_not_present(
        self,
        entry: PodRecord,
        *,
        refused_by: Iterable[str] = NO_PLUGINS,
        pending_on: Iterable[str] = NO_PLUGINS,
        pod: Pod | None = None,
    ) -> str:
        """Return a pod after a failed attempt; "" or why the queue does not accept it."""
        return self._change(
            lambda now: self._queue.add_unschedulable_if_not_present(
                entry, now, refused_by=refused_by, pending_on=pending_on, pod=pod
            )
        )

    put_back = deprecated_method("put_back", "add_unschedulable_if_not_present")

    def tick(self) -> None:
        """Do the flushes that are due; needed only for a clock that jumps. Otherwise callers that
        wait in `pop` do them."""
        self._change(self._flush)

    def close(self) -> None:
        """Raise QueueClosed in all callers of `pop`, and accept no new pods. Pods in flight may
        still be returned."""

        def act(now: int) -> None:
            self._closed = True

        self._change(act)

    def __len__(self) -> int:
        """Number of pods in the queue, without those in flight."""
        return len(self._queue)

    @abstractmethod
    def _change(self, act: Callable[[int], T], *, wakes: bool = True) -> T:
        """Call `act(now)`, which changes the queue, and wake waiting callers if pods may be
        ready."""

    def _flush(self, now: int) -> None:
        """Do the flushes that are due."""
        if now >= self._flush_backoff_at:
            self._queue.flush_backoff(now)
            self._flush_backoff_at = _after(now, self._backoff_period)
        if now >= self._flush_unschedulable_at:
            self._queue.flush_unschedulable(now)
            self._flush_unschedulable_at = now + self._unschedulable_flush_period

    def _take(self) -> PodRecord | None:
        """Pop the next pod, None when none is ready. Raises QueueClosed."""
        if self._closed:
            raise QueueClosed
        self._flush(self._now())
        return self._queue.pop()

    def _deadline(self, timeout_s: float | None) -> int | None:
        return None if timeout_s is None else self._now() + seconds_to_ns(timeout_s)

    def _wait_s(self, deadline: int | None) -> float | None:
        """Seconds until a pod may become ready by time, or until the deadline; None for never."""
        moments = [] if deadline is None else [deadline]
        if len(self._queue.backoff):
            moments.append(self._flush_backoff_at)
        if len(self._queue.unschedulable_pods):
            moments.append(self._flush_unschedulable_at)
        return max(0, min(moments) - self._now()) / SECOND if moments else None


class BlockingQueue(BaseBlockingQueue):
    """The queue behind a lock: any thread may call any method."""

    def __init__(self, queue: SchedulingQueue, clock: Clock = monotonic_ns) -> None:
        super().__init__(queue, clock)
        self._changed = threading.Condition()

    def pop(self, timeout_s: float | None = None) -> PodRecord | None:
        """Pop the next pod, waiting for one; None after the timeout.

        The caller must report the outcome: `done` or `add_unschedulable_if_not_present`. Raises
        QueueClosed.
        """
        with self._changed:
            deadline = self._deadline(timeout_s)
            while (entry := self._take()) is None:
                if deadline is not None and self._now() >= deadline:
                    return None
                self._changed.wait(self._wait_s(deadline))
            return entry

    def _change(self, act: Callable[[int], T], *, wakes: bool = True) -> T:
        with self._changed:
            result = act(self._now())
            if wakes:
                self._changed.notify_all()
            return result


class AsyncQueue(BaseBlockingQueue):
    """The queue for the tasks of one event loop; only `pop` waits."""

    def __init__(self, queue: SchedulingQueue, clock: Clock = monotonic_ns) -> None:
        super().__init__(queue, clock)
        self._changed = asyncio.Event()

    async def pop(self, timeout_s: float | None = None) -> PodRecord | None:
        """Pop the next pod, waiting for one; None after the timeout.

        The caller must report the outcome: `done` or `add_unschedulable_if_not_present`. Raises
        QueueClosed. A cancelled call has popped no pod.
        """
        deadline = self._deadline(timeout_s)
        while (entry := self._take()) is None:
            if deadline is not None and self._now() >= deadline:
                return None
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), self._wait_s(deadline))
        return entry

    def _change(self, act: Callable[[int], T], *, wakes: bool = True) -> T:
        result = act(self._now())
        if wakes:
            self._changed.set()
        return result
