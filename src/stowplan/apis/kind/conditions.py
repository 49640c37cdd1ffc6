"""Conditions in the status of objects.

Source: apimachinery v0.36, api/meta/conditions.go (SetStatusCondition); kubernetes v1.36,
pkg/api/pod/util.go (UpdatePodCondition).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stowplan.apis.machinery.timestamps import format_time
from stowplan.objects.encoding.tree import Tree

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


def _transition_time(old: Tree | None, status: str, now: float) -> Any:
    """The time of the last change of status: that of `old` while the status stays."""
    if old is None or old.get("status") != status:
        return format_time(now)
    return old.get("lastTransitionTime")
