"""Whether a value is the same as its counterpart in the stored object.

Source: apiserver v1.36, pkg/cel/common/equality.go, maplist.go.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from stowplan.apiserver.crd.value_validation import LIST_TYPE
from stowplan.objects.encoding.tree import Tree


def items_by_key(items: Any, node: Tree) -> dict[str, Any]:
    """The items of a list of type map by their keys; empty for others."""
    if node.get(LIST_TYPE) != "map" or not isinstance(items, list):
        return {}
    return {item_key(one, node): one for one in items}


def item_key(item: Any, node: Tree) -> str:
    """The key of an item of a list of type map."""
    names = node.get("x-kubernetes-list-map-keys") or ()
    held = [item.get(name) if isinstance(item, dict) else None for name in names]
    return json.dumps(held, sort_keys=True)


@dataclass(frozen=True)
class Counterpart:
    """A value and the stored one that corresponds to it."""

    value: Any
    old: Any
    node: Tree

    def field(self, key: str) -> Counterpart | None:
        """The values of a field; None where one of them is absent or has no schema."""
        if not isinstance(self.value, dict) or not isinstance(self.old, dict):
            return None
        if key not in self.value or key not in self.old:
            return None
        below = (self.node.get("properties") or {}).get(key)
        rest = self.node.get("additionalProperties")
        below = rest if below is None and isinstance(rest, dict) else below
        return None if below is None else Counterpart(self.value[key], self.old[key], below)

    def item(self, at: int) -> Counterpart | None:
        """The values of an item of a list with keys; None for others."""
        if not isinstance(self.value, list) or self.node.get(LIST_TYPE) != "map":
            return None
        held = items_by_key(self.old, self.node).get(item_key(self.value[at], self.node))
        below = self.node.get("items")
        return None if held is None or below is None else Counterpart(self.value[at], held, below)

    @property
    def is_same(self) -> bool:
        """True if nothing has changed."""
        value, old = self.value, self.old
        if type(value) is not type(old):
            return False
        if isinstance(value, list):
            if len(value) != len(old):
                return False
            if self.node.get(LIST_TYPE) != "map":
                return bool(value == old)
            return all(_is_same(self.item(at)) for at in range(len(value)))
        if isinstance(value, dict):
            return len(value) == len(old) and all(_is_same(self.field(key)) for key in value)
        return bool(value == old)


def _is_same(found: Counterpart | None) -> bool:
    return found is not None and found.is_same
