"""Files by path: directories, standard input, compression, and errors."""

import gzip
import io
import sys
from pathlib import Path

import pytest

from stowplan.inputs.files import files_at, files_below, read_bytes, read_lines, read_text
from stowplan.inputs.input_error import InputError


def error_text(path: str | Path) -> str:
    with pytest.raises(InputError) as caught:
        list(files_at([path]))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_directory_is_searched_in_sorted_order(tmp_path: Path) -> None:
    names = [
        "b.yaml",
        "a/z.YML",
        "a/y.json.gz",
        "c.csv",
        "README.md",
        ".hidden.yaml",
        ".git/x.yaml",
    ]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    found = [Path(leaf).relative_to(tmp_path).as_posix() for leaf in files_below(tmp_path)]
    assert found == ["a/y.json.gz", "a/z.YML", "b.yaml", "c.csv"]
    assert [file.suffix for file in files_at([tmp_path])] == [".json", ".yml", ".yaml", ".csv"]


def test_a_file_is_taken_whatever_its_name(tmp_path: Path) -> None:
    (tmp_path / "dump.txt").write_bytes(b"a: 1\n")
    (file,) = files_at([tmp_path / "dump.txt"])
    assert file == (str(tmp_path / "dump.txt"), ".txt", b"a: 1\n")


def test_compressed_files_are_known_by_their_content(tmp_path: Path) -> None:
    for name in ("x.yaml.gz", "x.yaml"):
        (tmp_path / name).write_bytes(gzip.compress(b"a: 1\nb: 2\n"))
        assert read_bytes(tmp_path / name) == b"a: 1\nb: 2\n"
        assert list(read_lines(tmp_path / name)) == [b"a: 1\n", b"b: 2\n"]


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_standard_input(pack: type[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    class Stdin:
        buffer = io.BytesIO(pack(b"a: 1\n"))

    monkeypatch.setattr(sys, "stdin", Stdin)
    (file,) = files_at(["-"])
    assert file == ("standard input", "", b"a: 1\n")


def test_a_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "nowhere.yaml"
    wanted = f"{path}: no such file or directory: expected a readable file"
    assert error_text(path) == wanted


def test_a_directory_without_files(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("x")
    suffixes = "*.yaml, *.yml, *.json, *.csv, *.swf"
    assert error_text(tmp_path) == (
        f"{tmp_path}: no input files in the directory: expected {suffixes} or .gz"
    )


def test_a_file_that_must_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "secret.yaml"
    path.write_text("a: 1")

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    assert error_text(path) == f"{path}: permission denied: expected a readable file"


def test_a_directory_that_must_not_be_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Path) -> None:
        raise PermissionError(13, "Permission denied", str(tmp_path))

    monkeypatch.setattr(Path, "iterdir", refuse)
    assert error_text(tmp_path) == f"{tmp_path}: permission denied: expected a readable directory"


@pytest.mark.parametrize("damage", [slice(0, -12), slice(0, 14)])
def test_a_damaged_compressed_file(tmp_path: Path, damage: slice) -> None:
    path = tmp_path / "x.yaml.gz"
    path.write_bytes(gzip.compress(b"some text that is long enough to be cut" * 20)[damage])
    text = error_text(path)
    assert text.startswith(f"{path}: damaged gzip file (")
    assert text.endswith("): expected a complete .gz file")


def test_a_compressed_file_with_other_content(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml.gz"
    path.write_bytes(b"\x1f\x8bnot really")
    assert error_text(path).startswith(f"{path}: damaged gzip file (")


def test_text_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="line 1: invalid byte 0xff: expected UTF-8 text"):
        read_text(path)
