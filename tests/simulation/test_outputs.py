"""Result files are written atomically."""

from __future__ import annotations

from pathlib import Path

import pytest

from stowplan.inputs.input_error import InputError
from stowplan.simulation.results.result_files import check_directory, write_files


def test_files_may_be_in_folders(tmp_path: Path) -> None:
    write_files(tmp_path / "out", {"summary.json": b"1", "seed-1/summary.json": b"2"})
    assert (tmp_path / "out" / "summary.json").read_bytes() == b"1"
    assert (tmp_path / "out" / "seed-1" / "summary.json").read_bytes() == b"2"
    assert len([path for path in (tmp_path / "out").rglob("*") if path.is_file()]) == 2


def test_checking_leaves_nothing_behind(tmp_path: Path) -> None:
    check_directory(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "there").mkdir()
    check_directory(tmp_path / "there")
    assert list(tmp_path.rglob("*")) == [tmp_path / "there"]


def test_folders_of_a_failed_write_go_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "old").mkdir()

    def full(path: Path, content: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InputError, match="no space left"):
        write_files(tmp_path / "old" / "new", {"x/a": b"", "b": b""})
    assert list(tmp_path.rglob("*")) == [tmp_path / "old"]
