"""Accessors of object fields that several controllers use."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from stowplan.apis.kind.conditions import find_condition as find_condition
from stowplan.apis.kind.conditions import set_condition as set_condition
from stowplan.apis.machinery.strconv import uint_or_none
from stowplan.objects.encoding.json_codec import DecodeError, convert
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.selectors import LabelSelector, SelectorError, label_selector_matches


def controller_of(obj: Tree) -> Tree | None:
    """The owner reference with `controller: true`; None for none."""
    owners = obj["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)


def controller_reference(obj: Tree, kind: str, api_version: str) -> Tree:
    """The owner reference to `obj` that a controller sets on objects that it creates."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": obj["metadata"]["name"],
        "uid": obj["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def is_deleting(obj: Tree) -> bool:
    """True after a deletion was accepted."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def parse_label_selector(tree: Mapping[str, Any] | None) -> LabelSelector | None:
    """Parse a label selector; None for an absent or invalid one."""
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
    """True when the label selector matches; an absent or invalid one matches nothing."""
    return selector_matches(parse_label_selector(tree), labels)


def selector_matches(found: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """The same for a parsed selector, for matching many objects."""
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
