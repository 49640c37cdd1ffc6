"""Reading and writing the parts of an object that several controllers care about."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from stowplan.apis.machinery.strconv import uint_or_none
from stowplan.controllers.runtime.object_times import format_time
from stowplan.objects.encoding.json_codec import DecodeError, convert
from stowplan.objects.selectors import LabelSelector, SelectorError, label_selector_matches

Tree = dict[str, Any]


def controller_of(obj: Tree) -> Tree | None:
    """The owner reference with `controller: true`, if there is one."""
    owners = obj["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)


def controller_reference(obj: Tree, kind: str, api_version: str) -> Tree:
    """The owner reference that a controller puts on what it makes for `obj`."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": obj["metadata"]["name"],
        "uid": obj["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def is_deleting(obj: Tree) -> bool:
    """True once a deletion has been accepted."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def find_condition(conditions: Iterable[Tree], type_: str) -> Tree | None:
    """The condition of this type, if there is one."""
    return next((each for each in conditions if each.get("type") == type_), None)


def set_condition(conditions: list[Tree], wanted: Tree, now: float) -> bool:
    """Put `wanted` in the place of the condition of its type; True if that changed anything.

    `lastTransitionTime` moves only when the status does; of `wanted` it is ignored.
    """
    old = find_condition(conditions, wanted["type"])
    moved = old is None or old.get("status") != wanted["status"]
    since = format_time(now) if moved or old is None else old.get("lastTransitionTime")
    new = {**wanted, "lastTransitionTime": since}
    if old is None:
        conditions.append(new)
        return True
    changed = any(old.get(name) != value for name, value in new.items())
    old.update(new)
    return changed


def parse_label_selector(tree: Mapping[str, Any] | None) -> LabelSelector | None:
    """The value of a label selector's tree; None for none and for one that cannot be read."""
    if tree is None:
        return None
    return _parse_label_selector(json.dumps(tree, sort_keys=True))


@lru_cache(maxsize=1 << 12)
def _parse_label_selector(text: str) -> LabelSelector | None:
    try:
        found = convert(json.loads(text), LabelSelector)
        _ = found.requirements
    except (DecodeError, SelectorError):
        return None
    return found


def selector_tree_matches(tree: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """True when the label selector matches; one that is absent or malformed matches nothing."""
    return selector_matches(parse_label_selector(tree), labels)


def selector_matches(found: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """The same for a selector that has been read: for many labels it is read once."""
    return found is not None and label_selector_matches(found, labels)


def int_or_percent_of(value: int | str | None, total: int, round_up: bool) -> int:
    """A number or a percentage of `total` as a number; absent or unreadable counts as 0."""
    if isinstance(value, int):
        return value
    if not isinstance(value, str):
        return 0
    if not value.endswith("%"):
        return uint_or_none(value) or 0
    product = (uint_or_none(value[:-1]) or 0) * total
    return -(-product // 100) if round_up else product // 100
