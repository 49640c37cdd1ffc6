"""Registry: plugin name -> class, checked at registration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from stowplan.framework.extension_points import points_of
from stowplan.framework.functions.decorators import plugin_of
from stowplan.framework.plugin import Plugin
from stowplan.framework.plugin_calls import check_signatures, duplicate_name
from stowplan.framework.problems import ContractError
from stowplan.framework.runtime.declarations import check_arguments, declaration_of


class NoArgs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of a plugin that takes none."""


class RegistryEntry(msgspec.Struct, frozen=True):
    """A registered plugin class.

    points: the extension points that it implements, by their configuration names. args: the Struct
    that its arguments decode to. declaration: that of the class. in_tree: part of Stowplan.
    """

    name: str
    plugin: type[Any]
    points: tuple[str, ...]
    args: type[msgspec.Struct]
    declaration: Plugin
    in_tree: bool

    @property
    def weight(self) -> int:
        """The weight of its scores where a configuration names none."""
        return self.declaration.weight


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
        """Add a third-party plugin: a class, or a decorated function.

        Raises ContractError for an invalid declaration, signature or name.
        """
        self._enter(plugin_of(plugin), in_tree=False)

    def _enter(self, plugin: type[Any], *, in_tree: bool) -> None:
        where = f"plugin class {plugin.__module__}.{plugin.__qualname__}"
        declared = declaration_of(plugin)
        name = declared.name
        if name in self._entries:
            raise ContractError(duplicate_name(self._entries[name].plugin, plugin))
        points = points_of(plugin)
        if not points:
            raise ContractError(f"{where}: implements no extension point: expected at least one")
        args = getattr(plugin, "Args", NoArgs)
        if not (isinstance(args, type) and issubclass(args, msgspec.Struct)):
            raise ContractError(
                f"{where}: Args: Invalid value: {args!r}: expected a msgspec.Struct class"
            )
        check_signatures(plugin, where)
        check_arguments(declared, args, where)
        self._entries[name] = RegistryEntry(name, plugin, points, args, declared, in_tree)
