"""Strategies that many kinds share.

Source: kubernetes v1.36, pkg/registry: the strategies of the kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from stowplan.apis.machinery.errors import Cause
from stowplan.apis.machinery.names import path_segment_problems, subdomain_problems
from stowplan.apis.machinery.resource import ApiCall, ResourceStrategy
from stowplan.apis.schema.internal_form import internal_form
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

Check = Callable[[Tree], Iterable[Cause]]
UpdateCheck = Callable[[Tree, Tree], Iterable[Cause]]
ObjectNameCheck = Callable[[str, bool], list[str]]

SUBDOMAIN_NAME: ObjectNameCheck = subdomain_problems
PATH_SEGMENT_NAME: ObjectNameCheck = path_segment_problems


class BuiltinStrategy(ResourceStrategy):
    """Strategy of a kind: validation, and optionally a status and metadata.generation.

    status: of a new object, None for kinds without one. counted: top-level fields whose change
    raises metadata.generation; empty for kinds without it. first: the generation of a new object;
    0: none until something changes.
    """

    def __init__(
        self,
        check: Check | None = None,
        update_check: UpdateCheck | None = None,
        *,
        status: Tree | None = None,
        counted: tuple[str, ...] = (),
        first: int = 1,
        names: ObjectNameCheck = SUBDOMAIN_NAME,
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

    def prepare_create(self, obj: Tree, call: ApiCall) -> None:
        if self._status is not None:
            obj["status"] = dict(self._status)
        if self._counted and self._first:
            obj["metadata"]["generation"] = self._first

    def prepare_update(self, new: Tree, old: Tree, call: ApiCall) -> None:
        if self._status is not None:
            restore_field(new, old, "status")
        if self._counted:
            update_generation(new, old, self._counted)

    def validate(self, obj: Tree, call: ApiCall) -> Iterable[Cause]:
        return self._check(obj) if self._check is not None else ()

    def validate_update(self, new: Tree, old: Tree, call: ApiCall) -> Iterable[Cause]:
        if self._update_check is not None:
            return self._update_check(new, old)
        return self.validate(new, call)


def immutable_fields(*paths: str, check: Check | None = None, printed_as: str = "") -> UpdateCheck:
    """The check of an update that keeps the fields at `paths`.

    check: of the new object, first. printed_as: type in whose internal form a cause shows a value.
    """

    def validate_update(new: Tree, old: Tree) -> Iterator[Cause]:
        if check is not None:
            yield from check(new)
        for path in paths:
            value, before = (field_checks.get(one, *path.split(".")) for one in (new, old))
            printed = internal_form(printed_as, value) if printed_as else None
            yield from field_checks.immutable(value, before, path, printed)

    return validate_update


METADATA_RESET_FIELDS = ("labels", "annotations", "finalizers", "ownerReferences")
"""Fields of metadata that the status subresource of some kinds does not change."""


class StatusStrategy(ResourceStrategy):
    """The status subresource: changes status, and metadata as far as the original does.

    kept: top-level fields that keep their stored value. meta: the same for fields of metadata.
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

    def prepare_update(self, new: Tree, old: Tree, call: ApiCall) -> None:
        for name in self._kept:
            restore_field(new, old, name)
        for name in self._meta:
            restore_field(new["metadata"], old["metadata"], name)
        restore_field(new["metadata"], old["metadata"], "generation")

    def validate_update(self, new: Tree, old: Tree, call: ApiCall) -> Iterable[Cause]:
        return self._check(new, old) if self._check is not None else ()


def restore_field(new: Tree, old: Tree, name: str) -> None:
    """Restore the stored value of a field."""
    if name in old:
        new[name] = old[name]
    else:
        new.pop(name, None)


def update_generation(new: Tree, old: Tree, names: tuple[str, ...]) -> None:
    """Increment metadata.generation if one of the fields changed; clients cannot set it."""
    generation = old["metadata"].get("generation", 0)
    if any(new.get(name) != old.get(name) for name in names):
        generation += 1
    if generation:
        new["metadata"]["generation"] = generation
    else:
        new["metadata"].pop("generation", None)


def selectable_fields(*paths: str) -> dict[str, Callable[[Tree], str]]:
    """Readers of selectable fields, by path."""
    return {path: selectable_field(path) for path in paths}


def selectable_flag(path: str) -> Callable[[Tree], str]:
    """Reader of a selectable bool; "false" if it is missing."""
    read = selectable_field(path)
    return lambda obj: read(obj) or "false"


def selectable_field(path: str) -> Callable[[Tree], str]:
    """Reader of a selectable field; "" if it is missing."""
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
