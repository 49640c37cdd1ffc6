"""Plugins of one's own: classes from a Python file, or from an installed distribution."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import inspect
import sys
import traceback
from types import ModuleType
from typing import Any

from stowplan.framework import ContractError
from stowplan.framework.points import near_point, points_of, public_methods

ENTRY_POINTS = "stowplan.plugins"


def plugins_of_file(path: str) -> tuple[type[Any], ...]:
    """The plugin classes that a Python file defines, in the order of the file.

    A plugin is a class with a `name` that implements at least one extension point. Raises
    ContractError when the file cannot be run or defines none.
    """
    module = _run(path)
    found = [
        value
        for value in vars(module).values()
        if inspect.isclass(value)
        and value.__module__ == module.__name__
        and isinstance(getattr(value, "name", None), str)
        and points_of(value)
    ]
    for plugin in found:
        for method in public_methods(plugin):
            hint = near_point(method)
            if hint:
                where = f"{path}: class {plugin.__name__}"
                raise ContractError(f"{where}: would never be called{hint}")
    if not found:
        raise ContractError(
            f"{path}: defines no plugin; wanted a class with a `name` and a method such as "
            f"filter or score{_nearly(module)}"
        )
    return tuple(found)


def _nearly(module: ModuleType) -> str:
    """What the classes of a file lack of being plugins."""
    texts = []
    for value in vars(module).values():
        if not inspect.isclass(value) or value.__module__ != module.__name__:
            continue
        if not points_of(value):
            hints = [hint for method in public_methods(value) if (hint := near_point(method))]
            texts.append(f"class {value.__name__} implements no extension point" + "".join(hints))
        else:
            texts.append(f"class {value.__name__} has no `name`")
    return f" ({'; '.join(texts)})" if texts else ""


def installed_plugins(text: str) -> tuple[type[Any], ...]:
    """The plugin classes of installed distributions whose entry-point name occurs in `text`.

    What no configuration names is not imported, so a broken distribution breaks only those who
    use it. Raises ContractError where one that is named cannot be loaded.
    """
    entries = importlib.metadata.entry_points(group=ENTRY_POINTS)
    return tuple(_loaded(entry) for entry in entries if entry.name in text)


def _loaded(entry: importlib.metadata.EntryPoint) -> type[Any]:
    owner = f"distribution {entry.dist.name} {entry.dist.version}" if entry.dist else "somebody"
    where = f"{owner}, entry point {entry.name} = {entry.value}"
    try:
        plugin = entry.load()
    # Whatever importing a stranger's module raises, the user reads whose it is.
    except Exception as failure:
        raise ContractError(f"{where}: {type(failure).__name__}: {failure}") from failure
    if not isinstance(plugin, type):
        raise ContractError(f"{where}: is a {type(plugin).__name__}, wanted a class")
    return plugin


def _run(path: str) -> ModuleType:
    name = "stowplan_plugin_" + "".join(c if c.isalnum() else "_" for c in path)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ContractError(f"{path}: is no Python file; wanted a name that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    # A file may import what stands beside it, as a script may.
    beside = str(path).rpartition("/")[0] or "."
    sys.path.insert(0, beside)
    try:
        spec.loader.exec_module(module)
    # Whatever a user's file raises is the user's to read, with its place in that file.
    except Exception as failure:
        del sys.modules[name]
        raise ContractError(f"{path}{_line_in(path, failure)}: {_said(failure)}") from failure
    finally:
        sys.path.remove(beside)
    return module


def _line_in(path: str, failure: Exception) -> str:
    if isinstance(failure, SyntaxError):
        return f":{failure.lineno}"
    lines = [f.lineno for f in traceback.extract_tb(failure.__traceback__) if f.filename == path]
    return f":{lines[-1]}" if lines else ""


def _said(failure: Exception) -> str:
    if isinstance(failure, OSError):
        return f"cannot be read: {failure.strerror}"
    text = failure.msg if isinstance(failure, SyntaxError) else str(failure)
    return f"{type(failure).__name__}: {text}"
