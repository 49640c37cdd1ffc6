"""Which node a pending pod is waiting for."""

from __future__ import annotations

from stowplan.queue.nominator import Nominator
from stowplan.testing.builders import pod


def nominator(*listed: str, bound: str = "") -> Nominator:
    """A nominator beside a lister with these pods, one of them bound."""
    pods = {f"default/{name}": pod(name, on="n1" if name == bound else "") for name in listed}
    return Nominator(pods.get)


def names(of: Nominator, node: str) -> list[str]:
    return [info.pod.name for info in of.on(node)]


def test_nominated_a_node() -> None:
    nominations = nominator("a", "b")
    nominations.nominate(pod("a", nominated="n9"), "n1")
    nominations.nominate(pod("b"), "n1")
    assert names(nominations, "n1") == ["a", "b"]
    assert nominations.node_of("default/a") == "n1"
    assert len(nominations) == 2


def test_without_nominating_info_the_status_decides() -> None:
    nominations = nominator("a", "b")
    nominations.nominate(pod("a", nominated="n1"))
    nominations.nominate(pod("b"))
    assert names(nominations, "n1") == ["a"]
    assert nominations.nodes() == ("n1",)


def test_nominated_no_node() -> None:
    nominations = nominator("a")
    nominations.nominate(pod("a", nominated="n1"), "")
    assert names(nominations, "n1") == []
    assert names(nominations, "") == ["a"]


def test_a_new_nomination_replaces_the_old_one_and_comes_last() -> None:
    nominations = nominator("a", "b")
    for name in ("a", "b", "a"):
        nominations.nominate(pod(name), "n1")
    assert names(nominations, "n1") == ["b", "a"]
    nominations.nominate(pod("b"))
    assert names(nominations, "n1") == ["a"]


def test_pods_that_are_gone_or_bound_are_not_nominated() -> None:
    nominations = nominator("bound", bound="bound")
    nominations.nominate(pod("bound"), "n1")
    nominations.nominate(pod("gone"), "n1")
    assert nominations.nodes() == ()


def test_an_update_that_never_named_a_node_keeps_the_nomination() -> None:
    nominations = nominator("a", "b")
    nominations.nominate(pod("a"), "n1")
    nominations.nominate(pod("b"), "n1")
    nominations.follow(pod("a"), pod("a", labels={"new": "yes"}))
    assert names(nominations, "n1") == ["b", "a"]
    assert nominations.on("n1")[1].pod.labels == {"new": "yes"}


def test_an_update_that_names_or_named_a_node_decides() -> None:
    nominations = nominator("a")
    nominations.nominate(pod("a"), "n1")
    nominations.follow(pod("a"), pod("a", nominated="n2"))
    assert names(nominations, "n2") == ["a"]
    nominations.follow(pod("a", nominated="n2"), pod("a"))
    assert nominations.nodes() == ()
