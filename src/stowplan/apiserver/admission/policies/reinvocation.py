"""Reinvocation: plugins that changed an object are run once more, and those that ask for it.

Source: apiserver v1.36, pkg/admission/reinvocation.go; webhook/mutating/reinvocationcontext.go;
policy/mutating/reinvocationcontext.go.
"""

from __future__ import annotations

import json
from collections.abc import Hashable

from stowplan.objects.encoding.tree import Tree


class Reinvocation:
    """The webhooks, or the policies, that one request has invoked.

    is_second: the chain of plugins runs again, in which none is invoked for the first time.
    has_changed: one has changed the object, so that the chain has to run again.
    """

    def __init__(self) -> None:
        self.is_second = False
        self.has_changed = False
        self._invoked: set[Hashable] = set()
        self._due: set[Hashable] = set()
        self._left = ""

    def begin(self, obj: Tree | None) -> None:
        """A run begins; what other plugins have changed since the last one makes all due."""
        if self.is_second and _content(obj) != self._left:
            self._require_invoked()

    def end(self, obj: Tree | None) -> None:
        """A run ends with this object."""
        self._left = _content(obj)

    def is_due(self, key: Hashable) -> bool:
        """True if this one is to be invoked."""
        return not self.is_second or key in self._due

    def changed(self) -> None:
        """The one that was just invoked has changed the object: those before it are due again."""
        self.has_changed = True
        self._require_invoked()

    def invoked(self, key: Hashable) -> None:
        """This one was invoked, and asks to be invoked again if needed."""
        self._invoked.add(key)

    def _require_invoked(self) -> None:
        self._due |= self._invoked
        self._invoked = set()


def _content(obj: Tree | None) -> str:
    return json.dumps(obj, sort_keys=True, default=str)
