"""Arguments of session plugins: strings, parsed as in the original.

Missing, empty and unparsable values leave the default in place.

Source: kube-batch v0.5, framework/arguments.go; Go, strconv.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_INTEGER = re.compile(r"[+-]?[0-9]+")
_INT64 = 2**63
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})


def integer(arguments: Mapping[str, str], key: str) -> int | None:
    """The integer under a key; None if it is missing or unparsable."""
    text = arguments.get(key, "")
    if not is_integer(text):
        return None
    return int(text)


def is_integer(text: str) -> bool:
    """True for a 64-bit integer."""
    return bool(_INTEGER.fullmatch(text)) and -_INT64 <= int(text) < _INT64


def boolean(arguments: Mapping[str, str], key: str, *, default: bool) -> bool:
    """The boolean under a key."""
    text = arguments.get(key, "")
    if text in _TRUE:
        return True
    return False if text in _FALSE else default


def is_boolean(text: str) -> bool:
    """True for a boolean."""
    return text in _TRUE or text in _FALSE
