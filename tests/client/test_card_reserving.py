"""Reservation pods around bindings, on an API server with kubelets and the garbage collector."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from stowplan.client.api_calls import LOCKED, ApiCalls, RequestTime
from stowplan.client.event_correlator import EventCorrelator
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.objects.devices.card_reservation import (
    DEVICE_ID_KEY,
    RESERVATION_LABEL,
    CardReservations,
    reservation_name,
)
from stowplan.objects.encoding.json_codec import decode
from stowplan.objects.pod import Pod
from stowplan.simulation.api_cluster.function_transport import FunctionTransport
from tests.apiserver.small_cluster import SmallCluster, pod
from tests.client.performed_steps import perform

NODE, DEVICES = "node-1", "stowplan.dev/gpu-devices"
FIRST = reservation_name(NODE, "0")


class Binder:
    """The client of a scheduler on a small cluster with two GPUs."""

    def __init__(self, gpus: int = 2, *, reports: bool = True) -> None:
        self.cluster = SmallCluster(
            1,
            schedules=False,
            simulates_nodes=reports,
            capacity={"nvidia.com/gpu": str(gpus)},
        )
        self.transport = FunctionTransport(self.cluster.server, lambda: self.cluster.now)
        self.calls = ApiCalls(EventCorrelator("test"), lambda: RequestTime(0, 0, "", ""))

    def bind(self, name: str, *cards: str, uid: str = "") -> Any:
        """Bind a new pod with parts of these cards; the outcome."""
        made = self.cluster.get("pods", name) or self.cluster.create("pods", pod(name))
        own = uid or made["metadata"]["uid"]
        asked = CardReservations(cards, "reporter:1", "default", DEVICES)
        effect = to_do.Bind(1, 1, own, "default", name, NODE, cards=asked)
        return self.drive(self.calls.steps(effect))

    def drive(self, steps: Any) -> Any:
        """The outcome of an effect."""
        return perform(steps, self.transport, self.cluster, Counter())

    def devices(self, name: str) -> str:
        notes = self.cluster.the("pods", name)["metadata"].get("annotations") or {}
        return str(notes.get(DEVICES, ""))

    def owners(self, name: str = FIRST) -> list[str] | None:
        """Names of the owners of a reservation pod; None without one."""
        found = self.cluster.get("pods", name)
        if found is None:
            return None
        return [one["name"] for one in found["metadata"].get("ownerReferences") or ()]


def test_pods_that_share_a_card_have_its_id_and_own_its_reservation() -> None:
    binder = Binder()
    for name in "ab":
        assert isinstance(binder.bind(name, "0"), happened.BindDone)
    assert isinstance(binder.bind("c", "1", "0"), happened.BindDone)
    assert [binder.devices(name) for name in "abc"] == [
        "GPU-node-1-0", "GPU-node-1-0", "GPU-node-1-1,GPU-node-1-0"
    ]  # fmt: skip
    assert binder.owners() == ["a", "b", "c"]
    made = binder.cluster.the("pods", FIRST)
    assert made["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert made["spec"]["nodeName"] == NODE
    assert made["metadata"]["labels"][RESERVATION_LABEL] == "0"
    for name in "ab":
        binder.cluster.delete("pods", name)
    binder.cluster.run(60)
    assert binder.owners() is not None
    binder.cluster.delete("pods", "c")
    binder.cluster.run(60)
    # The garbage collector.
    assert binder.owners() is None


def test_a_card_that_is_not_reported_binds_nothing_and_is_given_back() -> None:
    binder = Binder(reports=False)
    found = binder.bind("a", "0")
    assert (found.code, found.reason) == (
        LOCKED, f"GPU reservation pod default/{FIRST}: it has not reported its GPU"
    )  # fmt: skip
    assert not binder.cluster.the("pods", "a")["spec"].get("nodeName")
    assert binder.owners() is None or binder.cluster.the("pods", FIRST)["metadata"].get(
        "deletionTimestamp"
    )


def test_a_card_that_the_kubelet_does_not_have_is_named() -> None:
    binder = Binder(gpus=1)
    assert isinstance(binder.bind("a", "0"), happened.BindDone)
    found = binder.bind("b", "1")
    assert found.reason.endswith("node-1-1: it has ended (Failed)")
    assert binder.owners(reservation_name(NODE, "1")) is None
    assert binder.owners() == ["a"]


def test_a_refused_binding_leaves_the_card_to_the_others() -> None:
    binder = Binder()
    binder.bind("a", "0")
    found = binder.bind("b", "0", uid="another-pod")
    assert (found.code, binder.owners()) == (409, ["a"])


def test_a_reservation_that_a_pod_has_joined_meanwhile_is_not_deleted() -> None:
    binder = Binder()
    binder.bind("a", "0")
    seen = decode(msgspec.json.encode(binder.cluster.the("pods", FIRST)), Pod)
    binder.bind("b", "0")
    deletion = to_do.Write(1, 1, seen.uid, seen, {})
    found = binder.drive(binder.calls.steps(deletion))
    assert (found.code, binder.owners()) == (409, ["a", "b"])


def test_a_pod_that_only_has_the_name_is_left_alone() -> None:
    binder = Binder()
    binder.cluster.create("pods", pod(FIRST))
    found = binder.bind("a", "0")
    assert found.reason.endswith("a pod of this name reserves no GPU")
    assert binder.owners() == []


@pytest.mark.parametrize("text", ["", "a b", "-x", "GPU-1,GPU-2", "x" * 200, "$(id)"])
def test_an_id_that_is_none_is_not_passed_on(text: str) -> None:
    binder = Binder(reports=False)
    made = pod(FIRST, notes={DEVICE_ID_KEY: text}, nodeName=NODE)
    made["metadata"]["labels"] = {RESERVATION_LABEL: "0"}
    binder.cluster.create("pods", made)
    assert binder.bind("a", "0").reason.endswith("it has not reported its GPU")
