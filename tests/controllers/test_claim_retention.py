"""Owners of the claims of StatefulSets, by their retention policy."""

from __future__ import annotations

import pytest

from stowplan.controllers.workloads.stateful_set.claim_retention import (
    are_up_to_date,
    claim_owners,
    has_unexpected_controller,
    updated_references,
)
from tests.apiserver.small_cluster import Tree

SET_REF = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "controller": True}
POD_REF = {"apiVersion": "v1", "kind": "Pod", "name": "web-0", "controller": True}
OTHER = {"apiVersion": "x/v1", "kind": "Backup", "name": "b", "uid": "b", "controller": True}


@pytest.mark.parametrize(
    ("policy", "in_range", "references", "right", "expected"),
    [
        ("Retain Retain", True, [], True, []),
        ("Retain Retain", True, [{**SET_REF, "uid": "s"}], False, []),
        ("Delete Retain", True, [], False, ["s"]),
        ("Delete Retain", False, [{**SET_REF, "uid": "s"}], True, ["s"]),
        ("Retain Delete", True, [], True, []),
        ("Retain Delete", False, [], False, ["p"]),
        ("Delete Delete", False, [{**SET_REF, "uid": "s"}], False, ["p"]),
        ("Delete Delete", True, [{**POD_REF, "uid": "p"}], False, ["s"]),
        # An owner that is no controller is made one.
        ("Delete Retain", True, [{**SET_REF, "uid": "s", "controller": False}], False, ["s"]),
        # Of a former StatefulSet or pod of the name: left to the garbage collector.
        ("Delete Retain", True, [{**SET_REF, "uid": "former"}], True, []),
        ("Retain Delete", False, [{**POD_REF, "uid": "former"}], True, []),
        # Of another controller: only our own references are removed.
        ("Delete Retain", True, [OTHER], True, ["b"]),
        ("Delete Retain", True, [OTHER, {**SET_REF, "uid": "s"}], False, ["b"]),
    ],
)
def test_owners_of_claims_follow_the_policy(
    policy: str, in_range: bool, references: list[Tree], right: bool, expected: list[str]
) -> None:
    deleted, scaled = policy.split()
    owner = {
        "metadata": {"name": "web", "uid": "s"},
        "spec": {
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": deleted, "whenScaled": scaled}
        },
    }
    owners = claim_owners(owner, "web-0", "p", in_range)
    assert are_up_to_date(references, owners) == right
    assert [each["uid"] for each in updated_references(references, owners)] == expected


def test_another_controller_matters_only_if_claims_may_be_deleted() -> None:
    owner: Tree = {"metadata": {"name": "web", "uid": "s"}, "spec": {}}
    owners = claim_owners(owner, "web-0", "p", True)
    assert not has_unexpected_controller([OTHER], owners)
