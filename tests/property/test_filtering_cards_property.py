"""Where GPU cards filter and other plugins score, pods have the nodes and the cards that the walk
gives them."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.columns.engine import kernels as compiled_kernels
from stowplan.columns.engine import numpy_kernels
from stowplan.cycle.engine.card_groups import CardGroups
from stowplan.messages import events as happened
from stowplan.testing import affinity, pod, spread
from tests.plugins.gpu_share.gpu_cases import configuration, gpu_node, gpu_pod
from tests.property.engine_kernels import changed_numpy_kernels, plain
from tests.property.test_card_kernels_property import SEEDS, Course, Placements
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
    """A course of pods with preferences for zones, some of them without cards. Only those that
    request memory are placed by the loops without branches."""

    def more_of_pod(self) -> dict[str, Any]:
        """See `Course.more_of_pod`."""
        return self.random.choice(PREFERENCES) | self.random.choice(({}, {"memory": "1Gi"}))


class CountingKernels:
    """Kernels that count the pods with cards that they place."""

    def __init__(self, kernels: ModuleType) -> None:
        self._kernels = kernels
        self.n_with_cards = 0

    def run(self, *arguments: Any) -> int:
        """See `kernels.run`."""
        n_placed: int = self._kernels.run(*arguments)
        given = arguments[-2]
        self.n_with_cards += int((given[:n_placed, :1] > 0).sum())
        return n_placed


def check(selection: str, seed: int, kernels: ModuleType) -> int:
    """Compare both; returns how many pods with cards were placed without the walk."""
    text = filtering(selection)
    walked = MixedCourse(text, seed, "walk").run(4)
    fast = MixedCourse(text, seed, "auto")
    engine = fast.scheduler.pod_lane.decider.engine()
    assert engine is not None
    counting = CountingKernels(kernels)
    engine.use(counting)
    assert fast.run(4) == walked
    return counting.n_with_cards


@pytest.mark.parametrize("kernels", [numpy_kernels, compiled_kernels])
@settings(max_examples=examples(20))
@given(st.sampled_from(("best", "worst", "random")), SEEDS)
def test_nodes_and_cards_are_those_of_the_walk(
    kernels: ModuleType, selection: str, seed: int
) -> None:
    check(selection, seed, kernels)


@pytest.mark.parametrize(("selection", "least"), [("best", 20), ("worst", 20), ("random", 0)])
def test_pods_with_cards_are_not_walked(selection: str, least: int) -> None:
    n_placed = sum(check(selection, seed, compiled_kernels) for seed in range(2))
    assert n_placed >= least
    # Only the plugin chooses at random.
    assert (n_placed > 0) == (least > 0)


WRONG_NUMPY = {
    "a card less than enough": (">= one.n_cards", ">= one.n_cards - 1"),
    "cards are not counted within a run": ("left[chosen] -= one.card_milli", "left[chosen] -= 0"),
    "the card with the most left": (
        "-1 if order == at.MOST_LEFT else 1", "1 if order == at.MOST_LEFT else -1",
    ),
    "the last idle cards": ("return suiting[:num]", "return suiting[-num:]"),
}  # fmt: skip
WRONG = {
    "a card less than enough": (">= classes[c, at.N_CARDS]", ">= classes[c, at.N_CARDS] - 1"),
    "cards do not filter in the tree": (
        "if classes[c, at.N_CARDS] > 0 and not has_cards", "if False and not has_cards",
    ),
    "cards do not filter in loops without branches": (
        "if leaves[row] >= 0 and not has_cards", "if False and not has_cards",
    ),
    "cards are not counted within a run": ("+ 1]] -= milli", "+ 1]] -= 0"),
    "the last of equal cards": ("value < left[row, best]", "value <= left[row, best]"),
    "the card with the most left": ("order == at.LEAST_LEFT", "order == at.MOST_LEFT + 7"),
    "a card is given twice": ("is_free &= given", "is_free |= given"),
}  # fmt: skip


def check_seeds(n_seeds: int, kernels: ModuleType) -> None:
    for seed in range(n_seeds):
        check("best", seed, kernels)


@pytest.mark.parametrize("name", WRONG_NUMPY)
def test_a_wrong_variant_of_the_numpy_kernels_is_caught(name: str) -> None:
    kernels = changed_numpy_kernels(WRONG_NUMPY[name])
    with pytest.raises((AssertionError, IndexError, ValueError)):
        check_seeds(30, kernels)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_variant_of_the_kernels_is_caught(name: str) -> None:
    kernels = plain(WRONG[name])
    with pytest.raises((AssertionError, IndexError, ValueError)):
        check_seeds(30, kernels)


def test_control_the_kernels_as_plain_python_are_right() -> None:
    check_seeds(2, plain())


@pytest.mark.parametrize("kernels", [numpy_kernels, compiled_kernels])
def test_rows_of_models_that_a_class_refuses_are_closed_to_it(
    kernels: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CardGroups, "_accepting", lambda groups, static, terms: static)
    with pytest.raises(AssertionError):
        check_seeds(30, kernels)


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
