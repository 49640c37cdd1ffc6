"""The cache: who is on which node, and who is only assumed to be."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stowplan.cache import Cache, CacheError
from stowplan.columns.invariants import InvariantBroken
from stowplan.framework import Nominations
from stowplan.objects.encoding.duration import SECOND
from stowplan.testing import node, pod

WEB = pod("web", cpu="1")
API = pod("api", cpu="2")


def cache(limit_s: float | None = None) -> Cache:
    """A cache with the nodes n1 and n2."""
    made = Cache(limit_s)
    for name in ("n1", "n2"):
        made.put_node(node(name, cpu="4"))
    return made


def cpu(of: Cache, name: str = "n1") -> int:
    """What is requested on a node, in whole CPUs."""
    return int(of.nodes.requested("cpu")[of.nodes.row(name)]) // 1000


# Assume.


def test_an_assumed_pod_takes_room_at_once() -> None:
    held = cache()
    held.assume(WEB, "n1")
    assert (cpu(held), held.is_assumed(WEB.uid), held.assumed()) == (1, True, {WEB.uid})


def test_a_pod_is_assumed_once() -> None:
    held = cache()
    held.assume(WEB, "n1")
    with pytest.raises(CacheError, match=r"default/web cannot be assumed: .* on 'n1'"):
        held.assume(WEB, "n2")
    held.put_pod(pod("api", on="n2"))
    with pytest.raises(CacheError, match="already on 'n2'"):
        held.assume(API, "n1")
    assert held.assumed() == {WEB.uid}
    held.validate()


def test_a_forgotten_pod_gives_its_room_back() -> None:
    held = cache()
    held.assume(WEB, "n1")
    info = held.forget(WEB.uid)
    assert info is not None
    assert (info.pod, cpu(held), held.is_assumed(WEB.uid)) == (WEB, 0, False)
    assert held.forget(WEB.uid) is None


def test_a_pod_that_is_confirmed_cannot_be_forgotten() -> None:
    held = cache()
    held.assume(WEB, "n1")
    held.put_pod(pod("web", cpu="1", on="n1"))
    assert held.forget(WEB.uid) is None
    assert cpu(held) == 1


def test_the_watch_is_right_about_the_node_and_the_pod() -> None:
    held = cache()
    held.assume(WEB, "n1")
    held.put_pod(pod("web", cpu="3", on="n2"))
    assert (cpu(held), cpu(held, "n2"), held.is_assumed(WEB.uid)) == (0, 3, False)
    held.put_pod(pod("web", cpu="2", on="n2"))
    assert cpu(held, "n2") == 2
    held.validate()


@pytest.mark.parametrize("is_assumed", [True, False])
def test_a_pod_that_is_gone_takes_no_room(is_assumed: bool) -> None:
    held = cache()
    if is_assumed:
        held.assume(WEB, "n1")
    else:
        held.put_pod(pod("web", cpu="1", on="n1"))
    info = held.drop_pod(WEB.uid)
    assert info is not None
    assert (info.uid, cpu(held), held.assumed()) == (WEB.uid, 0, frozenset())
    assert held.drop_pod(WEB.uid) is None
    held.validate()


# Expiry.


def test_without_a_limit_an_assumption_holds_for_ever() -> None:
    held = cache()
    held.assume(WEB, "n1")
    held.expect(WEB.uid, 0)
    assert held.next_expiry() is None
    assert held.expire(10**6 * SECOND) == []
    assert held.is_assumed(WEB.uid)


def test_the_limit_runs_from_the_word_of_the_api() -> None:
    held = cache(30)
    held.assume(WEB, "n1")
    assert held.expire(1000 * SECOND) == []
    held.expect(WEB.uid, 1000 * SECOND)
    assert held.next_expiry() == 1030 * SECOND
    assert held.expire(1030 * SECOND - 1) == []
    assert held.expire(1030 * SECOND) == [WEB.uid]
    assert (cpu(held), held.next_expiry()) == (0, None)


def test_assumptions_expire_in_the_order_of_the_api_s_words() -> None:
    held = cache(0.5)
    for each in (WEB, API):
        held.assume(each, "n1")
    held.expect(API.uid, 0)
    held.expect(WEB.uid, SECOND // 4)
    assert held.expire(SECOND // 2) == [API.uid]
    assert held.expire(SECOND) == [WEB.uid]


def test_a_word_that_comes_twice_counts_from_the_second() -> None:
    held = cache(10)
    for each in (WEB, API):
        held.assume(each, "n1")
        held.expect(each.uid, 0)
    held.expect(WEB.uid, SECOND)
    held.validate()
    assert held.expire(10 * SECOND) == [API.uid]


@pytest.mark.parametrize("end", [Cache.forget, Cache.drop_pod])
def test_what_has_ended_does_not_expire(end: Callable[[Cache, str], object]) -> None:
    held = cache(10)
    held.assume(WEB, "n1")
    held.expect(WEB.uid, 0)
    end(held, WEB.uid)
    held.expect(WEB.uid, 0)
    assert (held.next_expiry(), held.expire(100 * SECOND)) == (None, [])


def test_what_is_confirmed_does_not_expire() -> None:
    held = cache(10)
    held.assume(WEB, "n1")
    held.expect(WEB.uid, 0)
    held.put_pod(pod("web", cpu="1", on="n1"))
    assert held.expire(100 * SECOND) == []
    assert cpu(held) == 1


# Nodes.


def test_a_node_reports_its_former_state() -> None:
    held = Cache()
    first, second = node("n1", cpu="1"), node("n1", cpu="2")
    assert held.put_node(first) is None
    assert held.put_node(second) is first
    assert held.put_node(second) is second
    assert held.drop_node("n1") is second
    assert held.drop_node("n1") is None


def test_pods_outlive_their_node_and_come_back_with_it() -> None:
    held = cache()
    held.assume(WEB, "n1")
    held.put_pod(pod("api", cpu="2", on="n1"))
    held.drop_node("n1")
    assert held.snapshot().nodes.names == ["n2"]
    # The ghost's pods: one is confirmed, one goes.
    held.put_pod(pod("web", cpu="1", on="n1"))
    held.drop_pod(API.uid)
    held.validate()
    held.put_node(node("n1"))
    assert cpu(held) == 1
    held.validate()


def test_an_assumed_pod_is_forgotten_on_a_node_that_is_not_there() -> None:
    held = cache()
    held.assume(WEB, "n1")
    held.drop_node("n1")
    assert held.forget(WEB.uid) is not None
    held.put_node(node("n1"))
    assert cpu(held) == 0


# Snapshots.


def test_a_snapshot_costs_what_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the live columns; only rows that were touched are looked at again."""
    held = Cache()
    for index in range(50):
        # Where no node has an image, there is nothing to look at.
        held.put_node(node(f"n{index}", images={"web": 1}))
    first = held.snapshot()
    looked_at = []
    refresh = held.nodes.images.refresh

    def look(row: int) -> bool:
        looked_at.append(row)
        return refresh(row)

    monkeypatch.setattr(held.nodes.images, "refresh", look)
    assert held.snapshot() is first
    assert looked_at == []
    held.assume(WEB, "n7")
    held.assume(API, "n9")
    held.snapshot()
    assert sorted(looked_at) == [7, 9]


def test_snapshots_read_the_nominations_of_the_queue() -> None:
    held = cache()
    of_queue = Nominations()
    held.use_nominations(of_queue)
    of_queue.add(WEB, "n1")
    assert [info.uid for info in held.snapshot().nominations.on("n1")] == [WEB.uid]


# What must hold.


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda held: held.nodes.remove_pod(WEB.uid), "assumed pods that are on no node"),
        (lambda held: held._expiry.update({"other": 1}), "pods that expire and are not assumed"),
        (
            lambda held: held._expiry.update({WEB.uid: 10**30, API.uid: 1}),
            "expiries out of order",
        ),
        (lambda held: held.nodes._requested.fill(0), "requested cpu"),
    ],
)
def test_damage_is_found(damage: Callable[[Cache], object], named: str) -> None:
    held = cache(10)
    held.assume(WEB, "n1")
    held.assume(API, "n1")
    held.validate()
    damage(held)
    with pytest.raises(InvariantBroken, match=named):
        held.validate()
