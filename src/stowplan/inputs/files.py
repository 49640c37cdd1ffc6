"""Files as users name them: paths, directories, `-` for standard input, compressed or not."""

from __future__ import annotations

import gzip
import io
import sys
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from stowplan.inputs.document_reader import decoded
from stowplan.inputs.input_error import InputError

STDIN = "-"
SUFFIXES = (".yaml", ".yml", ".json", ".csv", ".swf")
"""Suffixes of files that are read from directories; each may be followed by .gz."""

_GZIP_MAGIC = b"\x1f\x8b"
_READABLE_FILE = "a readable file"


class InputFile(NamedTuple):
    """Content of a file. suffix: in lower case, without .gz."""

    source: str
    suffix: str
    data: bytes


def files_at(paths: Iterable[str | Path]) -> Iterator[InputFile]:
    """All files of the paths, directories in sorted order; raises InputError."""
    for path in paths:
        for leaf in files_below(path):
            source = "standard input" if str(leaf) == STDIN else str(leaf)
            yield InputFile(source, _suffix(Path(leaf)), read_bytes(leaf))


def files_below(path: str | Path) -> list[str | Path]:
    """The files below a directory, sorted by path, or the path itself; raises InputError.

    Names that begin with a dot are skipped.
    """
    top = Path(path)
    try:
        if str(path) == STDIN or not top.is_dir():
            return [path]
        found = sorted(leaf for leaf in _below(top) if _suffix(leaf) in SUFFIXES)
    except OSError as problem:
        raise _unreadable(str(problem.filename or path), problem, "a readable directory") from None
    if not found:
        patterns = ", ".join("*" + suffix for suffix in SUFFIXES)
        raise InputError(str(path), "", "no input files in the directory", f"{patterns} or .gz")
    return list(found)


def _below(top: Path) -> Iterator[Path]:
    for leaf in top.iterdir():
        if leaf.name.startswith("."):
            continue
        if leaf.is_dir():
            yield from _below(leaf)
        else:
            yield leaf


def _suffix(path: Path) -> str:
    name = path.name.lower().removesuffix(".gz")
    return Path(name).suffix


def read_text(path: str | Path) -> str:
    """The text of a file, decompressed; raises InputError."""
    return decoded(read_bytes(path), str(path))


def read_bytes(path: str | Path) -> bytes:
    """The content of a file, decompressed; raises InputError."""
    return b"".join(read_lines(path))


def read_lines(path: str | Path) -> Iterator[bytes]:
    """The lines of a file one by one, decompressed; raises InputError."""
    try:
        if str(path) == STDIN:
            yield from _plain(sys.stdin.buffer)
            return
        with Path(path).open("rb") as stream:
            yield from _plain(stream)
    except (EOFError, zlib.error, gzip.BadGzipFile) as problem:
        got = f"damaged gzip file ({_reason(problem)})"
        raise InputError(str(path), "", got, "a complete .gz file") from None
    except OSError as problem:
        raise _unreadable(str(path), problem, _READABLE_FILE) from None


def _plain(stream: BinaryIO) -> Iterator[bytes]:
    """The lines of a stream that may be compressed."""
    buffered = stream if hasattr(stream, "peek") else io.BufferedReader(stream)  # type: ignore[type-var]
    if buffered.peek(2)[:2] == _GZIP_MAGIC:
        with gzip.GzipFile(fileobj=buffered) as unpacked:
            yield from unpacked
    else:
        yield from buffered


def _unreadable(source: str, problem: OSError, expected: str) -> InputError:
    return InputError(source, "", _reason(problem), expected)


def _reason(problem: Exception) -> str:
    text = problem.strerror if isinstance(problem, OSError) else None
    text = text or str(problem)
    return text[:1].lower() + text[1:]
