"""managedFields as bytes: entries without their times, and what changes make of them.

Objects of a template have the same entries but for times and addresses, and get the same changes
over and over. What a change makes of entries depends on them, on what the change differs in, on its
manager, on which times come first, and on which addresses are equal; so it is worked out once, and
times and addresses are filled in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import itemgetter, lt
from typing import Any, NamedTuple

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
TEXTS_MAX = 1024
_TIME = re.compile(rb'"time":"([^"\\]*)"')
"""Within texts quotes are escaped, and sets of fields have no texts as values."""
_TIME_BYTES = len(b"2001-01-01T00:00:00Z")
_ADDRESS_LETTERS = b"0123456789ABCDEFabcdef.:"
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[:,]')
MARK = 777_777_777_777_777_777
"""An integer has no other form, as a text with escapes has."""
_KEY, _MARKED = b'"managedFields":', b"%d" % MARK


_ONE = (0,)


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
    updates. n_addresses: places of addresses."""

    __slots__ = (
        "_address", "_cut", "_pattern", "_places", "_spaced", "count", "is_plain", "n_addresses",
        "uses",
    )  # fmt: skip

    def __init__(self, pieces: tuple[bytes, ...], count: int, is_plain: bool) -> None:
        """pieces: between times, with `NO_ADDRESS`."""
        self.count, self.is_plain = count, is_plain
        self.uses = 0
        self.n_addresses = sum(one.count(NO_ADDRESS) for one in pieces)
        n_times = len(pieces) - 1
        at_addresses = range(n_times, n_times + self.n_addresses)
        self._places = _in_order(pieces, range(n_times), at_addresses)
        self._pattern = _pattern(pieces)
        self._spaced: bytes | None = None
        self._address = self._places.index(n_times) if self.n_addresses else -1
        self._cut: Callable[[bytes], Any] | None = None
        if is_plain and self.n_addresses <= 1 < len(self._places):
            self._cut = itemgetter(*self._slices(n_times))

    @property
    def has_cut(self) -> bool:
        """True if entries may be split by `read`."""
        return self._cut is not None

    def _slices(self, n_times: int) -> list[slice]:
        """Where the values of a text are: those after the address are counted from its end."""
        made, at = [], 0
        # A percent sign of the text is two in the pattern.
        pieces = self._pattern.replace(b"%%", b"\0").split(b"%b")
        left = sum(map(len, pieces)) + n_times * _TIME_BYTES
        for piece, place in zip(pieces, self._places, strict=False):
            at += len(piece)
            left -= len(piece)
            if place >= n_times:
                made.append(slice(at, -left))
                # From here on places are negative.
                at = -left
                continue
            end = at + _TIME_BYTES
            made.append(slice(at, end or None))
            at, left = end, left - _TIME_BYTES
        return made

    def read(self, text: bytes) -> EntriesText | None:
        """Entries that differ from others in times and addresses only; None for others."""
        cut = self._cut
        if cut is None:
            return None
        values: tuple[bytes, ...] = cut(text)
        if self._pattern % values != text:
            return None
        at = self._address
        times, addresses = values, values[:0]
        if at >= 0:
            times, addresses = values[:at] + values[at + 1 :], (values[at],)
            # Nothing is left of what has no other letters.
            if addresses[0].strip(_ADDRESS_LETTERS):
                return None
        joined = b"".join(times)
        if joined.find(b'"') >= 0 or joined.find(b"\\") >= 0:
            return None
        return EntriesText(text, self, times, addresses, values)

    def ordered(self, times: Sequence[bytes], addresses: Sequence[bytes]) -> tuple[bytes, ...]:
        """Times and addresses as they come in the text."""
        values = *times, *addresses
        return tuple([values[at] for at in self._places])

    def spaced(self, values: tuple[bytes, ...]) -> bytes:
        """The entries as encoders write them that put a space after each colon and comma.

        values: as `ordered` gives them.
        """
        if self._spaced is None:
            self._spaced = _TOKEN.sub(_with_space, self._pattern)
        return self._spaced % values


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


class ChangedEntries(msgspec.Struct, eq=False):
    """Entries after a change, with places for times and addresses. places: which values they get.

    settles: nothing but times differs from the entries before.
    """

    pattern: bytes
    places: tuple[int, ...]
    settles: bool
    take: Any = None

    def __post_init__(self) -> None:
        self.take = itemgetter(*self.places)

    def text(self, values: Sequence[bytes]) -> bytes:
        """The entries. values: times before, the time of the change, addresses."""
        made: bytes = self.pattern % self.take(values)
        return made


class EntriesText(msgspec.Struct, eq=False):
    """The bytes of managedFields, and these apart. values: times and addresses in their order."""

    text: bytes
    skeleton: Skeleton
    times: tuple[bytes, ...]
    addresses: tuple[bytes, ...]
    values: tuple[bytes, ...]
    spaced: bytes = b""
    """As `Skeleton.spaced` makes them, after a space; empty until they are made."""

    def entries(self) -> list[Entry]:
        """The entries, decoded."""
        return decode_entries(self.text)


Key = tuple[object, ...]


class KnownEntries:
    """Sets by their bytes, skeletons, and what changes make of entries."""

    def __init__(self) -> None:
        self._sets: dict[bytes, KnownSet] = {}
        self._skeletons: dict[tuple[bytes, ...], Skeleton] = {}
        # Entries of a template are as long but for their addresses.
        self._by_length: dict[int, Skeleton] = {}
        # Objects that are made in the same second have the same times as well.
        self._texts: dict[bytes, EntriesText] = {}
        self._outcomes: dict[Key, ChangedEntries] = {}

    def of_text(self, text: bytes) -> EntriesText:
        """Entries of these bytes. Raises msgspec.DecodeError if they are something else."""
        skeleton = self._by_length.get(len(text))
        known = None
        if skeleton is None or not skeleton.n_addresses:
            known = self._texts.get(text)
            if known is not None:
                return known
        if skeleton is not None:
            known = skeleton.read(text)
        if known is None:
            known = self._read(text)
        if known.skeleton.uses and not known.addresses and len(text) <= SET_BYTES_MAX:
            if len(self._texts) >= TEXTS_MAX:
                self._texts.clear()
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
                self._by_length.clear()
                self._texts.clear()
                self._outcomes.clear()
            if len(text) <= SET_BYTES_MAX:
                self._skeletons[pieces] = skeleton
        if skeleton.has_cut and len(text) <= SET_BYTES_MAX:
            self._by_length[len(text)] = skeleton
        values = skeleton.ordered(times, addresses)
        return EntriesText(text, skeleton, tuple(times), tuple(addresses), values)

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


@lru_cache(maxsize=1024)
def order_of(times: tuple[bytes, ...]) -> tuple[int, ...]:
    """Which times come first, and which are equal."""
    ordered = sorted(times)
    if ordered == list(times):
        return tuple(map(lt, times, times[1:]))
    return tuple([ordered.index(one) for one in times])


def equal_ones(addresses: list[bytes]) -> tuple[int, ...]:
    """Which addresses are equal: nothing else about them counts."""
    if len(addresses) < 2:
        return _ONE[: len(addresses)]
    return tuple([addresses.index(one) for one in addresses])


def outcome_of(
    text: bytes,
    places: Sequence[int],
    settles: bool,
    times: Sequence[bytes],
    addresses: list[bytes],
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
    start = raw.find(_KEY) + len(_KEY)
    if start < len(_KEY):
        return None
    text = known.text
    if raw[start : start + 1] == b" ":
        if known.skeleton.uses < SPACED_USES_MIN:
            return None
        text = known.spaced
        if not text:
            text = known.spaced = b" " + known.skeleton.spaced(known.values)
    if not raw.startswith(text, start):
        return None
    before, after = raw[:start], raw[start + len(text) :]
    # The key may be elsewhere, and the mark be sent. `in` would take twice as long as `find`.
    if before.find(_MARKED) >= 0 or after.find(_MARKED) >= 0:
        return None
    return b"".join((before, _MARKED, after))
