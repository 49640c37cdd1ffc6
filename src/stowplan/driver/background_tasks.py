"""Background tasks of one owner: started, watched for failures, stopped together."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class BackgroundTasks:
    """asyncio tasks that run until `stop`."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, work: Coroutine[Any, Any, None], name: str | None = None) -> None:
        """Start a task."""
        self._tasks.append(asyncio.create_task(work, name=name))

    async def stop(self) -> None:
        """Cancel all tasks and wait for their end."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    def failed(self) -> BaseException | None:
        """The exception that has ended a task, if any."""
        for task in self._tasks:
            if task.done() and not task.cancelled():
                return task.exception()
        return None
