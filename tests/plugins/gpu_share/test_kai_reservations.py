"""KAI's parts on a live cluster: which cards are shared, and when reservation pods end."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from stowplan.framework import ConfigError
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.objects.devices.card_reservation import RESERVATION_LABEL, reservation_name
from stowplan.objects.pod import Pod
from stowplan.plugins.gpu_share.conventions.kai_fractions import CARDS
from stowplan.plugins.gpu_share.conventions.kai_reservations import unused_reservations
from stowplan.testing import node, pod
from tests.plugins.gpu_share.test_device_sharing import Cluster, gpu_pod, with_notes

N = node("n", cpu="64", resources={"nvidia.com/gpu": "2"}, labels={"nvidia.com/gpu.memory": "1000"})


def cluster(**args: Any) -> Cluster:
    given = {"conventions": ["kai-reservations"], "reservationImage": "reporter:1", **args}
    return Cluster(N, **given)


def part(name: str, fraction: str, namespace: str = "default", **notes: str) -> Pod:
    made = pod(name, cpu="1", namespace=namespace)
    found: Pod = with_notes(made, {"gpu-fraction": fraction, **notes})
    return found


def reservation(card: str, namespace: str = "default", on: str = "n") -> Pod:
    made = gpu_pod(reservation_name("n", card), {"nvidia.com/gpu": 1})
    meta = replace(made.metadata, namespace=namespace, labels={RESERVATION_LABEL: card})
    return replace(made, metadata=meta, spec=replace(made.spec, node_name=on))


def test_cards_are_reserved_for_parts_and_not_for_whole_ones() -> None:
    live = cluster()
    pods = [part("a", "0.5"), gpu_pod("b", {"nvidia.com/gpu": 1})]
    live.pods = {one.name: one for one in pods}
    binds = {
        one.name: one.cards
        for one in live.handle(*map(happened.PodAdded, pods))
        if isinstance(one, to_do.Bind)
    }
    assert binds["b"] is None
    assert binds["a"] is not None
    assert (binds["a"].cards, binds["a"].image, binds["a"].service_account) == (
        ("0",), "reporter:1", "default"
    )  # fmt: skip


def test_a_card_is_shared_within_a_namespace() -> None:
    live = cluster()
    places = live.place(part("a", "0.3"), part("b", "0.3"), part("c", "0.3", "other"))
    assert places == ["n", "n", "n"]
    assert [live.notes[name][CARDS] for name in "abc"] == ["0:300", "0:300", "1:300"]
    assert live.place(part("d", "0.3", "third")) == [""]
    # In one's own namespace there is more.
    assert live.place(part("e", "0.3", "other")) == ["n"]


def test_without_namespaces_kept_apart_the_card_would_be_shared() -> None:
    live = Cluster(N, conventions=["kai"])
    live.place(part("a", "0.3"), part("c", "0.3", "other"))
    assert [live.notes[name][CARDS] for name in "ac"] == ["0:300", "0:300"]


def test_a_card_that_is_reserved_is_not_given_whole() -> None:
    live = cluster()
    live.handle(happened.PodAdded(reservation("0")))
    whole = gpu_pod("w", {"nvidia.com/gpu": 2})
    assert live.place(whole) == [""]
    assert live.place(part("a", "0.5")) == ["n"]
    assert live.notes["a"][CARDS] == "0:500"
    assert live.place(gpu_pod("x", {"nvidia.com/gpu": 1})) == ["n"]


def test_a_reservation_ends_with_the_last_pod_that_shares_the_card() -> None:
    live = cluster()
    held = reservation("0")
    live.place(part("a", "0.5"), part("b", "0.5"))
    live.handle(happened.PodAdded(held))

    def deleted(name: str) -> list[str]:
        effects = live.handle(happened.PodDeleted(live.pods[name]))
        return [one.value.name for one in effects if isinstance(one, to_do.Write) and not one.patch]

    assert deleted("a") == []
    assert deleted("b") == [held.name]
    # One that was left over, as no scheduler ran: with the next change of the node.
    heartbeat = replace(N, metadata=replace(N.metadata, resource_version="2"))
    effects = live.handle(happened.NodeUpdated(heartbeat))
    assert [one.value.name for one in effects if isinstance(one, to_do.Write)] == [held.name]


def test_without_the_convention_nothing_is_deleted() -> None:
    live = Cluster(N)
    live.handle(happened.PodAdded(reservation("0")))
    heartbeat = replace(N, metadata=replace(N.metadata, resource_version="2"))
    assert live.handle(happened.NodeUpdated(heartbeat)) == []


def test_what_is_used_is_known_from_annotations() -> None:
    first, second = reservation("0"), reservation("1", "other")
    assert unused_reservations([first, second]) == (first, second)
    mine = part("a", "0.5", **{CARDS: "0:500"})
    assert unused_reservations([first, second, mine]) == (second,)
    # Card 0 of another namespace is another pod's.
    theirs = part("a", "0.5", "other", **{CARDS: "0:500"})
    assert unused_reservations([first, theirs]) == (first,)
    # A pod that is being bound may have any of them.
    assert unused_reservations([first, second, part("b", "0.5")]) == ()


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ({"conventions": ["kai-reservations"]}, "reservationImage"),
        (
            {"conventions": ["kai", "kai-reservations"], "reservationImage": "x"},
            "kai and kai-reservations",
        ),
    ],
)
def test_invalid_arguments(args: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        Cluster(N, **args)
