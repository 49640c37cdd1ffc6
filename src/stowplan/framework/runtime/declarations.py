"""Declarations of plugins: read from a class or an object, and checked; which annotations they
read."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterable, Iterator
from functools import lru_cache
from types import FunctionType
from typing import Any

import msgspec

from stowplan.framework.plugin import Plugin
from stowplan.framework.plugin_calls import class_location
from stowplan.framework.problems import ContractError
from stowplan.objects.pod import Pod

FIELDS = Plugin.__struct_fields__
DECLARATION = "declaration"
OTHER_NAMES = ("Args", "REJECTED", DECLARATION)
"""Attributes with a meaning that are no fields of the declaration."""
RENAMED = {"reads_objects": "reads"}
"""Old name -> field; both are read for one release."""
EDITS_MAX = 2
SHORT_NAME = 5
"""In names of up to this length one edit counts as near: two make `node` of `name`."""
CLASSES_KEPT = 1000


def declaration_of(plugin: Any) -> Plugin:
    """The checked declaration of a plugin class, or of an object, whose own `declaration` counts
    more than that of its class. Raises ContractError."""
    owner: Any = plugin if isinstance(plugin, type) else type(plugin)
    declared = _of_class(owner)
    if owner is plugin:
        return declared
    own = getattr(plugin, "__dict__", {})
    given = own.get(DECLARATION)
    if given is not None:
        where = _where(type(plugin))
        _check_type(given, where)
        if given.name != declared.name:
            raise ContractError(
                f"{where}: `self.declaration` has the name {given.name!r}: expected "
                f"{declared.name!r}, the name of the class"
            )
        return given if isinstance(given, Plugin) else declared
    for field in FIELDS:
        # An attribute of another meaning may be called `name`, `weight` or `reads`.
        if field in own and field not in ("name", "weight", "reads"):
            raise ContractError(
                f"{_where(type(plugin))}: `self.{field}` is set by the constructor: expected "
                f"`self.declaration = Plugin(name=..., {field}=...)`, or a class attribute"
            )
    return declared


@lru_cache(CLASSES_KEPT)
def _of_class(plugin: type[Any]) -> Plugin:
    where = _where(plugin)
    for name, near in misspelt_fields(plugin):
        raise ContractError(
            f"{where}: unknown attribute {name!r} (did you mean {near!r}?){class_location(plugin)}"
        )
    short = {field: getattr(plugin, field) for field in FIELDS if hasattr(plugin, field)}
    for old, field in RENAMED.items():
        if hasattr(plugin, old):
            message = f"{where}: `{old}` is deprecated, use `{field}`"
            warnings.warn(message, DeprecationWarning, stacklevel=2)
            short.setdefault(field, getattr(plugin, old))
    declared = getattr(plugin, DECLARATION, None)
    if declared is None:
        # Without a name it is no plugin, whatever else it declares.
        return _checked({"name": None, **short}, where, class_location(plugin))
    _check_type(declared, where)
    for field, value in short.items():
        if field == "name" and value == declared.name:
            continue
        raise ContractError(
            f"{where}: `{field}` is given beside `declaration`: expected one of them"
            f"{class_location(plugin)}"
        )
    result: Plugin = declared
    return result


def _checked(fields: dict[str, Any], where: str, location: str) -> Plugin:
    try:
        return Plugin(**fields)
    except ContractError as wrong:
        raise ContractError(f"{where}: {wrong}{location}") from None


def _check_type(declared: object, where: str) -> None:
    if not isinstance(declared, Plugin):
        raise ContractError(
            f"{where}: `declaration` is {declared!r}: expected Plugin(name=..., ...)"
        )


def _where(plugin: type[Any]) -> str:
    return f"plugin class {plugin.__module__}.{plugin.__qualname__}"


def check_arguments(declared: Plugin, args: type[msgspec.Struct], where: str) -> None:
    """Raise ContractError where a declaration does not go with the plugin's arguments."""
    if declared.takes_ignored_resources and "ignored_resources" not in args.__struct_fields__:
        raise ContractError(
            f"{where}: `takes_ignored_resources` is True and {args.__name__} has no field "
            "`ignored_resources`"
        )


def ineffective_fields(plugin: type[Any]) -> Iterator[str]:
    """Warnings for fields of a declaration that have no effect."""
    if declaration_of(plugin).row_local and not hasattr(plugin, "signature"):
        where = f"{_where(plugin)}{class_location(plugin)}"
        yield f"{where}: `row_local` has no effect without a method `signature(pod)`"


def misspelt_fields(plugin: type[Any]) -> Iterator[tuple[str, str]]:
    """(attribute, the name that it is near) of data attributes that are probably misspelt; what
    the class gives as well is not what was meant."""
    known = (*FIELDS, *OTHER_NAMES, *RENAMED)
    missing = [name for name in (*FIELDS, *OTHER_NAMES) if not hasattr(plugin, name)]
    for owner in plugin.__mro__[:-1]:
        for name, value in vars(owner).items():
            if isinstance(value, FunctionType) or name.startswith("_") or name in known:
                continue
            near = next((field for field in missing if _is_near(name, field)), "")
            if near and not _is_behaviour(value):
                yield name, near


def _is_near(name: str, field: str) -> bool:
    edits = 1 if len(field) <= SHORT_NAME else EDITS_MAX
    # An edit changes the length by one and the letters by two: most names differ in more.
    return (
        abs(len(name) - len(field)) <= edits
        and len(set(name).symmetric_difference(field)) <= 2 * edits
        and edit_distance(name, field) <= edits
    )


def _is_behaviour(value: object) -> bool:
    return inspect.isroutine(value) or inspect.isdatadescriptor(value)


def edit_distance(first: str, second: str) -> int:
    """Insertions, deletions, replacements and swaps of neighbours that make `second` of `first`."""
    before: list[int] = []
    row = list(range(len(second) + 1))
    for i, a in enumerate(first, 1):
        last, before, row = before, row, [i]
        for j, b in enumerate(second, 1):
            cost = min(row[-1] + 1, before[j] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and a == second[j - 2] and b == first[i - 2]:
                cost = min(cost, last[j - 2] + 1)
            row.append(cost)
    return row[-1]


class ReadAnnotations:
    """The annotations of a pod on which the answers of a profile's plugins depend."""

    __slots__ = ("_further", "_keys", "_nothing", "_read")

    def __init__(self, declared: Iterable[Plugin]) -> None:
        """declared: of the plugins."""
        keys: set[str] = set()
        further: set[tuple[str, tuple[str, ...]]] = set()
        for one in declared:
            keys.update(one.reads_annotations, (key for key, _ in one.reads_annotations_with))
            further.update(one.reads_annotations_with)
        self._keys = tuple(sorted(keys))
        self._read = frozenset(keys)
        self._further = tuple(sorted(further))
        self._nothing: tuple[str | None, ...] = (None,) * len(keys)

    def of_pod(self, pod: Pod) -> tuple[str | None, ...]:
        """The annotations of a pod that plugins read, in a fixed order; empty where they read
        none, whatever the pod has."""
        annotations = pod.metadata.annotations
        if self._read.isdisjoint(annotations):
            return self._nothing
        found = [annotations.get(key) for key in self._keys]
        for key, others in self._further:
            if key in annotations:
                found += [annotations.get(other) for other in others]
        return tuple(found)
