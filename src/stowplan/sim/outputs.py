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
    folder = Path(directory)
    aside = {name: folder / f".{name}.{os.getpid()}.part" for name in contents}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            for name, content in contents.items():
                aside[name].write_bytes(content)
            for name, path in aside.items():
                path.replace(folder / name)
        finally:
            for path in aside.values():
                path.unlink(missing_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InputError(str(directory), "", "a file", "a directory to write into") from None
    except OSError as problem:
        got = (problem.strerror or str(problem)).lower()
        raise InputError(str(directory), "", got, "a directory to write into") from None
