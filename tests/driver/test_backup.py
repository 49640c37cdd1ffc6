"""Backups are made while a cluster writes, and a restored directory has what was acknowledged."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from stowplan.cli.commands.storage.backup_command import command
from stowplan.driver.storage import backup
from stowplan.driver.storage.sqlite_store import COMMITTED, FILE, SqliteStore


def _written(directory: Path, n: int) -> SqliteStore:
    store = SqliteStore(directory)
    for number in range(1, n + 1):
        store.save([(f"configmaps/default/m{number}", number, b'{"n":%d}' % number)])
    return store


def test_a_running_store_is_backed_up_and_restored(tmp_path: Path) -> None:
    store = _written(tmp_path / "data", 20)
    target = tmp_path / "copy"
    assert backup.back_up(tmp_path / "data", target) == 20
    # What is written later is not in the copy, and the store goes on.
    store.save([("configmaps/default/late", 21, b"{}")])
    store.close()
    assert target.stat().st_mode & 0o077 == 0
    assert backup.restore(target, tmp_path / "restored") == 20
    restored = SqliteStore(tmp_path / "restored")
    kept = {key: value for key, _, value in restored.records() if key}
    restored.close()
    assert len(kept) == 20
    assert kept["configmaps/default/m7"] == b'{"n":7}'


def test_what_is_there_is_never_overwritten(tmp_path: Path) -> None:
    _written(tmp_path / "data", 1).close()
    (tmp_path / "copy").write_bytes(b"precious")
    with pytest.raises(backup.BackupError, match="exists"):
        backup.back_up(tmp_path / "data", tmp_path / "copy")
    backup.back_up(tmp_path / "data", tmp_path / "other")
    with pytest.raises(backup.BackupError, match="not empty"):
        backup.restore(tmp_path / "other", tmp_path / "data")
    assert (tmp_path / "copy").read_bytes() == b"precious"


def test_a_damaged_copy_is_not_restored(tmp_path: Path) -> None:
    _written(tmp_path / "data", 5).close()
    backup.back_up(tmp_path / "data", tmp_path / "copy")
    raw = (tmp_path / "copy").read_bytes()
    (tmp_path / "copy").write_bytes(raw.replace(b'{"n":3}', b'{"n":4}'))
    with pytest.raises(backup.BackupError, match="checksum"):
        backup.restore(tmp_path / "copy", tmp_path / "restored")
    assert not (tmp_path / "restored" / FILE).exists()
    assert not (tmp_path / "restored" / COMMITTED).exists()


def test_the_command_reports_what_it_did(tmp_path: Path) -> None:
    _written(tmp_path / "data", 3).close()
    done = CliRunner().invoke(command, [str(tmp_path / "data"), str(tmp_path / "copy")])
    assert (done.exit_code, done.output) == (0, f"{tmp_path / 'copy'} has version 3.\n")
    none = CliRunner().invoke(command, [str(tmp_path / "nosuch"), str(tmp_path / "b")])
    assert none.exit_code != 0
    assert "no data directory" in str(none.exception) + none.output
