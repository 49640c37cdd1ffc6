"""Result files: written aside and renamed, so that none is ever half there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from stowplan.inputs.input_error import InputError


def write_files(directory: str | Path, contents: Mapping[str, bytes]) -> None:
    """Put files into a directory, made if need be; raises InputError when that cannot be done.

    A name may stand in a folder of its own. Either all of them are new afterwards or, as far as the
    disk allows it, none, and nothing else is there that was not there before.
    """
    folder = Path(directory)
    aside = {folder / name: _aside(folder / name) for name in contents}
    made: list[Path] = []
    done = False
    try:
        try:
            for place in aside:
                made += _made(place.parent)
            for name, content in contents.items():
                aside[folder / name].write_bytes(content)
            for place, path in aside.items():
                path.replace(place)
            done = True
        finally:
            for path in aside.values():
                if path.parent.is_dir():
                    path.unlink(missing_ok=True)
            if not done:
                _unmake(made)
    except OSError as problem:
        raise _refused(directory, problem) from None


def _aside(place: Path) -> Path:
    return place.with_name(f".{place.name}.{os.getpid()}.part")


def _made(folder: Path) -> list[Path]:
    """Make a folder and what it stands in; those that were not there, the outermost first."""
    missing = [folder, *folder.parents]
    missing = [each for each in reversed(missing) if not each.exists()]
    for each in missing:
        each.mkdir(exist_ok=True)
    folder.mkdir(exist_ok=True)
    return missing


def _unmake(folders: list[Path]) -> None:
    """Take folders away again that are empty."""
    for folder in reversed(folders):
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def check_directory(directory: str | Path) -> None:
    """Raises InputError when nothing could be written into a directory, there or yet to be made.

    Nothing is left behind.
    """
    made: list[Path] = []
    try:
        made = _made(Path(directory))
        probe = Path(directory) / f".probe.{os.getpid()}"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as problem:
        raise _refused(directory, problem) from None
    finally:
        _unmake(made)


def _refused(directory: str | Path, problem: OSError) -> InputError:
    if isinstance(problem, FileExistsError | NotADirectoryError):
        return InputError(str(directory), "", "a file", "a directory to write into")
    got = (problem.strerror or str(problem)).lower()
    return InputError(str(directory), "", got, "a directory to write into")
