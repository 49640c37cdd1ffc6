"""GpuShare in a scheduler: cards on the binding, refusals, and what it mends of the original.

Source: hkust-adsl/kubernetes-scheduler-simulator (Weng et al., USENIX ATC 2023).
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from stowplan.assembly.build import configuration_of, scheduler_for
from stowplan.client.requests import bind
from stowplan.framework import ConfigError
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.events import Event
from stowplan.objects.devices.gpu_cards import (
    ASSUME_TIME_KEY,
    COUNT_KEY,
    INDEX_KEY,
    MILLI_KEY,
    MODEL_KEY,
    CardState,
    GpuShareRequest,
    card_indices,
    format_card_indices,
    whole_number,
)
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.plugins.gpu_share.card_choice import (
    CardChoiceOptions,
    CardSelection,
    candidate_cards,
)
from stowplan.plugins.gpu_share.descheduling import (
    DeschedulingPolicy,
    NodeWithCards,
    PodWithCards,
    victims,
)
from stowplan.plugins.gpu_share.fragmentation import TypicalPod
from stowplan.plugins.gpu_share.gpu_share import GpuShare, GpuShareArgs
from stowplan.plugins.gpu_share.policies import GpuPolicy, settle_ties
from stowplan.testing import check_plugin, pod
from tests.plugins.gpu_share.gpu_cases import WORKLOAD, configuration, gpu_node, gpu_pod


class Cluster:
    """A scheduler with GpuShare; its binds succeed."""

    def __init__(self, *nodes: Node, **args: Any) -> None:
        self.scheduler = scheduler_for(*configuration_of(configuration(**args), "test"))
        self.reasons: dict[str, str] = {}
        self.handle(*(happened.NodeAdded(node) for node in nodes))

    def handle(self, *events: Event) -> list[to_do.Bind]:
        """The bindings that follow from these events; confirmed before this returns."""
        effects = self.scheduler.handle(events, 0)
        self.scheduler.validate()
        for effect in effects:
            if isinstance(effect, to_do.PatchStatus):
                self.reasons[effect.name] = effect.message
        return [effect for effect in effects if isinstance(effect, to_do.Bind)]

    def place(self, pod: Pod) -> tuple[str, str]:
        """Node and cards of a pod, both empty where it is placed nowhere."""
        binds = self.handle(happened.PodAdded(pod))
        if not binds:
            return "", ""
        (effect,) = binds
        notes = {**pod.metadata.annotations, **effect.annotations}
        meta = replace(pod.metadata, annotations=notes)
        bound = replace(pod, metadata=meta, spec=replace(pod.spec, node_name=effect.node))
        self.handle(happened.BindDone(effect.effect, effect.uid), happened.PodUpdated(bound))
        return effect.node, effect.annotations.get(INDEX_KEY, "")


def test_parts_share_a_card_until_it_is_full() -> None:
    cluster = Cluster(gpu_node("n", 2))
    found = [cluster.place(gpu_pod(name, 1, 400)) for name in "abcde"]
    assert found == [("n", "0"), ("n", "0"), ("n", "1"), ("n", "1"), ("", "")]
    assert "node(s) had too little left on their GPU cards" in cluster.reasons["e"]


def test_cards_are_held_before_the_binding_is_seen() -> None:
    cluster = Cluster(gpu_node("n", 2))
    pods = [gpu_pod(name, 1, 1000) for name in "abc"]
    binds = cluster.handle(*map(happened.PodAdded, pods))
    assert [one.annotations for one in binds] == [{INDEX_KEY: "0"}, {INDEX_KEY: "1"}]


def test_a_binding_with_cards_carries_its_time() -> None:
    cluster = Cluster(gpu_node("n", 2))
    pods = [gpu_pod("a", 1, 1000), gpu_pod("b", 1, 500, cards="1"), pod("c")]
    binds = cluster.handle(*map(happened.PodAdded, pods))
    # A kernel places a, a Reserve b.
    assert [one.times for one in binds] == [{ASSUME_TIME_KEY: "ns"}, {ASSUME_TIME_KEY: "ns"}, {}]


def test_a_refused_binding_gives_the_cards_back() -> None:
    cluster = Cluster(gpu_node("n", 1))
    (effect,) = cluster.handle(happened.PodAdded(gpu_pod("a", 1, 1000)))
    cluster.handle(happened.BindFailed(effect.effect, effect.uid, 403))
    assert cluster.place(gpu_pod("b", 1, 1000)) == ("n", "0")


def test_the_cards_of_a_deleted_pod_are_free() -> None:
    there = gpu_pod("a", 1, 1000, cards="0", on="n")
    cluster = Cluster(gpu_node("n", 1))
    cluster.handle(happened.PodAdded(there))
    assert cluster.place(gpu_pod("b", 1, 1000)) == ("", "")
    effects = cluster.scheduler.handle([happened.PodDeleted(there)], 60 * 10**9)
    binds = [effect for effect in effects if isinstance(effect, to_do.Bind)]
    assert [(one.name, one.annotations) for one in binds] == [("b", {INDEX_KEY: "0"})]


def test_preemption_frees_a_card() -> None:
    cluster = Cluster(gpu_node("n1", 2), gpu_node("n2", 1, "B"))
    for name, cards in (("low", "0"), ("lower", "1")):
        rank = 2 if name == "low" else 1
        there = gpu_pod(name, 1, 1000, cards=cards, on="n1", priority=rank)
        cluster.handle(happened.PodAdded(there))
    urgent = gpu_pod("urgent", 1, 600, models="", priority=10)
    cluster.handle(happened.PodAdded(gpu_pod("other", 1, 1000, cards="0", on="n2", priority=20)))
    effects = cluster.scheduler.handle([happened.PodAdded(urgent)], 0)
    evicted = [effect.name for effect in effects if isinstance(effect, to_do.Evict)]
    assert evicted == ["lower"]


def test_parts_of_several_cards_are_on_as_many_cards() -> None:
    # The original fails for these pods, or puts two parts on one card.
    cluster = Cluster(gpu_node("n1", 1), gpu_node("n2", 2))
    assert cluster.place(gpu_pod("a", 2, 300)) == ("n2", "0-1")
    assert cluster.place(gpu_pod("b", 3, 100)) == ("", "")
    assert "2 node(s) had too few GPU cards of an accepted model" in cluster.reasons["b"]


def test_models() -> None:
    cluster = Cluster(gpu_node("n1", 8, "A"), gpu_node("n2", 8, "B"), gpu_node("n3", 8))
    assert cluster.place(gpu_pod("a", 1, 500, models="B|C"))[0] == "n2"
    assert cluster.place(gpu_pod("b", 1, 500, models="C")) == ("", "")


@pytest.mark.parametrize(
    ("notes", "reason"),
    [
        ({MILLI_KEY: "1500"}, "gpu-milli: got '1500', wanted a whole number from 0 to 1000"),
        ({MILLI_KEY: "0.5"}, "gpu-milli: got '0.5', wanted a whole number from 0 to 1000"),
        ({MILLI_KEY: "-5"}, "gpu-milli: got '-5', wanted a whole number"),
        ({COUNT_KEY: "1.5"}, "gpu-count: got '1.5', wanted a whole number of at least 1"),
        ({COUNT_KEY: "0"}, "gpu-count: got '0', wanted a whole number of at least 1"),
        ({COUNT_KEY: None}, "gpu-count: got none, wanted a whole number of at least 1"),
        ({INDEX_KEY: "x"}, "gpu-index: got 'x', wanted 1 different cards"),
        ({INDEX_KEY: "0-1"}, "gpu-index: got '0-1', wanted 1 different cards"),
        ({INDEX_KEY: "9"}, "1 node(s) had too few GPU cards of an accepted model"),
        ({INDEX_KEY: "9" * 30}, "gpu-index: got '999"),
        ({COUNT_KEY: "9" * 18}, "1 node(s) had too few GPU cards of an accepted model"),
        ({MODEL_KEY: "H9000"}, "1 node(s) had too few GPU cards of an accepted model"),
    ],
)
def test_requests_that_cannot_be(notes: dict[str, str | None], reason: str) -> None:
    cluster = Cluster(gpu_node("n", 2, "T4"))
    made = gpu_pod("a", 1, 500)
    given = {**made.metadata.annotations, **notes}
    kept = {key: text for key, text in given.items() if text is not None}
    pending = replace(made, metadata=replace(made.metadata, annotations=kept))
    # What is kept of a pod that was placed does not count for this one.
    assert cluster.place(gpu_pod("b", 1, 500)) == ("n", "0")
    assert cluster.place(pending) == ("", "")
    assert reason in cluster.reasons["a"]


def test_cards_that_vanish_under_pods() -> None:
    cluster = Cluster(gpu_node("n", 2))
    assert cluster.place(gpu_pod("a", 2, 700)) == ("n", "0-1")
    cluster.handle(happened.NodeUpdated(gpu_node("n", 1)))
    assert cluster.place(gpu_pod("b", 1, 300)) == ("n", "0")
    assert cluster.place(gpu_pod("c", 1, 300)) == ("", "")
    cluster.handle(happened.NodeUpdated(gpu_node("n", 0)))
    assert cluster.place(gpu_pod("d", 1, 300)) == ("", "")
    assert "too few GPU cards" in cluster.reasons["d"]
    # What came back is as full as it was.
    cluster.handle(happened.NodeUpdated(gpu_node("n", 2)))
    assert cluster.place(gpu_pod("e", 1, 400)) == ("", "")
    assert cluster.place(gpu_pod("f", 2, 300)) == ("", "")


def test_prescribed_cards() -> None:
    cluster = Cluster(gpu_node("n", 4))
    assert cluster.place(gpu_pod("a", 2, 1000, cards="1-3")) == ("n", "1-3")
    assert cluster.place(gpu_pod("b", 1, 100, cards="3")) == ("", "")
    assert cluster.place(gpu_pod("c", 2, 100, cards="0")) == ("", "")


def test_pods_without_cards_carry_no_annotation() -> None:
    cluster = Cluster(gpu_node("n", 4))
    assert cluster.place(gpu_pod("a", 0, 0)) == ("n", "")
    # The original crashes for these.
    assert cluster.place(gpu_pod("b", 2, 0)) == ("n", "")


def test_the_request_for_a_binding_has_the_annotations() -> None:
    plain = to_do.Bind(1, 1, "u", "default", "a", "n")
    assert "annotations" not in json.loads(bind(plain, plain.annotations).body)["metadata"]
    noted = replace(plain, annotations={INDEX_KEY: "0-1"})
    assert json.loads(bind(noted, noted.annotations).body)["metadata"]["annotations"] == {
        INDEX_KEY: "0-1"
    }


@pytest.mark.parametrize("policy", list(GpuPolicy))
def test_every_policy_keeps_the_contract(policy: GpuPolicy) -> None:
    args = {"policy": policy.value, "workload": WORKLOAD}
    cluster = Cluster(gpu_node("n1", 20), gpu_node("n2", 2), **args)
    assert cluster.place(gpu_pod("a", 1, 500))[1] == "0"
    assert cluster.place(gpu_pod("b", 0, 0))[0]
    check_plugin(GpuShare, GpuShareArgs(policy=policy, workload=()), seeds=range(2))


def test_random_is_the_same_for_the_same_seed() -> None:
    nodes = [gpu_node(f"n{number}", 8) for number in range(6)]

    def places(seed: int) -> list[tuple[str, str]]:
        cluster = Cluster(*nodes, policy="Random", gpuSel="random", seed=seed)
        return [cluster.place(gpu_pod(name, 1, 100)) for name in "abcdefgh"]

    assert places(1) == places(1) != places(2)
    assert len({node for node, _ in places(1)}) > 2
    assert len({cards for _, cards in places(1)}) > 2


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ({"policy": "FGD"}, "workload"),
        ({"gpuSel": "DotProductScore", "dimExt": "merge"}, "gpuSel"),
        ({"popularityThreshold": 101}, "popularityThreshold"),
        ({"workload": [{"count": 0}]}, "workload[0]"),
        ({"policy": "Best"}, "policy"),
    ],
)
def test_invalid_arguments(args: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text.replace("[", r"\[")):
        configuration_of(configuration(**args), "test")


@pytest.mark.parametrize(
    ("scores", "settled"),
    [
        ([50, 50, 50], [49, 50, 49]),
        ([0, 0, 0], [0, 1, 0]),
        ([7, 9, 3], [7, 9, 3]),
        ([100, 2, 100], [100, 2, 99]),
    ],
)
def test_ties_go_to_the_smallest_name(scores: list[int], settled: list[int]) -> None:
    column = np.array(scores, dtype=np.int64)
    settle_ties(column, ["n2", "n1", "n3"])
    assert column.tolist() == settled


@pytest.mark.parametrize(
    ("selection", "cards"),
    [
        (CardSelection.BEST, [(3,)]),
        (CardSelection.WORST, [(0,)]),
        (CardSelection.RANDOM, [(0,), (2,), (3,)]),
    ],
)
def test_the_card_for_a_part(selection: CardSelection, cards: list[tuple[int, ...]]) -> None:
    state = CardState(8000, 8000, (1000, 400, 600, 500, 0))
    options = CardChoiceOptions(selection)
    assert candidate_cards(state, GpuShareRequest(1000, 1, 500), options) == cards
    assert candidate_cards(state, GpuShareRequest(1000, 1, 1000), options) == [(0,)]
    assert candidate_cards(state, GpuShareRequest(1000, 2, 1000), options) == []


def test_annotations() -> None:
    assert card_indices("0-2") == (0, 2)
    assert card_indices("") is card_indices("0--2") is card_indices("a") is None
    assert format_card_indices((3, 5)) == "3-5"
    assert [whole_number(text) for text in (None, "x", "1.5", "-7", "1000")] == [0, 0, 0, -7, 1000]


def test_victims_give_up_most_fragment() -> None:
    typical = (TypicalPod(1000, 1, 1000, "", 1.0),)
    small, whole = GpuShareRequest(1000, 1, 300), GpuShareRequest(1000, 1, 1000)
    pods = (PodWithCards("small", small, (0,)), PodWithCards("whole", whole, (1,)))
    node = NodeWithCards("n", CardState(8000, 4000, (700, 0)), pods)
    for policy in (DeschedulingPolicy.FRAG_ONE_POD, DeschedulingPolicy.FRAG_MULTI_POD):
        assert victims(policy, [node], 0.5, typical) == ["small"]
        assert victims(policy, [node], 0, typical) == []
