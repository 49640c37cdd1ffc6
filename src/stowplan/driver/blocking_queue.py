"""The scheduling queue for several threads, and for asyncio: `pop` waits until a pod is ready.

It is also a priority task queue with quick retry and backoff that other programs can use. A task
is a pod: `task("mail-7", priority=5)`. What fails by accident is tried again after 1 s, 2 s, 4 s,
at most 10 s; what was refused waits until something changes, and is taken early when a worker
would be idle otherwise, from the moment on at which an event has given it hope.

    queue = BlockingQueue.of_tasks()
    queue.add(task("mail-7", priority=5))

    def worker() -> None:
        with contextlib.suppress(QueueClosed):
            while (entry := queue.pop()) is not None:
                try:
                    send(entry.pod.name)
                except QuotaReached:
                    # unschedulable, see below
                    queue.add_unschedulable_if_not_present(entry, refused_by={"quota"})
                except OSError:
                    # tried again in a second or more
                    queue.add_unschedulable_if_not_present(entry)
                else:
                    queue.done(entry.uid)

    queue.move(ANYTHING, None, None)   # there is room again: whoever is parked gets a chance
    queue.close()                      # every worker leaves by QueueClosed

`AsyncQueue` is the same for the tasks of one event loop: there `pop` is awaited.

The two flushes that bring pods back by time (every second out of backoff, every 30 seconds those
parked too long) need no thread of their own: whoever waits in `pop` does them when they are due.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Self, TypeVar

from stowplan._deprecated import deprecated_method
from stowplan.framework.clusterevents import ClusterEvent
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.pod import Pod, PodSpec
from stowplan.queue import QueueEntry, QueueingHintMap, QueueOptions, SchedulingQueue, seconds_to_ns
from stowplan.queue.entry import NO_PLUGINS
from stowplan.queue.pre_enqueue import PreEnqueueGates

T = TypeVar("T")

Clock = Callable[[], int]
"""Whole nanoseconds, from any beginning that is a whole second."""


class QueueClosed(Exception):
    """The queue takes no more work and gives out none."""


def task(name: str, priority: int = 0, uid: str = "") -> Pod:
    """A pod that is nothing but a piece of work. uid: if the same name may come twice at once."""
    return Pod(metadata=ObjectMeta(name=name, uid=uid), spec=PodSpec(priority=priority))


def task_queue(options: QueueOptions | None = None) -> SchedulingQueue:
    """A queue without plugins: higher priority first, then whoever has waited longer."""

    def rank(entry: QueueEntry) -> tuple[int, float]:
        return -entry.pod.priority, entry.added_at

    return SchedulingQueue(
        rank, PreEnqueueGates({}), QueueingHintMap({}), lambda key: None, options=options
    )


def _after(now: int, period: int) -> int:
    """The first multiple of `period` after now."""
    return (now // period + 1) * period


class BaseBlockingQueue(ABC):
    """What the two queues below have in common: everything but how they lock and wait."""

    def __init__(self, queue: SchedulingQueue, clock: Clock = time.monotonic_ns) -> None:
        """queue: nobody else may use it from now on."""
        self._queue = queue
        self._now = clock
        self._closed = False
        self._backoff_period = seconds_to_ns(queue.options.flush_backoff_s)
        self._unschedulable_flush_period = seconds_to_ns(queue.options.flush_unschedulable_s)
        self._flush_backoff_at = _after(clock(), self._backoff_period)
        self._flush_unschedulable_at = clock() + self._unschedulable_flush_period

    @classmethod
    def of_tasks(
        cls, options: QueueOptions | None = None, clock: Clock = time.monotonic_ns
    ) -> Self:
        """A queue for tasks, without plugins."""
        return cls(task_queue(options), clock)

    def add(self, pod: Pod) -> bool:
        """A pod wants to be scheduled; True when it is ready. Raises QueueClosed."""

        def act(now: int) -> bool:
            if self._closed:
                raise QueueClosed
            return self._queue.add(pod, now)

        return self._change(act)

    def update(self, old: Pod, new: Pod) -> tuple[ClusterEvent, ...]:
        """A pod has changed; returns what that amounts to."""
        return self._change(lambda now: self._queue.update(old, new, now))

    def delete(self, pod: Pod) -> None:
        """A pod is not wanted any more. In flight it stays until its attempt has ended."""
        self._change(lambda now: self._queue.delete(pod))

    def move(
        self, event: ClusterEvent, old: Any, new: Any, only: Callable[[Pod], bool] | None = None
    ) -> None:
        """Something has changed that may help parked pods."""
        self._change(lambda now: self._queue.move(event, old, new, now, only))

    def activate(self, pods: Iterable[Pod]) -> None:
        """Try these pods at once."""
        self._change(lambda now: self._queue.activate(pods, now))

    def done(self, uid: str) -> None:
        """The attempt has succeeded, or does not need the queue any more."""
        self._change(lambda now: self._queue.done(uid), wakes=False)

    def add_unschedulable_if_not_present(
        self,
        entry: QueueEntry,
        *,
        refused_by: Iterable[str] = NO_PLUGINS,
        pending_on: Iterable[str] = NO_PLUGINS,
        pod: Pod | None = None,
    ) -> str:
        """The attempt has failed; "" or why the pod is not taken back."""
        return self._change(
            lambda now: self._queue.add_unschedulable_if_not_present(
                entry, now, refused_by=refused_by, pending_on=pending_on, pod=pod
            )
        )

    put_back = deprecated_method("put_back", "add_unschedulable_if_not_present")

    def tick(self) -> None:
        """Do the flushes that are due; for a clock that jumps. As long as time just passes, those
        who wait in `pop` do them."""
        self._change(self._flush)

    def close(self) -> None:
        """Wake all that wait in `pop` with QueueClosed, and take no new pods. What is in flight
        may still come back."""

        def act(now: int) -> None:
            self._closed = True

        self._change(act)

    def __len__(self) -> int:
        """How many pods are in the queue; those in flight are not."""
        return len(self._queue)

    @abstractmethod
    def _change(self, act: Callable[[int], T], *, wakes: bool = True) -> T:
        """Let `act(now)` change the queue, and wake who waits where it may have made pods ready."""

    def _flush(self, now: int) -> None:
        """Do the flushes that are due."""
        if now >= self._flush_backoff_at:
            self._queue.flush_backoff(now)
            self._flush_backoff_at = _after(now, self._backoff_period)
        if now >= self._flush_unschedulable_at:
            self._queue.flush_unschedulable(now)
            self._flush_unschedulable_at = now + self._unschedulable_flush_period

    def _take(self) -> QueueEntry | None:
        """The pod to be tried next, None when none is ready. Raises QueueClosed."""
        if self._closed:
            raise QueueClosed
        self._flush(self._now())
        return self._queue.pop()

    def _deadline(self, timeout_s: float | None) -> int | None:
        return None if timeout_s is None else self._now() + seconds_to_ns(timeout_s)

    def _wait_s(self, deadline: int | None) -> float | None:
        """Seconds until time alone may make a pod ready, or until the deadline; None for never."""
        moments = [] if deadline is None else [deadline]
        if len(self._queue.backoff):
            moments.append(self._flush_backoff_at)
        if len(self._queue.unschedulable_pods):
            moments.append(self._flush_unschedulable_at)
        return max(0, min(moments) - self._now()) / SECOND if moments else None


class BlockingQueue(BaseBlockingQueue):
    """The queue behind a lock: every method may be called by any thread."""

    def __init__(self, queue: SchedulingQueue, clock: Clock = time.monotonic_ns) -> None:
        super().__init__(queue, clock)
        self._changed = threading.Condition()

    def pop(self, timeout_s: float | None = None) -> QueueEntry | None:
        """The pod to be tried next, as soon as there is one; None when the timeout is over.

        The caller has to say what became of it: `done` or `add_unschedulable_if_not_present`.
        Raises QueueClosed.
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
    """The queue for the tasks of one event loop; all but `pop` returns at once."""

    def __init__(self, queue: SchedulingQueue, clock: Clock = time.monotonic_ns) -> None:
        super().__init__(queue, clock)
        self._changed = asyncio.Event()

    async def pop(self, timeout_s: float | None = None) -> QueueEntry | None:
        """The pod to be tried next, as soon as there is one; None when the timeout is over.

        The caller has to say what became of it: `done` or `add_unschedulable_if_not_present`.
        Raises QueueClosed. A task that is cancelled here has taken nothing.
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
