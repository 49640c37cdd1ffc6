"""An object and its managedFields apart, in the course of an update.

They are nearly half of an object, and most writes leave most of them as they are. Where nothing
looks at them on the way, they are cut out of the stored bytes; the set of an entry is decoded once
for all objects that have the same, and what a change makes of sets is worked out once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from stowplan.apis.admissionregistration.webhook_calls import SKIPPED
from stowplan.apis.machinery.resource import AdmissionPlugin, ApiCall
from stowplan.apiserver.admission.policies.policy_kinds import (
    MUTATING_BINDINGS,
    VALIDATING_BINDINGS,
)
from stowplan.apiserver.apply.field_manager import FieldManager
from stowplan.apiserver.apply.field_set import FieldSet
from stowplan.apiserver.apply.managed_fields import ManagedFields
from stowplan.apiserver.apply.manager_entries import (
    FIELDS_TYPE,
    UPDATE,
    UPDATE_MANAGERS_MAX,
    ManagerFields,
    ManagerKey,
    Managers,
    manager_key,
)
from stowplan.apiserver.storage.versioned_store import VersionedStore
from stowplan.objects.encoding.tree import Tree

ENTRIES = "managedFields"
_KEY, _META = b'"managedFields":[', b'"metadata":'
_SETS_MAX, _SET_BYTES_MAX, _OUTCOMES_MAX = 4096, 16 << 10, 1024
_BRACKETS_MAX = 8
"""Path elements may contain brackets; objects with many are left whole."""
_NOW = "now"


class Entry(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """One entry, its keys in the order in which they are stored."""

    manager: str = ""
    operation: str
    apiVersion: str  # noqa: N815
    time: str = ""
    fieldsType: str  # noqa: N815
    fieldsV1: msgspec.Raw  # noqa: N815
    subresource: str = ""

    def key(self) -> ManagerKey:
        """See `manager_entries`."""
        return manager_key(self.manager, self.operation, self.apiVersion, self.subresource)


_in_order = attrgetter("operation", "time", "manager", "apiVersion", "subresource")
_read = msgspec.json.Decoder(list[Entry]).decode
_encode = msgspec.json.Encoder().encode


class KnownSet(NamedTuple):
    """A set and its bytes. It is shared, and must not be changed."""

    fields: FieldSet
    text: bytes


Outcome = tuple[tuple[ManagerKey, KnownSet, int], ...]
"""Managers after a change, with their sets. The number: the entry whose time one keeps, -1: now."""


class StoredParts(NamedTuple):
    """bare: the bytes of a stored object without its managedFields. text: these."""

    bare: bytes
    text: bytes
    entries: list[Entry]


def stored_parts(value: bytes) -> StoredParts | None:
    """The parts of the stored bytes of a built-in kind; None if they are not plain."""
    start, meta = value.find(_KEY), value.find(_META)
    # Objects below, such as templates of pods, have metadata of their own. Values of labels and
    # annotations are texts, in which quotes are escaped.
    if start < 0 or value.count(b"{", 0, meta) != 1 or value.count(_META, 0, start) != 1:
        return None
    at = end = start + len(_KEY) - 1
    if value[start - 1 : start] != b",":
        return None
    for _ in range(_BRACKETS_MAX):
        end = value.find(b"]", end) + 1
        text = value[at:end]
        try:
            entries = _read(text)
        except msgspec.DecodeError:
            # The bracket is within a text, or the entries are of another form.
            continue
        # Of more the oldest are folded.
        few = len(entries) < UPDATE_MANAGERS_MAX
        return StoredParts(value[: start - 1] + value[end:], text, entries) if few else None
    return None


class KnownSets:
    """Sets by their bytes, and what changes make of them."""

    def __init__(self) -> None:
        self._known: dict[bytes, KnownSet] = {}
        self._outcomes: dict[tuple[object, ...], Outcome] = {}

    def of_text(self, text: bytes) -> KnownSet:
        """The set of these bytes."""
        found = self._known.get(text)
        if found is None:
            found = KnownSet(msgspec.json.decode(text, type=dict), text)
            if len(self._known) >= _SETS_MAX:
                self._known.clear()
            if len(text) <= _SET_BYTES_MAX:
                self._known[text] = found
        return found

    def outcome(self, key: tuple[object, ...]) -> Outcome | None:
        """What was worked out for a key before."""
        return self._outcomes.get(key)

    def keep(self, key: tuple[object, ...], found: Outcome) -> None:
        """Keep what was worked out."""
        if len(self._outcomes) >= _OUTCOMES_MAX:
            self._outcomes.clear()
        self._outcomes[key] = found


class ObjectParts:
    """One update. stored: the object before it."""

    def __init__(self, fields: ManagedFields, sets: KnownSets, stored: StoredParts) -> None:
        self._fields, self._sets, self._stored = fields, sets, stored
        self._after: list[Entry] = stored.entries

    @property
    def bare(self) -> bytes:
        """The stored object without managedFields."""
        return self._stored.bare

    def take(self, new: Tree, old: Tree) -> bool:
        """True for a new object without managedFields; else those of the old one are put back."""
        if ENTRIES not in new["metadata"]:
            return True
        old["metadata"][ENTRIES] = msgspec.json.decode(self._stored.text)
        return False

    def update(self, call: ApiCall, new: Tree, old: Tree) -> None:
        """As `ManagedFields.updated`."""
        manager, entries = self._fields.manager_of(call), self._stored.entries
        known = [self._sets.of_text(bytes(one.fieldsV1)) for one in entries]
        # Entries of other versions are compared in these.
        if any(one.apiVersion != manager.version for one in entries):
            outcome = self._worked_out(manager, call, new, old, known)
        else:
            found = manager.changes(old, new)
            if not found.changed and not found.removed:
                return
            key = (
                manager.key(call.manager, UPDATE), call.resource,
                _encode(found.changed), _encode(found.removed) if found.removed else b"",
                *[(e.manager, e.operation, e.subresource, s.text)
                  for e, s in zip(entries, known, strict=True)],
            )  # fmt: skip
            kept = self._sets.outcome(key)
            outcome = self._worked_out(manager, call, new, old, known) if kept is None else kept
            if kept is None:
                self._sets.keep(key, outcome)
        self._after = sorted(
            (self._entry(*one, known, manager.now) for one in outcome), key=_in_order
        )

    def _worked_out(
        self, manager: FieldManager, call: ApiCall, new: Tree, old: Tree, known: list[KnownSet]
    ) -> Outcome:
        entries = self._stored.entries
        places = {one.key(): at for at, one in enumerate(entries)}
        managers: Managers = {
            key: ManagerFields(known[at].fields, entries[at].apiVersion, str(at))
            for key, at in places.items()
        }
        marked = replace(manager, now=_NOW)
        left = marked.update(old, new, managers, call.manager)
        return tuple(
            (key, self._sets.of_text(_encode(one.fields)), -1 if one.time == _NOW else places[key])
            for key, one in left.items()
        )

    def _entry(
        self, key: ManagerKey, known: KnownSet, at: int, before: list[KnownSet], now: str
    ) -> Entry:
        if at >= 0 and known is before[at]:
            return self._stored.entries[at]
        one = self._stored.entries[at] if at >= 0 else None
        return Entry(
            manager=key.manager,
            operation=key.operation,
            apiVersion=key.api_version if one is None else one.apiVersion,
            time=now if one is None else one.time,
            fieldsType=FIELDS_TYPE,
            fieldsV1=msgspec.Raw(known.text),
            subresource=key.subresource,
        )

    def settle(self, new: Tree, old: Tree) -> None:
        """As `ManagedFields.settle`."""
        before = self._stored.entries
        if self._after is not before and _differ_in_times(self._after, before) and new == old:
            self._after = before

    def join(self, new: Tree, old: Tree) -> None:
        """Put them back, as bytes."""
        stored = old["metadata"][ENTRIES] = msgspec.Raw(self._stored.text)
        if self._after is self._stored.entries:
            new["metadata"][ENTRIES] = stored
        elif self._after:
            new["metadata"][ENTRIES] = msgspec.Raw(_encode(self._after))


class PartedUpdates:
    """Begins updates with the parts of objects, where nothing may look at the whole."""

    def __init__(
        self,
        store: VersionedStore,
        admission: Sequence[AdmissionPlugin],
        fields: ManagedFields | None,
    ) -> None:
        self._store, self._fields = store, fields
        self._is_on = all(getattr(one, "repeatable", False) for one in admission)
        self._sets = KnownSets()
        self._last: tuple[bytes, StoredParts | None] = b"", None

    def text(self, call: ApiCall) -> bytes:
        """The stored managedFields of an object that is to be replaced; empty for a whole one."""
        resource = call.resource
        place = call.namespace if resource.namespaced else ""
        existing = self._store.get(resource.key(place, call.name))
        parts = None if existing is None else self._parts(call, existing)
        return b"" if parts is None else parts.text

    def begin(self, call: ApiCall, value: bytes) -> ObjectParts | None:
        """An update of a stored object; None if it is to be read as a whole."""
        parts = self._parts(call, value)
        if parts is None or self._fields is None:
            return None
        return ObjectParts(self._fields, self._sets, parts)

    def _parts(self, call: ApiCall, value: bytes) -> StoredParts | None:
        is_asked = call.answers is not None and call.answers is not SKIPPED
        if self._fields is None or not call.parts or not self._is_on or is_asked:
            return None
        if call.resource.custom or call.resource.alias is not None:
            return None
        count = self._store.count
        if count(VALIDATING_BINDINGS) or count(MUTATING_BINDINGS):
            return None
        if self._last[0] is not value:
            self._last = value, stored_parts(value)
        return self._last[1]


def _differ_in_times(one: Sequence[Entry], other: Sequence[Entry]) -> bool:
    """True for entries that differ in times at most."""
    return len(one) == len(other) and all(
        a is b
        or (
            a.fieldsV1 == b.fieldsV1
            and msgspec.structs.replace(a, time="") == msgspec.structs.replace(b, time="")
        )
        for a, b in zip(one, other, strict=True)
    )


def drop_known(tree: Any, known: bytes) -> None:
    """Drop managedFields that are the stored ones from the tree of a body, as if not sent."""
    meta = tree.get("metadata")
    given = meta.get(ENTRIES) if isinstance(meta, dict) else None
    if given and _encode(given) == known:
        del meta[ENTRIES]
