"""Conditions in the status of objects.

Source: apimachinery v0.36, api/meta/conditions.go (SetStatusCondition); kubernetes v1.36,
pkg/api/pod/util.go (UpdatePodCondition).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from stowplan.apis.machinery.errors import (
    Cause,
    invalid,
    not_supported,
    required,
    too_long,
)
from stowplan.apis.machinery.names import regex_text
from stowplan.apis.machinery.timestamps import format_time
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

_STATUSES = ("False", "True", "Unknown")
_REASON = re.compile("[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_REASON_TEXT = regex_text(
    "a condition reason must start with alphabetic character, optionally followed by a string of"
    " alphanumeric characters or '_,:', and must end with an alphanumeric character or '_'",
    _REASON.pattern,
    "my_name",
    "MY_NAME",
    "MyName",
    "ReasonA,ReasonB",
    "ReasonA:ReasonB",
)
_REASON_MAX, _MESSAGE_MAX = 1024, 32 << 10
_STATUS_CONDITION_KEYS = (
    "type", "status", "observedGeneration", "lastTransitionTime", "reason", "message",
)  # fmt: skip


def find_condition(conditions: Iterable[Tree], type_: str) -> Tree | None:
    """The condition of a type, or None."""
    return next((each for each in conditions if each.get("type") == type_), None)


def set_condition(conditions: list[Tree], wanted: Tree, now: float) -> bool:
    """Set the condition of the type of `wanted`, keeping its other fields; True if it changed.

    `lastTransitionTime` changes only with the status; that of `wanted` is ignored.
    """
    old = find_condition(conditions, wanted["type"])
    new = {**wanted, "lastTransitionTime": _transition_time(old, wanted["status"], now)}
    if old is None:
        conditions.append(new)
        return True
    changed = any(old.get(name) != value for name, value in new.items())
    old.update(new)
    return changed


def set_status_condition(conditions: list[Tree], wanted: Tree, now: float) -> None:
    """Replace the condition of the type of `wanted` by one of meta/v1, keys in Go's order."""
    old = find_condition(conditions, wanted["type"])
    since = _transition_time(old, wanted["status"], now)
    full = {**wanted, "lastTransitionTime": since or format_time(now)}
    made = {name: full[name] for name in _STATUS_CONDITION_KEYS}
    if old is None:
        conditions.append(made)
    else:
        conditions[conditions.index(old)] = made


def set_pod_condition(pod: Tree, wanted: Tree, now: float) -> bool:
    """Replace the condition of a pod of the type of `wanted`; False if it is the same already."""
    conditions = pod.setdefault("status", {}).setdefault("conditions", [])
    old = find_condition(conditions, wanted["type"])
    entry = {
        "type": wanted["type"],
        "status": wanted["status"],
        "lastProbeTime": None,
        "lastTransitionTime": _transition_time(old, wanted["status"], now),
    }
    entry |= {name: wanted[name] for name in ("reason", "message") if wanted.get(name)}
    if old is None:
        conditions.append(entry)
        return True
    same = ("status", "reason", "message", "lastProbeTime", "lastTransitionTime")
    changed = any(old.get(name) != entry.get(name) for name in same)
    conditions[conditions.index(old)] = entry
    return changed


def validate_conditions(conditions: list[Tree], path: str) -> Iterator[Cause]:
    """Conditions of meta/v1, one of each type.

    Source: apimachinery v0.36, apis/meta/v1/validation.
    """
    seen: set[str] = set()
    for at, one in enumerate(conditions):
        here, reason = f"{path}[{at}]", one.get("reason", "")
        yield from field_checks.unique(one["type"], seen, f"{here}.type")
        yield from field_checks.label_name(one["type"], f"{here}.type")
        if one["status"] not in _STATUSES:
            yield not_supported(f"{here}.status", one["status"], _STATUSES)
        if one.get("observedGeneration", 0) < 0:
            text = "must be greater than or equal to zero"
            yield invalid(f"{here}.observedGeneration", one["observedGeneration"], text)
        if not one.get("lastTransitionTime"):
            yield required(f"{here}.lastTransitionTime")
        if not reason:
            yield required(f"{here}.reason")
        elif not _REASON.fullmatch(reason):
            yield invalid(f"{here}.reason", reason, _REASON_TEXT)
        if len(reason) > _REASON_MAX:
            yield too_long(f"{here}.reason", _REASON_MAX)
        if len(one.get("message", "")) > _MESSAGE_MAX:
            yield too_long(f"{here}.message", _MESSAGE_MAX)


def _transition_time(old: Tree | None, status: str, now: float) -> Any:
    """The time of the last change of status: that of `old` while the status stays."""
    if old is None or old.get("status") != status:
        return format_time(now)
    return old.get("lastTransitionTime")
