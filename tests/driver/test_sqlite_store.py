"""The store keeps what it has acknowledged, and refuses a file that it cannot trust."""

import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.driver.storage import sqlite_store
from stowplan.driver.storage.sqlite_store import COMMITTED, FILE, SqliteStore, StoreError
from tests.soak import examples

Found = dict[str, tuple[int, bytes]]


def contents(store: SqliteStore) -> Found:
    *records, (key, version, value) = store.records()
    assert (key, version, value) == ("", store.version, None)
    return {key: (at, data) for key, at, data in records if data is not None}


def filled(directory: Path, count: int = 40) -> Found:
    """A store of `count` objects that was closed; what it holds."""
    store = SqliteStore(directory)
    store.save([(f"pods/ns/p{i}", i + 1, b"{%d}" % i * 50) for i in range(count)])
    found = contents(store)
    store.close()
    return found


def test_a_new_store_is_empty_and_persists(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "data")
    assert contents(store) == {}
    store.save([("a", 3, b"1"), ("b", 4, b"2"), ("a", 5, b"3"), ("b", 6, None)])
    assert contents(store) == {"a": (5, b"3")}
    store.close()
    again = SqliteStore(tmp_path / "data")
    assert (again.version, contents(again)) == (6, {"a": (5, b"3")})
    again.save([("b", 7, b"4")])
    assert contents(again) == {"a": (5, b"3"), "b": (7, b"4")}
    again.close()


def test_only_the_owner_can_read(tmp_path: Path) -> None:
    filled(tmp_path / "data")
    store = SqliteStore(tmp_path / "data")
    store.save([("b", 70, b"4")])
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
    for file in (tmp_path / "data").iterdir():
        assert file.stat().st_mode & 0o077 == 0, file
    store.close()


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    code = (
        "import sys; from pathlib import Path\n"
        "from stowplan.driver.storage.sqlite_store import SqliteStore, StoreError\n"
        "try: SqliteStore(Path(sys.argv[1]))\n"
        "except StoreError as e: print(e); sys.exit(7)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 7, ran.stderr
    assert f"in use by another process (number {os.getpid()})" in ran.stdout
    store.close()
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


def refusal(directory: Path) -> str:
    with pytest.raises(StoreError) as refused:
        contents(SqliteStore(directory))
    return str(refused.value)


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"not a database" * 1000)
    assert "damaged: file is not a database" in refusal(tmp_path)
    assert (tmp_path / FILE).read_bytes().startswith(b"not a database")


def test_a_foreign_database_is_refused(tmp_path: Path) -> None:
    file = sqlite3.connect(tmp_path / FILE)
    file.execute("CREATE TABLE objects (key)")
    file.commit()
    file.close()
    assert "not one of Stowplan" in refusal(tmp_path)


def test_another_format(tmp_path: Path) -> None:
    filled(tmp_path)
    file = sqlite3.connect(tmp_path / FILE)
    file.execute("PRAGMA user_version=9")
    file.close()
    assert "unsupported format 9: expected 2" in refusal(tmp_path)


@pytest.mark.parametrize("left", [0, 100, 4096, 8000])
def test_a_file_cut_short(tmp_path: Path, left: int) -> None:
    filled(tmp_path)
    with (tmp_path / FILE).open("r+b") as file:
        file.truncate(left)
    assert "damaged" in refusal(tmp_path)
    assert (tmp_path / FILE).stat().st_size == left


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / FILE).unlink()
    assert "it is missing, but writes were acknowledged here before" in refusal(tmp_path)
    assert not (tmp_path / FILE).exists()


def copied_while_open(source: Path, target: Path) -> None:
    """State after a kill -9: the files as they are, the journal not checkpointed."""
    store = SqliteStore(source)
    for i in range(5):
        store.save([(f"late/{i}", 1000 + i, b"x" * 300)])
    shutil.copytree(source, target)
    store.close()


def test_the_journal_is_read_and_missed(tmp_path: Path) -> None:
    filled(tmp_path / "a")
    copied_while_open(tmp_path / "a", tmp_path / "b")
    shutil.copytree(tmp_path / "b", tmp_path / "c")
    store = SqliteStore(tmp_path / "b")
    assert (store.version, len(contents(store))) == (1004, 45)
    store.close()
    (tmp_path / "c" / f"{FILE}-wal").unlink()
    text = refusal(tmp_path / "c")
    assert "it ends with version 40, but version 1004 was acknowledged" in text
    assert f"{FILE}-wal" in text


def test_what_is_refused_is_left_as_it_is(tmp_path: Path) -> None:
    filled(tmp_path / "a")
    copied_while_open(tmp_path / "a", tmp_path / "b")
    (tmp_path / "b" / COMMITTED).write_bytes(sqlite_store.note_of(9999))
    before = {name: (tmp_path / "b" / name).read_bytes() for name in (FILE, f"{FILE}-wal")}
    assert "version 9999 was acknowledged" in refusal(tmp_path / "b")
    assert before == {name: (tmp_path / "b" / name).read_bytes() for name in before}


def test_a_failing_disk_acknowledges_nothing(tmp_path: Path) -> None:
    filled(tmp_path)
    store = SqliteStore(tmp_path)
    store.save([("a", 41, b"1")])
    assert store._file is not None
    store._file.execute("PRAGMA query_only=1")
    with pytest.raises(StoreError, match="could not save version 99"):
        store.save([("a", 99, b"1")])
    store._file.execute("PRAGMA query_only=0")
    assert store.version == 41
    assert len(contents(store)) == 41
    store.close()


def test_a_note_that_cannot_be_written_acknowledges_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path)
    store = SqliteStore(tmp_path)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(sqlite_store.os, "pwrite", full)
        with pytest.raises(StoreError, match="could not save version 99"):
            store.save([("a", 99, b"1")])
    assert store.version == 40
    store.close()


def test_without_the_note_no_new_file_is_created(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / COMMITTED).unlink()
    assert f"{COMMITTED} beside it is missing" in refusal(tmp_path)
    assert not (tmp_path / COMMITTED).exists()


@pytest.mark.parametrize("note", [b"", b"\0", b"\0" * 8, b"\0" * 13, b"\1" * 12])
def test_an_invalid_note_is_refused(tmp_path: Path, note: bytes) -> None:
    filled(tmp_path)
    (tmp_path / COMMITTED).write_bytes(note)
    text = refusal(tmp_path)
    if len(note) == 12:
        assert f"the checksum of {COMMITTED} beside it is wrong" in text
    else:
        printed = "more" if len(note) > 12 else len(note)
        assert f"{COMMITTED} beside it has {printed} bytes: expected 12" in text
    assert (tmp_path / COMMITTED).read_bytes() == note


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("UPDATE facts SET value = 41", "the checksum of its version is wrong"),
        ("UPDATE facts SET value = 'x'", "its version is invalid: 'x'"),
        ("DELETE FROM facts", "its version is missing"),
    ],
)
def test_a_changed_version_is_refused(tmp_path: Path, change: str, message: str) -> None:
    filled(tmp_path)
    file = sqlite3.connect(tmp_path / FILE)
    file.execute(change)
    file.commit()
    file.close()
    assert message in refusal(tmp_path)


def test_files_removed_before_the_first_write(tmp_path: Path) -> None:
    filled(tmp_path)
    store = SqliteStore(tmp_path)
    (tmp_path / FILE).unlink()
    with pytest.raises(StoreError, match=r"cluster\.sqlite: removed or replaced"):
        store.save([("a", 99, b"1")])
    assert not (tmp_path / FILE).exists()
    store.close()


@pytest.mark.parametrize("name", [FILE, f"{FILE}-wal"])
def test_files_removed_long_after_the_last_change_of_the_directory(
    tmp_path: Path, name: str
) -> None:
    store = SqliteStore(tmp_path)
    list(store.records())
    for version in range(1, 4):
        store.save([("a", version, b"1")])
        # Nothing has changed in it for an hour.
        hour_ago = time.time() - 3600
        os.utime(tmp_path, (hour_ago, hour_ago))
    (tmp_path / name).rename(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match=f"{name}: removed or replaced"):
        store.save([("a", 4, b"1")])
    (tmp_path / "elsewhere").rename(tmp_path / name)
    store.save([("a", 5, b"1")])
    store.close()


# Any one bit of the file, its journal or the note of the last version may be wrong. Then the store
# is refused, or what it holds is what was saved: never anything else.


def flipped_bit_never_lies(directory: Path, before: Found, name: str, place: float) -> None:
    path = directory / name
    data = bytearray(path.read_bytes())
    at = min(int(place * len(data)), len(data) - 1)
    data[at] ^= 1 << int(place * 7919) % 8
    path.write_bytes(bytes(data))
    try:
        store = SqliteStore(directory)
    except StoreError:
        return
    try:
        assert contents(store) == before
    except StoreError:
        pass
    finally:
        store.close()


# Spread over the whole file, as Hypothesis likes small numbers.
PLACES = st.integers(0, 999_999).map(lambda n: n * 618_033 % 1_000_000 / 1_000_000)


def tried(check: Callable[[Path, Found, str, float], None], tmp_path: Path) -> None:
    source = tmp_path / "source"
    filled(tmp_path / "live", 300)
    copied_while_open(tmp_path / "live", source)
    shutil.copytree(source, tmp_path / "look")
    store = SqliteStore(tmp_path / "look")
    before = contents(store)
    store.close()

    @settings(max_examples=examples(60))
    @given(st.sampled_from([FILE, f"{FILE}-wal", COMMITTED]), PLACES)
    def look(name: str, place: float) -> None:
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(source, copy)
        check(copy, before, name, place)

    look()


@pytest.mark.slow
def test_a_flipped_bit_never_lies(tmp_path: Path) -> None:
    tried(flipped_bit_never_lies, tmp_path)


@pytest.mark.slow
def test_rows_without_checksums_are_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_store, "_checksum", lambda *_: 0)
    with pytest.raises(AssertionError):
        tried(flipped_bit_never_lies, tmp_path)
