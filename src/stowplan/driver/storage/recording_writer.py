"""Recording writer: the calls of a scheduler, appended to files by a thread of its own.

`handle` only adds a call to a list. The thread encodes and compresses calls in batches and appends
each batch as one write of one frame. It shares the interpreter's lock and the cores with the
scheduler, so it lets a burst of pods be decided first: it writes every `FLUSH_S`, or when
`DUE_BATCHES` wait. A kill -9 loses at most what was decided since it wrote last. A file that
reaches its greatest size is renamed to FILE.1, the older ones to FILE.2 and so on, and the next one
begins with a snapshot. Files are synchronised with the disk at their end only: a power failure may
lose more.

A failed write ends the recording, never the scheduler.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from pathlib import Path
from queue import Empty, SimpleQueue

import msgspec

from stowplan.assembly.deciders import Deciders
from stowplan.driver.clocks import monotonic_ns
from stowplan.driver.logs import log_keys
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event
from stowplan.recording.call_codec import Call, encode_calls
from stowplan.recording.cluster_snapshot import ClusterSnapshot, encode_snapshot, take_snapshot
from stowplan.recording.frames import (
    CALLS,
    END,
    HEADER,
    MAGIC,
    SNAPSHOT,
    RecordingError,
    encode_frame,
)
from stowplan.recording.recording_header import (
    SERVER,
    RecordedPlugin,
    RecordingHeader,
    SchedulerSetup,
    encode_header,
    header_of,
)
from stowplan.scheduler import Scheduler

log = logging.getLogger("stowplan.recording")

MIB = 2**20
SIZE_MAX, KEPT = 256 * MIB, 4
"""Default size of a file in bytes, and number of older files."""
BATCH = 8192
"""Messages per frame."""
BACKLOG_MAX = 128
"""Frames that wait for a slow disk; with more the recording of a live scheduler ends."""
DUE_BATCHES = 8
"""Frames that wait until they are written before `FLUSH_S` has passed."""
FLUSH_S = 0.4


class RecordingOptions(msgspec.Struct, frozen=True):
    """path: of the newest file. size_max: of a file, in bytes. kept: number of older files. waits:
    whether the scheduler waits for a slow disk; otherwise the recording ends. command, plugins: for
    the header of a server's recording."""

    path: Path
    size_max: int = SIZE_MAX
    kept: int = KEPT
    waits: bool = False
    command: str = "run"
    plugins: tuple[RecordedPlugin, ...] = ()


class RecordingWriter:
    """Records one scheduler at a time.

    n_calls, n_bytes: written so far. failure: why the recording ended, "" for none.
    """

    def __init__(self, options: RecordingOptions) -> None:
        """Raises RecordingError if the file cannot be created."""
        self.options = options
        self.n_calls = self.n_bytes = 0
        self.failure = ""
        self._scheduler: Scheduler | None = None
        self._header: RecordingHeader | None = None
        self._file = -1
        self._size = 0
        self._lock = threading.Lock()
        self._calls: list[Call] = []
        self._n_messages = 0
        self._batches: SimpleQueue[list[Call] | ClusterSnapshot | None] = SimpleQueue()
        # Set to write before `FLUSH_S` has passed.
        self._is_due = threading.Event()
        # Set once per file, when a snapshot was asked for.
        self._is_full = False
        self._wants_snapshot = False
        self._thread: threading.Thread | None = None
        try:
            options.path.parent.mkdir(parents=True, exist_ok=True)
            self._open_next()
        except OSError as problem:
            what = (problem.strerror or str(problem)).lower()
            raise RecordingError(f"unable to record to {options.path}: {what}") from None

    def attach(self, deciders: Deciders, scheduler: Scheduler, setup: SchedulerSetup) -> None:
        """Record a new scheduler, before its first call, as a recording of its own."""
        if self._thread is not None:
            self.close()
            self._open_next()
        self._scheduler = scheduler
        self._wants_snapshot = False
        self._header = header_of(deciders, scheduler, setup, uuid.uuid4().hex)
        self.failure = ""
        self._begin_file(None)
        self._thread = threading.Thread(target=self._run, name="recording", daemon=True)
        self._thread.start()
        scheduler.on_handled = self._handled

    def attach_server(
        self, deciders: Deciders, scheduler: Scheduler, seed: int | None, engine: str
    ) -> None:
        """Record the scheduler of a server, from now on."""
        wall_ns, now_ns = time.time_ns(), monotonic_ns()
        options = self.options
        setup = SchedulerSetup(
            options.command, seed, SERVER, engine, options.plugins, wall_ns, now_ns
        )
        self.attach(deciders, scheduler, setup)

    def configuration_changed(self, deciders: Deciders) -> None:
        """The scheduler decides by these deciders now: later files have their configuration."""
        header, scheduler = self._header, self._scheduler
        if header is not None and scheduler is not None:
            changed = header_of(deciders, scheduler, header.setup, header.recording)
            self._header = msgspec.structs.replace(changed, part=header.part)

    def close(self) -> None:
        """Write what is left and end the recording."""
        if self._scheduler is not None:
            self._scheduler.on_handled = None
        if self._thread is not None:
            self._hand_over()
            self._batches.put(None)
            self._is_due.set()
            self._thread.join()
            self._thread = None
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    # On the thread of the scheduler.

    def _handled(
        self, events: list[Event], now: int, heads_max: int | None, effects: list[Effect]
    ) -> None:
        assert self._scheduler is not None
        call = Call(now, heads_max, events, effects, self._scheduler.bind_runs)
        with self._lock:
            self._calls.append(call)
            self._n_messages += len(events) + len(effects) + 1
            is_full = self._n_messages >= BATCH
        if self.failure:
            self._stop_recording()
        elif is_full:
            self._hand_over()
            self._limit_backlog()
        if self._wants_snapshot and self._scheduler is not None:
            # Between two calls, when the state is consistent.
            self._wants_snapshot = False
            self._hand_over()
            self._batches.put(take_snapshot(self._scheduler, now))

    def _stop_recording(self) -> None:
        if self._scheduler is not None:
            self._scheduler.on_handled = None
        self._calls = []

    def _hand_over(self) -> None:
        # Both threads do this: under the lock, so that batches keep their order.
        with self._lock:
            calls, self._calls, self._n_messages = self._calls, [], 0
            if calls:
                self._batches.put(calls)

    def _limit_backlog(self) -> None:
        n_batches = self._batches.qsize()
        if n_batches >= DUE_BATCHES:
            self._is_due.set()
        if n_batches <= BACKLOG_MAX:
            return
        if not self.options.waits:
            self._fail("the disk is too slow")
        while self._batches.qsize() > BACKLOG_MAX and not self.failure:
            time.sleep(0.01)

    # On the thread of the recording.

    def _run(self) -> None:
        while True:
            batch = self._next_batch()
            if batch is None:
                break
            if self.failure:
                continue
            try:
                if isinstance(batch, ClusterSnapshot):
                    self._rotate(batch)
                else:
                    self._append(CALLS, encode_calls(batch))
                    self.n_calls += len(batch)
                    if self._size >= self.options.size_max and not self._is_full:
                        self._is_full = self._wants_snapshot = True
            except (OSError, TypeError, ValueError, OverflowError, msgspec.MsgspecError) as problem:
                self._fail(getattr(problem, "strerror", None) or str(problem))
        if not self.failure:
            try:
                self._append(END, b"")
                os.fsync(self._file)
            except OSError as problem:
                self._fail(problem.strerror or str(problem))

    def _next_batch(self) -> list[Call] | ClusterSnapshot | None:
        """The next batch; None at the end. Waits when all are written."""
        while True:
            try:
                return self._batches.get_nowait()
            except Empty:
                self._is_due.wait(FLUSH_S)
                self._is_due.clear()
                self._hand_over()

    def _append(self, kind: bytes, payload: bytes) -> None:
        """Append a frame; nothing of it stays if it fails. Raises OSError."""
        frame = encode_frame(kind, payload)
        written = 0
        try:
            while written < len(frame):
                written += os.write(self._file, frame[written:])
        except OSError:
            os.ftruncate(self._file, self._size)
            raise
        self._size += len(frame)
        self.n_bytes += len(frame)

    def _begin_file(self, snapshot: ClusterSnapshot | None) -> None:
        assert self._header is not None
        self._append(HEADER, encode_header(self._header))
        if snapshot is not None:
            self._append(SNAPSHOT, encode_snapshot(snapshot))

    def _rotate(self, snapshot: ClusterSnapshot) -> None:
        assert self._header is not None
        os.fsync(self._file)
        os.close(self._file)
        self._open_next()
        self._header = msgspec.structs.replace(self._header, part=self._header.part + 1)
        self._begin_file(snapshot)

    def _open_next(self) -> None:
        """Rename the files that are there, and create an empty one. Raises OSError."""
        path, kept = self.options.path, self.options.kept
        if path.exists():
            for number in range(kept, 0, -1):
                former = path if number == 1 else path.with_name(f"{path.name}.{number - 1}")
                if former.exists():
                    former.replace(path.with_name(f"{path.name}.{number}"))
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        os.write(self._file, MAGIC)
        self._is_full = False
        self._size = len(MAGIC)

    def _fail(self, why: str) -> None:
        if not self.failure:
            self.failure = why
            keys = {"file": str(self.options.path), "err": why, "calls": self.n_calls}
            log_keys(log, logging.ERROR, "Recording stopped; scheduling goes on", **keys)
