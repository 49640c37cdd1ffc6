"""Entries of managedFields: who has set which fields, when, through which version.

Source: apimachinery v0.36, util/managedfields/internal: managedfields.go, capmanagers.go.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from stowplan.apis.machinery.errors import go_quoted
from stowplan.apiserver.apply.field_set import FieldSet, InvalidFieldSet, parse_field_set, union
from stowplan.objects.encoding.tree import Tree

APPLY, UPDATE = "Apply", "Update"
UPDATE_MANAGERS_MAX = 10
OLD_UPDATES_MANAGER = "ancient-changes"
FIELDS_TYPE = "FieldsV1"


class ManagerKey(NamedTuple):
    """What tells entries apart. api_version: "" for an apply, which may move to another version."""

    manager: str
    operation: str
    api_version: str
    subresource: str = ""

    def identity(self) -> str:
        """The key as JSON, by which the original sorts."""
        named = {
            "manager": self.manager,
            "operation": self.operation,
            "apiVersion": self.api_version,
            "subresource": self.subresource,
        }
        return json.dumps({k: v for k, v in named.items() if v}, separators=(",", ":"))

    def text(self) -> str:
        """The manager as texts of conflicts name it."""
        text = go_quoted(self.manager)
        if self.subresource:
            text += f" with subresource {go_quoted(self.subresource)}"
        return f"{text} using {self.api_version}" if self.operation == UPDATE else text


class ManagerFields(NamedTuple):
    """The fields of one manager. time: "" if it has none."""

    fields: FieldSet
    api_version: str
    time: str = ""


Managers = dict[ManagerKey, ManagerFields]


class InvalidEntries(ValueError):
    """managedFields that cannot be read."""


def manager_key(manager: str, operation: str, api_version: str, subresource: str) -> ManagerKey:
    """The key of an entry."""
    version = "" if operation == APPLY else api_version
    return ManagerKey(manager, operation, version, subresource)


def is_reset(entries: Any) -> bool:
    """True for entries by which a client asks for none: an empty list, or one empty entry."""
    return bool(entries == [] or entries == [{}])


def read_entries(entries: Any, trusted: bool = True) -> Managers:
    """The managers of managedFields. trusted: they were written by this server.

    Raises InvalidEntries.
    """
    found: Managers = {}
    for index, one in enumerate(entries or ()):
        operation, version = one.get("operation", ""), one.get("apiVersion", "")
        if operation not in (APPLY, UPDATE):
            raise InvalidEntries("operation must be `Apply` or `Update`")
        if not version:
            raise InvalidEntries("apiVersion must not be empty")
        if one.get("fieldsType") != FIELDS_TYPE:
            raise InvalidEntries(f"invalid fieldsType in managed fields entry {index}")
        fields = one.get("fieldsV1") or {}
        if not trusted:
            try:
                fields = parse_field_set(fields)
            except InvalidFieldSet as error:
                raise InvalidEntries(str(error)) from None
        key = manager_key(one.get("manager", ""), operation, version, one.get("subresource", ""))
        found[key] = ManagerFields(fields, version, one.get("time") or "")
    return found


def write_entries(managers: Managers) -> list[Tree]:
    """managedFields of managers, in the original's order."""
    return write_pairs(managers.items())


def write_pairs(managers: Iterable[tuple[ManagerKey, ManagerFields]]) -> list[Tree]:
    """As `write_entries`, of managers among which a key may occur twice."""
    return [_entry(key, one) for key, one in sorted(managers, key=_order)]


def _order(pair: tuple[ManagerKey, ManagerFields]) -> tuple[Any, ...]:
    key, one = pair
    # Times are in one form, so their texts are in order; one without a time is the first.
    return key.operation, one.time, key.manager, one.api_version, key.subresource


def _entry(key: ManagerKey, one: ManagerFields) -> Tree:
    made: Tree = {}
    if key.manager:
        made["manager"] = key.manager
    made["operation"] = key.operation
    made["apiVersion"] = one.api_version
    if one.time:
        made["time"] = one.time
    made["fieldsType"] = FIELDS_TYPE
    made["fieldsV1"] = one.fields
    if key.subresource:
        made["subresource"] = key.subresource
    return made


def fold_old_updates(managers: Managers) -> None:
    """Fold the oldest update entries of a version into one, until few enough are left."""
    updates = [key for key in managers if key.operation == UPDATE]
    left = len(updates)
    if left <= UPDATE_MANAGERS_MAX:
        return
    updates.sort(key=lambda key: (managers[key].time, key.identity()))
    first: dict[str, ManagerKey] = {}
    for key in updates:
        if left <= UPDATE_MANAGERS_MAX:
            return
        one = managers[key]
        oldest = first.setdefault(one.api_version, key)
        if oldest is key:
            continue
        bucket = ManagerKey(OLD_UPDATES_MANAGER, UPDATE, one.api_version)
        if bucket not in managers:
            managers[bucket] = managers.pop(oldest)
        fields = union(one.fields, managers[bucket].fields)
        managers.pop(key, None)
        managers[bucket] = ManagerFields(fields, one.api_version, one.time)
        left -= 1


def same_but_times(one: list[Tree], other: list[Tree]) -> bool:
    """True for managedFields that differ in nothing but times."""
    return len(one) == len(other) and all(
        {**a, "time": ""} == {**b, "time": ""} for a, b in zip(one, other, strict=True)
    )
