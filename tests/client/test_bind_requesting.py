"""Bindings by KAI's binder: requests, reservation pods and what is left of them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from stowplan.client.api_calls import LOCKED, UNKNOWN, ApiCalls, RequestTime
from stowplan.client.binding.bind_requesting import NO_BINDER, POLLS_MAX
from stowplan.client.event_correlator import EventCorrelator
from stowplan.client.requests import ApiRequest
from stowplan.client.responses import ApiResponse
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.objects.devices.card_reservation import DEVICE_ID_KEY
from stowplan.objects.kai.bind_request import (
    CARD_LABEL,
    RECEIVED,
    RESERVATION_NAME,
    KaiBindRequestSpec,
    KaiReceivedGpu,
)
from stowplan.objects.kai.zone_placement import PREDICTED_ANNOTATION, KaiZonePlacement
from stowplan.simulation.api_cluster.function_transport import FunctionTransport
from tests.apiserver.small_cluster import SmallCluster, pod
from tests.client.performed_steps import perform

NODE, REQUESTS = "node-1", "scheduling.run.ai/bindrequests"


class Client:
    """The client of a scheduler on a small cluster with KAI's binder and some GPUs."""

    def __init__(self, gpus: int = 2, *, kai: bool = True, starts: bool = True) -> None:
        self.cluster = SmallCluster(
            1,
            schedules=False,
            kai=kai,
            simulates_nodes=starts,
            capacity={"nvidia.com/gpu": str(gpus)},
        )
        self.transport = FunctionTransport(self.cluster.server, lambda: self.cluster.now)
        self.calls = ApiCalls(
            EventCorrelator("test"), lambda: RequestTime(0, 0, "", ""), has_kai_binder=True
        )
        self.sent: Counter[tuple[str, str]] = Counter()

    def bind(self, name: str, *cards: str, node: str = NODE) -> Any:
        """Have a pod bound with parts of these cards; the outcome."""
        made = self.cluster.get("pods", name) or self.cluster.create("pods", pod(name))
        spec = KaiBindRequestSpec(
            pod_name=name,
            selected_node=node,
            received_resource_type="Fraction",
            received_gpu=KaiReceivedGpu(len(cards), "0.50"),
            selected_gpu_groups=cards,
        )
        uid = made["metadata"]["uid"]
        return self.drive(
            self.calls.steps(to_do.Bind(1, 1, uid, "default", name, node, request=spec))
        )

    def drive(self, steps: Any) -> Any:
        """The outcome of an effect."""
        return perform(steps, self.transport, self.cluster, self.sent)

    def holders(self) -> dict[str, str]:
        """Card -> index of the GPU that the kubelet has given for it."""
        return {
            one["metadata"]["labels"][CARD_LABEL]: one["metadata"]["annotations"][DEVICE_ID_KEY]
            for one in self.cluster.list("pods", RESERVATION_NAME)
        }

    def request(self, name: str) -> Any:
        """The request about a pod."""
        return self.cluster.the(REQUESTS, name)


def test_pods_get_parts_of_the_cards_that_are_asked_for() -> None:
    client = Client()
    for name in "ab":
        assert isinstance(client.bind(name, "card-x"), happened.BindDone)
    assert isinstance(client.bind("c", "card-y", "card-x"), happened.BindDone)
    assert client.holders() == {"card-x": "0", "card-y": "1"}
    for name in "abc":
        meta = client.cluster.the("pods", name)["metadata"]
        assert client.cluster.the("pods", name)["spec"]["nodeName"] == NODE
        assert meta["annotations"][RECEIVED] == "Fraction"
        assert client.request(name)["status"] == {"phase": "Succeeded"}
        assert client.request(name)["metadata"]["labels"] == {"selected-node": NODE}
    labels = [client.cluster.the("pods", name)["metadata"]["labels"] for name in "ac"]
    assert labels[0][CARD_LABEL] == "card-x"
    several = {f"{CARD_LABEL}/card-x": "card-x", f"{CARD_LABEL}/card-y": "card-y"}
    assert several.items() <= labels[1].items()


def test_a_card_is_held_until_its_last_pod_is_gone() -> None:
    client = Client()
    for name in "ab":
        client.bind(name, "card-x")
    client.cluster.delete("pods", "a", grace_s=0)
    client.cluster.run(2)
    assert client.holders() == {"card-x": "0"}
    client.cluster.delete("pods", "b", grace_s=0)
    client.cluster.run(2)
    assert not client.holders()
    # The requests went with their pods.
    assert not client.cluster.list(REQUESTS)


def test_a_card_that_the_kubelet_does_not_have_refuses_the_pod() -> None:
    client = Client(gpus=1)
    client.bind("a", "card-x")
    refused = client.bind("b", "card-y")
    assert isinstance(refused, happened.BindFailed)
    assert refused.code == LOCKED
    assert "has ended (Failed)" in refused.reason
    # Nothing is left of the attempt, and the next one may succeed.
    assert client.cluster.get(REQUESTS, "b") is None
    assert client.holders() == {"card-x": "0"}
    assert isinstance(client.bind("b", "card-x"), happened.BindDone)


def test_a_node_that_does_not_exist_refuses_the_pod() -> None:
    refused = Client().bind("a", "card-x", node="node-9")
    assert isinstance(refused, happened.BindFailed)
    assert "node 'node-9' does not exist" in refused.reason


@pytest.mark.parametrize("is_its_own", [True, False])
def test_a_request_of_an_earlier_attempt_makes_room(is_its_own: bool) -> None:
    client = Client()
    made = client.cluster.create("pods", pod("a"))
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": made["metadata"]["uid"]}
    # For a node that does not exist the binder has given it up.
    node = "node-9" if is_its_own else NODE
    meta = {"name": "a", "ownerReferences": [owner] if is_its_own else []}
    spec = {"podName": "another", "selectedNode": node}
    client.cluster.create(REQUESTS, {"metadata": meta, "spec": spec})
    client.cluster.run(2)
    assert isinstance(client.bind("a", "card-x"), happened.BindDone)
    assert client.sent["DELETE", "a"] == 1
    assert client.request("a")["spec"]["selectedNode"] == NODE


def test_a_request_that_is_not_answered_is_taken_back() -> None:
    # No kubelet starts the pod that is to hold the card.
    client = Client(starts=False)
    late = client.bind("a", "card-x")
    assert isinstance(late, happened.BindFailed)
    assert late.code == UNKNOWN
    assert not late.is_definite
    assert client.sent["GET", "a"] == POLLS_MAX + 1
    assert client.cluster.get(REQUESTS, "a") is None
    assert "nodeName" not in client.cluster.the("pods", "a")["spec"]
    # Nor does a pod wait to hold a card for nobody.
    assert not client.cluster.list("pods", RESERVATION_NAME)


@pytest.mark.parametrize("is_made", [True, False])
@pytest.mark.parametrize("status", [0, 408, 500])
def test_a_request_whose_answer_is_lost_may_have_been_made(status: int, is_made: bool) -> None:
    client = Client()
    send = client.transport.send

    def lose(step: ApiRequest) -> ApiResponse:
        answer = send(step) if is_made or step.method != "POST" else None
        return ApiResponse(status) if answer is None or step.method == "POST" else answer

    client.transport.send = lose  # type: ignore[method-assign]
    found = client.bind("a", "card-x")
    assert client.cluster.the("pods", "a")["spec"].get("nodeName") == (NODE if is_made else None)
    if is_made:
        assert isinstance(found, happened.BindDone)
    else:
        # The scheduler reads the pod before it tries again.
        assert isinstance(found, happened.BindFailed)
        assert not found.is_definite


def zoned(client: Client, name: str) -> Any:
    """Have a pod bound to a zone; the outcome."""
    made = client.cluster.create("pods", pod(name))
    spec = KaiBindRequestSpec(
        name,
        NODE,
        "Regular",
        received_gpu=KaiReceivedGpu(0, "0.00"),
        predicted_numa_zones=(KaiZonePlacement("node-1", {"memory": "1Gi", "cpu": "2"}),),
    )
    uid = made["metadata"]["uid"]
    notes = spec.predicted_annotation
    return client.drive(
        client.calls.steps(to_do.Bind(1, 1, uid, "default", name, NODE, notes, request=spec))
    )


ZONES = '[{"zone":"node-1","amount":{"cpu":"2","memory":"1Gi"}}]'


def test_the_binder_writes_the_zones_of_the_request_to_the_pod() -> None:
    client = Client()
    assert isinstance(zoned(client, "a"), happened.BindDone)
    assert client.request("a")["spec"] == {
        "podName": "a",
        "selectedNode": NODE,
        "receivedResourceType": "Regular",
        "receivedGPU": {"portion": "0.00"},
        "predictedNUMAZones": [{"zone": "node-1", "amount": {"memory": "1Gi", "cpu": "2"}}],
    }
    notes = client.cluster.the("pods", "a")["metadata"]["annotations"]
    assert notes[PREDICTED_ANNOTATION] == ZONES
    assert notes[RECEIVED] == "Regular"
    assert not client.holders()
    # A pod without zones gets no such annotation.
    client.bind("b", "card-x")
    assert PREDICTED_ANNOTATION not in client.cluster.the("pods", "b")["metadata"]["annotations"]


def test_without_a_binder_the_binding_writes_the_zones() -> None:
    client = Client(kai=False)
    assert isinstance(zoned(client, "a"), happened.BindDone)
    bound = client.cluster.the("pods", "a")
    assert bound["spec"]["nodeName"] == NODE
    assert bound["metadata"]["annotations"][PREDICTED_ANNOTATION] == ZONES


def test_without_a_binder_the_reason_names_it() -> None:
    refused = Client(kai=False).bind("a", "card-x")
    assert isinstance(refused, happened.BindFailed)
    assert refused.reason == NO_BINDER
