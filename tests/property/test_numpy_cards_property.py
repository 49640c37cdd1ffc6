"""Where GPU cards filter and other plugins score, pods have the nodes and the cards that the walk
gives them."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.columns.engine import numpy_card_kernels
from stowplan.cycle.engine import card_groups
from stowplan.messages import events as happened
from stowplan.testing import affinity, pod, spread
from tests.plugins.gpu_share.gpu_cases import configuration, gpu_node, gpu_pod
from tests.property.engine_kernels import changed_numpy_card_kernels
from tests.property.test_card_kernels_property import (
    SEEDS,
    CountingKernels,
    Course,
    Placements,
)
from tests.soak import examples

GPU_SHARE = {"name": "GpuShare"}
ZONE = "topology.kubernetes.io/zone"
PREFERENCES: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"affinity": affinity(prefer_nodes={f"{ZONE} in (x,y)": 5})},
    {"labels": {"app": "a"}, "spread": [spread("app=a", ZONE, hard=False)]},
    {"labels": {"app": "b"}, "spread": [spread("app=b", ZONE, max_skew=2)]},
)


def filtering(selection: str) -> str:
    """The default plugins, and GpuShare, which does not score."""
    plugins = {
        "multiPoint": {"enabled": [GPU_SHARE]},
        "preScore": {"disabled": [GPU_SHARE]},
        "score": {"disabled": [GPU_SHARE]},
    }
    arguments = {"name": "GpuShare", "args": {"gpuSel": selection}}
    return json.dumps(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [{"plugins": plugins, "pluginConfig": [arguments]}],
        }
    )


class MixedCourse(Course):
    """A course of pods with preferences for zones, some of them without cards."""

    def more_of_pod(self) -> dict[str, Any]:
        """See `Course.more_of_pod`."""
        return self.random.choice(PREFERENCES)


def check(selection: str, seed: int, kernels: ModuleType, patch: pytest.MonkeyPatch) -> int:
    """Compare both; returns how many pods with cards were placed without the walk."""
    counting: Any = CountingKernels(kernels)
    patch.setattr(card_groups, "numpy_card_kernels", counting)
    text = filtering(selection)
    walked = MixedCourse(text, seed, "walk").run(4)
    assert counting.n_placed == 0
    assert MixedCourse(text, seed, "auto").run(4) == walked
    return int(counting.n_placed)


@settings(max_examples=examples(20))
@given(st.sampled_from(("best", "worst", "random")), SEEDS)
def test_nodes_and_cards_are_those_of_the_walk(selection: str, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        check(selection, seed, numpy_card_kernels, patch)


@pytest.mark.parametrize(("selection", "least"), [("best", 20), ("worst", 20), ("random", 0)])
def test_pods_with_cards_are_not_walked(
    selection: str, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_placed = sum(check(selection, seed, numpy_card_kernels, monkeypatch) for seed in range(2))
    assert n_placed >= least
    # Only the plugin chooses at random.
    assert (n_placed > 0) == (least > 0)


WRONG = {
    "any model is accepted": ("[cards.model[those]] != 0", "[cards.model[those]] >= 0"),
    "a whole card less than enough": (">= requests[ca.NUM])", ">= requests[ca.NUM] - 1)"),
    "cards are not counted within a run": ("left[chosen] -= milli", "left[chosen] -= 0"),
    "the card with the most left": ("most_left=bool(is_worst)", "most_left=True"),
    "the last idle cards": ("return suiting[:num]", "return suiting[-num:]"),
    "rows of another class": ("requests[one.number, ca.SLOT]]", "requests[0, ca.SLOT]]"),
}


def check_seeds(n_seeds: int, kernels: ModuleType, patch: pytest.MonkeyPatch) -> None:
    for seed in range(n_seeds):
        check("best", seed, kernels, patch)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_variant_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = changed_numpy_card_kernels(WRONG[name])
    with pytest.raises((AssertionError, IndexError)):
        check_seeds(30, kernels, monkeypatch)


class VisitedCourse(Course):
    """A course in which another scheduler binds a pod whose card the kubelet chooses."""

    def run(self, n_batches: int) -> Placements:
        """See `Course.run`."""
        super().run(n_batches)
        fresh = gpu_node("big", 4, cpu="64")
        self._handle([happened.NodeAdded(fresh)])
        more = [gpu_pod(f"q{i}", 1, 300) for i in range(4)]
        self._pending |= {one.uid: one for one in more}
        self._handle([happened.PodAdded(one) for one in more[:2]])
        self._handle([happened.PodAdded(pod("x", on="big", resources={"nvidia.com/gpu": "1"}))])
        self._handle([happened.PodAdded(one) for one in more[2:]])
        return self.placements


@pytest.mark.parametrize("text", [filtering("best"), configuration(policy="BestFit")])
def test_a_card_that_the_kubelet_chooses_closes_the_node(text: str) -> None:
    walked = VisitedCourse(text, 3, "walk").run(1)
    assert VisitedCourse(text, 3, "compiled").run(1) == walked
    assert [node for uid, node, _ in walked if uid in ("default/q2", "default/q3")].count(
        "big"
    ) == 0
