"""Background tasks: named children of one asyncio.TaskGroup for each event loop.

None ends unnoticed. A failure is logged, and then, as the starter has chosen, ends the group with
all its children, concerns nothing else, or is followed by a restart.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from stowplan.client.backoff import JitteredBackoff
from stowplan.driver.logs import log_keys

log = logging.getLogger("stowplan.tasks")

FAILED_MESSAGE = "Background task failed"
RESTARTING_MESSAGE = "Background task failed; restarting"

Work = Coroutine[Any, Any, None]


class BackgroundTasks:
    """The children of a task group; see `background_tasks`."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Work, name: str) -> asyncio.Task[None]:
        """Start a task without which the others are of no use: if it fails, the group ends.

        Raises RuntimeError when the group has ended.
        """
        task = self._create(work, name)
        task.add_done_callback(_log_failure)
        return task

    def start_independent(self, work: Work, name: str) -> asyncio.Task[None]:
        """Start a task, one of many, whose failure concerns nothing else.

        Raises RuntimeError when the group has ended.
        """
        return self._create(_logged(work, name), name, work)

    def start_restarted(
        self, work: Callable[[], Work], name: str, backoff: JitteredBackoff
    ) -> asyncio.Task[None]:
        """Start a task that is started again after each failure.

        Raises RuntimeError when the group has ended.
        """
        return self._create(_restarted(work, name, backoff), name)

    def _create(self, work: Work, name: str, wrapped: Work | None = None) -> asyncio.Task[None]:
        """wrapped: what `work` awaits; a task that is cancelled before its first step does not get
        as far as that."""
        begun = wrapped or work
        try:
            task = self._group.create_task(work, name=name)
        except RuntimeError:
            work.close()
            begun.close()
            raise
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: begun.close())
        return task

    def cancel(self) -> None:
        """Cancel all children."""
        for task in list(self._tasks):
            task.cancel()


@contextlib.asynccontextmanager
async def background_tasks() -> AsyncIterator[BackgroundTasks]:
    """A group of tasks, cancelled at the end of the block; it ends when all of them have ended.

    Raises the exception of the first task that failed, after the block and the other tasks were
    cancelled.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = BackgroundTasks(group)
            try:
                yield tasks
            finally:
                tasks.cancel()
    except BaseExceptionGroup as failures:
        # Others have failed because they were cancelled.
        raise failures.exceptions[0] from None


def _log_failure(task: asyncio.Task[None]) -> None:
    fault = None if task.cancelled() else task.exception()
    if fault is not None:
        _log_fault(FAILED_MESSAGE, task.get_name(), fault)


async def _logged(work: Work, name: str) -> None:
    try:
        await work
    # Whatever it is, the starter has declared that it concerns this task only.
    except Exception as fault:  # noqa: BLE001
        _log_fault(FAILED_MESSAGE, name, fault)


async def _restarted(work: Callable[[], Work], name: str, backoff: JitteredBackoff) -> None:
    while True:
        try:
            await work()
        # Whatever it is, the starter has declared that a new start helps.
        except Exception as fault:  # noqa: BLE001
            _log_fault(RESTARTING_MESSAGE, name, fault)
            await asyncio.sleep(backoff.next_s())
        else:
            return


def _log_fault(message: str, name: str, fault: BaseException) -> None:
    log_keys(log, logging.ERROR, message, task=name, err=repr(fault))
