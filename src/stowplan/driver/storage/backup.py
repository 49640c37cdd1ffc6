"""Backups: a copy of a data directory while its cluster runs, and a new directory from a copy.

A backup is one SQLite file. It is read in one transaction, so it has a state that the cluster was
in, and every write that was acknowledged before it began.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from stowplan.driver.storage.sqlite_store import (
    COMMITTED,
    FILE,
    StoreError,
    checked_copy,
    note_of,
)


class BackupError(Exception):
    """A backup that cannot be made or restored; the text is for the user."""


def back_up(directory: Path, target: Path) -> int:
    """Copy the objects of a data directory to a new file; their version. Raises BackupError."""
    source = directory / FILE
    if not source.is_file():
        raise BackupError(f"{directory}: no data directory of a cluster: {FILE} is missing")
    if target.exists():
        raise BackupError(f"{target} exists; use another file")
    part = target.with_name(f"{target.name}.part")
    try:
        # Secrets are in it.
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
        uri = f"{source.absolute().as_uri()}?mode=ro"
        with (
            closing(sqlite3.connect(uri, uri=True)) as read,
            closing(sqlite3.connect(part)) as made,
        ):
            read.backup(made)
            made.execute("PRAGMA journal_mode=DELETE")
        version = checked_copy(part)
        part.replace(target)
    except (OSError, sqlite3.Error, StoreError) as problem:
        part.unlink(missing_ok=True)
        raise BackupError(f"unable to back up {directory}: {problem}") from None
    return version


def restore(source: Path, directory: Path) -> int:
    """Make a data directory of a backup; its version. Raises BackupError."""
    if directory.exists() and any(directory.iterdir()):
        raise BackupError(f"{directory} is not empty; use another directory")
    try:
        version = checked_copy(source)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in (FILE, COMMITTED):
            os.close(os.open(directory / name, os.O_WRONLY | os.O_CREAT, 0o600))
        shutil.copyfile(source, directory / FILE)
        (directory / COMMITTED).write_bytes(note_of(version))
    except (OSError, StoreError) as problem:
        raise BackupError(f"unable to restore {source}: {problem}") from None
    return version
