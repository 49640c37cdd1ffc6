"""The store: present state, past states as far as the log goes, and the index beneath it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.apis.machinery.resource import Resource
from stowplan.apiserver.storage.key_index import RUN_KEYS_MAX, KeyIndex
from stowplan.apiserver.storage.versioned_store import VersionedStore, resource_path_of
from tests.apiserver.plain import thing
from tests.soak import examples

KEYS = st.sampled_from([f"things/{space}/{name}" for space in "nm" for name in "abcd"])
STEPS = st.lists(st.tuples(KEYS, st.sampled_from(["put", "remove"])), max_size=40)


def write(store: VersionedStore, resource: Resource, key: str, what: str) -> None:
    value = str(store.version + 1).encode()
    if what == "put":
        store.put(resource, key, value)
    elif store.get(key) is not None:
        store.remove(resource, key, value)


def past_states(store_type: type[VersionedStore], steps: list[tuple[str, str]]) -> list[str]:
    """What an old version of the store shows other than it was."""
    store, resource = store_type(history_max=1000), thing()
    kept = {store.version: {}}
    for key, what in steps:
        write(store, resource, key, what)
        kept[store.version] = dict(store.under("things", "things/"))
    return [
        f"version {version} at {start!r}"
        for version, state in kept.items()
        for start in ("", "things/n/")
        if list(store.under_at("things", "things/", version, start))
        != sorted(item for item in state.items() if item[0] >= start)
    ]


@given(steps=STEPS)
@settings(max_examples=examples(100))
def test_the_past_is_what_it_was(steps: list[tuple[str, str]]) -> None:
    assert past_states(VersionedStore, steps) == []


class Revisionist(VersionedStore):
    """A wrong store: of several changes to a key the last one is taken back, not the first."""

    def under_at(self, path: str, prefix: str, version: int, start: str = "") -> Any:
        before = {c.key: c.previous for c in self.changes(version)}
        then = dict(self.under(path, prefix, start))
        for key, value in before.items():
            then.pop(key, None)
            if value is not None and key >= start:
                then[key] = value
        yield from sorted(then.items())


def test_a_store_that_misremembers_is_caught() -> None:
    steps = [("things/n/a", "put"), ("things/n/a", "put"), ("things/n/a", "put")]
    assert past_states(Revisionist, steps)


def test_the_log_is_compacted_in_time_but_not_before_it_was_sent() -> None:
    store, resource = VersionedStore(history_max=10), thing()
    for _ in range(30):
        write(store, resource, "things/n/a", "put")
    assert store.compacted == 1
    store.published_version = store.version
    write(store, resource, "things/n/a", "put")
    assert store.compacted > 1
    assert [c.version for c in store.changes(store.version - 2)] == [
        store.version - 1,
        store.version,
    ]


def test_versions_go_on_after_a_start_from_records() -> None:
    resource = thing()
    store = VersionedStore([("things/n/a", 5, b"5"), ("things/n/b", 9, None)])
    assert (store.version, store.compacted) == (9, 9)
    assert store.put(resource, "things/n/c", b"10").version == 10
    assert [key for key, _ in store.under("things", "things/")] == ["things/n/a", "things/n/c"]
    assert sorted(store.records()) == [("things/n/a", 10, b"5"), ("things/n/c", 10, b"10")]


@pytest.mark.parametrize(
    ("key", "path"), [("pods/n/a", "pods"), ("apps/deployments/n/a", "apps/deployments")]
)
def test_a_key_states_its_path(key: str, path: str) -> None:
    assert resource_path_of(key) == path


@given(
    steps=st.lists(st.tuples(st.booleans(), st.integers(0, 3 * RUN_KEYS_MAX)), max_size=60),
    start=st.integers(0, 3 * RUN_KEYS_MAX),
)
@settings(max_examples=examples(60))
def test_the_index_is_a_sorted_set(steps: list[tuple[bool, int]], start: int) -> None:
    keys = {f"{number:05}" for number in range(0, 3 * RUN_KEYS_MAX, 2)}
    index = KeyIndex(keys)
    for adds, number in steps:
        key = f"{number:05}"
        if adds and key not in keys:
            index.add(key)
            keys.add(key)
        elif not adds:
            index.discard(key)
            keys.discard(key)
    first = f"{start:05}"
    assert list(index.since(first)) == sorted(key for key in keys if key >= first)
    assert list(index.between(first, "02000")) == sorted(k for k in keys if first <= k < "02000")
    assert index.count(first, "02000") == sum(first <= key < "02000" for key in keys) or (
        first > "02000"
    )


def test_an_empty_index_has_nothing() -> None:
    index = KeyIndex()
    index.discard("a")
    assert (list(index.since("")), index.count("a", "b")) == ([], 0)
    index.add("a")
    index.discard("a")
    assert list(index.between("a", "b")) == []
