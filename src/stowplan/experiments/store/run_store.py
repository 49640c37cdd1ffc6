"""The folder of an experiment: a folder per finished run, a file per failed one.

runs/KEY/       what a run wrote; made as KEY.part and renamed, so that it is whole
failures/KEY.json
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from stowplan.experiments.experiment_stopped import ExperimentStopped
from stowplan.inputs.input_error import InputError
from stowplan.simulation.results.result_files import check_directory

RUNS, FAILURES = "runs", "failures"
PART = ".part"
RUN_FILE, MEASURES_FILE, COLUMNS_FILE = "run.json", "measures.json", "arrived_load.csv"
FAIRNESS_FILE = "fairness.csv"
_LOCK = ".lock"


class ExperimentStoreError(ExperimentStopped):
    """The folder of the experiment cannot be written: a full disk, or no permission."""


_HELD: set[TextIO] = set()
"""Files of the locks that this process holds."""


def _close_inherited() -> None:
    """In a forked worker, which would hold the lock of a client that was killed until it ends."""
    for file in _HELD:
        file.close()
    _HELD.clear()


os.register_at_fork(after_in_child=_close_inherited)


class RunStore:
    """Reads and writes runs below a folder."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def prepare(self) -> None:
        """Create the folders; raises InputError."""
        check_directory(self.folder)
        try:
            (self.folder / RUNS).mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise InputError(str(self.folder), "", _text(problem), "a writable directory") from None

    @contextmanager
    def lock(self, name: str = "") -> Iterator[None]:
        """Hold the lock of a shard while the block runs; raises InputError where it is taken."""
        with self._lock_file(name).open("w", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                got = "another `stowplan experiment` is writing it"
                raise InputError.at(str(self.folder), "", got) from None
            except OSError as problem:
                got = f"unable to lock: {_text(problem)}"
                raise InputError.at(str(self.folder), "", got) from None
            _HELD.add(file)
            try:
                yield
            finally:
                _HELD.discard(file)

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """Wait for other shards that gather results, and keep them out while the block runs."""
        with self._lock_file("gather").open("w", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _lock_file(self, name: str) -> Path:
        return self.folder / f"{_LOCK}-{name}" if name else self.folder / _LOCK

    def run_folder(self, key: str) -> Path:
        """Where the files of a finished run are."""
        return self.folder / RUNS / key

    def is_done(self, key: str) -> bool:
        """True if the run is stored."""
        return (self.run_folder(key) / RUN_FILE).is_file()

    def write_run(self, key: str, files: Mapping[str, bytes]) -> None:
        """Write a run, whole or not at all; raises ExperimentStoreError."""
        place = self.run_folder(key)
        part = place.with_name(key + PART)
        try:
            self._write(part, files)
            part.rename(place)
        except OSError as problem:
            shutil.rmtree(part, ignore_errors=True)
            # Another client may have finished the same run, with the same content.
            if not self.is_done(key):
                raise ExperimentStoreError(f"{self.folder}: {_text(problem)}") from None

    def _write(self, part: Path, files: Mapping[str, bytes]) -> None:
        if part.exists():
            shutil.rmtree(part)
        part.mkdir(parents=True)
        for name, content in files.items():
            (part / name).write_bytes(content)

    def remove_parts(self, keys: Iterable[str]) -> None:
        """Remove what interrupted runs left."""
        for key in keys:
            shutil.rmtree(self.folder / RUNS / (key + PART), ignore_errors=True)

    def failure_file(self, key: str) -> Path:
        """Where the failure of a run is described."""
        return self.folder / FAILURES / f"{key}.json"

    def write_failure(self, key: str, content: bytes) -> None:
        """Describe a failed run; raises ExperimentStoreError."""
        place = self.failure_file(key)
        aside = place.with_name(place.name + PART)
        try:
            place.parent.mkdir(exist_ok=True)
            aside.write_bytes(content)
            aside.rename(place)
        except OSError as problem:
            raise ExperimentStoreError(f"{self.folder}: {_text(problem)}") from None

    def clear_failure(self, key: str) -> None:
        """Remove the description of an earlier failure."""
        self.failure_file(key).unlink(missing_ok=True)


def _text(problem: OSError) -> str:
    return (problem.strerror or str(problem)).lower()
