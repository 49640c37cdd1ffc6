"""Plugin classes by name, of which some are imported when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any


class PluginClasses(Mapping[str, type[Any]]):
    """Name -> class. Names, `in` and `len` import nothing; items and values import all."""

    def __init__(
        self, imported: Mapping[str, type[Any]], later: Mapping[str, str], package: str
    ) -> None:
        """imported: come first. later: name -> module below the package, with ":class" if the class
        has another name."""
        self._found: dict[str, type[Any]] = dict(imported)
        self._later = {name: f"{package}.{place}" for name, place in later.items()}
        self._names = dict.fromkeys((*imported, *later))

    def __getitem__(self, name: str) -> type[Any]:
        found = self._found.get(name)
        if found is None:
            module, _, attribute = self._later[name].partition(":")
            found = self._found[name] = getattr(import_module(module), attribute or name)
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
