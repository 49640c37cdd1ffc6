"""managedFields as clients send them back: the same entries, written in other ways.

Clients of typed structs write the keys of entries as they are stored, those of plain maps sort
them, and some put a space after each colon and comma. A form is a pattern made of the stored
entries by decoding and encoding them, so that what it gives is the same entries.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import IntEnum
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[:,]')
_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode


class EntryOrder(IntEnum):
    """Which keys are sorted. ENTRIES: those of entries, not those of their sets of fields."""

    STORED, ENTRIES, ALL = range(3)


class EntryForm(NamedTuple):
    """How entries are written."""

    order: EntryOrder
    is_spaced: bool


_SORTED = EntryForm(EntryOrder.ALL, False), EntryForm(EntryOrder.ENTRIES, False)
_SORTED_SPACED = EntryForm(EntryOrder.ENTRIES, True), EntryForm(EntryOrder.ALL, True)
_SPACED = (EntryForm(EntryOrder.STORED, True),)
_FORMS_OF_START = {b'[{"a': _SORTED, b' [{"a': _SORTED_SPACED}


def forms_of(start: bytes) -> Sequence[EntryForm]:
    """The forms in which entries may be that begin so (what follows the colon), likeliest first;
    none for the stored form."""
    if start[:1] == b" ":
        return _FORMS_OF_START.get(start[:5], _SPACED)
    return _FORMS_OF_START.get(start[:4], ())


class FormPattern:
    """A pattern of entries in a form. places: of the stored values, in its order."""

    __slots__ = ("_pattern", "_take")

    def __init__(self, pattern: bytes, places: Sequence[int]) -> None:
        self._pattern = pattern
        # With one place `itemgetter` gives no tuple, and the format takes the value as well.
        self._take: Callable[[Sequence[bytes]], Any] | None = None
        if list(places) != list(range(len(places))):
            self._take = itemgetter(*places)

    def text(self, values: tuple[bytes, ...]) -> bytes:
        """The entries. values: times and addresses as they come in the stored form."""
        made: bytes = self._pattern % (values if self._take is None else self._take(values))
        return made


def form_pattern(pattern: bytes, n_values: int, form: EntryForm) -> FormPattern:
    """The pattern of entries in a form. pattern: in the stored form, with `n_values` places."""
    mark = next(one for at in range(len(pattern) + 1) if (one := b"~%d-" % at) not in pattern)
    numbers = {b"%d" % at: at for at in range(n_values)}
    text = pattern % tuple([b"%b%b~" % (mark, one) for one in numbers])
    entries = msgspec.json.decode(text)
    if form.order is EntryOrder.ALL:
        text = _encode_sorted(entries)
    elif form.order is EntryOrder.ENTRIES:
        text = _encode([dict(sorted(one.items())) for one in entries])
    parts = re.split(b"%b([0-9]+)~" % re.escape(mark), text)
    made = b"%b".join([one.replace(b"%", b"%%") for one in parts[::2]])
    if form.is_spaced:
        made = b" " + _TOKEN.sub(_with_space, made)
    return FormPattern(made, [numbers[one] for one in parts[1::2]])


def _with_space(token: re.Match[bytes]) -> bytes:
    return token[0] + b" " if token[0] in (b":", b",") else token[0]
