"""Work of requests that may run in another thread while the server answers others.

Reading a body and writing an answer as YAML take as long as the client makes them, and touch
nothing but what the request brought. `Exchange` hands such work out as a `Later`; whoever drives
the server runs it where it likes, then resumes the request.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

from stowplan.cluster.errors import ApiError
from stowplan.cluster.wire import Response, Stream

T = TypeVar("T")


class Later(Generic[T]):
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


Steps = Generator[Later[Any], None, Response | Stream]
"""A request being answered: it stops at each `Later`, and goes on when that was run."""


class Pending:
    """A request that waits for `work.run()`, in any thread, and then for `resume`."""

    __slots__ = ("_resume", "work")

    def __init__(
        self, work: Later[Any], resume: Callable[[float], Response | Stream | Pending]
    ) -> None:
        self.work = work
        self._resume = resume

    def resume(self, now: float) -> Response | Stream | Pending:
        """Go on with the request, in the thread that owns the server."""
        return self._resume(now)
