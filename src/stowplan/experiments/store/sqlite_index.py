"""The SQLite index of an experiment, for queries. It is made anew from the runs at any time."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from stowplan.experiments.store.run_store import PART, ExperimentStoreError

INDEX_FILE = "index.sqlite"
IndexRow = tuple[str | int | float | None, ...]
_TABLES = """
CREATE TABLE runs(key TEXT PRIMARY KEY, policy TEXT, workload TEXT, options TEXT, seed INTEGER,
                  status TEXT, folder TEXT);
CREATE TABLE measures(key TEXT, measure TEXT, value REAL, PRIMARY KEY(key, measure)) WITHOUT ROWID;
"""


def write_index(folder: Path, runs: Iterable[IndexRow], measures: Iterable[IndexRow]) -> None:
    """Replace the index. runs, measures: rows of the tables. Raises ExperimentStoreError."""
    place = folder / INDEX_FILE
    aside = folder / f".{INDEX_FILE}.{os.getpid()}{PART}"
    try:
        aside.unlink(missing_ok=True)
        with closing(sqlite3.connect(aside)) as database, database:
            # A crash leaves the file aside, which nothing reads.
            database.execute("PRAGMA journal_mode = OFF")
            database.execute("PRAGMA synchronous = OFF")
            database.executescript(_TABLES)
            database.executemany("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?)", runs)
            database.executemany("INSERT INTO measures VALUES (?, ?, ?)", measures)
        aside.replace(place)
    except (OSError, sqlite3.Error) as problem:
        aside.unlink(missing_ok=True)
        raise ExperimentStoreError(f"{place}: {problem}") from None
