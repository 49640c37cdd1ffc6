"""Result files: written aside and renamed, so that none is ever half there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from stowplan.sim.input_error import InputError


def write_files(directory: str | Path, contents: Mapping[str, bytes]) -> None:
    """Put files into a directory, made if need be; raises InputError when that cannot be done.

    Either all of them are new afterwards or, as far as the disk allows it, none.
    """
    check_directory(directory)
    folder = Path(directory)
    aside = {name: folder / f".{name}.{os.getpid()}.part" for name in contents}
    try:
        try:
            for name, content in contents.items():
                aside[name].write_bytes(content)
            for name, path in aside.items():
                path.replace(folder / name)
        finally:
            for path in aside.values():
                path.unlink(missing_ok=True)
    except OSError as problem:
        raise _refused(directory, problem) from None


def check_directory(directory: str | Path) -> None:
    """Make a directory if need be; raises InputError when nothing can be written into it."""
    folder = Path(directory)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe.{os.getpid()}"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as problem:
        raise _refused(directory, problem) from None


def _refused(directory: str | Path, problem: OSError) -> InputError:
    if isinstance(problem, FileExistsError | NotADirectoryError):
        return InputError(str(directory), "", "a file", "a directory to write into")
    got = (problem.strerror or str(problem)).lower()
    return InputError(str(directory), "", got, "a directory to write into")
