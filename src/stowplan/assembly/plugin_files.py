"""Custom plugins from a Python file or an installed distribution.

A plugin is a class with a `name` and an extension point, or a function decorated with `@score`,
`@filter` or `@priority`, for which the class behind it is returned. Session plugins and actions are
classes with a `name` that derive from `batch.SessionPlugin` or `batch.SessionAction`.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from hashlib import sha256
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from stowplan.assembly.python_files import code_of, read_source, run_file
from stowplan.framework import ContractError, is_rule, plugin_of
from stowplan.framework.extension_points import points_of, public_methods, suggest_method
from stowplan.framework.plugin_calls import duplicate_name

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from stowplan.batch import SessionAction, SessionPlugin

ENTRY_POINTS = "stowplan.plugins"


def plugins_of_file(path: str) -> tuple[type[Any], ...]:
    """The plugins that a Python file defines, in file order.

    Imported plugins are excluded. Raises ContractError if the file cannot be run or defines none.
    """
    module = run_file(path)
    # A class under two names is returned once.
    own = dict.fromkeys(map(plugin_of, filter(_may_be_plugin, vars(module).values())))
    found = [
        plugin
        for plugin in own
        if plugin.__module__ == module.__name__
        and _is_named(plugin)
        and (points_of(plugin) or is_batch_part(plugin))
    ]
    for plugin in found:
        if is_batch_part(plugin):
            continue
        for method in public_methods(plugin):
            hint = suggest_method(method)
            if hint:
                where = f"{path}: class {plugin.__name__}"
                raise ContractError(
                    f"{where}: implements no extension point and is never called{hint}"
                )
    if not found:
        raise ContractError(
            f"{path}: defines no plugin: expected a function under @score, @filter or @priority, "
            f"or a class with a `name` and a method such as filter or score{_missing_parts(module)}"
        )
    return tuple(found)


def _is_named(plugin: type[Any]) -> bool:
    """True if the class sets its own name; the inherited name of a base class does not count."""
    name = getattr(plugin, "name", None)
    return isinstance(name, str) and bool(name or not is_batch_part(plugin))


def is_batch_part(plugin: object) -> bool:
    """True for a session plugin or a session action."""
    # Imported here: without plugins of one's own nothing of sessions is needed.
    from stowplan.batch import SessionAction, SessionPlugin

    return isinstance(plugin, type) and issubclass(plugin, SessionPlugin | SessionAction)


def batch_parts(
    plugins: Iterable[Callable[..., Any]], text: str = ""
) -> tuple[dict[str, type[SessionAction]], dict[str, type[SessionPlugin]]]:
    """(actions, session plugins) by name: of the given plugins, and of installed ones named in a
    configuration. Raises ContractError for a duplicate name."""
    from stowplan.batch import SessionAction, SessionPlugin

    actions: dict[str, type[SessionAction]] = {}
    session_plugins: dict[str, type[SessionPlugin]] = {}
    for plugin in dict.fromkeys((*plugins, *installed_plugins(text))):
        if not isinstance(plugin, type) or not issubclass(plugin, SessionPlugin | SessionAction):
            continue
        where = f"class {plugin.__module__}.{plugin.__qualname__}"
        if not plugin.name:
            raise ContractError(
                f"{where}: invalid name: {plugin.name!r}: expected a non-empty string"
            )
        taken: Mapping[str, type[Any]] = (
            actions if issubclass(plugin, SessionAction) else session_plugins
        )
        if plugin.name in taken:
            raise ContractError(duplicate_name(taken[plugin.name], plugin, "class"))
        if issubclass(plugin, SessionAction):
            actions[plugin.name] = plugin
        else:
            session_plugins[plugin.name] = plugin
    return actions, session_plugins


def _may_be_plugin(value: object) -> bool:
    return inspect.isclass(value) or is_rule(value)


def _missing_parts(module: ModuleType) -> str:
    """Why the classes of a file are not plugins."""
    texts = []
    for value in vars(module).values():
        if not inspect.isclass(value) or value.__module__ != module.__name__:
            continue
        if is_batch_part(value):
            texts.append(f"class {value.__name__} has no `name`")
        elif not points_of(value):
            hints = [hint for method in public_methods(value) if (hint := suggest_method(method))]
            texts.append(f"class {value.__name__} implements no extension point" + "".join(hints))
        else:
            texts.append(f"class {value.__name__} has no `name`")
    return f" ({'; '.join(texts)})" if texts else ""


def installed_plugins(text: str) -> tuple[type[Any], ...]:
    """Plugin classes of installed distributions whose entry-point name occurs in `text`.

    Others are not imported, so a broken distribution affects only its users. Raises ContractError
    if a named plugin cannot be loaded.
    """
    return tuple(map(_loaded, _named_entries(text)))


def _named_entries(text: str) -> list[EntryPoint]:
    """Entry points whose name occurs in `text`, by name."""
    entries = _entries(tuple(sys.path)) if text else ()
    # A distribution that is on the path twice is found twice; the first one counts.
    named = {entry.name: entry for entry in reversed(entries) if _mentions(text, entry.name)}
    return [named[name] for name in sorted(named)]


class InstalledPlugin(NamedTuple):
    """An installed plugin that a configuration names. code: SHA-256 of its file and of those of its
    package that it imports. distributions: its own and those of what it imports -> version."""

    name: str
    code: str
    distributions: dict[str, str]

    @property
    def identity(self) -> dict[str, Any]:
        """What it is made of."""
        return {"code": self.code, "distributions": self.distributions}


def installed_code(text: str) -> tuple[InstalledPlugin, ...]:
    """What the installed plugins whose names occur in `text` are made of; raises ContractError."""
    found = []
    for entry in _named_entries(text):
        module = sys.modules[_loaded(entry).__module__]
        file = str(module.__file__)
        code = code_of(file, module.__package__ or "")
        digest = sha256(read_source(file))
        for name, path in code.files.items():
            digest.update(name.encode() + read_source(path))
        own = {} if entry.dist is None else {entry.dist.name: entry.dist.version}
        distributions = dict(sorted((own | dict(code.distributions)).items()))
        found.append(InstalledPlugin(entry.name, digest.hexdigest(), distributions))
    return tuple(found)


@lru_cache(maxsize=4)
def _entries(path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Entry points of the distributions on a path, which must be the current sys.path."""
    # Imported here: without a configuration none is looked for.
    from importlib.metadata import entry_points

    return tuple(entry_points(group=ENTRY_POINTS))


def _mentions(text: str, name: str) -> bool:
    return re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", text) is not None


def _loaded(entry: EntryPoint) -> type[Any]:
    owner = (
        f"distribution {entry.dist.name} {entry.dist.version}"
        if entry.dist
        else "unknown distribution"
    )
    where = f"{owner}, entry point {entry.name} = {entry.value}"
    try:
        plugin = entry.load()
    # An import of third-party code may raise anything; the error names the distribution.
    except Exception as failure:
        raise ContractError(f"{where}: {type(failure).__name__}: {failure}") from failure
    plugin = plugin_of(plugin)
    if not isinstance(plugin, type):
        expected = "a plugin class, or a function under @score, @filter or @priority"
        raise ContractError(
            f"{where}: invalid object of type {type(plugin).__name__}: expected {expected}"
        )
    name = getattr(plugin, "name", entry.name)
    if name != entry.name:
        raise ContractError(f"{where}: invalid plugin name: {name!r}: expected {entry.name!r}")
    return plugin
