"""World: the objects beside nodes and pods that rules read, by kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from stowplan.objects.meta import NamespacedObject, Object

T = TypeVar("T", bound=Object)


def key_of(value: Object) -> str:
    """`NAMESPACE/NAME` of a namespaced object, the name of another."""
    return value.key if isinstance(value, NamespacedObject) else value.name


class World:
    """Objects by kind and key, in order of arrival. `version` grows with every change."""

    def __init__(self, objects: Iterable[Object] = ()) -> None:
        self._kinds: dict[type[Object], dict[str, Object]] = {}
        self.version = 0
        for value in objects:
            self.put(value)

    def put(self, value: Object) -> None:
        """Add an object, or replace the one of the same kind and key."""
        self._kinds.setdefault(type(value), {})[key_of(value)] = value
        self.version += 1

    def drop(self, kind: type[Object], key: str) -> None:
        """Remove an object; raises KeyError when there is none."""
        del self._kinds[kind][key]
        self.version += 1

    def find(self, kind: type[T], key: str) -> T | None:
        """The object of a kind by key (`NAMESPACE/NAME`, or the name where there is no
        namespace), None when there is none."""
        value = self._kinds.get(kind, {}).get(key)
        return value if isinstance(value, kind) else None

    def all(self, kind: type[T]) -> Iterator[T]:
        """Every object of a kind, in order of arrival."""
        return (v for v in self._kinds.get(kind, {}).values() if isinstance(v, kind))
