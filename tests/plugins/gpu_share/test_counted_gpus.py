"""GPUs that are given by count: what can be said of them, and what cannot."""

from __future__ import annotations

import pytest

from stowplan.forecast.explain import explain
from stowplan.inputs.cluster_reader import Cluster
from stowplan.plugins.gpu_share.conventions.counted_gpus import CountedAs, counted_as
from stowplan.simulation.simulate import simulate
from stowplan.testing import node, pod

GPU, SHARED, MIG = "nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb"
PRODUCT, SHARING = "nvidia.com/gpu.product", "nvidia.com/gpu.sharing-strategy"
REPLICAS, STRATEGY = "nvidia.com/gpu.replicas", "nvidia.com/mig.strategy"


@pytest.mark.parametrize(
    ("resource", "labels", "wanted"),
    [
        (GPU, {}, None),
        (GPU, {PRODUCT: "Tesla-T4", SHARING: "none", REPLICAS: "1"}, None),
        (GPU, {SHARING: "time-slicing"}, CountedAs.TIME_SLICES),
        (GPU, {PRODUCT: "Tesla-T4-SHARED"}, CountedAs.TIME_SLICES),
        (GPU, {REPLICAS: "4"}, CountedAs.TIME_SLICES),
        (SHARED, {}, CountedAs.TIME_SLICES),
        (SHARED, {SHARING: "mps", REPLICAS: "4"}, CountedAs.MPS_PARTS),
        (MIG, {STRATEGY: "mixed"}, CountedAs.MIG_PARTITIONS),
        (GPU, {STRATEGY: "mixed", PRODUCT: "A100"}, None),
        (GPU, {STRATEGY: "single", PRODUCT: "A100-MIG-1g.5gb"}, CountedAs.MIG_PARTITIONS),
        ("nvidia.com/gpumem", {SHARING: "time-slicing"}, None),
    ],
)
def test_what_a_resource_counts(
    resource: str, labels: dict[str, str], wanted: CountedAs | None
) -> None:
    assert counted_as(node("n", labels=labels), resource) is wanted


def test_answers_say_that_the_card_is_not_known() -> None:
    sliced = node("n1", resources={GPU: "4"}, labels={SHARING: "time-slicing"})
    cluster = Cluster([sliced, node("n2")], [pod("p", resources={GPU: "2"}), pod("q", cpu="1")], [])
    explanation = explain("default/p", cluster)
    assert explanation.node == "n1"
    (note,) = explanation.notes
    assert note == (
        "nvidia.com/gpu counts time slices of cards, of which two may be on one card: which card a "
        "pod gets is chosen by the kubelet, not by a scheduler"
    )
    assert note in simulate(cluster).summary["notes"]
    assert explain("default/q", cluster).notes == ()


def test_whole_cards_need_no_note() -> None:
    cluster = Cluster([node("n1", resources={GPU: "4"})], [pod("p", resources={GPU: "2"})], [])
    assert explain("default/p", cluster).notes == ()
