"""Bodies that are kept packed: nothing of them is lost, and the memory that they save."""

from __future__ import annotations

import random
import zlib

from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.apiserver.storage.body_packing import (
    BODY_BYTES_MAX,
    TRIAL_COUNT,
    BodyPacker,
    PackedBody,
    StoredBody,
    unpacked,
)
from stowplan.apiserver.storage.versioned_store import VersionedStore
from tests.apiserver.plain import thing
from tests.soak import examples

SHAPES = [
    b'{"kind":"Pod","spec":{"template":%d,%b}}'
    % (at, b",".join(b'"field-%d-%d":"%d"' % (at, n, at * n) for n in range(60)))
    for at in range(3)
]


def body(shape: int, number: int) -> bytes:
    """A body of a kind of pod, different from others in a name."""
    return SHAPES[shape].replace(b'"kind":"Pod"', b'"kind":"Pod","name":"pod-%d"' % number)


def misread(packer: BodyPacker, bodies: list[bytes]) -> list[int]:
    """The numbers of the bodies that are not read back as they were packed."""
    kept = [packer.pack(each) for each in bodies]
    return [at for at, each in enumerate(kept) if read(each) != bodies[at]]


def read(kept: StoredBody) -> bytes | None:
    """What is read back; None if it cannot be."""
    try:
        return unpacked(kept)
    except zlib.error:
        return None


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=2000),
            st.builds(body, st.integers(0, 2), st.integers(0, 9999)),
            st.integers(0, BODY_BYTES_MAX + 9).map(lambda n: b"x" * n),
        ),
        max_size=30,
    ),
    st.integers(0, 3),
)
@settings(max_examples=examples(60), deadline=None)
def test_what_is_packed_is_read_back(bodies: list[bytes], dictionaries: int) -> None:
    packer = BodyPacker()
    noise = random.Random(dictionaries)
    for _ in range(dictionaries * TRIAL_COUNT):
        # Badly packed, so that dictionaries are made anew.
        packer.pack(noise.randbytes(600))
    assert misread(packer, bodies) == []


class OneDictionary(BodyPacker):
    """A wrong packer: a new dictionary takes the place of the one that packed what is there."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[PackedBody] = []

    def pack(self, body: bytes) -> StoredBody:
        made = super().pack(body)
        if isinstance(made, PackedBody):
            made = PackedBody(made.data, self.made[-1].dictionary if self.made else b"")
            self.made.append(made)
        return made


def test_a_packer_that_mistakes_the_dictionary_is_caught() -> None:
    assert misread(OneDictionary(), [body(0, number) for number in range(9)])


def test_alike_bodies_take_a_tenth() -> None:
    packer = BodyPacker()
    kept = [packer.pack(body(number % 3, number)) for number in range(4 * TRIAL_COUNT)]
    last = [each for each in kept[-TRIAL_COUNT:] if isinstance(each, PackedBody)]
    assert len(last) == TRIAL_COUNT
    assert sum(len(each.data) for each in last) < 0.1 * TRIAL_COUNT * len(SHAPES[0])
    assert len({each.dictionary for each in last}) == 1
    assert misread(BodyPacker(), [body(number % 3, number) for number in range(999)]) == []


def test_noise_is_kept_as_it_is() -> None:
    noise = random.Random(1).randbytes(900)
    assert BodyPacker().pack(noise) is not None
    packer = BodyPacker()
    packer.pack(body(0, 1))
    assert packer.pack(noise) is noise
    short = b'{"kind":"Pod"}'
    assert packer.pack(short) is short


def test_objects_are_packed_when_their_change_leaves_the_log() -> None:
    store, resource = VersionedStore(history_max=50), thing()
    values = {f"things/n/{number:03}": body(0, number) for number in range(200)}
    for key, value in values.items():
        store.put(resource, key, value)
        store.published_version = store.version
    kept = [store.stored(key) for key in values]
    assert all(isinstance(each, PackedBody) for each in kept[:149])
    assert all(isinstance(each, bytes) for each in kept[-50:])
    assert dict(store.under("things", "things/")) == values
    assert [value for _, _, value in store.records()] == list(values.values())
    # A later write has the object plain again, and knows what it was.
    change = store.put(resource, "things/n/000", body(1, 0))
    assert (change.type, change.previous) == ("MODIFIED", values["things/n/000"])
    assert store.stored("things/n/000") == body(1, 0)
    removed = store.remove(resource, "things/n/001", body(2, 1))
    assert (removed.previous, store.get("things/n/001")) == (values["things/n/001"], None)


def test_an_object_that_was_written_again_is_not_packed_with_its_old_state() -> None:
    store, resource = VersionedStore(history_max=20), thing()
    store.put(resource, "things/n/a", body(0, 1))
    for number in range(15):
        store.put(resource, f"things/n/b{number}", body(0, number))
    store.put(resource, "things/n/a", body(1, 1))
    store.published_version = store.version
    for number in range(15):
        store.put(resource, f"things/n/c{number}", body(0, number))
    assert store.get("things/n/a") == body(1, 1)


def test_restored_objects_are_packed() -> None:
    records = [(f"things/n/{number:03}", number + 1, body(0, number)) for number in range(9)]
    store = VersionedStore(records)
    assert all(isinstance(each, PackedBody) for _, each in store.bodies("things"))
    assert list(store.under("things", "things/")) == [(key, value) for key, _, value in records]
