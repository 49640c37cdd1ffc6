"""Runs on the processors of this machine, in a pool of processes.

A worker that dies loses its own run only, which is run again once. A worker ends by itself when the
client is gone.
"""

from __future__ import annotations

import os
import queue
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import NamedTuple

from pebble import ProcessExpired, ProcessPool

from stowplan.experiments.plan.plan_file import GPU_SHARING
from stowplan.experiments.plan.plan_inputs import RunTask
from stowplan.experiments.runner.run_worker import RunOutcome, run_and_store, warm_gpu_sharing
from stowplan.experiments.store.run_store import ExperimentStoreError

ATTEMPTS_MAX = 2
"""Of a run whose worker died."""
POOLS_MAX = 3
"""Pools in a row that may break without a finished run."""
CLIENT_CHECK_S = 1.0
OnOutcome = Callable[[RunOutcome], None]


class PoolLimits(NamedTuple):
    """n_workers: processes. time_s: of one run, None for no limit. memory_bytes: address space of a
    worker, 0 for no limit."""

    n_workers: int
    time_s: float | None = None
    memory_bytes: int = 0


def run_in_pool(
    tasks: Sequence[RunTask], folder: str, limits: PoolLimits, on_outcome: OnOutcome
) -> None:
    """Run tasks, and call on_outcome in this thread for each that ended.

    Raises ExperimentStoreError once results cannot be written; runs that are finished stay.
    """
    if any(task.mode == GPU_SHARING for task in tasks):
        # Before the workers are forked: they share what it loads.
        warm_gpu_sharing()
    waiting = {task.key: task for task in tasks}
    attempts: dict[str, int] = {}
    n_broken = 0
    while waiting:
        n_waiting = len(waiting)
        try:
            _PoolRun(waiting, attempts, folder, limits, on_outcome).run()
        except BrokenProcessPool as problem:
            n_broken = n_broken + 1 if len(waiting) == n_waiting else 1
            if n_broken == POOLS_MAX:
                for key in list(waiting):
                    del waiting[key]
                    on_outcome(RunOutcome(key, f"no worker could be started: {problem}"))


class _PoolRun:
    """One pool, until all tasks have ended or the pool broke."""

    def __init__(
        self,
        waiting: dict[str, RunTask],
        attempts: dict[str, int],
        folder: str,
        limits: PoolLimits,
        on_outcome: OnOutcome,
    ) -> None:
        """waiting: what is to be run; tasks that have ended are taken out. attempts: by key."""
        self._waiting = waiting
        self._attempts = attempts
        self._folder = folder
        self._limits = limits
        self._on_outcome = on_outcome
        self._ended: queue.SimpleQueue[tuple[str, Future[RunOutcome]]] = queue.SimpleQueue()
        self._pool = ProcessPool(
            max_workers=min(limits.n_workers, len(waiting)),
            initializer=start_worker,
            initargs=(os.getpid(), limits.memory_bytes),
            context=get_context("fork" if sys.platform == "linux" else "spawn"),
        )

    def run(self) -> None:
        """Raises BrokenProcessPool and ExperimentStoreError; no process remains."""
        is_over = False
        try:
            for task in self._waiting.values():
                self._schedule(task)
            while self._waiting:
                key, future = self._ended.get()
                self._take(key, future)
            is_over = True
        finally:
            if is_over:
                self._pool.close()  # type: ignore[no-untyped-call]
            else:
                self._pool.stop()  # type: ignore[no-untyped-call]
            self._pool.join()

    def _schedule(self, task: RunTask) -> None:
        self._attempts[task.key] = self._attempts.get(task.key, 0) + 1
        future = self._pool.schedule(
            run_and_store, args=(task, self._folder), timeout=self._limits.time_s
        )
        future.add_done_callback(lambda ended: self._ended.put((task.key, ended)))

    def _take(self, key: str, future: Future[RunOutcome]) -> None:
        try:
            outcome = future.result()
        except ProcessExpired as problem:
            if self._attempts[key] < ATTEMPTS_MAX:
                self._schedule(self._waiting[key])
                return
            outcome = RunOutcome(key, f"{_how_it_ended(problem)}, {ATTEMPTS_MAX} times")
        except TimeoutError:
            outcome = RunOutcome(key, f"the time limit of {self._limits.time_s:g} s was exceeded")
        if outcome.store_error:
            raise ExperimentStoreError(outcome.store_error)
        del self._waiting[key]
        self._on_outcome(outcome)


def _how_it_ended(problem: ProcessExpired) -> str:
    code = problem.exitcode
    if code is not None and code < 0:
        hint = ", perhaps by lack of memory" if -code == signal.SIGKILL else ""
        return f"its worker was ended by {signal.Signals(-code).name}{hint}"
    return f"its worker ended with exit code {code}"


def start_worker(client: int, memory_bytes: int) -> None:
    """Prepare a worker process. client: process that it works for."""
    if memory_bytes:
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    threading.Thread(target=_end_with, args=(client,), daemon=True).start()


def _end_with(client: int) -> None:
    """End this process once the client has ended, however it did."""
    while os.getppid() == client:
        time.sleep(CLIENT_CHECK_S)
    os._exit(1)
