"""Deprecated names: the public API under its old names, for one release, with a DeprecationWarning.

A module lists its old names in a table and hands it to `deprecated_names`; a package lists the
modules that left it in a table and hands it to `deprecated_modules`. Each table is data, so that a
test walks all of them.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import msgspec


class MovedModule(msgspec.Struct, frozen=True):
    """Where a module is now. names: old name -> new name, where a name changed with the move."""

    target: str
    names: dict[str, str] = {}


# All tables, by module: old name -> "name" of the same module or "module:name" of another.
NAMES: dict[str, Mapping[str, str]] = {}
# Old path of a module -> where it is now.
MODULES: dict[str, MovedModule] = {}


def _warn(old: str, new: str) -> None:
    # Level 3: the caller of the `__getattr__`, property or method that warns.
    warnings.warn(
        f"{old} is deprecated and will be removed in the next release; use {new}",
        DeprecationWarning,
        stacklevel=3,
    )


def deprecated_names(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a module whose public names have changed."""
    NAMES[module] = names

    def getattr_(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        target, _, new = names[name].rpartition(":")
        _warn(f"{module}.{name}", f"{target or module}.{new}")
        return getattr(import_module(target or module), new)

    return getattr_


def deprecated_property(old: str, new: str) -> Any:
    """A read-only attribute `old` that answers with the attribute `new`."""

    def get(self: Any) -> Any:
        _warn(f"{type(self).__name__}.{old}", new)
        return getattr(self, new)

    return property(get, doc=f"Deprecated: use `{new}`.")


def deprecated_method(old: str, new: str) -> Any:
    """A method `old` that calls the method `new`."""

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        _warn(f"{type(self).__name__}.{old}", new)
        return getattr(self, new)(*args, **kwargs)

    call.__doc__ = f"Deprecated: use `{new}`."
    return call


def deprecated_modules(moved: Mapping[str, MovedModule]) -> None:
    """Let modules be imported by their old paths."""
    MODULES.update(moved)
    if not any(isinstance(finder, _MovedModuleFinder) for finder in sys.meta_path):
        sys.meta_path.append(_MovedModuleFinder())


class _MovedModuleFinder(MetaPathFinder, Loader):
    """Finds a module under its old path, after every other finder has failed."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in MODULES:
            return None
        is_package = any(module.startswith(f"{fullname}.") for module in MODULES)
        return ModuleSpec(fullname, self, is_package=is_package)

    def exec_module(self, module: ModuleType) -> None:
        old = module.__name__
        moved = MODULES[old]
        # Level 2: the statement that imports; frames of importlib are not counted.
        warnings.warn(
            f"{old} is deprecated and will be removed in the next release; use {moved.target}",
            DeprecationWarning,
            stacklevel=2,
        )
        current = import_module(moved.target)

        def getattr_(name: str) -> Any:
            return getattr(current, moved.names.get(name, name))

        module.__doc__ = f"Deprecated: use `{moved.target}`."
        module.__dict__["__getattr__"] = getattr_
