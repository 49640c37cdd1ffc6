"""Requested changes: what `what-if` is asked to change, as flags, a file or Python values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from stowplan.framework.problems import did_you_mean
from stowplan.inputs.input_error import InputError

KINDS: Mapping[str, str] = {
    "add-nodes": "POOL=N",
    "remove-node": "NODE",
    "drain": "ZONE|NODE|SELECTOR",
    "cordon": "NODE",
    "taint": "NODE=KEY=VALUE:EFFECT",
    "label": "NODE=KEY=VALUE",
    "scale": "KIND/NAME=N",
    "submit": "FILE",
    "delete": "KIND/NAME",
    "queue": "NAME.FIELD=VALUE",
    "config": "FILE",
    "plugin": "FILE.py",
    "priority": "KIND/NAME=N|CLASS",
}
"""Kind of a change, which is also the name of its flag -> the form of its text."""


class RequestedChange(msgspec.Struct, frozen=True):
    """A change as it was asked for. kind: one of KINDS. text: in the form of that kind."""

    kind: str
    text: str

    @property
    def flag(self) -> str:
        """The change as a flag: `--drain zone-c`."""
        return f"--{self.kind} {self.text}"

    def error(self, problem: str) -> InputError:
        """The error of this change."""
        return InputError.at(self.flag, "", problem)


RequestSource = RequestedChange | Mapping[str, Any] | tuple[str, str]
"""A change, `{"drain": "zone-c"}` as in a file, or `("drain", "zone-c")`."""


def requests_of(given: Iterable[RequestSource]) -> tuple[RequestedChange, ...]:
    """Changes in any of their forms; raises InputError."""
    found: list[RequestedChange] = []
    for index, one in enumerate(given):
        if isinstance(one, RequestedChange):
            found += _checked("changes", f"[{index}]", one.kind, one.text)
        elif isinstance(one, Mapping):
            found += requests_in([one], "changes")
        else:
            found += _checked("changes", f"[{index}]", *one)
    return tuple(found)


def requests_in(tree: Any, source: str) -> tuple[RequestedChange, ...]:
    """The changes of a file: a list of mappings from a kind to its text, or to several.

    Raises InputError.
    """
    if not isinstance(tree, list):
        raise InputError(source, "", _kind(tree), "a list of changes such as `drain: zone-c`")
    found: list[RequestedChange] = []
    for index, item in enumerate(tree):
        place = f"[{index}]"
        if not isinstance(item, Mapping) or not item:
            raise InputError(source, place, _kind(item), "a change such as `drain: zone-c`")
        for kind, value in item.items():
            for text in value if isinstance(value, list | tuple) else [value]:
                found += _checked(source, place, kind, text)
    return tuple(found)


def _checked(source: str, place: str, kind: object, text: object) -> list[RequestedChange]:
    if kind not in KINDS:
        hint = did_you_mean(str(kind), KINDS)
        wanted = f"one of {', '.join(KINDS)}" + (f"; {hint}" if hint else "")
        raise InputError(source, place, repr(kind), wanted)
    if not isinstance(text, str) or not text:
        raise InputError(source, f"{place}.{kind}", _kind(text), f"a text: {KINDS[str(kind)]}")
    return [RequestedChange(str(kind), text)]


def _kind(value: object) -> str:
    """A value of a wrong type, for an error."""
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "a mapping"
    return "" if value is None else repr(value)
