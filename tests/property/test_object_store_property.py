"""What is assumed of objects, against two dicts: what the cluster shows, and what is believed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stowplan.framework.object_store import ObjectStore
from stowplan.objects.meta import Object, ObjectMeta
from stowplan.objects.workload import Namespace
from tests.property.wrong import assert_caught

NAMES = ("a", "b")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("put", "drop", "assume", "restore")),
        st.sampled_from(NAMES),
        st.integers(1, 3),
    ),
    max_size=30,
)

Step = tuple[str, str, int]


def made(name: str, version: int, mark: int) -> Namespace:
    meta = ObjectMeta(name=name, resource_version=str(version), labels={"mark": str(mark)})
    return Namespace(metadata=meta)


class Model:
    """shown: as the cluster shows them. believed: of those, what is assumed and still holds."""

    def __init__(self) -> None:
        self.latest: dict[str, Namespace] = {}
        self.believed: dict[str, Namespace] = {}

    def put(self, value: Namespace) -> None:
        self.latest[value.name] = value
        self.believed.pop(value.name, None)

    def drop(self, name: str) -> None:
        del self.latest[name]
        self.believed.pop(name, None)

    def assume(self, value: Namespace) -> None:
        if value.name in self.latest:
            self.believed[value.name] = value

    def restore(self, value: Namespace) -> None:
        latest = self.latest.get(value.name)
        if (
            latest is not None
            and latest.metadata.resource_version == value.metadata.resource_version
        ):
            self.believed.pop(value.name, None)

    def seen(self, name: str) -> Namespace | None:
        return self.believed.get(name, self.latest.get(name))


def check_two_dicts(steps: list[Step]) -> None:
    store, model = ObjectStore(), Model()
    for mark, (what, name, version) in enumerate(steps):
        value = made(name, version, mark)
        before = {each: model.seen(each) for each in NAMES}
        at = store.version
        if what != "drop":
            getattr(store, what)(value)
            getattr(model, what)(value)
        elif name in model.latest:
            store.drop(Namespace, name)
            model.drop(name)
        for each in NAMES:
            assert store.find(Namespace, each) is model.seen(each)
            assert store.observed(Namespace, each) is model.latest.get(each)
        assert list(store.all(Namespace)) == [model.seen(each) for each in model.latest]
        changed = before != {each: model.seen(each) for each in NAMES}
        assert (store.version > at) or not changed, "who follows by version misses this"


@given(STEPS)
def test_the_object_store_is_two_dicts(steps: list[Step]) -> None:
    check_two_dicts(steps)


def test_a_late_end_of_an_old_assumption_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: whoever gives up what it had assumed ends what somebody else assumes by now."""

    def restore(self: ObjectStore, value: Object) -> None:
        observed = self._observed.get((type(value), value.name))
        if observed is not None:
            self.put(observed)

    monkeypatch.setattr(ObjectStore, "restore", restore)
    assert_caught(check_two_dicts, STEPS)


def test_an_observed_object_that_is_not_seen_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wrong: an assumption holds until whoever made it gives it up."""
    right = ObjectStore.put

    def put(self: ObjectStore, value: Object) -> None:
        assumed = self._observed.get((type(value), value.name)) and self.find(
            type(value), value.name
        )
        right(self, value)
        if assumed:
            self.assume(assumed)

    monkeypatch.setattr(ObjectStore, "put", put)
    assert_caught(check_two_dicts, STEPS)
