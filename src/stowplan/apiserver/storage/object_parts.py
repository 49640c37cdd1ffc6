"""An object and its managedFields apart, in the course of an update.

They are nearly half of an object, and most writes leave most of them as they are. Where nothing
looks at them on the way, they are cut out of the stored bytes and not decoded
(`storage.entry_patterns`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import floor
from operator import attrgetter
from typing import Any

import msgspec

from stowplan.apis.admissionregistration.webhook_calls import SKIPPED
from stowplan.apis.machinery.resource import AdmissionPlugin, ApiCall, Resource
from stowplan.apis.machinery.timestamps import format_time
from stowplan.apiserver.admission.policies.policy_kinds import (
    MUTATING_BINDINGS,
    VALIDATING_BINDINGS,
)
from stowplan.apiserver.apply.field_manager import ignored_fields
from stowplan.apiserver.apply.managed_fields import ManagedFields, reset_fields
from stowplan.apiserver.apply.manager_entries import (
    FIELDS_TYPE,
    UPDATE_MANAGERS_MAX,
    ManagerFields,
    ManagerKey,
    Managers,
)
from stowplan.apiserver.apply.typed_comparison import PartComparison
from stowplan.apiserver.apply.versioned_forms import field_type
from stowplan.apiserver.storage.entry_patterns import (
    MARK,
    EntriesText,
    Entry,
    KnownEntries,
    encode,
    equal_ones,
    order_of,
    outcome_of,
)
from stowplan.apiserver.storage.versioned_store import VersionedStore
from stowplan.objects.encoding.tree import Tree

ENTRIES = "managedFields"
_KEY, _META = b',"managedFields":[', b'"metadata":'
_KEY_BYTES = len(_KEY) - 1
_BINDINGS = VALIDATING_BINDINGS, MUTATING_BINDINGS
_BRACKETS_MAX = 8
"""Path elements may contain brackets; objects with many are left whole."""
_NOW = "now"
_in_order = attrgetter("operation", "time", "manager", "apiVersion", "subresource")


@lru_cache(maxsize=64)
def _second(second: int) -> bytes:
    return format_time(second).encode()


class StoredParts(msgspec.Struct, eq=False):
    """bare: the bytes of a stored object without its managedFields. entries: these."""

    bare: bytes
    entries: EntriesText


def stored_parts(
    value: bytes, known: KnownEntries, likely: EntriesText | None = None
) -> StoredParts | None:
    """The parts of the stored bytes of a built-in kind; None if they are not plain.

    likely: entries that it had before.
    """
    start = value.find(_KEY)
    if start < 0:
        return None
    # Objects below, such as templates of pods, have metadata of their own. Values of labels and
    # annotations are texts, in which quotes are escaped.
    head = value.find(_META, 0, start)
    if head < 0 or value.find(b"{", 1, head) >= 0 or value.find(_META, head + 1, start) >= 0:
        return None
    at = end = start + _KEY_BYTES
    # Entries are a list, which has one end.
    if likely is not None and value.startswith(likely.text, at):
        return StoredParts(value[:start] + value[at + len(likely.text) :], likely)
    for _ in range(_BRACKETS_MAX):
        end = value.find(b"]", end) + 1
        try:
            entries = known.of_text(value[at:end])
        except msgspec.DecodeError:
            # The bracket is within a text, or the entries are of another form.
            continue
        few = entries.skeleton.count < UPDATE_MANAGERS_MAX
        return StoredParts(value[:start] + value[end:], entries) if few else None
    return None


class _Endpoint:
    """What is compared in updates at an endpoint. parts: None if it depends on more."""

    def __init__(self, resource: Resource, subresource: str) -> None:
        self.parts: PartComparison | None = None
        struct = field_type(resource).resolved().map
        if struct is not None and not any(one.deduced for one in struct.fields.values()):
            ignored = ignored_fields(reset_fields(resource, subresource))
            self.parts = PartComparison(struct, frozenset(ignored))


class ObjectParts(msgspec.Struct, eq=False):
    """One update. key: in the store. stored: of the object before it. bare: this without
    managedFields. after: those of the new object. settles: they differ in times at most. likely:
    `after`, split; None if it is not known."""

    fields: ManagedFields
    known: KnownEntries
    endpoint: _Endpoint
    key: str
    stored: EntriesText
    bare: bytes
    after: bytes
    settles: bool = False
    likely: EntriesText | None = None

    def update(self, call: ApiCall, new: Tree, old: Tree) -> bool:
        """As `ManagedFields.updated`, of a new object without managedFields.

        False for one that has some: nothing is done but to put back those of the old one.
        """
        stored, parts = self.stored, self.endpoint.parts
        if ENTRIES in new["metadata"]:
            old["metadata"][ENTRIES] = msgspec.json.decode(stored.text)
            return False
        skeleton, addresses = stored.skeleton, stored.addresses
        skeleton.uses += 1
        if parts is None or not skeleton.is_plain or skeleton.uses < 2:
            self._work_out(call, new, old)
            return True
        times = *stored.times, _second(floor(call.now))
        own = [*addresses]
        differences = parts.differences(old, new, own)
        equal = equal_ones(own) if own else ()
        key = self.endpoint, call.manager, differences, order_of(times), skeleton, equal
        outcome = self.known.outcome(key)
        if outcome is not None:
            values = outcome.take((*times, *own))
            self.after = text = outcome.joined(values)
            self.settles = outcome.settles
            after = outcome.skeleton or self.known.learn(outcome, text)
            if after is not None:
                self.likely = after.split(text, values)
            return True
        places = self._work_out(call, new, old)
        made = None
        if places:
            made = outcome_of(self.after, places, self.settles, times, own)
        if made is not None:
            self.known.keep(key, made)
        return True

    def _work_out(self, call: ApiCall, new: Tree, old: Tree) -> tuple[int, ...] | None:
        """Where entries after a change have their times from; None if others get another result."""
        entries = self.stored.entries()
        known = [self.known.set_of(bytes(one.fieldsV1)) for one in entries]
        manager = self.fields.manager_of(call)
        places = {one.key(): at for at, one in enumerate(entries)}
        managers: Managers = {
            key: ManagerFields(known[at].fields, entries[at].apiVersion, str(at))
            for key, at in places.items()
        }
        kept = replace(manager, now=_NOW).update(old, new, managers, call.manager)
        left = [
            self._left(key, one, entries, -1 if one.time == _NOW else places[key], manager.now)
            for key, one in kept.items()
        ]
        left.sort(key=lambda pair: _in_order(pair[0]))
        after = [one for one, _ in left]
        self.after = encode(after) if after else b""
        self.settles = _differ_in_times(after, entries)
        # Entries of other versions are compared in these.
        is_one = all(one.apiVersion == manager.version for one in entries)
        return tuple([at for _, at in left]) if is_one and after else None

    def _left(
        self, key: ManagerKey, one: ManagerFields, entries: list[Entry], at: int, now: str
    ) -> tuple[Entry, int]:
        before = entries[at] if at >= 0 else None
        made = Entry(
            manager=key.manager,
            operation=key.operation,
            apiVersion=key.api_version if before is None else before.apiVersion,
            time=now if before is None else before.time,
            fieldsType=FIELDS_TYPE,
            fieldsV1=msgspec.Raw(encode(one.fields)),
            subresource=key.subresource,
        )
        return made, at

    def settle(self, new: Tree, old: Tree) -> None:
        """As `ManagedFields.settle`, for a change that `settles`."""
        if new == old:
            self.after, self.likely = self.stored.text, self.stored

    def join(self, new: Tree, old: Tree) -> None:
        """Put them back, as bytes, where they make a difference between the objects or none."""
        after, before = self.after, self.stored.text
        if after == before:
            new["metadata"][ENTRIES] = old["metadata"][ENTRIES] = msgspec.Raw(before)
        elif after:
            new["metadata"][ENTRIES] = msgspec.Raw(after)
        else:
            old["metadata"][ENTRIES] = msgspec.Raw(before)
        likely = self.likely
        if likely is not None and likely.skeleton.count < UPDATE_MANAGERS_MAX:
            self.known.keep_likely(self.key, likely)


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
        self._known = KnownEntries()
        self._endpoints: dict[tuple[Resource, str], _Endpoint] = {}
        self._begun: tuple[ApiCall, bytes, StoredParts | None] | None = None

    def entries(self, call: ApiCall) -> EntriesText | None:
        """The stored managedFields of an object that is to be replaced; None for a whole one."""
        resource = call.resource
        key = resource.key(call.namespace if resource.namespaced else "", call.name)
        existing = self._store.get(key)
        if existing is None:
            return None
        parts = self._parts(call, key, existing)
        # The update that follows need not look again.
        self._begun = call, existing, parts
        return None if parts is None else parts.entries

    def begin(self, call: ApiCall, key: str, value: bytes) -> ObjectParts | None:
        """An update of a stored object; None if it is to be read as a whole."""
        begun, self._begun = self._begun, None
        if begun is not None and begun[0] is call and begun[1] is value:
            parts = begun[2]
        else:
            parts = self._parts(call, key, value)
        if parts is None or self._fields is None:
            return None
        place = call.resource, call.subresource
        endpoint = self._endpoints.get(place)
        if endpoint is None:
            endpoint = self._endpoints[place] = _Endpoint(*place)
        entries = parts.entries
        return ObjectParts(
            self._fields, self._known, endpoint, key, entries, parts.bare, entries.text
        )

    def is_apart(self, call: ApiCall) -> bool:
        """True where nothing looks at the managedFields of what a call writes."""
        is_asked = call.answers is not None and call.answers is not SKIPPED
        if self._fields is None or not call.parts or not self._is_on or is_asked:
            return False
        if call.resource.custom or call.resource.alias is not None:
            return False
        return not self._store.has_any(_BINDINGS)

    def new_entries(self, call: ApiCall, obj: Tree) -> bytes:
        """The managedFields of a new object as bytes, which are to be joined to it; empty if they
        are to be set in it."""
        if self._fields is None or call.dry_run or not self.is_apart(call):
            return b""
        return self._fields.new_entries(call, obj)

    def _parts(self, call: ApiCall, key: str, value: bytes) -> StoredParts | None:
        if not self.is_apart(call):
            return None
        return stored_parts(value, self._known, self._known.likely(key))


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


def drop_known(tree: Any, known: EntriesText) -> None:
    """Drop managedFields that are the stored ones from the tree of a body, as if not sent."""
    meta = tree.get("metadata")
    given = meta.get(ENTRIES) if isinstance(meta, dict) else None
    if given and given == msgspec.json.decode(known.text):
        del meta[ENTRIES]


def drop_mark(tree: Tree) -> bool:
    """Drop the mark of `without_known` from a tree; False if it is elsewhere."""
    meta = tree.get("metadata")
    if type(meta) is not dict:
        return False
    mark = meta.get(ENTRIES)
    # A float may be equal.
    if mark != MARK or type(mark) is not int:
        return False
    del meta[ENTRIES]
    return True
