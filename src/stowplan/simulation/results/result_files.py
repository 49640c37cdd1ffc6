"""Result files, written atomically: to temporary files that are renamed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from stowplan.inputs.input_error import InputError


def write_files(directory: str | Path, contents: Mapping[str, bytes]) -> None:
    """Write files into a directory, which is created if needed; raises InputError.

    Names may have folders. Either all files are replaced or, as far as the disk allows it, none,
    and no temporary file or folder remains.
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
    """Create a folder and its parents; returns the new ones, outermost first."""
    missing = [folder, *folder.parents]
    missing = [each for each in reversed(missing) if not each.exists()]
    for each in missing:
        each.mkdir(exist_ok=True)
    folder.mkdir(exist_ok=True)
    return missing


def _unmake(folders: list[Path]) -> None:
    """Remove empty folders."""
    for folder in reversed(folders):
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def check_directory(directory: str | Path) -> None:
    """Raise InputError when a directory is not writable or cannot be created.

    Leaves nothing behind.
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
        return InputError(str(directory), "", "not a directory", "a writable directory")
    got = (problem.strerror or str(problem)).lower()
    return InputError(str(directory), "", got, "a writable directory")
