"""Deprecated names: the public API under its old names, for one release, with a DeprecationWarning.

A module lists its old names in a table and hands it to `deprecated_names`; a package lists the
modules that left it in a table and hands it to `deprecated_modules`. Each table is data, so that a
test walks all of them.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, ClassVar, TypeVar, cast

import msgspec

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


class MovedModule(msgspec.Struct, frozen=True):
    """Where a module is now.

    names: old name -> "name" there or "module:name", where a name changed with the move or went to
    another module. function: the new name of the function that had the module's name, for a package
    that exported it under that name.
    """

    target: str
    names: dict[str, str] = {}
    function: str = ""

    def value(self, name: str) -> Any:
        """The value that had this name in the module; raises AttributeError."""
        module, _, new = self.names.get(name, name).rpartition(":")
        return getattr(import_module(module or self.target), new)


# All tables, by module: old name -> "name" of the same module or "module:name" of another.
NAMES: dict[str, Mapping[str, str]] = {}
# Old path of a module -> where it is now.
MODULES: dict[str, MovedModule] = {}
# Functions and structs by "module.qualified name": old keyword -> new keyword.
KEYWORDS: dict[str, Mapping[str, str]] = {}


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
    """An attribute `old` that reads and writes the attribute `new`."""

    def get(self: Any) -> Any:
        _warn(f"{type(self).__name__}.{old}", new)
        return getattr(self, new)

    def set_(self: Any, value: Any) -> None:
        _warn(f"{type(self).__name__}.{old}", new)
        setattr(self, new, value)

    return property(get, set_, doc=f"Deprecated: use `{new}`.")


def deprecated_method(old: str, new: str) -> Any:
    """A method `old` that calls the method `new`."""

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        _warn(f"{type(self).__name__}.{old}", new)
        return getattr(self, new)(*args, **kwargs)

    call.__doc__ = f"Deprecated: use `{new}`."
    return call


def deprecated_keywords(**names: str) -> Callable[[FunctionT], FunctionT]:
    """Let a function be called with old keywords. names: old keyword -> new keyword."""

    def decorate(function: FunctionT) -> FunctionT:
        title = function.__qualname__.removesuffix(".__init__")
        KEYWORDS[f"{function.__module__}.{title}"] = names

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if not names.keys().isdisjoint(kwargs):
                kwargs = _renamed(title, names, kwargs)
            return function(*args, **kwargs)

        return cast("FunctionT", call)

    return decorate


class RenamedFields(msgspec.StructMeta):
    """Metaclass of structs with renamed fields, which can be constructed with the old keywords.

    The struct's OLD_FIELDS: old keyword -> new keyword.
    """

    OLD_FIELDS: ClassVar[Mapping[str, str]]

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        KEYWORDS[f"{self.__module__}.{self.__qualname__}"] = self.OLD_FIELDS

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Raises TypeError for unknown keywords."""
        if not self.OLD_FIELDS.keys().isdisjoint(kwargs):
            kwargs = _renamed(self.__name__, self.OLD_FIELDS, kwargs)
        return super().__call__(*args, **kwargs)


def _renamed(title: str, names: Mapping[str, str], given: dict[str, Any]) -> dict[str, Any]:
    """The keywords with their new names, and a warning for each old one."""
    renamed: dict[str, Any] = {}
    for keyword, value in given.items():
        new = names.get(keyword, keyword)
        if new != keyword:
            warnings.warn(
                f"{title}({keyword}=) is deprecated and will be removed in the next release; "
                f"use {new}",
                DeprecationWarning,
                stacklevel=3,
            )
        if new in renamed:
            raise TypeError(f"{title}() got multiple values for argument {new!r}")
        renamed[new] = value
    return renamed


def deprecated_modules(moved: Mapping[str, MovedModule]) -> None:
    """Let modules be imported by their old paths."""
    MODULES.update(moved)
    if not any(isinstance(finder, _MovedModuleFinder) for finder in sys.meta_path):
        sys.meta_path.append(_MovedModuleFinder())


class _MovedModuleFinder:
    """Finds a module under its old path, after every other finder has failed. Without the base
    classes of `importlib.abc`, whose import takes longer than the rest of this module's."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in MODULES:
            return None
        is_package = any(module.startswith(f"{fullname}.") for module in MODULES)
        return ModuleSpec(fullname, cast(Any, self), is_package=is_package)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """None: a plain module."""

    def exec_module(self, module: ModuleType) -> None:
        old = module.__name__
        moved = MODULES[old]
        # Level 2: the statement that imports; frames of importlib are not counted.
        warnings.warn(
            f"{old} is deprecated and will be removed in the next release; use {moved.target}",
            DeprecationWarning,
            stacklevel=2,
        )
        import_module(moved.target)
        module.__doc__ = f"Deprecated: use `{moved.target}`."
        module.__dict__["__getattr__"] = moved.value
        if moved.function:
            module.__class__ = _CallableModule


class _CallableModule(ModuleType):
    """A module that is called as the function that had its name."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        moved = MODULES[self.__name__]
        return moved.value(moved.function)(*args, **kwargs)
