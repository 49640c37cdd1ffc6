"""Event loop of an embedded cluster: time, commits, and waiting requests and watches.

One thread, that of the event loop, touches the state of the cluster; long bodies are decoded in
another, one at a time. Commits run in a third thread and include all writes since the last one
began, so that many requests share the wait for the disk. A response is sent after the commit of its
write, and watchers see a change no earlier.

Bugs are always logged: one line with the location. The request gets 500, a failed tick is repeated,
and after several failures in a row the cluster is stopped.
"""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Protocol

import msgspec

from stowplan.apis.machinery.component_errors import ComponentErrors
from stowplan.apis.machinery.errors import internal_error
from stowplan.apis.machinery.http_messages import (
    HttpRequest,
    HttpResponse,
    PersistBatch,
    StreamChunk,
    WatchResponse,
)
from stowplan.apiserver.http.deferred_work import PendingRequest
from stowplan.driver.logs import log_keys
from stowplan.driver.storage.sqlite_store import SqliteStore, StoreError

TICK_INTERVAL_MIN_S = 0.002
"""Shortest interval between two ticks. Requests in between share one."""
TICK_INTERVAL_MAX_S = 1.0
"""Longest interval between two ticks."""
CONSECUTIVE_FAILURES_MAX = 20
"""Failed ticks in a row after which the cluster is stopped."""
WAITING_CALLS_MAX = 64
"""Requests that wait for webhooks at the same time."""
LOGGED_FAULTS_MAX = 100
"""Number of different bugs that are logged; each is logged once."""
_FRAMES_MAX = 3
_TEXT_MAX = 500

log = logging.getLogger("stowplan.cluster")


class ServedCluster(Protocol):
    """The cluster that is served: an ApiServer, or a Cluster around one."""

    def begin(
        self, request: HttpRequest, now: float
    ) -> HttpResponse | WatchResponse | PendingRequest:
        """Answer a request, or begin to."""
        ...

    def read(self, stream: int, now: float) -> StreamChunk:
        """The next bytes of a stream."""
        ...

    def woken(self) -> list[int]:
        """Streams that may have data."""
        ...

    def close(self, stream: int) -> None:
        """Close a stream whose client has disconnected."""

    def tick(self, now: float) -> float | None:
        """Advance time; returns when to be called again."""
        ...

    def unsaved(self) -> PersistBatch | None:
        """Writes since the last call."""
        ...

    def saved(self, number: int) -> None:
        """A batch is committed."""

    def later_work(self) -> PendingRequest | None:
        """Calls of webhooks about the cluster's own writes, if any are due."""
        ...

    @property
    def faults(self) -> ComponentErrors:
        """Errors of controllers and observers."""
        ...


class ServerLoop:
    """One cluster on one event loop. failed: called once with the reason if a commit fails."""

    def __init__(
        self,
        cluster: ServedCluster,
        store: SqliteStore | None = None,
        failed: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.cluster = cluster
        self.clock = clock
        self.stopping = False
        self._store = store
        self._failed = failed or (lambda text: None)
        self._streams: dict[int, asyncio.Event] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._last_run = 0.0
        self._committed = 0
        self._waiting: list[tuple[int, Callable[[StoreError | None], None]]] = []
        self._commit: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, "commit") if store else None
        self._reader = ThreadPoolExecutor(1, "long-requests")
        self._callers = ThreadPoolExecutor(WAITING_CALLS_MAX, "webhooks")
        self._later: set[asyncio.Task[object]] = set()
        self._consecutive_failures = 0
        self._faults: set[str] = set()

    def start(self) -> None:
        """Start ticking. Called on the event loop."""
        self._run_due()

    async def ask(self, request: HttpRequest) -> HttpResponse | WatchResponse:
        """The response to a request, once it may be sent. Raises StoreError if it never may."""
        answer = await self.finish_pending(self.begin(request), request)
        if isinstance(answer, HttpResponse):
            await self.finish(answer)
        else:
            self._streams[answer.number] = event = asyncio.Event()
            event.set()
        return answer

    def begin(self, request: HttpRequest) -> HttpResponse | WatchResponse | PendingRequest:
        """Synchronous part of `ask`: a response that may not be sent before `finish`.

        For a long request, `finish_pending` must be awaited with it.
        """
        return self._run_step(partial(self.cluster.begin, request), request)

    async def finish_pending(
        self, answer: HttpResponse | WatchResponse | PendingRequest, request: HttpRequest
    ) -> HttpResponse | WatchResponse:
        """The response to a long request; its work is done in a thread, one request after the
        other.

        So leases are renewed meanwhile, and others wait for one long request at most.
        """
        loop = asyncio.get_running_loop()
        while isinstance(answer, PendingRequest):
            try:
                executor = self._callers if answer.work.waits else self._reader
                await loop.run_in_executor(executor, answer.work.run)
            # As in `begin`.
            except Exception as fault:  # noqa: BLE001
                return _internal_error_response(
                    self.logged_fault(f"{request.method} {request.path}", fault)
                )
            answer = self._run_step(answer.resume, request)
        return answer

    def _run_step(
        self,
        step: Callable[[float], HttpResponse | WatchResponse | PendingRequest],
        request: HttpRequest,
    ) -> HttpResponse | WatchResponse | PendingRequest:
        try:
            answer = step(self.clock())
        # Any exception concerns this request only: it is logged, and others are answered.
        except Exception as fault:  # noqa: BLE001
            answer = _internal_error_response(
                self.logged_fault(f"{request.method} {request.path}", fault)
            )
        self._schedule_soon()
        return answer

    def is_due(self, answer: HttpResponse) -> bool:
        """True for a response that needs no `finish`."""
        return answer.commit <= self._committed and not answer.after

    async def finish(self, answer: HttpResponse) -> None:
        """Wait until a response may be sent. Raises StoreError if it never may."""
        if answer.commit > self._committed:
            await self._wait_committed(answer.commit)
        if answer.after:
            await asyncio.sleep(answer.after)

    async def read(self, stream: int) -> StreamChunk:
        """Wait for the next bytes of a stream."""
        event = self._streams[stream]
        while True:
            try:
                chunk = self.cluster.read(stream, self.clock())
            # Any exception concerns this stream only: it is logged, and the stream ended.
            except Exception as fault:  # noqa: BLE001
                self.logged_fault("a watch", fault)
                return StreamChunk(b"", end=True)
            if chunk.body or chunk.end or self.stopping:
                return chunk
            event.clear()
            await event.wait()

    def close(self, stream: int) -> None:
        """Close a stream."""
        if self._streams.pop(stream, None) is not None:
            self.cluster.close(stream)

    async def stop(self) -> None:
        """End all streams, commit, and stop ticking."""
        self.stopping = True
        for event in self._streams.values():
            event.set()
        if self._timer:
            self._timer.cancel()
        self._save()
        while self._commit is not None:
            await asyncio.wait([self._commit])
        if self._thread:
            self._thread.shutdown()
        self._reader.shutdown(cancel_futures=True)
        self._callers.shutdown(wait=False, cancel_futures=True)

    def logged_fault(self, doing: str, fault: Exception) -> str:
        """Location of a bug; logged when it occurs for the first time."""
        text = f"{_shortened(repr(fault))} in {_fault_location(fault)}"
        if text not in self._faults and len(self._faults) < LOGGED_FAULTS_MAX:
            self._faults.add(text)
            log_keys(log, logging.ERROR, "Internal error", during=doing, err=text)
        return text

    # Time.

    def _schedule_soon(self) -> None:
        """Schedule a tick shortly; many calls share one."""
        if self._timer is not None and self._due <= self._last_run + TICK_INTERVAL_MIN_S:
            return
        self._schedule_at(
            max(asyncio.get_running_loop().time(), self._last_run + TICK_INTERVAL_MIN_S)
        )

    def _schedule_at(self, due: float) -> None:
        if self.stopping or (self._timer is not None and self._due <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._due = due
        self._timer = asyncio.get_running_loop().call_at(due, self._run_due)

    def _run_due(self) -> None:
        """Do what is due: advance time, commit writes, wake streams."""
        loop = asyncio.get_running_loop()
        self._timer = None
        now = self.clock()
        after = self._tick_cluster(now)
        for fault in self.cluster.faults.take():
            self.logged_fault(f"{fault.component} {fault.about}".rstrip(), fault.error)
        self._save()
        self._wake()
        self._begin_later_work()
        self._last_run = loop.time()
        wait_s = (
            TICK_INTERVAL_MAX_S
            if after is None
            else min(max(after - now, TICK_INTERVAL_MIN_S), TICK_INTERVAL_MAX_S)
        )
        self._schedule_at(self._last_run + wait_s)

    def _begin_later_work(self) -> None:
        """Begin to call the webhooks that the cluster's own writes wait for."""
        work = self.cluster.later_work()
        if work is not None:
            request = HttpRequest("POST", "webhooks of own writes")
            task = asyncio.get_running_loop().create_task(self.finish_pending(work, request))
            self._later.add(task)
            task.add_done_callback(self._later.discard)

    def _tick_cluster(self, now: float) -> float | None:
        """Call `tick`; log an error of it, and stop the cluster after too many."""
        try:
            after = self.cluster.tick(now)
        # Any exception must be logged here: no caller would.
        except Exception as fault:  # noqa: BLE001
            text = self.logged_fault("tick", fault)
            self._consecutive_failures += 1
            if self._consecutive_failures == CONSECUTIVE_FAILURES_MAX:
                self._failed(f"cluster stopped: {text}")
            return now + TICK_INTERVAL_MAX_S
        self._consecutive_failures = 0
        return after

    def _wake(self) -> None:
        for number in self.cluster.woken():
            if event := self._streams.get(number):
                event.set()

    # Commits.

    def _save(self) -> None:
        if self._commit is None and self._store is not None:
            self._commit = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        """Commit the writes so far, then those that arrived meanwhile.

        Requests that have arrived together are handled before the first batch is taken.
        """
        loop = asyncio.get_running_loop()
        assert self._store is not None
        try:
            while (batch := self.cluster.unsaved()) is not None:
                await loop.run_in_executor(self._thread, self._store.save, batch.records)
                self._committed = batch.number
                self.cluster.saved(batch.number)
                self._release_waiters()
                self._wake()
        except StoreError as problem:
            self._fail_commits(problem)
        # After any exception nothing is saved any more: waiting requests must fail.
        except Exception as fault:  # noqa: BLE001
            self._fail_commits(StoreError(f"commit failed: {fault!r}"))
        else:
            self._commit = None

    def _fail_commits(self, problem: StoreError) -> None:
        """Fail all waiting requests, and report the reason: nothing can be committed any more."""
        self._commit = None
        self._store = None
        waiting, self._waiting = self._waiting, []
        for _, done in waiting:
            self._notify(done, problem)
        self._failed(str(problem))

    def when_saved(self, number: int, done: Callable[[StoreError | None], None]) -> None:
        """Call `done` once batch `number` is committed; with the error if it never will be."""
        if self._store is None:
            done(StoreError("the store has failed; nothing can be saved"))
            return
        self._waiting.append((number, done))
        self._save()

    async def _wait_committed(self, number: int) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.when_saved(number, partial(_settle, future))
        await future

    def _release_waiters(self) -> None:
        waiting, self._waiting = self._waiting, []
        for number, done in waiting:
            if number > self._committed:
                self._waiting.append((number, done))
            else:
                self._notify(done, None)

    def _notify(
        self, done: Callable[[StoreError | None], None], problem: StoreError | None
    ) -> None:
        try:
            done(problem)
        # Any exception concerns one connection: commits go on.
        except Exception as fault:  # noqa: BLE001
            self.logged_fault("a response", fault)


def _settle(future: asyncio.Future[None], problem: StoreError | None) -> None:
    if future.done():
        return
    if problem is None:
        future.set_result(None)
    else:
        future.set_exception(problem)


def _shortened(text: str) -> str:
    """Truncated, because it may contain data of a client."""
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}..."


def _fault_location(fault: Exception) -> str:
    """`work.py:12 (take) < life.py:180 (step)`: the innermost frames first."""
    frames = traceback.extract_tb(fault.__traceback__)[-_FRAMES_MAX:]
    return " < ".join(f"{Path(f.filename).name}:{f.lineno} ({f.name})" for f in reversed(frames))


def _internal_error_response(text: str) -> HttpResponse:
    """500, as kube-apiserver answers after a panic."""
    error = internal_error(text)
    return HttpResponse(
        500, (("Content-Type", "application/json"),), msgspec.json.encode(error.status())
    )
