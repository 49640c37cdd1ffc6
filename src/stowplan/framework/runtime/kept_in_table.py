"""What is kept in a node table by key, with a bound: the least recently used is dropped first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TypeVar

from stowplan.columns import NodeTable

T = TypeVar("T")


def kept_in(
    table: NodeTable, name: str, key: Hashable, make: Callable[[], T], entries_max: int
) -> T:
    """The value of a key, made on first use. name: of the values, in `table.extras`."""
    values = table.extras.get(name)
    if not isinstance(values, OrderedDict):
        values = table.extras[name] = OrderedDict()
    value: T | None = values.get(key)
    if value is None:
        value = values[key] = make()
    values.move_to_end(key)
    while len(values) > max(1, entries_max):
        values.popitem(last=False)
    return value
