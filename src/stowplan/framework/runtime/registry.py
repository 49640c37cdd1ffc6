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

    def __init__(
        self, in_tree: Iterable[type[Any]] = (), shipped: Mapping[str, type[Any]] | None = None
    ) -> None:
        """in_tree: classes of plugins that are part of Stowplan. shipped: further ones by name,
        each read and checked when it is first asked for, as that may import it."""
        self._shipped: Mapping[str, type[Any]] = {} if shipped is None else shipped
        # Shared with copies, as reading a class is slow.
        self._read: dict[str, RegistryEntry] = {}
        self._entries: dict[str, RegistryEntry] = {}
        for plugin in in_tree:
            self._enter(plugin, in_tree=True)

    def __getitem__(self, name: str) -> RegistryEntry:
        found = self._entries.get(name) or self._read.get(name)
        if found is None:
            found = self._read[name] = entry_of(self._shipped[name], in_tree=True)
            if found.name != name:
                raise ContractError(
                    f"plugin class {found.plugin.__qualname__}: name: Invalid value: "
                    f"{found.name!r}: expected {name!r}, as it is listed"
                )
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._entries or name in self._shipped

    def __iter__(self) -> Iterator[str]:
        yield from self._shipped
        yield from self._entries

    def __len__(self) -> int:
        return len(self._shipped) + len(self._entries)

    def third_party(self) -> tuple[RegistryEntry, ...]:
        """The plugins that are not part of Stowplan; reads no others."""
        return tuple(entry for entry in self._entries.values() if not entry.in_tree)

    def copy(self) -> Registry:
        """A copy in which others can be registered."""
        other = Registry(shipped=self._shipped)
        other._read = self._read
        other._entries = dict(self._entries)
        return other

    def register(self, plugin: Callable[..., Any]) -> None:
        """Add a third-party plugin: a class, or a decorated function.

        Raises ContractError for an invalid declaration, signature or name.
        """
        self._enter(plugin_of(plugin), in_tree=False)

    def _enter(self, plugin: type[Any], *, in_tree: bool) -> None:
        name = declaration_of(plugin).name
        if name in self:
            raise ContractError(duplicate_name(self[name].plugin, plugin))
        self._entries[name] = entry_of(plugin, in_tree=in_tree)


def entry_of(plugin: type[Any], *, in_tree: bool) -> RegistryEntry:
    """The entry of a class; raises ContractError for an invalid declaration or signature."""
    where = f"plugin class {plugin.__module__}.{plugin.__qualname__}"
    declared = declaration_of(plugin)
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
    return RegistryEntry(declared.name, plugin, points, args, declared, in_tree)
