"""Documents of YAML and JSON files, as trees with file and place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from stowplan.inputs.input_error import InputError
from stowplan.objects.encoding import yaml_documents as texts


class FileDocument(NamedTuple):
    """A document of a file. place: its position in the file, for errors."""

    source: str
    place: str
    tree: Any


def documents(data: bytes, source: str, form: str = "") -> Iterator[FileDocument]:
    """The non-empty documents, in order; raises InputError during iteration.

    form: `json`, `yaml` or `yml`; "" detects it.
    """
    try:
        for document in texts.parse_documents(decoded(data, source), form):
            yield FileDocument(source, document.place, document.tree)
    except texts.DocumentError as problem:
        raise InputError(source, problem.place, problem.got, problem.wanted) from None


def decoded(data: bytes, source: str) -> str:
    """The text of a file; raises InputError when it is not UTF-8."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        got = f"invalid byte 0x{data[problem.start]:02x}"
        raise InputError(source, f"line {line}", got, "UTF-8 text") from None
