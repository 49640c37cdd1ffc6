"""managedFields as bytes: entries without their times, and what changes make of them.

Objects of a template have the same entries but for times and addresses, and get the same changes
over and over. What a change makes of entries depends on them, on what the change differs in, on its
manager, on which times come first, and on which addresses are equal; so it is worked out once, and
times and addresses are filled in.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from operator import lt
from typing import NamedTuple

import msgspec

from stowplan.apiserver.apply.field_set import (
    ADDRESS_ELEMENT,
    NO_ADDRESS,
    FieldSet,
    without_addresses,
)
from stowplan.apiserver.apply.manager_entries import ManagerKey, manager_key

SKELETONS_MAX, OUTCOMES_MAX = 1024, 4096
SPACED_USES_MIN = 8
"""Spaces are put into entries that come back."""
SETS_MAX, SET_BYTES_MAX = 4096, 16 << 10
_TIME = re.compile(rb'"time":"([^"\\]*)"')
"""Within texts quotes are escaped, and sets of fields have no texts as values."""
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[:,]')
MARK = 777_777_777_777_777_777
"""An integer has no other form, as a text with escapes has."""
_KEY, _MARKED = b'"managedFields":', b"%d" % MARK


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


decode_entries = msgspec.json.Decoder(list[Entry]).decode
encode = msgspec.json.Encoder().encode


class KnownSet(NamedTuple):
    """A set and its bytes. It is shared, and must not be changed."""

    fields: FieldSet
    text: bytes


class Skeleton:
    """Entries without their times and addresses. is_plain: each entry has a time. uses: its
    updates."""

    __slots__ = ("_pieces", "_places", "_spaced", "count", "is_plain", "uses")

    def __init__(self, pieces: tuple[bytes, ...], count: int, is_plain: bool) -> None:
        """pieces: between times, with `NO_ADDRESS`."""
        self._pieces, self.count, self.is_plain = pieces, count, is_plain
        self._places: tuple[int, ...] = ()
        self._spaced: bytes | None = None
        self.uses = 0

    def spaced(self, times: Sequence[bytes], addresses: Sequence[bytes]) -> bytes:
        """The entries as encoders write them that put a space after each colon and comma."""
        if self._spaced is None:
            n_times = len(times)
            self._spaced = _TOKEN.sub(_with_space, _pattern(self._pieces))
            places = range(n_times, n_times + len(addresses))
            self._places = _in_order(self._pieces, range(n_times), places)
        values = *times, *addresses
        return self._spaced % tuple([values[at] for at in self._places])


def _pattern(pieces: Sequence[bytes]) -> bytes:
    """Pieces between times with `NO_ADDRESS`, as a format with places for times and addresses."""
    whole = b'"time":"%b"'.join([one.replace(b"%", b"%%") for one in pieces])
    return whole.replace(NO_ADDRESS, ADDRESS_ELEMENT)


def _in_order(
    pieces: Sequence[bytes], times: Sequence[int], addresses: Sequence[int]
) -> tuple[int, ...]:
    """What is to be filled into a format of `_pattern`, in its order."""
    made: list[int] = []
    at = 0
    for number, piece in enumerate(pieces):
        after = at + piece.count(NO_ADDRESS)
        made += *addresses[at:after], *times[number : number + 1]
        at = after
    return tuple(made)


def _with_space(token: re.Match[bytes]) -> bytes:
    return token[0] + b" " if token[0] in (b":", b",") else token[0]


class ChangedEntries(NamedTuple):
    """Entries after a change, with places for times and addresses. places: which values they get.

    settles: nothing but times differs from the entries before.
    """

    pattern: bytes
    places: tuple[int, ...]
    settles: bool

    def text(self, values: Sequence[bytes]) -> bytes:
        """The entries. values: times before, the time of the change, addresses."""
        return self.pattern % tuple([values[at] for at in self.places])


class EntriesText(NamedTuple):
    """The bytes of managedFields, and these apart."""

    text: bytes
    skeleton: Skeleton
    times: list[bytes]
    addresses: list[bytes]

    def entries(self) -> list[Entry]:
        """The entries, decoded."""
        return decode_entries(self.text)


Key = tuple[object, ...]


class KnownEntries:
    """Sets by their bytes, skeletons, and what changes make of entries."""

    def __init__(self) -> None:
        self._sets: dict[bytes, KnownSet] = {}
        self._skeletons: dict[tuple[bytes, ...], Skeleton] = {}
        # Objects that are made in the same second have the same times as well.
        self._texts: dict[bytes, EntriesText] = {}
        self._outcomes: dict[Key, ChangedEntries] = {}

    def of_text(self, text: bytes) -> EntriesText:
        """Entries of these bytes. Raises msgspec.DecodeError if they are something else."""
        known = self._texts.get(text)
        if known is None:
            known = self._read(text)
            if len(self._texts) >= SKELETONS_MAX:
                self._texts.clear()
            if known.skeleton.uses and not known.addresses and len(text) <= SET_BYTES_MAX:
                self._texts[text] = known
        return known

    def _read(self, text: bytes) -> EntriesText:
        bare, addresses = without_addresses(text)
        parts = _TIME.split(bare)
        times, pieces = parts[1::2], tuple(parts[::2])
        skeleton = self._skeletons.get(pieces)
        # Other times and addresses do not make entries something else.
        if skeleton is None:
            entries = decode_entries(text)
            is_plain = [one.time.encode() for one in entries] == times
            skeleton = Skeleton(pieces, len(entries), is_plain)
            if len(self._skeletons) >= SKELETONS_MAX:
                self._skeletons.clear()
                self._texts.clear()
                self._outcomes.clear()
            if len(text) <= SET_BYTES_MAX:
                self._skeletons[pieces] = skeleton
        return EntriesText(text, skeleton, times, addresses)

    def set_of(self, text: bytes) -> KnownSet:
        """The set of these bytes."""
        found = self._sets.get(text)
        if found is None:
            found = KnownSet(msgspec.json.decode(text, type=dict), text)
            if len(self._sets) >= SETS_MAX:
                self._sets.clear()
            if len(text) <= SET_BYTES_MAX:
                self._sets[text] = found
        return found

    def outcome(self, key: Key) -> ChangedEntries | None:
        """What was worked out for a key before."""
        return self._outcomes.get(key)

    def keep(self, key: Key, found: ChangedEntries) -> None:
        """Keep what was worked out."""
        if len(self._outcomes) >= OUTCOMES_MAX:
            self._outcomes.clear()
        self._outcomes[key] = found


def order_of(times: Sequence[bytes]) -> tuple[int, ...]:
    """Which times come first, and which are equal."""
    return _order_of(tuple(times))


@lru_cache(maxsize=1024)
def _order_of(times: tuple[bytes, ...]) -> tuple[int, ...]:
    ordered = sorted(times)
    if ordered == list(times):
        return tuple(map(lt, times, times[1:]))
    return tuple([ordered.index(one) for one in times])


def equal_ones(addresses: list[bytes]) -> tuple[int, ...]:
    """Which addresses are equal: nothing else about them counts."""
    return tuple([addresses.index(one) for one in addresses]) if addresses else ()


def outcome_of(
    text: bytes, places: Sequence[int], settles: bool, times: list[bytes], addresses: list[bytes]
) -> ChangedEntries | None:
    """The outcome of which `text` is one example; None if a set has a time of its own.

    places: of times among those before, -1: that of the change, which is the last of `times`.
    """
    bare, used = without_addresses(text)
    pieces, n_times = _TIME.split(bare)[::2], len(times)
    if len(pieces) != len(places) + 1 or not all(one in addresses for one in used):
        return None
    where = [n_times + addresses.index(one) for one in used]
    order = _in_order(pieces, [at % n_times for at in places], where)
    made = ChangedEntries(_pattern(pieces), order, settles)
    return made if made.text([*times, *addresses]) == text else None


def without_known(raw: bytes, known: EntriesText) -> bytes | None:
    """A body with a mark instead of entries that are the stored ones; None if it has others."""
    start = raw.find(_KEY)
    # Backwards is faster where the text begins with a common byte.
    if start < 0 or raw.rfind(_MARKED) >= 0:
        return None
    start += len(_KEY)
    text = known.text
    if raw.startswith(b" ", start):
        if known.skeleton.uses < SPACED_USES_MIN:
            return None
        start += 1
        text = known.skeleton.spaced(known.times, known.addresses)
    if not raw.startswith(text, start):
        return None
    return b"%b%b%b" % (raw[:start], _MARKED, raw[start + len(text) :])
