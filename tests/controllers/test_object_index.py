"""The index keeps pods that change little as if they were taken out and put in anew."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stowplan.controller_runtime import object_index
from stowplan.controller_runtime.object_index import ObjectIndex, PodFacts
from tests.property.wrong import assert_caught


class Change(msgspec.Struct):
    """See `store.WatchEvent`."""

    type: str
    path: str
    namespace: str
    name: str
    value: bytes
    previous: bytes | None = None


def change(type: str, name: str, owner: str, node: str, label: str, phase: str) -> Change:
    meta: dict[str, Any] = {"name": name, "namespace": "n", "uid": name, "labels": {"app": label}}
    if owner:
        meta["ownerReferences"] = [
            {"apiVersion": "v1", "kind": "Set", "name": owner, "uid": owner, "controller": True}
        ]
    tree = {"metadata": meta, "spec": {"nodeName": node}, "status": {"phase": phase}}
    return Change(type, "pods", "n", name, msgspec.json.encode(tree))


CHANGES = st.lists(
    st.builds(
        change,
        st.sampled_from(("ADDED", "MODIFIED", "MODIFIED", "DELETED")),
        st.sampled_from(("a", "b", "c", "d")),
        st.sampled_from(("", "", "o")),
        st.sampled_from(("", "n1", "n1", "n2")),
        st.sampled_from(("x", "x", "y")),
        st.sampled_from(("Pending", "Running")),
    ),
    max_size=12,
)


class PlainIndex(ObjectIndex):
    """Takes each pod out and puts it in."""

    def _renew(self, old: PodFacts, facts: PodFacts) -> bool:
        return False


def content(index: ObjectIndex) -> list[object]:
    """All that it answers, in its order."""
    return [
        list(index.pods.items()),
        [index.of_owner("o"), index.owners_of("pods", "n", "a"), index.dependents("o")],
        [index.on_node(node) for node in ("", "n1", "n2")],
        index.in_namespace("n"),
        [index.orphans("n", labels) for labels in ({}, {"app": "x"}, {"app": "y"})],
        [index.owners_changed, index.owners_lost],
    ]


def compare(index: ObjectIndex, changes: list[Change]) -> None:
    plain = PlainIndex()
    for one in changes:
        assert index.observe(one) == plain.observe(one)
        assert content(index) == content(plain)


@given(CHANGES)
def test_a_renewed_pod_is_where_a_new_one_is(changes: list[Change]) -> None:
    compare(ObjectIndex(), changes)


OTHERS = [change("ADDED", name, "", "n1", "x", "Pending") for name in ("a", "b")]
OTHERS += [change("ADDED", name, "o", "n2", "y", "Pending") for name in ("c", "d")]
KNOWN = {
    "owner": change("MODIFIED", "a", "o", "n1", "x", "Pending"),
    "labels": change("MODIFIED", "a", "", "n1", "y", "Pending"),
    "node": change("MODIFIED", "a", "", "n2", "x", "Pending"),
}


@pytest.mark.parametrize("left_out", KNOWN)
def test_what_a_pod_may_change_is_looked_at(left_out: str) -> None:
    """Wrong variants: a pod counts as renewed though its owner, labels or node change."""

    class Careless(ObjectIndex):
        def _renew(self, old: PodFacts, facts: PodFacts) -> bool:
            if not super()._renew(
                old, msgspec.structs.replace(facts, **{left_out: getattr(old, left_out)})
            ):
                return False
            self.pods[facts.key] = facts
            return True

    assert_caught(
        lambda changes: compare(Careless(), changes), CHANGES, known=([*OTHERS, KNOWN[left_out]],)
    )


PIECES = st.text(st.sampled_from(']}{[,:"\\\\a'), max_size=6)


def read_as_whole(manager: str, element: str, label: str) -> None:
    meta = {
        "name": "p",
        "labels": {"app": label},
        "managedFields": [{"manager": manager, "fieldsV1": {f"v:{element}": {}}}, {"time": "t"}],
        "finalizers": ["a/b"],
    }
    tree = {"kind": "Pod", "metadata": meta, "spec": {"nodeName": "n"}, "status": {"phase": "Run"}}
    value = msgspec.json.encode(tree)
    whole = object_index._POD_DECODER.decode(value)
    assert object_index._indexed_pod(value) == whole


@given(PIECES, PIECES, PIECES)
def test_pods_are_read_without_managed_fields_as_with_them(
    manager: str, element: str, label: str
) -> None:
    read_as_whole(manager, element, label)


def test_pods_cut_at_another_bracket_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong variant: managedFields end at the last bracket."""

    def careless(value: bytes) -> Any:
        before, _, after = value.partition(b',"managedFields":[')
        return object_index._POD_DECODER.decode(before + after.rpartition(b"]")[2])

    monkeypatch.setattr(object_index, "_indexed_pod", careless)
    assert_caught(read_as_whole, PIECES, PIECES, PIECES)
