"""Changed fields of objects, compared with a snapshot of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from stowplan.columns import NodeTable
from stowplan.framework.plugin_calls import definition_location
from stowplan.framework.runtime.registered_plugin import RegisteredPlugin
from stowplan.objects.encoding.json_codec import encode
from stowplan.objects.meta import Object
from stowplan.testing.contents import contents, differences


class _AbsentField:
    """Placeholder for a missing field; equal to no JSON value."""

    def __repr__(self) -> str:
        return "nothing"


ABSENT: Any = _AbsentField()


class ObjectSnapshot:
    """Objects and a table at one time, to find out later what changed."""

    def __init__(self, objects: Iterable[Object], table: NodeTable) -> None:
        self._objects = tuple(objects)
        self._table = table
        self._before = [encode(value) for value in self._objects]
        self._contents = contents(table)

    def change(self) -> str:
        """The first field that was changed, and how; "" where nothing was."""
        for value, before in zip(self._objects, self._before, strict=True):
            after = encode(value)
            if after != before:
                return f"{object_title(value)}: {field_change(before, after)}"
        for text in differences(contents(self._table), self._contents):
            return f"the node table: {text}"
        return ""


def object_title(value: Object) -> str:
    """The name of an object in messages."""
    kind = type(value).__name__.lower()
    return f"{kind} {getattr(value, 'key', '') or value.name!r}"


def field_change(before: bytes, after: bytes) -> str:
    """The first field that differs between two objects as JSON, with both values."""
    return next(_changes(msgspec.json.decode(before), msgspec.json.decode(after), ""))


def _changes(before: Any, after: Any, path: str) -> Iterator[str]:
    # An empty mapping is left out of the JSON.
    before = {} if before is ABSENT and isinstance(after, dict) else before
    after = {} if after is ABSENT and isinstance(before, dict) else after
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys((*before, *after)):
            have, got = before.get(key, ABSENT), after.get(key, ABSENT)
            if have != got:
                plain = key.isidentifier()
                inside = (f"{path}.{key}" if path else key) if plain else f"{path}[{key!r}]"
                yield from _changes(have, got, inside)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for place, (have, got) in enumerate(zip(before, after, strict=True)):
            if have != got:
                yield from _changes(have, got, f"{path}[{place}]")
    else:
        yield f"{path} was {before!r}, is {after!r}"


def record_mutations(member: RegisteredPlugin, kept: ObjectSnapshot, found: list[str]) -> None:
    """From now on put on record, in `found`, the first change and the method that makes it."""

    def after(method: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def calling(*values: Any) -> Any:
            answer = call(*values)
            change = "" if found else kept.change()
            if change:
                found.append(
                    f"{method}{definition_location(member.plugin, method)} changed {change}"
                )
            return answer

        return calling

    for method, call in member.calls.items():
        if call is not None:
            member.calls[method] = after(method, call)
