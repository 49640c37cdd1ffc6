"""managedFields that clients send back in other forms are taken for the stored ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.apiserver.http import body_decoding
from stowplan.apiserver.storage.entry_forms import EntryForm, EntryOrder, FormPattern, forms_of
from stowplan.apiserver.storage.entry_patterns import FORM_USES_MIN, KnownEntries
from tests.apiserver.test_object_parts import ENTRY, texts
from tests.property.wrong import assert_caught
from tests.soak import examples

FORMS = [EntryForm(order, spaced) for order in EntryOrder for spaced in (False, True)]


def written(text: bytes, form: EntryForm) -> bytes:
    """Entries as a client writes them in a form, what follows the colon of their key."""
    entries = json.loads(text)
    if form.order is EntryOrder.ENTRIES:
        entries = [dict(sorted(one.items())) for one in entries]
    separators = (", ", ": ") if form.is_spaced else (",", ":")
    is_sorted = form.order is EntryOrder.ALL
    made = json.dumps(entries, separators=separators, sort_keys=is_sorted, ensure_ascii=False)
    return (" " + made if form.is_spaced else made).encode()


def compare_form(text: bytes, form: EntryForm) -> None:
    """Entries in a form are the same entries, with the keys in its order."""
    known = KnownEntries().of_text(text)
    made = known.skeleton.in_form(known.values, form)
    assert json.loads(made) == json.loads(text)
    if len(known.addresses) == 0:
        assert made == written(text, form)


@settings(max_examples=examples(300))
@given(texts(), st.sampled_from(FORMS))
def test_entries_in_a_form_are_the_same(text: bytes, form: EntryForm) -> None:
    compare_form(text, form)


def test_values_at_places_of_the_stored_form_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong variant: times and addresses are filled in as they come in the stored form."""

    def careless(self: FormPattern, values: tuple[bytes, ...]) -> bytes:
        return self._pattern % values

    monkeypatch.setattr(FormPattern, "text", careless)
    assert_caught(compare_form, texts(), st.sampled_from(FORMS))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("address", ["", "10.0.0.1"])
def test_entries_in_a_form_are_not_decoded(form: EntryForm, address: str) -> None:
    element = {f'k:{{"ip":"{address}"}}': {".": {}, "f:ip": {}}} if address else {}
    sets: Any = {"f:z": {}, "f:status": {".": {}, **element}, "f:a%": {}}
    entries = [{**ENTRY, "fieldsV1": sets, "manager": one} for one in ("b", "a%b")]
    known = KnownEntries().of_text(json.dumps(entries, separators=(",", ":")).encode())
    sent = written(known.text, form)
    assert form in (*forms_of(sent[:5]), EntryForm(EntryOrder.STORED, False))
    raw = b'{"metadata":{"name":"a","managedFields":%b},"data":{}}' % sent
    known.skeleton.uses = FORM_USES_MIN
    rest = body_decoding._decode_rest(raw, known)
    assert rest == ({"metadata": {"name": "a"}, "data": {}}, [])
    other = raw.replace(b"2020-01-01", b"2020-01-02", 1)
    assert other != raw
    assert body_decoding._decode_rest(other, known) is None
