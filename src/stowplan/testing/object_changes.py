"""Changed fields of objects, compared with a snapshot of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from stowplan.columns import NodeTable
from stowplan.framework.plugin_calls import definition_location
from stowplan.framework.runtime.registered_plugin import RegisteredPlugin
from stowplan.objects.encoding.json_codec import encode
from stowplan.objects.encoding.object_difference import field_change, object_title
from stowplan.objects.meta import Object
from stowplan.testing.contents import contents, differences


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
