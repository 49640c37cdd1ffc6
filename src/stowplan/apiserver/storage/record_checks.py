"""Validation of saved records before a server starts from them.

A checksum shows that a record is what was written; this checks that it is an object, so that an
invalid one is reported by key and skipped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from stowplan.apis.machinery.stored_form import decode, version_of_stored
from stowplan.apiserver.storage.versioned_store import Record

_TEXT_FIELDS = ("name", "uid", "creationTimestamp")
_TIME_FIELDS = ("creationTimestamp", "deletionTimestamp")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
_MAP_FIELDS = ("labels", "annotations")
_START = b'{"kind":"%b","apiVersion":"'


def valid_records(
    records: Iterable[Record], set_aside: Callable[[str, str], None]
) -> Iterator[Record]:
    """The valid records. set_aside: called with the key of each invalid one, and the problem.

    Invalid ones stay on disk until an object of their key is written.
    """
    for key, version, value in records:
        wrong = "" if value is None else _record_problem(key, version, value)
        if wrong:
            set_aside(key, wrong)
            yield "", version, None
        else:
            yield key, version, value


def _record_problem(key: str, version: int, value: bytes) -> str:
    """The problem of a record; "" if it is valid."""
    try:
        tree = decode(value)
    except msgspec.DecodeError as error:
        return str(error)
    meta = tree.get("metadata")
    if not isinstance(meta, dict):
        return "metadata: Required value"
    for where, name in (
        (tree, "kind"),
        (tree, "apiVersion"),
        *((meta, name) for name in _TEXT_FIELDS),
    ):
        if not isinstance(where.get(name), str) or not where[name]:
            return f"{name}: Invalid value: {where.get(name)!r}: must be a non-empty string"
    for name in _TIME_FIELDS:
        if name in meta and not (isinstance(meta[name], str) and _TIME.fullmatch(meta[name])):
            return f"{name}: Invalid value: {meta[name]!r}: must be a time as 2001-01-01T00:00:00Z"
    if meta.get("resourceVersion") != str(version):
        found = meta.get("resourceVersion")
        return f"resourceVersion: Invalid value: {found!r}: must be '{version}'"
    if not _is_as_stored(tree, value, version):
        return "the keys are not in the order of stored objects"
    wanted = f"{meta.get('namespace', '')}/{meta['name']}"
    if not key.endswith(f"/{wanted}"):
        return f"the object is {wanted.strip('/')!r}"
    return next(
        (f"{name}: must be a map of strings" for name in _MAP_FIELDS if not _is_map(meta, name)), ""
    )


def _is_as_stored(tree: dict[str, Any], value: bytes, version: int) -> bool:
    """True if the keys are in the order that `stored_form` relies on."""
    try:
        found = version_of_stored(value)
    except ValueError:
        return False
    return found == version and value.startswith(_START % tree["kind"].encode())


def _is_map(meta: dict[str, Any], name: str) -> bool:
    found = meta.get(name, {})
    return isinstance(found, dict) and all(isinstance(each, str) for each in found.values())
