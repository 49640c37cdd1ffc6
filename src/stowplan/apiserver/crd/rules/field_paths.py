"""`fieldPath` of rules: `.a.b`, `.m['key']`.

Source: apiextensions-apiserver v0.36, pkg/apiserver/schema/cel/validation.go (ValidFieldPath).
"""

from __future__ import annotations

import re

from stowplan.objects.encoding.tree import Tree

_STEP = re.compile(r"\.([^.\[\]]+)|\['((?:[^'\\]|\\.)*)'\]")
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def normalized_path(text: str, node: Tree) -> str | None:
    """The path as errors show it (`a.b`, `m[key]`); None for one that leads to no field."""
    made, place = "", 0
    while place < len(text):
        step = _STEP.match(text, place)
        if step is None:
            return None
        place = step.end()
        name = step[1] if step[1] is not None else _unescaped(step[2])
        properties, rest = node.get("properties"), node.get("additionalProperties")
        if name is None:
            return None
        if properties:
            if name not in properties:
                return None
            node = properties[name]
            made += f".{name}" if made else name
        elif isinstance(rest, dict):
            node = rest
            made += f"[{name}]"
        else:
            return None
    return made


def _unescaped(text: str) -> str | None:
    parts = re.split(r"\\(.)", text)
    for at in range(1, len(parts), 2):
        letter = parts[at]
        if letter not in _ESCAPES and letter not in "'\\":
            return None
        parts[at] = _ESCAPES.get(letter, letter)
    return "".join(parts)
