"""Garbage collection: exactly the objects without owners are deleted, by the requested
propagation."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.controllers.garbage_collector import GarbageCollector
from tests.apiserver.small_cluster import DEPLOYMENTS, SETS, Tree, World, deployment
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


def quiet() -> World:
    return World(0, hollow=False, schedules=False)


def names(world: World) -> list[str]:
    return sorted(each["metadata"]["name"] for each in world.list(MAPS, "default"))


def test_background_deletion_deletes_the_owner_first() -> None:
    world = World(2)
    world.create(DEPLOYMENTS, deployment("web", 2))
    world.run(5)
    world.delete(DEPLOYMENTS, "web", propagation="Background")
    assert world.get(DEPLOYMENTS, "web") is None
    assert len(world.list(SETS)) == 1
    world.run(60)
    assert (world.list(SETS), world.pods()) == ([], [])


def test_in_the_foreground_the_owner_waits_for_all() -> None:
    world = World(2)
    slow = {"stowplan.dev/stop-seconds": "20"}
    world.create(DEPLOYMENTS, deployment("web", 2, slow))
    world.run(5)
    world.delete(DEPLOYMENTS, "web", propagation="Foreground")
    world.run(10)
    assert world.the(DEPLOYMENTS, "web")["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert len(world.pods()) == 2
    world.run(30)
    assert world.get(DEPLOYMENTS, "web") is None
    assert (world.list(SETS), world.pods()) == ([], [])


def test_orphans_stay_and_lose_their_owner() -> None:
    world = World(2)
    world.create(DEPLOYMENTS, deployment("web", 2))
    world.run(5)
    world.delete(DEPLOYMENTS, "web", propagation="Orphan")
    world.run(60)
    assert world.get(DEPLOYMENTS, "web") is None
    (left,) = world.list(SETS)
    assert left["metadata"].get("ownerReferences", []) == []
    assert len(world.pods()) == 2


def test_an_owner_that_never_was_owns_nothing() -> None:
    world = quiet()
    gone_node: Tree = {"metadata": {"name": "ghost", "uid": "00000000-0000-0000-0000-000000000001"}}
    world.create(MAPS, owned("a", gone_node))
    world.run(1)
    assert names(world) == []


def test_a_deleted_owner_is_removed_while_another_exists() -> None:
    world = quiet()
    one = world.create(MAPS, {"metadata": {"name": "one"}})
    two = world.create(MAPS, {"metadata": {"name": "two"}})
    world.create(MAPS, owned("a", one, two))
    world.run(1)
    world.delete(MAPS, "one")
    world.run(1)
    assert names(world) == ["a", "two"]
    assert [o["name"] for o in world.the(MAPS, "a")["metadata"]["ownerReferences"]] == ["two"]


def test_what_does_not_block_is_not_waited_for() -> None:
    world = quiet()
    one = world.create(MAPS, {"metadata": {"name": "one"}})
    child = owned("a", one, blocks=False)
    child["metadata"]["finalizers"] = ["example.com/hold"]
    world.create(MAPS, child)
    world.run(1)
    world.delete(MAPS, "one", propagation="Foreground")
    world.run(1)
    assert names(world) == ["a"]
    assert "deletionTimestamp" in world.the(MAPS, "a")["metadata"]


def test_a_circle_that_waits_for_itself_is_opened() -> None:
    world = quiet()
    one = world.create(MAPS, {"metadata": {"name": "one"}})
    two = world.create(MAPS, owned("two", one))
    changed = world.the(MAPS, "one")
    changed["metadata"]["ownerReferences"] = owned("x", two)["metadata"]["ownerReferences"]
    world.api.update(MAPS, changed)
    world.run(1)
    world.delete(MAPS, "one", propagation="Foreground")
    world.run(5)
    assert names(world) == []


def test_owners_of_unserved_kinds_are_kept() -> None:
    world = quiet()
    strange = owned("a")
    reference = {"apiVersion": "example.com/v1", "kind": "Thing", "name": "t", "uid": "u"}
    strange["metadata"]["ownerReferences"] = [reference]
    world.create(MAPS, strange)
    world.run(5)
    assert names(world) == ["a"]


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
    world = quiet()
    made: dict[int, Tree] = {}
    for n, owners in sorted(forest.items()):
        made[n] = world.create(MAPS, owned(f"m{n}", *(made[owner] for owner in owners)))
    world.run(1)
    for n in sorted(deleted, reverse=True):
        world.delete(MAPS, f"m{n}")
    world.run(1)
    return names(world)


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
