"""Exceptions that nothing expects, of controllers and observers: each is one object's failure.

They are kept until a driver takes them to log them, and counted for `/metrics`; the rest goes on.
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
    """counts: all there ever were, by component; of those not taken only the last are kept."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.failing: Callable[[], Mapping[str, int]] = dict
        """Objects that fail now, by controller; given by what drives the controllers."""
        self._untaken: deque[ComponentError] = deque(maxlen=ERRORS_KEPT_MAX)

    def add(self, component: str, about: str, error: Exception) -> None:
        """Something failed in a way that nothing expects."""
        self.counts[component] += 1
        self._untaken.append(ComponentError(component, about, error))

    def take(self) -> list[ComponentError]:
        """Those since this was last asked, oldest first."""
        taken = list(self._untaken)
        self._untaken.clear()
        return taken
