"""Files to documents: the trees that YAML or JSON holds, with the file and place of each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from stowplan.inputs.input_error import InputError
from stowplan.objects.encoding import yaml_documents as texts


class FileDocument(NamedTuple):
    """A document of a file. place: where in the file it stands, as errors say it."""

    source: str
    place: str
    tree: Any


def documents(data: bytes, source: str, form: str = "") -> Iterator[FileDocument]:
    """The documents that hold anything, in order; raises InputError while they are taken.

    form: `json`, `yaml` or `yml`; "" finds out.
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
        got = f"the byte 0x{data[problem.start]:02x}"
        raise InputError(source, f"line {line}", got, "text in UTF-8") from None
