"""Recordings as files: the newest under its name, the older ones as FILE.1, FILE.2, ..."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from stowplan.objects.encoding.duration import SECOND
from stowplan.recording.call_codec import RecordedCall, decode_calls
from stowplan.recording.cluster_snapshot import ClusterSnapshot, decode_snapshot
from stowplan.recording.frames import (
    CALLS,
    END,
    HEADER,
    SNAPSHOT,
    Frame,
    RecordingError,
    TornTail,
    damaged,
    read_frames,
)
from stowplan.recording.recording_header import RecordingHeader, decode_header

_OFFSET = re.compile(r"\+([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_UNITS = {"ms": 10**6, "s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND, "d": 86_400 * SECOND}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIME = "an offset from the start such as +90s, or a time such as 2026-01-31T12:00:00Z"


class RecordingFile(msgspec.Struct, frozen=True):
    """One file. snapshot: None in the first file of a recording. torn: its incomplete end, if any.
    is_closed: the recording ended here in an orderly way."""

    source: str
    header: RecordingHeader
    snapshot: ClusterSnapshot | None
    frames: tuple[Frame, ...]
    torn: TornTail | None
    is_closed: bool

    def calls(self) -> Iterator[RecordedCall]:
        """The calls of the file; raises RecordingError."""
        for frame in self.frames:
            try:
                yield from decode_calls(frame.payload)
            except RecordingError as problem:
                raise damaged(self.source, frame.at, str(problem)) from None


class Recording(msgspec.Struct, frozen=True):
    """The files of a recording, oldest first.

    notes: what is not read, and why. The first file may be a later part, whose snapshot then is the
    beginning.
    """

    files: tuple[RecordingFile, ...]
    notes: tuple[str, ...] = ()

    @property
    def header(self) -> RecordingHeader:
        """Header of the oldest file."""
        return self.files[0].header

    @property
    def source(self) -> str:
        """Name of the newest file."""
        return self.files[-1].source

    @property
    def snapshot(self) -> ClusterSnapshot | None:
        """What the recording begins with; None: with the start of the scheduler."""
        return self.files[0].snapshot

    def calls(self, until: int | None = None) -> Iterator[RecordedCall]:
        """The calls in order, up to a time of the scheduler, inclusive; raises RecordingError."""
        for file in self.files:
            for call in file.calls():
                if until is not None and call.now > until:
                    return
                yield call

    @property
    def began(self) -> int:
        """Scheduler's time of the beginning: of its snapshot, else of the first call."""
        if self.snapshot is not None:
            return self.snapshot.now
        return next((call.now for call in self.calls()), self.header.setup.now_ns)

    def wall_time(self, now: int) -> datetime:
        """A time of the scheduler as UTC; that of a simulation begins in 1970."""
        setup = self.header.setup
        return _EPOCH + timedelta(microseconds=(setup.wall_ns + now - setup.now_ns) // 1000)

    def time(self, text: str) -> int:
        """A time of the scheduler from an offset or RFC 3339; raises RecordingError."""
        offset = _OFFSET.fullmatch(text.strip())
        if offset is not None:
            return self.began + round(float(offset[1]) * _UNITS[offset[2]])
        try:
            found = datetime.fromisoformat(text.strip())
        except ValueError:
            found = None
        if found is None or found.tzinfo is None:
            raise RecordingError(f"time {text!r}: expected {TIME}")
        setup = self.header.setup
        micros = (found - _EPOCH) // timedelta(microseconds=1)
        at = micros * 1000 - setup.wall_ns + setup.now_ns
        if at < self.began:
            begins = self.wall_time(self.began).isoformat()
            raise RecordingError(f"time {text!r}: before the recording, which begins at {begins}")
        return at


def open_recording(path: str | Path) -> Recording:
    """Read a recording with the older files beside it. Raises RecordingError."""
    newest = _read_file(Path(path))
    files, notes = [newest], []
    if newest.torn is not None:
        notes.append(_torn_text(newest))
    base, number = _numbered(Path(path))
    while files[0].header.part > 0:
        number += 1
        older = base.with_name(f"{base.name}.{number}")
        if not older.exists():
            break
        file = _read_file(older)
        follows = file.header.part == files[0].header.part - 1
        if file.header.recording != newest.header.recording or not follows:
            break
        if file.torn is not None:
            raise damaged(older.name, file.torn.at, "its end is missing, and a later file follows")
        files.insert(0, file)
    if files[0].header.part > 0:
        n_missing = files[0].header.part
        text = "older file is" if n_missing == 1 else "older files are"
        notes.append(f"{n_missing} {text} not there: begins with the snapshot of {files[0].source}")
    return Recording(tuple(files), tuple(notes))


def _numbered(path: Path) -> tuple[Path, int]:
    """The name without the number of a rotated file, and the number, 0 for none."""
    stem, _, number = path.name.rpartition(".")
    if stem and number.isdecimal():
        return path.with_name(stem), int(number)
    return path, 0


def _torn_text(file: RecordingFile) -> str:
    assert file.torn is not None
    text = (
        f"{file.source}: the last {file.torn.n_bytes:,} bytes are an incomplete frame and left out"
    )
    return f"{text}: the process was killed, or is writing"


def _read_file(path: Path) -> RecordingFile:
    source = str(path)
    try:
        data = path.read_bytes()
    except OSError as problem:
        raise RecordingError(f"{source}: {(problem.strerror or str(problem)).lower()}") from None
    frames: list[Frame] = []
    torn: TornTail | None = None
    for one in read_frames(data, source):
        if isinstance(one, TornTail):
            torn = one
        else:
            frames.append(one)
    if not frames:
        raise RecordingError(f"{source}: no whole frame: the recording was cut at its beginning")
    if frames[0].kind != HEADER:
        raise damaged(source, frames[0].at, "does not begin with a header")
    header = decode_header(frames[0].payload, source)
    snapshot = None
    if len(frames) > 1 and frames[1].kind == SNAPSHOT:
        snapshot = decode_snapshot(frames[1].payload, source)
    elif header.part > 0:
        raise RecordingError(f"{source}: no snapshot: the file was cut at its beginning")
    calls = tuple(frame for frame in frames if frame.kind == CALLS)
    is_closed = frames[-1].kind == END
    return RecordingFile(source, header, snapshot, calls, torn, is_closed)
