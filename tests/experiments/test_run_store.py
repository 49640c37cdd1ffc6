"""The lock of an experiment's folder."""

from __future__ import annotations

from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from stowplan.experiments.store import run_store
from stowplan.experiments.store.run_store import RunStore
from stowplan.inputs.input_error import InputError


def live_on(pipe: Connection[str, str]) -> None:
    pipe.send("begun")
    pipe.recv()


def locked_after_a_fork(folder: Path) -> bool:
    """Whether the lock is taken while a process lives that was forked under it."""
    store = RunStore(folder)
    store.prepare()
    context = get_context("fork")
    here, there = context.Pipe()
    with store.lock():
        worker = context.Process(target=live_on, args=(there,))
        worker.start()
        assert here.recv() == "begun"
    try:
        with store.lock():
            return False
    except InputError:
        return True
    finally:
        here.send("end")
        worker.join()


def test_a_forked_worker_does_not_hold_the_lock(tmp_path: Path) -> None:
    """A client that is killed leaves its workers for a moment: the next one need not wait."""
    assert not locked_after_a_fork(tmp_path)


class _Forgotten(set[object]):
    def add(self, element: object) -> None:
        """Not kept."""


def test_one_that_kept_the_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_store, "_HELD", _Forgotten())
    assert locked_after_a_fork(tmp_path)


def test_two_at_a_time_are_refused(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    store.prepare()
    with store.lock(), pytest.raises(InputError, match="another"), store.lock():
        pytest.fail("not reached")
    with store.lock("1"), store.lock("2"):
        pass
