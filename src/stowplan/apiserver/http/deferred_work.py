"""Work of requests that may run in another thread while the server answers others.

Reading a body and writing an answer as YAML take as long as the client makes them, and touch
nothing but what the request brought. `RequestPipeline` hands such work out as a `DeferredWork`;
whoever drives the server runs it where it likes, then resumes the request.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

from stowplan.apis.machinery.errors import ApiError
from stowplan.apis.machinery.http_messages import HttpResponse, WatchResponse

T = TypeVar("T")


class DeferredWork(Generic[T]):
    """A piece of work and, once it was run, what came of it."""

    __slots__ = ("_error", "_value", "_work")

    def __init__(self, work: Callable[[], T]) -> None:
        self._work: Callable[[], T] | None = work
        self._value: T
        self._error: ApiError | None = None

    def run(self) -> None:
        """Do the work; a refusal is kept for `result`, any other exception is the caller's."""
        if self._work is None:
            return
        work, self._work = self._work, None
        try:
            self._value = work()
        except ApiError as error:
            self._error = error

    def result(self) -> T:
        """What came of it. Raises ApiError. To be asked for once: what it is may be changed."""
        self.run()
        if self._error is not None:
            raise self._error
        return self._value


RequestSteps = Generator[DeferredWork[Any], None, HttpResponse | WatchResponse]
"""A request being answered: it stops at each `DeferredWork`, and goes on when that was run."""


class PendingRequest:
    """A request that waits for `work.run()`, in any thread, and then for `resume`."""

    __slots__ = ("_resume", "work")

    def __init__(
        self,
        work: DeferredWork[Any],
        resume: Callable[[float], HttpResponse | WatchResponse | PendingRequest],
    ) -> None:
        self.work = work
        self._resume = resume

    def resume(self, now: float) -> HttpResponse | WatchResponse | PendingRequest:
        """Go on with the request, in the thread that owns the server."""
        return self._resume(now)
