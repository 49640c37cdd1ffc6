"""Lines of cases: a case alone, or under `case` beside its recorded answer."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

import msgspec

from stowplan.objects.encoding.json_codec import decode

C = TypeVar("C", bound=msgspec.Struct)

_WRAPPED = re.compile(rb'"case"\s*:\s*\{')


def case_reader(kind: type[C]) -> Callable[[bytes | str], C]:
    """A function that reads the case of a line; it raises DecodeError."""
    line_type = msgspec.defstruct(f"{kind.__name__}Line", [("case", kind)])

    def read_case(line: bytes | str) -> C:
        text = line if isinstance(line, bytes) else line.encode()
        if _WRAPPED.search(text):
            found: C = decode(text, line_type).case  # type: ignore[attr-defined]
            return found
        return decode(text, kind)

    return read_case
