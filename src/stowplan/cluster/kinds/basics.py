"""Strategies that many kinds share: status apart from spec, generation, immutable metadata.

Source: kubernetes v1.36, pkg/registry: the strategies of the kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from stowplan.cluster.errors import Cause
from stowplan.cluster.names import (
    label_1035_problems,
    label_problems,
    path_segment_problems,
    subdomain_problems,
)
from stowplan.cluster.resource import Call, Strategy, Tree

Check = Callable[[Tree], Iterable[Cause]]
UpdateCheck = Callable[[Tree, Tree], Iterable[Cause]]
NameCheck = Callable[[str, bool], list[str]]

LABEL: NameCheck = label_problems
LABEL_1035: NameCheck = label_1035_problems
SUBDOMAIN: NameCheck = subdomain_problems
SEGMENT: NameCheck = path_segment_problems


class Plain(Strategy):
    """A kind that is what its client says: checks, and perhaps a generation and a status.

    status: what a new object's status is, None for kinds without one. counted: the top-level
    fields whose change raises metadata.generation; empty where it is not kept. first: the
    generation of a new object; 0: it has none until something changes.
    """

    def __init__(
        self,
        check: Check | None = None,
        update_check: UpdateCheck | None = None,
        *,
        status: Tree | None = None,
        counted: tuple[str, ...] = (),
        first: int = 1,
        names: NameCheck = SUBDOMAIN,
        create_on_update: bool = False,
        unconditional: bool = True,
        returns_deleted: bool = False,
        storage_path: str = "",
    ) -> None:
        self._check = check
        self._update_check = update_check
        self._status = status
        self._counted = counted
        self._first = first
        self._names = names
        self.create_on_update = create_on_update
        self.unconditional_update = unconditional
        self.returns_deleted = returns_deleted
        self.storage_path = storage_path

    def name_problems(self, name: str, prefix: bool) -> list[str]:
        return self._names(name, prefix)

    def prepare_create(self, obj: Tree, call: Call) -> None:
        if self._status is not None:
            obj["status"] = dict(self._status)
        if self._counted and self._first:
            obj["metadata"]["generation"] = self._first

    def prepare_update(self, new: Tree, old: Tree, call: Call) -> None:
        if self._status is not None:
            keep(new, old, "status")
        if self._counted:
            count(new, old, self._counted)

    def validate(self, obj: Tree, call: Call) -> Iterable[Cause]:
        return self._check(obj) if self._check is not None else ()

    def validate_update(self, new: Tree, old: Tree, call: Call) -> Iterable[Cause]:
        if self._update_check is not None:
            return self._update_check(new, old)
        return self.validate(new, call)


RESET = ("labels", "annotations", "finalizers", "ownerReferences")
"""What the status of some kinds leaves alone in metadata."""


class StatusOnly(Strategy):
    """The status subresource: only the status may change, and labels where the original lets them.

    kept: top-level fields put back. meta: fields of metadata put back.
    """

    def __init__(
        self,
        check: UpdateCheck | None = None,
        *,
        kept: tuple[str, ...] = ("spec",),
        meta: tuple[str, ...] = (),
    ) -> None:
        self._check = check
        self._kept = kept
        self._meta = meta

    def prepare_update(self, new: Tree, old: Tree, call: Call) -> None:
        for name in self._kept:
            keep(new, old, name)
        for name in self._meta:
            keep(new["metadata"], old["metadata"], name)
        keep(new["metadata"], old["metadata"], "generation")

    def validate_update(self, new: Tree, old: Tree, call: Call) -> Iterable[Cause]:
        return self._check(new, old) if self._check is not None else ()


def keep(new: Tree, old: Tree, name: str) -> None:
    """Put a field back to what it was."""
    if name in old:
        new[name] = old[name]
    else:
        new.pop(name, None)


def count(new: Tree, old: Tree, names: tuple[str, ...]) -> None:
    """Raise the generation where one of the fields changed; clients cannot set it."""
    generation = old["metadata"].get("generation", 0)
    if any(new.get(name) != old.get(name) for name in names):
        generation += 1
    if generation:
        new["metadata"]["generation"] = generation
    else:
        new["metadata"].pop("generation", None)


def field(path: str) -> Callable[[Tree], str]:
    """A selectable field of text; "" where it is missing."""
    steps = path.split(".")

    def read(obj: Tree) -> str:
        value: Any = obj
        for step in steps:
            value = value.get(step)
            if value is None:
                return ""
        if value is True or value is False:
            return "true" if value else "false"
        return str(value)

    return read
