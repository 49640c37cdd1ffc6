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
from stowplan.framework.points import points_of

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
    if not found:
        raise ContractError(
            f"{path}: defines no plugin; wanted a class with a `name` and a method such as "
            "filter or score"
        )
    return tuple(found)


def installed_plugins() -> tuple[type[Any], ...]:
    """The plugin classes that installed distributions offer in the group `stowplan.plugins`."""
    return tuple(entry.load() for entry in importlib.metadata.entry_points(group=ENTRY_POINTS))


def _run(path: str) -> ModuleType:
    name = "stowplan_plugin_" + "".join(c if c.isalnum() else "_" for c in path)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ContractError(f"{path}: is no Python file; wanted a name that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    # Whatever a user's file raises is the user's to read, with its place in that file.
    except Exception as failure:
        del sys.modules[name]
        raise ContractError(f"{path}{_line_in(path, failure)}: {_said(failure)}") from failure
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
