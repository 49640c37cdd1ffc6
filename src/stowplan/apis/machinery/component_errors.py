"""Unexpected exceptions of controllers and observers, each about one object.

They are kept until a driver takes them to log them, and counted for `/metrics`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

ERRORS_KEPT_MAX = 100


class ComponentError(NamedTuple):
    """component: the controller or observer. about: the object it worked on."""

    component: str
    about: str
    error: Exception


class ComponentErrors:
    """counts: of all errors, by component. Of errors not yet taken only the last are kept."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.failing: Callable[[], Mapping[str, int]] = dict
        """Number of objects that fail now, by controller; set by the controller manager."""
        self._untaken: deque[ComponentError] = deque(maxlen=ERRORS_KEPT_MAX)

    def add(self, component: str, about: str, error: Exception) -> None:
        """Record an unexpected exception."""
        self.counts[component] += 1
        self._untaken.append(ComponentError(component, about, error))

    def take(self) -> list[ComponentError]:
        """The errors since the last call, oldest first."""
        taken = list(self._untaken)
        self._untaken.clear()
        return taken
