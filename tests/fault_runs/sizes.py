"""What a value holds, counted by the way that leads to it: `.cache.nodes.pods[][]` 214 objects.

All elements of a container stand under one way, so that what grows has a name. What is shared
counts once, where it is found first, the shortest way first.
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
"""What belongs to the program, not to a value."""
SEQUENCES = (list, tuple, deque, Set)

Found = Iterator[tuple[str, Any]]


class Sizes:
    """objects, bytes: by way, how many objects there are and how large they are."""

    def __init__(self, roots: Mapping[str, Any]) -> None:
        """roots: by what ways to them begin with. Weak keys are not held by their tables."""
        self.objects: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        # Kept, so that nothing that is made on the way takes the identity of another.
        self._seen: dict[int, Any] = {}
        self._weak: list[tuple[str, WeakKeyDictionary[Any, Any]]] = []
        ways = deque(roots.items())
        while ways:
            way, value = ways.popleft()
            if id(value) in self._seen or isinstance(value, NOT_HELD):
                continue
            self._seen[id(value)] = value
            self.objects[way] += 1
            self.bytes[way] += size_of(value)
            if isinstance(value, WeakKeyDictionary):
                self._weak.append((way, value))
            else:
                ways.extend((way + step, part) for step, part in parts(value))
            if not ways:
                ways.extend(self._held_for_the_sake_of_others())
        del self._seen, self._weak

    def _held_for_the_sake_of_others(self) -> Found:
        """What hangs on something that is held."""
        for way, table in self._weak:
            for key, value in list(table.items()):
                if id(key) in self._seen and id(value) not in self._seen:
                    yield way + "[]", value

    @property
    def n_objects(self) -> int:
        """All of them."""
        return self.objects.total()

    @property
    def n_bytes(self) -> int:
        """What they take, in bytes, without what the allocator adds."""
        return self.bytes.total()

    def grown(self, before: Sizes, *, share: float, slack: int) -> list[str]:
        """The ways that lead to more than before: by more than a share, and than some objects, or
        so many times a hundred bytes."""
        found = []
        for way, count in sorted(self.objects.items()):
            n_before, n_bytes = before.objects[way], self.bytes[way]
            if count > n_before * (1 + share) + slack:
                found.append(f"{way}: {n_before} objects, then {count}")
            elif n_bytes > before.bytes[way] * (1 + share) + 100 * slack:
                found.append(f"{way}: {before.bytes[way]} bytes, then {n_bytes}")
        return found


def size_of(value: Any) -> int:
    """Bytes of one object; of an array that is a view, without what it looks at."""
    if isinstance(value, np.ndarray):
        return value.nbytes if value.base is None else 0
    return sys.getsizeof(value, 0)


def parts(value: Any) -> Found:
    """What a value holds itself, each with the step that leads there."""
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
    """Attributes, in slots and otherwise."""
    for name, held in list(getattr(value, "__dict__", {}).items()):
        yield f".{name}", held
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                yield f".{name}", getattr(value, name)


def held_by_call(value: Any) -> Found:
    """What a function or a method brings along when it is called."""
    if isinstance(value, types.MethodType):
        yield ".self", value.__self__
    elif isinstance(value, functools.partial):
        yield from (("()", one) for one in (value.func, *value.args, *value.keywords.values()))
    else:
        names = value.__code__.co_freevars
        for name, cell in zip(names, value.__closure__ or (), strict=True):
            # A cell is empty while the function around has not come so far.
            yield from ((f".{name}", one) for one in gc.get_referents(cell))
        yield from (("()", one) for one in value.__defaults__ or ())


def of_modules(package: str) -> dict[str, Any]:
    """The containers that the modules of a package have at their outermost level."""
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
    """The functions of a package that keep answers: name, how many they keep, and at most."""
    for name, module in sorted(sys.modules.items()):
        if name.split(".")[0] != package:
            continue
        for variable, value in vars(module).items():
            if hasattr(value, "cache_info") and value.__module__ == name:
                info = value.cache_info()
                yield f"{name}:{variable}", info.currsize, info.maxsize


def resident() -> int:
    """Bytes of memory that this process occupies; 0 where the system does not say."""
    told = Path("/proc/self/statm")
    return int(told.read_text().split()[1]) * PAGE_BYTES if told.exists() else 0
