"""Registry: plugin name -> class, checked at registration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from stowplan.framework.extension_points import points_of
from stowplan.framework.functions.decorators import plugin_of
from stowplan.framework.plugin_calls import check_signatures
from stowplan.framework.problems import ContractError


class NoArgs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of a plugin that takes none."""


class RegistryEntry(msgspec.Struct, frozen=True):
    """A registered plugin class.

    points: configuration names of the extension points that it implements. args: Struct of its
    arguments. weight: default weight of its scores. in_tree: part of Stowplan.
    """

    name: str
    plugin: type[Any]
    points: tuple[str, ...]
    args: type[msgspec.Struct]
    weight: int
    in_tree: bool


class Registry(Mapping[str, RegistryEntry]):
    """All plugins that a configuration can name."""

    def __init__(self, in_tree: Iterable[type[Any]] = ()) -> None:
        self._entries: dict[str, RegistryEntry] = {}
        for plugin in in_tree:
            self._enter(plugin, in_tree=True)

    def __getitem__(self, name: str) -> RegistryEntry:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def copy(self) -> Registry:
        """A copy in which others can be registered."""
        other = Registry()
        other._entries = dict(self._entries)
        return other

    def register(self, plugin: Callable[..., Any]) -> None:
        """Register an out-of-tree plugin class or decorated function.

        Raises ContractError when it is invalid.
        """
        self._enter(plugin_of(plugin), in_tree=False)

    def _enter(self, plugin: type[Any], *, in_tree: bool) -> None:
        name = getattr(plugin, "name", None)
        where = f"plugin class {plugin.__module__}.{plugin.__qualname__}"
        if not isinstance(name, str) or not name:
            raise ContractError(f"{where}: `name` is {name!r}; expected a non-empty string")
        if name in self._entries:
            raise ContractError(f"{where}: the name {name!r} is taken; expected one that is free")
        points = points_of(plugin)
        if not points:
            raise ContractError(f"{where}: implements no extension point; expected at least one")
        args = getattr(plugin, "Args", NoArgs)
        if not (isinstance(args, type) and issubclass(args, msgspec.Struct)):
            raise ContractError(f"{where}: `Args` is {args!r}; expected a msgspec.Struct class")
        check_signatures(plugin, where)
        weight = getattr(plugin, "weight", 1)
        if not isinstance(weight, int) or weight < 1:
            raise ContractError(f"{where}: `weight` is {weight!r}; expected a whole number above 0")
        self._entries[name] = RegistryEntry(name, plugin, points, args, weight, in_tree)
