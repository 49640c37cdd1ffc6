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
from itertools import chain
from operator import itemgetter, lt
from typing import Any, NamedTuple

import msgspec

from stowplan.apiserver.apply.field_set import (
    ADDRESS_ELEMENT,
    ADDRESS_LETTERS,
    NO_ADDRESS,
    FieldSet,
    without_addresses,
)
from stowplan.apiserver.apply.manager_entries import ManagerKey, manager_key
from stowplan.apiserver.storage.entry_forms import EntryForm, FormPattern, form_pattern, forms_of

SKELETONS_MAX, OUTCOMES_MAX = 1024, 4096
FORM_USES_MIN = 8
"""Other forms are made of entries that come back."""
SETS_MAX, SET_BYTES_MAX = 4096, 16 << 10
TEXTS_MAX = 1024
LIKELY_MAX, LIKELY_BYTES_MAX = 4096, 4 << 10
ALIKE_MAX = 4
"""Skeletons that are tried for entries of one length."""
_TIME = re.compile(rb'"time":"([^"\\]*)"')
"""Within texts quotes are escaped, and sets of fields have no texts as values."""
_TIME_BYTES = len(b"2001-01-01T00:00:00Z")
MARK = 777_777_777_777_777_777
"""An integer has no other form, as a text with escapes has."""
_KEY, _MARKED = b'"managedFields":', b"%d" % MARK
_START_BYTES = 5


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
        "_address", "_constants", "_cut", "_forms", "_places", "count", "is_plain",
        "n_addresses", "pattern", "uses",
    )  # fmt: skip

    def __init__(self, pieces: tuple[bytes, ...], count: int, is_plain: bool) -> None:
        """pieces: between times, with `NO_ADDRESS`."""
        self.count, self.is_plain = count, is_plain
        self.uses = 0
        self.n_addresses = sum(one.count(NO_ADDRESS) for one in pieces)
        n_times = len(pieces) - 1
        at_addresses = range(n_times, n_times + self.n_addresses)
        self._places = _in_order(pieces, range(n_times), at_addresses)
        self.pattern = _pattern(pieces)
        self._forms: dict[EntryForm, FormPattern] = {}
        self._address = self._places.index(n_times) if self.n_addresses else -1
        self._cut: Callable[[bytes], Any] | None = None
        self._constants: tuple[bytes, ...] = ()
        if is_plain and self.n_addresses <= 1 < len(self._places):
            self._constants = _constants(self.pattern)
            self._cut = itemgetter(*self._slices(n_times))

    @property
    def has_cut(self) -> bool:
        """True if entries may be split by `read`."""
        return self._cut is not None

    def _slices(self, n_times: int) -> list[slice]:
        """Where constants and values of a text are, in turn: those after the address are counted
        from its end."""
        made, at = [], 0
        left = sum(map(len, self._constants)) + n_times * _TIME_BYTES
        for piece, place in zip(self._constants, (*self._places, None), strict=True):
            end, left = at + len(piece), left - len(piece)
            made.append(slice(at, end or None))
            if place is None:
                break
            if place < n_times:
                at, left = end + _TIME_BYTES, left - _TIME_BYTES
            else:
                # From here on places are negative.
                at = -left
            made.append(slice(end, at))
        return made

    def read(self, text: bytes) -> EntriesText | None:
        """Entries that differ from others in times and addresses only; None for others."""
        cut = self._cut
        if cut is None:
            return None
        parts: tuple[bytes, ...] = cut(text)
        if parts[::2] != self._constants:
            return None
        values = parts[1::2]
        at = self._address
        # Nothing is left of what has no other letters.
        if at >= 0 and values[at].strip(ADDRESS_LETTERS):
            return None
        found = self.split(text, values)
        joined = b"".join(found.times)
        if joined.find(b'"') >= 0 or joined.find(b"\\") >= 0:
            return None
        return found

    def split(self, text: bytes, values: tuple[bytes, ...]) -> EntriesText:
        """These entries. values: the times and addresses in them, in their order."""
        at = self._address
        if at < 0:
            return EntriesText(text, self, values, (), values)
        if self.n_addresses == 1:
            times = values[:at] + values[at + 1 :]
            return EntriesText(text, self, times, (values[at],), values)
        pairs = sorted(zip(self._places, values, strict=True))
        n_times = len(values) - self.n_addresses
        times, addresses = (tuple([one for _, one in part])
                            for part in (pairs[:n_times], pairs[n_times:]))  # fmt: skip
        return EntriesText(text, self, times, addresses, values)

    def ordered(self, times: Sequence[bytes], addresses: Sequence[bytes]) -> tuple[bytes, ...]:
        """Times and addresses as they come in the text."""
        values = *times, *addresses
        return tuple([values[at] for at in self._places])

    def in_form(self, values: tuple[bytes, ...], form: EntryForm) -> bytes:
        """The entries as some clients write them. values: as `ordered` gives them."""
        found = self._forms.get(form)
        if found is None:
            found = self._forms[form] = form_pattern(self.pattern, len(self._places), form)
        return found.text(values)


def _pattern(pieces: Sequence[bytes]) -> bytes:
    """Pieces between times with `NO_ADDRESS`, as a format with places for times and addresses."""
    whole = b'"time":"%b"'.join([one.replace(b"%", b"%%") for one in pieces])
    return whole.replace(NO_ADDRESS, ADDRESS_ELEMENT)


def _constants(pattern: bytes) -> tuple[bytes, ...]:
    """What is between the places of a format."""
    # A percent sign of the text is two in the format.
    parts = pattern.replace(b"%%", b"\0").split(b"%b")
    return tuple([one.replace(b"\0", b"%") for one in parts])


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


class ChangedEntries(msgspec.Struct, eq=False):
    """Entries after a change, with places for times and addresses. places: which values they get.

    settles: nothing but times differs from the entries before. take: these values, in order.
    skeleton: of the entries after the change, once known.
    """

    pattern: bytes
    places: tuple[int, ...]
    settles: bool
    take: Any = None
    skeleton: Skeleton | None = None
    constants: tuple[bytes, ...] = ()
    in_turn: Any = None

    def __post_init__(self) -> None:
        places, n_values = self.places, len(self.places)
        # A slice, so that one place gives a tuple as well.
        one = slice(places[0], places[0] + 1)
        self.take = itemgetter(*places) if n_values > 1 else itemgetter(one)
        self.constants = _constants(self.pattern)
        pairs = ((n_values + at, at) for at in range(n_values))
        self.in_turn = itemgetter(*chain.from_iterable(pairs), 2 * n_values)

    def text(self, values: tuple[bytes, ...]) -> bytes:
        """The entries. values: times before, the time of the change, addresses."""
        return self.joined(self.take(values))

    def joined(self, values: tuple[bytes, ...]) -> bytes:
        """The entries. values: as `take` gives them."""
        # Twice as fast as the format.
        return b"".join(self.in_turn(values + self.constants))


class EntriesText(msgspec.Struct, eq=False):
    """The bytes of managedFields, and these apart. values: times and addresses in their order."""

    text: bytes
    skeleton: Skeleton
    times: tuple[bytes, ...]
    addresses: tuple[bytes, ...]
    values: tuple[bytes, ...]

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
        self._by_length: dict[int, tuple[Skeleton, ...]] = {}
        # Objects that are made in the same second have the same times as well.
        self._texts: dict[bytes, EntriesText] = {}
        self._outcomes: dict[Key, ChangedEntries] = {}
        # By keys of the store. Pods are often written while they start, seldom afterwards.
        self._likely: dict[str, EntriesText] = {}

    def of_text(self, text: bytes) -> EntriesText:
        """Entries of these bytes. Raises msgspec.DecodeError if they are something else."""
        alike = self._by_length.get(len(text), ())
        known = None
        if not alike or not alike[0].n_addresses:
            known = self._texts.get(text)
            if known is not None:
                return known
        for skeleton in alike:
            known = skeleton.read(text)
            if known is not None:
                break
        else:
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
            others = (one for one in self._by_length.get(len(text), ()) if one is not skeleton)
            self._by_length[len(text)] = (skeleton, *others)[:ALIKE_MAX]
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

    def learn(self, found: ChangedEntries, text: bytes) -> Skeleton | None:
        """The skeleton of entries after a change, of which `text` is one example."""
        skeleton = self.of_text(text).skeleton
        if skeleton.pattern != found.pattern:
            return None
        found.skeleton = skeleton
        return skeleton

    def likely(self, key: str) -> EntriesText | None:
        """The entries that an object had when it was written last; None if they are not known."""
        return self._likely.get(key)

    def keep_likely(self, key: str, entries: EntriesText) -> None:
        """Note the entries of an object that is about to be written."""
        if len(self._likely) >= LIKELY_MAX:
            self._likely.clear()
        if len(entries.text) <= LIKELY_BYTES_MAX:
            self._likely[key] = entries

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
    return made if made.text((*times, *addresses)) == text else None


def without_known(raw: bytes, known: EntriesText) -> bytes | None:
    """A body with a mark instead of entries that are the stored ones; None if it has others."""
    start = raw.find(_KEY) + len(_KEY)
    if start < len(_KEY):
        return None
    text = known.text
    if not raw.startswith(text, start):
        if known.skeleton.uses < FORM_USES_MIN:
            return None
        for form in forms_of(raw[start : start + _START_BYTES]):
            text = known.skeleton.in_form(known.values, form)
            if raw.startswith(text, start):
                break
        else:
            return None
    # The key may be elsewhere, and the mark be sent. `in` would take twice as long as `find`.
    if raw.find(_MARKED) >= 0:
        return None
    return b"".join((raw[:start], _MARKED, raw[start + len(text) :]))
