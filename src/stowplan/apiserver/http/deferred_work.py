"""Work of a request that may run in another thread.

Decoding a body and encoding a response as YAML may take long, and use only the request's data;
webhooks take as long as they like.
`RequestPipeline` yields such work as a `DeferredWork`; the caller runs it in any thread, then
resumes the request.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

from stowplan.apis.machinery.errors import ApiError
from stowplan.apis.machinery.http_messages import HttpResponse, WatchResponse

T = TypeVar("T")


class DeferredWork(Generic[T]):
    """A function to call and, once it was called, its result. waits: it waits for another server,
    rather than compute."""

    __slots__ = ("_error", "_value", "_work", "waits")

    def __init__(self, work: Callable[[], T], *, waits: bool = False) -> None:
        self.waits = waits
        self._work: Callable[[], T] | None = work
        self._value: T
        self._error: ApiError | None = None

    def run(self) -> None:
        """Do the work; an ApiError is kept for `result`, other exceptions propagate."""
        if self._work is None:
            return
        work, self._work = self._work, None
        try:
            self._value = work()
        except ApiError as error:
            self._error = error

    def result(self) -> T:
        """The result. Raises ApiError. Call it once: the caller may change the result."""
        self.run()
        if self._error is not None:
            raise self._error
        return self._value


RequestSteps = Generator[DeferredWork[Any], None, HttpResponse | WatchResponse]
"""A request in progress: it yields each `DeferredWork`, and continues when that was run."""


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
        """Continue the request, in the thread that owns the server."""
        return self._resume(now)
