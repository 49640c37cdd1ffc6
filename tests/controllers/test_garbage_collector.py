"""Garbage collection: exactly the objects without owners are deleted, by the requested
propagation."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.controllers.garbage_collector import GarbageCollector
from tests.apiserver.small_cluster import DEPLOYMENTS, SETS, SmallCluster, Tree, deployment
from tests.soak import examples

MAPS = "configmaps"


def owned(name: str, *owners: Tree, blocks: bool = True) -> Tree:
    references = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": blocks,
        }
        for owner in owners
    ]
    return {"metadata": {"name": name, "ownerReferences": references}}


def quiet() -> SmallCluster:
    return SmallCluster(0, simulates_nodes=False, schedules=False)


def names(cluster: SmallCluster) -> list[str]:
    return sorted(each["metadata"]["name"] for each in cluster.list(MAPS, "default"))


def test_background_deletion_deletes_the_owner_first() -> None:
    cluster = SmallCluster(2)
    cluster.create(DEPLOYMENTS, deployment("web", 2))
    cluster.run(5)
    cluster.delete(DEPLOYMENTS, "web", propagation="Background")
    assert cluster.get(DEPLOYMENTS, "web") is None
    assert len(cluster.list(SETS)) == 1
    cluster.run(60)
    assert (cluster.list(SETS), cluster.pods()) == ([], [])


def test_in_the_foreground_the_owner_waits_for_all() -> None:
    cluster = SmallCluster(2)
    slow = {"stowplan.dev/stop-seconds": "20"}
    cluster.create(DEPLOYMENTS, deployment("web", 2, slow))
    cluster.run(5)
    cluster.delete(DEPLOYMENTS, "web", propagation="Foreground")
    cluster.run(10)
    assert cluster.the(DEPLOYMENTS, "web")["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert len(cluster.pods()) == 2
    cluster.run(30)
    assert cluster.get(DEPLOYMENTS, "web") is None
    assert (cluster.list(SETS), cluster.pods()) == ([], [])


def test_orphans_stay_and_lose_their_owner() -> None:
    cluster = SmallCluster(2)
    cluster.create(DEPLOYMENTS, deployment("web", 2))
    cluster.run(5)
    cluster.delete(DEPLOYMENTS, "web", propagation="Orphan")
    cluster.run(60)
    assert cluster.get(DEPLOYMENTS, "web") is None
    (left,) = cluster.list(SETS)
    assert left["metadata"].get("ownerReferences", []) == []
    assert len(cluster.pods()) == 2


def test_an_owner_that_never_was_owns_nothing() -> None:
    cluster = quiet()
    gone_node: Tree = {"metadata": {"name": "ghost", "uid": "00000000-0000-0000-0000-000000000001"}}
    cluster.create(MAPS, owned("a", gone_node))
    cluster.run(1)
    assert names(cluster) == []


def test_a_deleted_owner_is_removed_while_another_exists() -> None:
    cluster = quiet()
    one = cluster.create(MAPS, {"metadata": {"name": "one"}})
    two = cluster.create(MAPS, {"metadata": {"name": "two"}})
    cluster.create(MAPS, owned("a", one, two))
    cluster.run(1)
    cluster.delete(MAPS, "one")
    cluster.run(1)
    assert names(cluster) == ["a", "two"]
    assert [o["name"] for o in cluster.the(MAPS, "a")["metadata"]["ownerReferences"]] == ["two"]


def test_what_does_not_block_is_not_waited_for() -> None:
    cluster = quiet()
    one = cluster.create(MAPS, {"metadata": {"name": "one"}})
    child = owned("a", one, blocks=False)
    child["metadata"]["finalizers"] = ["example.com/hold"]
    cluster.create(MAPS, child)
    cluster.run(1)
    cluster.delete(MAPS, "one", propagation="Foreground")
    cluster.run(1)
    assert names(cluster) == ["a"]
    assert "deletionTimestamp" in cluster.the(MAPS, "a")["metadata"]


def test_a_circle_that_waits_for_itself_is_opened() -> None:
    cluster = quiet()
    one = cluster.create(MAPS, {"metadata": {"name": "one"}})
    two = cluster.create(MAPS, owned("two", one))
    changed = cluster.the(MAPS, "one")
    changed["metadata"]["ownerReferences"] = owned("x", two)["metadata"]["ownerReferences"]
    cluster.api.update(MAPS, changed)
    cluster.run(1)
    cluster.delete(MAPS, "one", propagation="Foreground")
    cluster.run(5)
    assert names(cluster) == []


def test_owners_of_unserved_kinds_are_kept() -> None:
    cluster = quiet()
    strange = owned("a")
    reference = {"apiVersion": "example.com/v1", "kind": "Thing", "name": "t", "uid": "u"}
    strange["metadata"]["ownerReferences"] = [reference]
    cluster.create(MAPS, strange)
    cluster.run(5)
    assert names(cluster) == ["a"]


Forest = dict[int, tuple[int, ...]]
"""Owners of each object by number; an owner always has a smaller number."""


@st.composite
def forests(draw: st.DrawFn) -> Forest:
    count = draw(st.integers(1, 9))
    found: Forest = {}
    for n in range(count):
        found[n] = tuple(draw(st.sets(st.integers(0, n - 1), max_size=2))) if n else ()
    return found


def survivors(forest: Forest, deleted: set[int]) -> list[str]:
    """Who should be left: who was not deleted, and has no owners or one that is left."""
    left: set[int] = set()
    for n in sorted(forest):
        if n not in deleted and (not forest[n] or any(owner in left for owner in forest[n])):
            left.add(n)
    return sorted(f"m{n}" for n in left)


def outcome(forest: Forest, deleted: set[int]) -> list[str]:
    """Who is left in the cluster."""
    cluster = quiet()
    made: dict[int, Tree] = {}
    for n, owners in sorted(forest.items()):
        made[n] = cluster.create(MAPS, owned(f"m{n}", *(made[owner] for owner in owners)))
    cluster.run(1)
    for n in sorted(deleted, reverse=True):
        cluster.delete(MAPS, f"m{n}")
    cluster.run(1)
    return names(cluster)


@given(forests(), st.sets(st.integers(0, 8)))
@settings(max_examples=examples(40), deadline=None)
def test_exactly_the_objects_without_owners_are_deleted(forest: Forest, chosen: set[int]) -> None:
    deleted = chosen & set(forest)
    assert outcome(forest, deleted) == survivors(forest, deleted)


def test_deleting_at_the_first_dead_owner_is_caught(monkeypatch: Any) -> None:
    """The wrong variant: an object goes as soon as one of its owners has gone."""
    right = GarbageCollector._decide

    def hasty(self: GarbageCollector, item: Any, obj: Tree, owners: list[Tree]) -> None:
        dead = [owner for owner in owners if self._owner(owner, item[1]) == {}]
        right(self, item, obj, dead or owners)

    monkeypatch.setattr(GarbageCollector, "_decide", hasty)
    forest: Forest = {0: (), 1: (), 2: (0, 1)}
    assert outcome(forest, {0}) != survivors(forest, {0})
