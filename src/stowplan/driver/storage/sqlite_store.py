"""SQLite store of a cluster's objects: what was committed survives a kill -9.

The file is in write-ahead mode and each commit waits for the disk (`synchronous=FULL`), so that a
power failure loses no acknowledged write either, as far as the disk is honest; many requests share
the cost of a commit. A note beside the file holds the last committed version. It is written after
the commit and shows, at the next start, whether the end of the journal is missing, which SQLite
itself would ignore silently. Every row has a checksum. Files that are removed or replaced while the
store is open are noticed at the next commit.

Damaged files are never repaired or reset here: `StoreError` says what was found.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import sqlite3
import stat
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from stowplan.driver.logs import log_keys

FILE = "cluster.sqlite"
COMMITTED = "committed"
LOCK = "lock"

log = logging.getLogger("stowplan.cluster")

_APPLICATION = 0x53746F77  # "Stow"
_FORMAT = 2
# Objects by row, with an index of keys: as entries of the index itself they would take a page each.
_SCHEMA = """
CREATE TABLE objects (
    key TEXT PRIMARY KEY, version INTEGER NOT NULL, value BLOB NOT NULL, checksum INTEGER NOT NULL
);
CREATE TABLE facts (
    name TEXT PRIMARY KEY, value INTEGER NOT NULL, checksum INTEGER NOT NULL
) WITHOUT ROWID;
"""
_ROWS = "SELECT key, version, value, checksum FROM objects ORDER BY key"
_NOTE_BYTES = 12

_BUNDLES = (512, 128, 32, *range(16, 0, -1))
_SETTLED_NS = 100_000_000
"""A directory that has not changed for so long shows the next change in its time."""

Record = tuple[str, int, bytes | None]
Mark = tuple[int, int]
"""Identity of a file: device and inode."""
Row = tuple[str, int, bytes, int]
T = TypeVar("T")


class StoreError(Exception):
    """The data directory cannot be used; the text says what, where and what to do."""


class SqliteStore:
    """The open store of a directory, locked by this process until `close`.

    Only one thread at a time may use it, not necessarily the one that opened it.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock = _locked(directory)
        self._committed: int | None = None
        self._file: sqlite3.Connection | None = None
        self._marks: dict[str, Mark] = {}
        self._settled: tuple[Mark, int] | None = None
        try:
            path, note = directory / FILE, directory / COMMITTED
            if not note.exists() and path.exists() and path.stat().st_size > 0:
                _checked(path, 0)
                # Created first: without it the acknowledged version is unknown.
                raise _damaged(path, f"{COMMITTED} beside it is missing")
            self._committed = _opened(note)
            self.version = _checked(path, _acknowledged_version(self._committed, path))
            self._marks = _marks_of(directory, FILE, COMMITTED)
        except BaseException:
            self.close()
            raise

    def records(self) -> Iterator[Record]:
        """All stored objects, then a last record for the version alone. Raises StoreError."""
        path = self.directory / FILE
        # Nothing is written before all is read, so that a damaged file stays as it is.
        file = self._file or _read_only(path)
        try:
            for key, version, value, checksum in file.execute(_ROWS):
                if not isinstance(value, bytes) or _checksum(key, version, value) != checksum:
                    raise _damaged(path, f"the checksum of {key!r} is wrong")
                yield key, version, value
        except sqlite3.DatabaseError as problem:
            raise _damaged(path, str(problem)) from None
        finally:
            if file is not self._file:
                file.close()
        yield "", self.version, None

    def damaged(self, what: str) -> StoreError:
        """The error for a file in which a caller has found damage."""
        return _damaged(self.directory / FILE, what)

    def save(self, records: Iterable[Record]) -> None:
        """Commit changes, in order and atomically; returns when they are on disk."""
        latest: dict[str, tuple[int, bytes | None]] = {}
        version = self.version
        for key, at, value in records:
            latest[key] = (at, value)
            version = max(version, at)
        rows = [
            (key, at, value, _checksum(key, at, value))
            for key, (at, value) in latest.items()
            if value is not None
        ]
        gone = [key for key, (_, value) in latest.items() if value is None]
        try:
            self._commit(rows, gone, version)
        except (sqlite3.Error, OSError) as problem:
            where = self.directory / FILE
            raise StoreError(
                f"{where}: could not save version {version}: {problem}; "
                "what was acknowledged before is kept"
            ) from None
        self.version = version

    def _commit(self, rows: list[Row], gone: list[str], version: int) -> None:
        """Raises sqlite3.Error, OSError, StoreError."""
        self._check_place()
        is_first = self._file is None
        if self._file is None:
            self._file = _connected(self.directory / FILE)
        with self._file as file:
            file.execute("BEGIN IMMEDIATE")
            for some in _row_batches(gone):
                marks = ", ".join("?" * len(some))
                file.execute(f"DELETE FROM objects WHERE key IN ({marks})", some)
            for each in _row_batches(rows):
                marks = ", ".join(("(?, ?, ?, ?)",) * len(each))
                flat = [value for row in each for value in row]
                file.execute(f"REPLACE INTO objects VALUES {marks}", flat)
            file.execute("UPDATE facts SET value = ?, checksum = ?", _fact(version))
        assert self._committed is not None
        os.pwrite(self._committed, note_of(version), 0)
        if is_first:
            self._marks = _marks_of(self.directory, FILE, f"{FILE}-wal", COMMITTED)

    def _check_place(self) -> None:
        """Raises StoreError if the files were replaced, so that a commit would be lost.

        The files are looked at if the directory has changed since, or only lately.
        """
        seen = _state_of(self.directory)
        if seen is not None and seen == self._settled:
            return
        for name, mark in self._marks.items():
            path = self.directory / name
            if _mark_of(path) != mark:
                raise StoreError(
                    f"{path}: removed or replaced while the cluster ran, after version "
                    f"{self.version}; changes can no longer be saved. Restore a copy of the whole "
                    "directory, or use another --data"
                )
        is_settled = seen is not None and time.time_ns() - seen[1] > _SETTLED_NS
        self._settled = seen if self._marks and is_settled else None

    def close(self) -> None:
        """Checkpoint the journal into the file and unlock the directory."""
        try:
            if self._file is not None:
                with contextlib.closing(self._file) as file:
                    file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error as problem:
            where = self.directory / FILE
            raise StoreError(
                f"{where}: unable to checkpoint {FILE}-wal: {problem}; no change is lost, the "
                "next start reads both files"
            ) from None
        finally:
            if self._committed is not None:
                os.close(self._committed)
            os.close(self._lock)


def _row_batches(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    """The rows in few batches of few different lengths.

    A statement handles one batch: between two statements this thread must wait for the event loop's
    thread to release the GIL, and SQLite caches a statement per length.
    """
    at = 0
    for length in _BUNDLES:
        while len(rows) - at >= length:
            yield rows[at : at + length]
            at += length


def _locked(directory: Path) -> int:
    """The lock file, held until it is closed. Raises StoreError if another process holds it."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_mode(directory)
        lock = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as problem:
        raise StoreError(f"unable to use data directory {directory}: {problem.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as problem:
        taken = _taken(directory, lock)
        os.close(lock)
        if problem.errno not in (errno.EACCES, errno.EAGAIN):
            raise StoreError(f"unable to lock {directory}: {problem.strerror}") from None
        raise taken from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, str(os.getpid()).encode("ascii"), 0)
    return lock


def _taken(directory: Path, lock: int) -> StoreError:
    holder = os.pread(lock, 32, 0).decode("ascii", "replace").strip() or "unknown"
    return StoreError(
        f"{directory}: in use by another process (number {holder}); "
        "a data directory serves one cluster at a time"
    )


def raise_if_locked(directory: Path) -> None:
    """Raises StoreError if another process uses a data directory; OSError."""
    path = directory / LOCK
    if not path.exists():
        return
    lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _taken(directory, lock) from None
    finally:
        os.close(lock)


def _check_mode(directory: Path) -> None:
    """Raises StoreError for a directory in which every user may replace files, as sshd refuses such
    homes; warns of one in which the group may. Readable ones are no harm: the files are not. Raises
    OSError."""
    mode = stat.S_IMODE(directory.stat().st_mode)
    if mode & stat.S_IWOTH:
        raise StoreError(
            f"{directory}: permissions {mode:04o} are too open: every user of this machine may "
            "replace the data and the tokens in it; `chmod 700` it"
        )
    if mode & stat.S_IWGRP:
        log_keys(
            log,
            logging.WARNING,
            "Data directory is group-writable; its group can replace data and tokens",
            path=str(directory),
            mode=f"{mode:04o}",
        )


def _opened(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as problem:
        raise StoreError(f"unable to open {path}: {problem.strerror}") from None


def _acknowledged_version(note: int, path: Path) -> int:
    """The last acknowledged version. Raises StoreError."""
    found = os.pread(note, _NOTE_BYTES + 1, 0)
    if not found and (not path.exists() or path.stat().st_size == 0):
        # Written before the file exists, so that the file is never without it.
        os.pwrite(note, note_of(0), 0)
        return 0
    if len(found) != _NOTE_BYTES:
        more = "more" if len(found) > _NOTE_BYTES else f"{len(found)}"
        text = f"{COMMITTED} beside it has {more} bytes: expected {_NOTE_BYTES}"
        raise _damaged(path, text)
    version = int.from_bytes(found[:8], "big")
    if found != note_of(version):
        raise _damaged(path, f"the checksum of {COMMITTED} beside it is wrong")
    return version


def note_of(version: int) -> bytes:
    """Content of the note: the last version and its checksum."""
    encoded = version.to_bytes(8, "big")
    return encoded + zlib.crc32(encoded).to_bytes(4, "big")


def _mark_of(path: Path) -> Mark | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _state_of(directory: Path) -> tuple[Mark, int] | None:
    """Identity of a directory and when an entry of it last changed, in nanoseconds."""
    try:
        found = directory.stat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino), found.st_mtime_ns


def _marks_of(directory: Path, *names: str) -> dict[str, Mark]:
    """Identities of the files that exist now."""
    found = {name: _mark_of(directory / name) for name in names}
    return {name: mark for name, mark in found.items() if mark is not None}


def _read_only(path: Path) -> sqlite3.Connection:
    """A connection that does not change the file or its journal."""
    where = f"{path.absolute().as_uri()}?mode=ro"
    return sqlite3.connect(where, uri=True, isolation_level=None, check_same_thread=False)


def _connected(path: Path) -> sqlite3.Connection:
    file = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        file.execute("PRAGMA journal_mode=WAL")
        file.execute("PRAGMA synchronous=FULL")
        file.execute("PRAGMA wal_autocheckpoint=4000")
    except sqlite3.DatabaseError as problem:
        file.close()
        raise _damaged(path, str(problem)) from None
    return file


def _checked(path: Path, acknowledged: int) -> int:
    """The version of a file that was found intact and ours; creates a new file.

    acknowledged: the lowest version it must have. Raises StoreError.
    """
    if acknowledged and not path.exists():
        raise _damaged(path, "it is missing, but writes were acknowledged here before")
    # SQLite would create the file world-readable; it may hold secrets.
    os.close(_opened(path))
    if path.stat().st_size == 0:
        if acknowledged:
            raise _damaged(path, "it is empty, but writes were acknowledged here before")
        _create_file(path)
        return 0
    try:
        file = _read_only(path)
        try:
            known = _checked_version(file, path)
        finally:
            file.close()
    except sqlite3.DatabaseError as problem:
        raise _damaged(path, str(problem)) from None
    if known < acknowledged:
        raise _damaged(
            path,
            f"it ends with version {known}, but version {acknowledged} was acknowledged; "
            f"the journal beside it ({FILE}-wal) is missing or damaged",
        )
    return known


def checked_copy(path: Path) -> int:
    """The version of a copy of a store, all of whose rows are intact. Raises StoreError."""
    if not path.is_file():
        raise StoreError(f"{path}: no such file")
    try:
        file = _read_only(path)
        with contextlib.closing(file):
            version = _checked_version(file, path)
            for key, at, value, checksum in file.execute(_ROWS):
                if not isinstance(value, bytes) or _checksum(key, at, value) != checksum:
                    raise _damaged(path, f"the checksum of {key!r} is wrong")
    except sqlite3.DatabaseError as problem:
        raise _damaged(path, str(problem)) from None
    return version


def _create_file(path: Path) -> None:
    file = _connected(path)
    try:
        file.executescript(
            f"BEGIN; {_SCHEMA} INSERT INTO facts VALUES ('version', 0, {_fact(0)[1]});"
            f"PRAGMA application_id={_APPLICATION};"
            f"PRAGMA user_version={_FORMAT}; COMMIT;"
        )
    except sqlite3.Error as problem:
        raise StoreError(f"unable to write {path}: {problem}") from None
    finally:
        file.close()


def _checked_version(file: sqlite3.Connection, path: Path) -> int:
    """The version that the file states. Raises StoreError, sqlite3.DatabaseError."""
    if file.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
        raise _damaged(path, "it has no tables")
    application = file.execute("PRAGMA application_id").fetchone()[0]
    written = file.execute("PRAGMA user_version").fetchone()[0]
    if application != _APPLICATION:
        raise StoreError(f"{path}: a SQLite file, but not one of Stowplan; use another directory")
    if written != _FORMAT:
        raise StoreError(f"{path}: unsupported format {written}: expected {_FORMAT}")
    found = [row[0] for row in file.execute("PRAGMA integrity_check(3)")]
    if found != ["ok"]:
        raise _damaged(path, "; ".join(" ".join(text.split()) for text in found))
    facts = file.execute("SELECT name, value, checksum FROM facts").fetchall()
    if len(facts) != 1 or facts[0][0] != "version":
        raise _damaged(path, "its version is missing")
    _, version, checksum = facts[0]
    if not isinstance(version, int):
        raise _damaged(path, f"its version is invalid: {version!r}")
    if _fact(version)[1] != checksum:
        raise _damaged(path, "the checksum of its version is wrong")
    return version


def _damaged(path: Path, what: str) -> StoreError:
    return StoreError(
        f"{path}: damaged: {what}. The file was not changed: restore a copy of the whole "
        "directory, or use another --data"
    )


def _checksum(key: str, version: int, value: bytes) -> int:
    return zlib.crc32(value, zlib.crc32(f"{key}\0{version}".encode()))


def _fact(version: int) -> tuple[int, int]:
    """Row of the version: its value and a checksum."""
    return version, _checksum("version", version, b"")
