"""Functions on strings: cel-go's strings extension (version 2) and Kubernetes' regex library.

Source: cel-go v0.26, ext/strings.go, ext/formatting.go; apiserver v1.36, pkg/cel/library/regex.go.
"""

from __future__ import annotations

import math
from typing import Any

from stowplan.cel.libraries import moments
from stowplan.cel.libraries.standard_library import (
    STRING_FACTOR,
    format_double,
    plain_double,
    regex_cost,
    regular_expression,
    traversal,
)
from stowplan.cel.overloads import Library
from stowplan.cel.values import (
    INT_MAX,
    CelDuration,
    CelTimestamp,
    EvaluationError,
    MapValue,
    TypeValue,
    Uint,
    check_text_length,
    kind_of,
    read_digits,
    size_of,
)

_UPPER = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}
_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_FORMATTED_KINDS = (
    "strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
)
_DEFAULT_PRECISION = 6
_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)


def _char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise EvaluationError(f"index out of range: {index}")
    return text[index : index + 1]


def _index_of(text: str, part: str, start: int = 0) -> int:
    if not 0 <= start <= len(text):
        raise EvaluationError(f"index out of range: {start}")
    return text.find(part, start)


def _last_index_of(text: str, part: str, start: int | None = None) -> int:
    if start is None:
        return text.rfind(part)
    if not 0 <= start <= len(text):
        raise EvaluationError(f"index out of range: {start}")
    return text.rfind(part, 0, start + len(part))


def _substring(text: str, start: int, end: int | None = None) -> str:
    for place in (start, *(() if end is None else (end,))):
        if not 0 <= place <= len(text):
            raise EvaluationError(f"index out of range: {place}")
    if end is not None and start > end:
        raise EvaluationError(f"invalid substring range. start: {start}, end: {end}")
    return text[start:end]


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    longer = len(new) - len(old)
    if longer > 0:
        n_found = text.count(old) if count < 0 else min(count, text.count(old))
        check_text_length(len(text) + n_found * longer)
    return text.replace(old, new, count)


def _split(text: str, separator: str, count: int = -1) -> tuple[str, ...]:
    if count == 0:
        return ()
    if separator == "":
        if count < 0 or count >= len(text):
            return tuple(text)
        return (*text[: count - 1], text[count - 1 :])
    return tuple(text.split(separator, count - 1 if count > 0 else -1))


def _join(parts: tuple[Any, ...], separator: str = "") -> str:
    if not all(isinstance(part, str) for part in parts):
        raise EvaluationError("no such overload")
    check_text_length(sum(map(len, parts)) + len(separator) * len(parts))
    return separator.join(parts)


_QUOTES = {
    "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
    "\\": "\\\\", '"': '\\"',
}  # fmt: skip


def _quote(text: str) -> str:
    return '"' + "".join(_QUOTES.get(letter, letter) for letter in text) + '"'


def _formatted(value: Any) -> str:
    """A value for `%s`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, Uint):
        return str(int(value))
    if isinstance(value, float):
        if math.isfinite(value):
            return plain_double(value)
        return {"+Inf": "Infinity", "-Inf": "-Infinity"}.get(format_double(value), "NaN")
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, CelDuration):
        return moments.format_duration(value)
    if isinstance(value, CelTimestamp):
        return moments.format_timestamp(value)
    if isinstance(value, TypeValue):
        return value.name
    if isinstance(value, tuple):
        return f"[{', '.join(map(_formatted, value))}]"
    if isinstance(value, MapValue):
        pairs = sorted((_formatted(key), _formatted(one)) for key, one in value.entries.values())
        return f"{{{', '.join(f'{key}: {one}' for key, one in pairs)}}}"
    if isinstance(value, str | int):
        return str(value)
    raise _clause_error("string clause", _FORMATTED_KINDS, value)


def _clause_error(clause: str, allowed: str, value: Any) -> EvaluationError:
    return EvaluationError(
        f"error during formatting: {clause} can only be used on {allowed}, was given "
        f"{kind_of(value)}"
    )


def _clause(verb: str, precision: int, value: Any) -> str:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if verb == "s":
        return _formatted(value)
    if verb == "d":
        if is_number:
            return str(int(value))
        if isinstance(value, float):
            return format_double(value)
        raise _clause_error("decimal clause", "integers", value)
    if verb in "fe":
        if not isinstance(value, float | int) or isinstance(value, bool):
            raise _clause_error("fixed-point clause", "doubles", value)
        if math.isfinite(value):
            return f"{value:.{precision}{verb}}"
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if verb == "b" and isinstance(value, int):
        return format(int(value), "b")
    if verb == "o" and is_number:
        return format(int(value), "o")
    if verb in "xX" and (is_number or isinstance(value, str | bytes)):
        if is_number:
            return format(int(value), verb)
        raw = value.encode() if isinstance(value, str) else value
        return str(raw.hex().upper() if verb == "X" else raw.hex())
    if verb not in "boxX":
        text = "error during formatting: could not parse formatting clause: unrecognized"
        text += f' formatting clause "{verb}"'
        raise EvaluationError(text)
    raise _clause_error(f"formatting clause %{verb}", "integers", value)


def _format(text: str, values: tuple[Any, ...]) -> str:
    parts: list[str] = []
    place = used = 0
    length = len(text)
    while place < len(text):
        if text[place] != "%":
            parts.append(text[place])
            place += 1
            continue
        place += 1
        if text[place : place + 1] == "%":
            parts.append("%")
            place += 1
            continue
        precision, place = _precision(text, place)
        if place >= len(text):
            raise EvaluationError("error during formatting: unexpected end of string")
        if used >= len(values):
            raise EvaluationError(f"error during formatting: index {used} out of range")
        parts.append(_clause(text[place], precision, values[used]))
        length += len(parts[-1])
        check_text_length(length)
        used, place = used + 1, place + 1
    return "".join(parts)


def _precision(text: str, place: int) -> tuple[int, int]:
    """The precision that begins at a place, 6 where none is given, and the place behind it."""
    if text[place : place + 1] != ".":
        return _DEFAULT_PRECISION, place
    end = place + 1
    while end < len(text) and text[end] in "0123456789":
        end += 1
    digits = text[place + 1 : end]
    number = read_digits(digits)
    if not digits or number > INT_MAX:
        why = "value out of range" if digits else "invalid syntax"
        raise EvaluationError(
            "error during formatting: could not parse formatting clause: error while parsing"
            " precision: error while converting precision to integer: strconv.Atoi: parsing"
            f' "{digits}": {why}'
        )
    # More digits than a number has are zeros.
    check_text_length(number)
    return number, end


def _find(text: str, pattern: str) -> str:
    found = regular_expression(pattern).search(text)
    return "" if found is None else str(found.group())


def _find_all(text: str, pattern: str, count: int = -1) -> tuple[str, ...]:
    found = [str(one.group()) for one in regular_expression(pattern).finditer(text)]
    return tuple(found if count < 0 else found[:count])


def text_library() -> Library:
    """Functions on strings."""
    library = Library()
    add = library.add
    twice = traversal(0, 2 * STRING_FACTOR)
    add("string_char_at_int", "string->charAt(int) string", _char_at)
    add("string_index_of_string", "string->indexOf(string) int", _index_of, traversal())
    add("string_index_of_string_int", "string->indexOf(string, int) int", _index_of, traversal())
    add("string_last_index_of_string", "string->lastIndexOf(string) int", _last_index_of,
        traversal())  # fmt: skip
    add("string_last_index_of_string_int", "string->lastIndexOf(string, int) int", _last_index_of,
        traversal())  # fmt: skip
    add("string_lower_ascii", "string->lowerAscii() string", lambda text: text.translate(_LOWER),
        traversal())  # fmt: skip
    add("string_upper_ascii", "string->upperAscii() string", lambda text: text.translate(_UPPER),
        traversal())  # fmt: skip
    add("string_replace_string_string", "string->replace(string, string) string", _replace, twice)
    add("string_replace_string_string_int", "string->replace(string, string, int) string",
        _replace, twice)  # fmt: skip
    add("string_split_string", "string->split(string) list(string)", _split, twice)
    add("string_split_string_int", "string->split(string, int) list(string)", _split, twice)
    add("string_substring_int", "string->substring(int) string", _substring, traversal())
    add("string_substring_int_int", "string->substring(int, int) string", _substring, traversal())
    add("string_trim", "string->trim() string", lambda text: text.strip(_SPACE), traversal())
    add("string_format", "string->format(list(dyn)) string", _format, traversal())
    add("strings_quote", "strings.quote(string) string", _quote, traversal())

    def join_cost(values: tuple[Any, ...], result: Any) -> int:
        return math.ceil(size_of(result) * 2 * STRING_FACTOR)

    add("list_join", "list(string)->join() string", _join, join_cost)
    add("list_join_string", "list(string)->join(string) string", _join, join_cost)
    add("string_find_string", "string->find(string) string", _find, regex_cost)
    add("string_find_all_string", "string->findAll(string) list(string)", _find_all, regex_cost)
    add("string_find_all_string_int", "string->findAll(string, int) list(string)", _find_all,
        regex_cost)  # fmt: skip
    return library
