"""The blocking queue under threads and tasks: nothing is lost, nothing is popped twice."""

from __future__ import annotations

import asyncio
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from stowplan.driver.blocking_queue import (
    AsyncQueue,
    BaseBlockingQueue,
    BlockingQueue,
    QueueClosed,
    task,
)
from stowplan.framework.clusterevents import ANYTHING
from stowplan.objects.encoding.duration import SECOND
from stowplan.queue import PodRecord, QueueOptions

N_THREADS = 8
STEP = SECOND // 5
A_MINUTE = 60 * SECOND // STEP
LAST_ATTEMPT = 6


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


@dataclass
class Traffic:
    """What eight workers did: keys held now, those finished, those given to two at once."""

    held: Counter[str] = field(default_factory=Counter)
    finished: Counter[str] = field(default_factory=Counter)
    twice: set[str] = field(default_factory=set)
    attempts: int = 0
    closed: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, key: str) -> None:
        with self.lock:
            self.attempts += 1
            self.held[key] += 1
            if self.held[key] > 1:
                self.twice.add(key)

    def release(self, key: str, *, finished: bool) -> None:
        with self.lock:
            self.held[key] -= 1
            self.finished[key] += finished

    def n_finished(self) -> int:
        with self.lock:
            return sum(self.finished.values())


def fate(entry: PodRecord) -> int:
    """0..9 by name and attempt, the same in every run; 0 from the last attempt on."""
    if entry.attempts >= LAST_ATTEMPT:
        return 0
    return zlib.crc32(f"{entry.key}/{entry.attempts}".encode()) % 10


def work(queue: BlockingQueue, traffic: Traffic) -> None:
    """Pop until the queue is closed: 4 in 10 attempts succeed, the rest fail in every way."""
    try:
        while (entry := queue.pop()) is not None:
            traffic.take(entry.key)
            what = fate(entry)
            traffic.release(entry.key, finished=what < 4)
            if what < 4:
                queue.done(entry.uid)
            elif what < 6:
                queue.add_unschedulable_if_not_present(entry)
            elif what < 9:
                queue.add_unschedulable_if_not_present(entry, refused_by={"quota"})
            else:
                queue.add_unschedulable_if_not_present(entry, pending_on={"quota"})
    except QueueClosed:
        with traffic.lock:
            traffic.closed += 1


def drive(
    make: Callable[[Clock], BlockingQueue], n_steps: int = A_MINUTE, patience: int = 10 * A_MINUTE
) -> tuple[Traffic, int]:
    """Virtual traffic, and then as long as anything is left, for at most `patience` steps.

    Returns what was done, and how many tasks were added.
    """
    clock, traffic = Clock(), Traffic()
    queue = make(clock)
    workers = [threading.Thread(target=work, args=(queue, traffic)) for _ in range(N_THREADS)]
    for worker in workers:
        worker.start()
    n_added = 0
    for step in range(n_steps + patience):
        if step < n_steps:
            for _ in range(3):
                queue.add(task(f"t{n_added}", priority=n_added % 3))
                n_added += 1
        elif traffic.n_finished() >= n_added:
            break
        if step % 7 == 0:
            queue.move(ANYTHING, None, None)
        clock.now += STEP
        queue.tick()
        time.sleep(0.001)
    queue.close()
    for worker in workers:
        worker.join(timeout=240)
    assert not any(worker.is_alive() for worker in workers)
    return traffic, n_added


def faults(traffic: Traffic, n_added: int) -> list[str]:
    """What went wrong; nothing when all is well."""
    found = []
    if len(traffic.finished) != n_added or set(traffic.finished.values()) != {1}:
        found.append(f"{n_added} added, {sum(traffic.finished.values())} finished")
    if traffic.twice:
        found.append(f"given out twice: {sorted(traffic.twice)[:3]}")
    if traffic.closed != N_THREADS:
        found.append(f"{traffic.closed} of {N_THREADS} threads were told of the end")
    return found


def test_nothing_is_lost_and_nothing_popped_twice_under_eight_threads() -> None:
    traffic, n_added = drive(lambda clock: BlockingQueue.of_tasks(clock=clock))
    assert not faults(traffic, n_added)
    assert traffic.attempts > n_added > 800, "too little happened for the test to mean anything"


def test_control_a_queue_that_forgets_what_was_refused() -> None:
    class Forgetful(BlockingQueue):
        def add_unschedulable_if_not_present(self, entry: PodRecord, **why: object) -> str:
            if why:
                self.done(entry.uid)
                return ""
            return super().add_unschedulable_if_not_present(entry)

    traffic, n_added = drive(lambda clock: Forgetful.of_tasks(clock=clock), 20, patience=100)
    assert "finished" in faults(traffic, n_added)[0]


def test_control_a_queue_that_looks_instead_of_taking() -> None:
    class Peeking(BlockingQueue):
        def _take(self) -> PodRecord | None:
            taken = super()._take()
            if taken is not None:
                self._queue.active.put(taken)
            return taken

    options = QueueOptions(hints=False)
    traffic, n_added = drive(lambda clock: Peeking.of_tasks(options, clock), 20, patience=100)
    assert faults(traffic, n_added)


# Waiting and being woken.


def popped_in_thread(queue: BlockingQueue) -> tuple[threading.Thread, list[str]]:
    """A thread that pops once and writes down what it got, or that the queue was closed."""
    got: list[str] = []

    def pop() -> None:
        try:
            entry = queue.pop()
            got.append("nothing" if entry is None else entry.key)
        except QueueClosed:
            got.append("closed")

    thread = threading.Thread(target=pop)
    thread.start()
    return thread, got


def wake_by(act: Callable[[BlockingQueue], object], queue: BlockingQueue) -> list[str]:
    """What a thread that waits in `pop` gets after `act`."""
    thread, got = popped_in_thread(queue)
    time.sleep(0.02)
    assert not got, "it should be waiting"
    act(queue)
    thread.join(timeout=240)
    return got


def unschedulable_pods() -> tuple[BlockingQueue, PodRecord, Clock]:
    """A queue whose only task is unschedulable."""
    clock = Clock()
    queue = BlockingQueue.of_tasks(clock=clock)
    queue.add(task("a"))
    entry = queue.pop()
    assert entry is not None
    queue.add_unschedulable_if_not_present(entry, refused_by={"quota"})
    return queue, entry, clock


def test_add_wakes() -> None:
    queue = BlockingQueue.of_tasks()
    assert wake_by(lambda q: q.add(task("a")), queue) == ["default/a"]


def test_move_wakes() -> None:
    queue, _, _ = unschedulable_pods()
    assert wake_by(lambda q: q.move(ANYTHING, None, None), queue) == ["default/a"]


def test_activate_wakes() -> None:
    queue, entry, _ = unschedulable_pods()
    assert wake_by(lambda q: q.activate([entry.pod]), queue) == ["default/a"]


def test_unschedulable_pods_are_flushed_after_the_maximum_time() -> None:
    queue, _, clock = unschedulable_pods()

    def let_time_pass(queue: BlockingQueue) -> None:
        clock.now += 301 * SECOND
        queue.tick()

    assert wake_by(let_time_pass, queue) == ["default/a"]


def test_an_update_of_an_unknown_task_wakes() -> None:
    queue = BlockingQueue.of_tasks()
    assert wake_by(lambda q: q.update(task("a"), task("a", 5)), queue) == ["default/a"]


def test_close_wakes_everybody() -> None:
    queue = BlockingQueue.of_tasks()
    waiting = [popped_in_thread(queue) for _ in range(N_THREADS)]
    time.sleep(0.02)
    queue.close()
    for thread, got in waiting:
        thread.join(timeout=240)
        assert got == ["closed"]


def test_a_deleted_task_does_not_come() -> None:
    queue = BlockingQueue.of_tasks()
    queue.add(task("a"))
    queue.delete(task("a"))
    assert queue.pop(timeout_s=0) is None
    assert len(queue) == 0


def test_a_timeout_ends_the_wait() -> None:
    assert BlockingQueue.of_tasks().pop(timeout_s=0.01) is None


def test_a_waiting_thread_does_the_flushes_itself() -> None:
    options = QueueOptions(initial_backoff_s=0.1, max_backoff_s=0.1)
    queue = BlockingQueue.of_tasks(options)
    queue.add(task("a"))
    entry = queue.pop()
    assert entry is not None
    queue.add_unschedulable_if_not_present(entry)
    assert queue.pop(timeout_s=0) is None, "after an error nobody takes it early"
    again = queue.pop(timeout_s=240)
    assert again is entry
    assert again.attempts == 2


@pytest.mark.parametrize("face", [BlockingQueue, AsyncQueue])
def test_a_closed_queue_takes_nothing_new_but_lets_attempts_end(
    face: type[BaseBlockingQueue],
) -> None:
    async def check() -> None:
        queue = face.of_tasks()
        queue.add(task("a"))
        entry = queue._take()
        assert entry is not None
        queue.close()
        with pytest.raises(QueueClosed):
            queue.add(task("b"))
        with pytest.raises(QueueClosed):
            queue._take()
        assert queue.add_unschedulable_if_not_present(entry) == ""

    asyncio.run(check())


# The asyncio twin.


def test_tasks_of_an_event_loop_share_the_work() -> None:
    async def run() -> tuple[Counter[str], int]:
        queue = AsyncQueue.of_tasks()
        finished: Counter[str] = Counter()

        async def worker() -> None:
            while (entry := await queue.pop()) is not None:
                await asyncio.sleep(0)
                if entry.attempts == 1 and entry.pod.priority == 1:
                    queue.add_unschedulable_if_not_present(entry, refused_by={"quota"})
                    queue.move(ANYTHING, None, None)
                else:
                    finished[entry.key] += 1
                    queue.done(entry.uid)

        workers = [asyncio.create_task(worker()) for _ in range(5)]
        for number in range(100):
            queue.add(task(f"t{number}", priority=number % 2))
            await asyncio.sleep(0)
        for _ in range(1000):
            if len(finished) == 100:
                break
            await asyncio.sleep(0)
        queue.close()
        ends = await asyncio.gather(*workers, return_exceptions=True)
        return finished, sum(isinstance(end, QueueClosed) for end in ends)

    finished, closed = asyncio.run(run())
    assert len(finished) == 100
    assert set(finished.values()) == {1}
    assert closed == 5


def test_a_cancelled_pop_pops_no_pod() -> None:
    async def run() -> str:
        queue = AsyncQueue.of_tasks()
        waiting = asyncio.create_task(queue.pop())
        await asyncio.sleep(0)
        waiting.cancel()
        queue.add(task("a"))
        with pytest.raises(asyncio.CancelledError):
            await waiting
        entry = await queue.pop(timeout_s=0)
        return "" if entry is None else entry.key

    assert asyncio.run(run()) == "default/a"


def test_an_asyncio_timeout_ends_the_wait() -> None:
    async def run() -> PodRecord | None:
        return await AsyncQueue.of_tasks().pop(timeout_s=0.01)

    assert asyncio.run(run()) is None
