"""Arguments of policies: texts, read as the original reads them.

What is missing, empty or unreadable leaves the default in place.

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
    """The number under a key; None when there is none that can be read."""
    text = arguments.get(key, "")
    if not is_integer(text):
        return None
    return int(text)


def is_integer(text: str) -> bool:
    """True for a text that is a whole number of 64 bits."""
    return bool(_INTEGER.fullmatch(text)) and -_INT64 <= int(text) < _INT64


def boolean(arguments: Mapping[str, str], key: str, *, default: bool) -> bool:
    """The truth value under a key."""
    text = arguments.get(key, "")
    if text in _TRUE:
        return True
    return False if text in _FALSE else default


def is_boolean(text: str) -> bool:
    """True for a text that is a truth value."""
    return text in _TRUE or text in _FALSE
