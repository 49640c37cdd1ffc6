"""Rows of trace files: CSV with or without a header, and JSON objects; cells with their place."""

from __future__ import annotations

import csv
import datetime
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from stowplan.inputs.document_reader import decoded
from stowplan.inputs.files import InputFile
from stowplan.inputs.input_error import InputError

AMOUNT_MAX = 10.0**12
TIME_FORMAT = "%Y-%m-%d %H:%M:%S"


class TraceRow:
    """A line or an object of a file; accessors raise InputError. Cells that are absent, empty, null
    or `NaN` have no value."""

    def __init__(self, source: str, place: str, cells: Mapping[str, Any]) -> None:
        self.source = source
        self.place = place
        self.cells = cells

    def has(self, column: str) -> bool:
        """True where a cell has a value."""
        return _text(self.cells.get(column)) != ""

    def text(self, column: str, default: str | None = None) -> str:
        """A cell as text; an error where it has no value and there is no default."""
        found = _text(self.cells.get(column)) or default
        if found is None:
            raise self.refused(column, "a value")
        return found

    def number(
        self,
        column: str,
        default: float | None = None,
        *,
        least: float = 0.0,
        most: float = AMOUNT_MAX,
    ) -> float:
        """A cell as a number between `least` and `most`."""
        text = _text(self.cells.get(column))
        if not text and default is not None:
            return default
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not least <= number <= most:
            raise self.refused(column, f"a number from {least:g} to {most:g}")
        return number

    def count(self, column: str, default: int | None = None, *, least: int = 0) -> int:
        """A cell as a whole number; `2.0` is one."""
        number = self.number(column, default, least=least)
        if number != int(number):
            raise self.refused(column, "a whole number")
        return int(number)

    def clock_s(self, column: str) -> float | None:
        """A cell such as `2017-10-07 01:12:09` in seconds since 1970, None without a value."""
        text = self.text(column, "")
        if not text:
            return None
        try:
            found = datetime.datetime.strptime(text[:19], TIME_FORMAT)  # noqa: DTZ007
        except ValueError:
            raise self.refused(column, "a time such as 2017-10-07 01:12:09") from None
        return found.replace(tzinfo=datetime.UTC).timestamp()

    def refused(self, column: str, expected: str) -> InputError:
        """The error for a cell."""
        text = _text(self.cells.get(column))
        return InputError(
            self.source, f"{self.place}, {column}", repr(text) if text else "", expected
        )


def _text(cell: object) -> str:
    text = "" if cell is None else str(cell).strip()
    return "" if text in ("NaN", "nan", "None", "null", "N/A") else text


def csv_rows(
    file: InputFile, wanted: Sequence[str], columns: Sequence[str] = ()
) -> Iterator[TraceRow]:
    """The rows of a CSV file; raises InputError.

    wanted: columns that must be there. columns: of a file without a header line, as published.
    """
    reader = csv.reader(decoded(file.data, file.source).splitlines())
    header: list[str] = []
    for number, cells in enumerate(reader, start=1):
        if not any(cells):
            continue
        if not header:
            header = [cell.strip() for cell in cells]
            if set(wanted) <= set(header):
                continue
            if len(cells) != len(columns):
                expected = f"columns {', '.join(wanted)}"
                raise InputError(
                    file.source, f"line {number}", repr(",".join(cells)[:80]), expected
                )
            header = list(columns)
        if len(cells) != len(header):
            expected = f"{len(header)}, as in the header"
            raise InputError(file.source, f"line {number}", f"{len(cells)} cells", expected)
        yield TraceRow(file.source, f"line {number}", dict(zip(header, cells, strict=True)))


def json_rows(file: InputFile) -> Iterator[TraceRow]:
    """The objects of a JSON list, or of JSON Lines; raises InputError."""
    data = file.data.lstrip(b"\xef\xbb\xbf").lstrip()
    if data.startswith(b"["):
        yield from _objects(file, _decoded(file, "", data))
        return
    for number, line in enumerate(data.splitlines(), start=1):
        if line.strip():
            place = f"line {number}"
            yield _object(file, place, _decoded(file, place, line))


def _objects(file: InputFile, found: Any) -> Iterator[TraceRow]:
    for index, one in enumerate(found):
        yield _object(file, f"[{index}]", one)


def _object(file: InputFile, place: str, found: Any) -> TraceRow:
    if not isinstance(found, dict):
        raise InputError(file.source, place, repr(found)[:40], "an object")
    return TraceRow(file.source, place, found)


def _decoded(file: InputFile, place: str, data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as problem:
        raise InputError.at(file.source, place, f"not JSON: {problem}") from None
