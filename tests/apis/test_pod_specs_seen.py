"""A spec that was found good is not looked at again; a bad one is refused each time."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stowplan.apis.core.pod import _ValidSpecCache
from stowplan.apis.core.pod_spec_key import spec_key

Tree = dict[str, Any]
SPECS = st.dictionaries(st.sampled_from("abc"), st.integers(0, 2), max_size=2)


def faults(spec: Tree) -> list[str]:
    return [f"{key} is odd" for key, value in spec.items() if value == 1]


def same_answers(seen: Any, specs: list[Tree]) -> None:
    for spec in specs:
        assert list(seen.seen(spec, iter(faults(spec)))) == faults(spec)


@given(st.lists(SPECS, max_size=12))
def test_answers_are_the_same(specs: list[Tree]) -> None:
    same_answers(_ValidSpecCache(), specs)


def test_good_ones_are_looked_at_once() -> None:
    looked = 0

    def looking() -> Any:
        nonlocal looked
        looked += 1
        yield from ()

    seen = _ValidSpecCache()
    for _ in range(5):
        assert list(seen.seen({"a": 0}, looking())) == []
    assert looked == 1


def with_token(name: str, *more: str) -> Tree:
    volumes = [{"name": one, "emptyDir": {}} for one in more]
    return {"volumes": [*volumes, {"name": name, "projected": {}}], "mounts": [name]}


def test_pods_that_differ_by_the_name_of_their_tokens_volume_are_alike() -> None:
    first, second = "kube-api-access-abcde", "kube-api-access-24680"
    assert spec_key(with_token(first)) == spec_key(with_token(second))
    for other in (
        with_token("kube-api-access-"),
        with_token("kube-api-access-abcdef"),
        with_token(first, first),
        with_token(first, "0"),
        {**with_token(first), "mounts": [second]},
    ):
        assert spec_key(other) != spec_key(with_token(first)), other
    repeated = with_token(first, "kube-api-access")
    assert spec_key(repeated) != spec_key(with_token(first, first))


def test_keeping_bad_ones_is_caught() -> None:
    class Forgiving(_ValidSpecCache):
        """Keeps whatever it has looked at."""

        def seen(self, spec: Tree, faults: Any) -> Any:
            faults_found = list(super().seen(spec, faults))
            list(super().seen(spec, iter(())))
            return iter(faults_found)

    with pytest.raises(AssertionError):
        same_answers(Forgiving(), [{"a": 1}, {"a": 1}])
