"""Objects that a value holds, counted by path: `.cache.nodes.pods[][]` 214 objects.

All elements of a container have one path, so that what grows has a name. A shared object counts
once, at its shortest path.
"""

from __future__ import annotations

import functools
import gc
import sys
import types
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Set
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
import numpy as np

PAGE_BYTES = 4096
LEAVES = (str, bytes, int, float, complex, bool, type(None), np.generic, range)
NOT_HELD = (type, types.ModuleType, types.BuiltinFunctionType, types.CodeType)
"""Types of the program itself, not counted."""
SEQUENCES = (list, tuple, deque, Set)

Found = Iterator[tuple[str, Any]]


class ObjectSizes:
    """objects, bytes: path -> number and size of the objects there."""

    def __init__(self, roots: Mapping[str, Any]) -> None:
        """roots: path prefix -> value. Weak keys do not count as held by their tables."""
        self.objects: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        # Objects are kept so that no temporary object reuses an id.
        self._seen: dict[int, Any] = {}
        self._weak: list[tuple[str, WeakKeyDictionary[Any, Any]]] = []
        paths = deque(roots.items())
        while paths:
            path, value = paths.popleft()
            if id(value) in self._seen or isinstance(value, NOT_HELD):
                continue
            self._seen[id(value)] = value
            self.objects[path] += 1
            self.bytes[path] += size_of(value)
            if isinstance(value, WeakKeyDictionary):
                self._weak.append((path, value))
            else:
                paths.extend((path + step, part) for step, part in parts(value))
            if not paths:
                paths.extend(self._values_of_weak_keys())
        del self._seen, self._weak

    def _values_of_weak_keys(self) -> Found:
        """Values of weak tables whose keys are held."""
        for path, table in self._weak:
            for key, value in list(table.items()):
                if id(key) in self._seen and id(value) not in self._seen:
                    yield path + "[]", value

    @property
    def n_objects(self) -> int:
        """Total number of objects."""
        return self.objects.total()

    @property
    def n_bytes(self) -> int:
        """Total size in bytes, without allocator overhead."""
        return self.bytes.total()

    def grown(self, before: ObjectSizes, *, share: float, slack: int) -> list[str]:
        """Paths that grew by more than `share` and more than `slack` objects or 100 * `slack`
        bytes."""
        found = []
        for path, count in sorted(self.objects.items()):
            n_before, n_bytes = before.objects[path], self.bytes[path]
            if count > n_before * (1 + share) + slack:
                found.append(f"{path}: {n_before} objects, then {count}")
            elif n_bytes > before.bytes[path] * (1 + share) + 100 * slack:
                found.append(f"{path}: {before.bytes[path]} bytes, then {n_bytes}")
        return found


def size_of(value: Any) -> int:
    """Bytes of one object; 0 for an array that is a view."""
    if isinstance(value, np.ndarray):
        return value.nbytes if value.base is None else 0
    return sys.getsizeof(value, 0)


def parts(value: Any) -> Found:
    """The objects that a value holds directly, each with its path step."""
    if isinstance(value, LEAVES):
        return
    if isinstance(value, np.ndarray):
        if value.base is not None:
            yield "", value.base
    elif isinstance(value, Mapping):
        yield from (("{}", key) for key in list(value))
        yield from (("[]", one) for one in list(value.values()))
        yield from attributes(value)
    elif isinstance(value, SEQUENCES):
        yield from (("[]", one) for one in list(value))
        yield from attributes(value)
    elif isinstance(value, types.FunctionType | types.MethodType | functools.partial):
        yield from held_by_call(value)
    elif isinstance(value, msgspec.Struct):
        yield from ((f".{name}", getattr(value, name)) for name in value.__struct_fields__)
        yield from attributes(value)
    elif any(True for _ in attributes(value)):
        yield from attributes(value)
    else:
        yield from (("?", one) for one in gc.get_referents(value))


def attributes(value: Any) -> Found:
    """Attributes in `__dict__` and slots."""
    for name, held in list(getattr(value, "__dict__", {}).items()):
        yield f".{name}", held
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                yield f".{name}", getattr(value, name)


def held_by_call(value: Any) -> Found:
    """Objects held by a function, method or partial: self, arguments, closure, defaults."""
    if isinstance(value, types.MethodType):
        yield ".self", value.__self__
    elif isinstance(value, functools.partial):
        yield from (("()", one) for one in (value.func, *value.args, *value.keywords.values()))
    else:
        names = value.__code__.co_freevars
        for name, cell in zip(names, value.__closure__ or (), strict=True):
            # A cell is empty until the outer function has assigned it.
            yield from ((f".{name}", one) for one in gc.get_referents(cell))
        yield from (("()", one) for one in value.__defaults__ or ())


def of_modules(package: str) -> dict[str, Any]:
    """Module-level containers of a package."""
    modules = [(n, m) for n, m in sorted(sys.modules.items()) if n.split(".")[0] == package]
    return {
        f"{name}:{variable}": value
        for name, module in modules
        for variable, value in list(vars(module).items())
        if isinstance(value, Mapping | WeakKeyDictionary | list | set | deque)
        and not variable.startswith("__")
        and not isinstance(value, types.MappingProxyType)
    }


def kept_calls(package: str) -> Iterable[tuple[str, int, int | None]]:
    """Cached functions of a package: name, entries, maximum."""
    for name, module in sorted(sys.modules.items()):
        if name.split(".")[0] != package:
            continue
        for variable, value in vars(module).items():
            if hasattr(value, "cache_info") and value.__module__ == name:
                info = value.cache_info()
                yield f"{name}:{variable}", info.currsize, info.maxsize


def resident() -> int:
    """Resident set size of this process in bytes; 0 where /proc is missing."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * PAGE_BYTES if statm.exists() else 0
