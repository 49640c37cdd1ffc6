"""On clusters of many nodes, most of them alike, kernels choose by what they keep of blocks of
rows; pods have the nodes and the cards that the walk gives them."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings

from stowplan.columns.engine import card_arrays as ca
from stowplan.columns.engine import card_kernels as compiled_card_kernels
from stowplan.objects.devices.gpu_cards import COUNT_KEY, MODEL_KEY
from stowplan.objects.node import Node
from stowplan.testing import node
from tests.plugins.gpu_share.gpu_cases import configuration
from tests.property.engine_kernels import plain_card_kernels
from tests.property.test_card_kernels_property import (
    ARGS,
    POLICIES,
    SEEDS,
    WORKLOAD,
    Course,
    check,
)
from tests.soak import examples

IMAGE = "registry.example/app:1"
KINDS = ((8, "A", "64"), (8, "B", "64"), (4, "A", "16"), (4, "", "16"), (2, "B", "4"), (0, "", "4"))
"""Cards, model and CPUs of nodes."""


def preferring_images(**args: Any) -> str:
    """A configuration in which ImageLocality scores beside GpuShare."""
    tree = json.loads(configuration(**args))
    tree["profiles"][0]["plugins"]["score"]["enabled"].append({"name": "ImageLocality"})
    return json.dumps(tree)


class WideCourse(Course):
    """A course on several blocks of rows, of which the last is not full."""

    def nodes(self) -> list[Node]:
        """Nodes of few kinds."""
        draw = self.random
        kinds = draw.sample(KINDS, draw.randint(1, 3))
        n_nodes = draw.randint(ca.BLOCK_ROWS + 1, 3 * ca.BLOCK_ROWS)
        return [
            self._node(f"n{number}", *draw.choice(kinds))
            for number in draw.sample(range(10**6), n_nodes)
        ]

    def _node(self, name: str, n_cards: int, model: str, cpu: str) -> Node:
        images = {IMAGE: "700Mi"} if self.random.random() < 0.3 else {}
        labels = {MODEL_KEY: model} if model else {}
        return node(
            name, cpu=cpu, resources={COUNT_KEY: str(n_cards)}, labels=labels, images=images
        )

    def more_of_pod(self) -> dict[str, Any]:
        """See `Course.more_of_pod`."""
        return {"image": IMAGE} if self.random.random() < 0.5 else {}


@settings(max_examples=examples(40))
@given(ARGS, SEEDS)
def test_nodes_and_cards_are_those_of_the_walk(args: dict[str, Any], seed: int) -> None:
    check(args, seed, compiled_card_kernels, WideCourse)


@settings(max_examples=examples(20))
@given(ARGS, SEEDS)
def test_so_they_are_where_other_plugins_prefer_nodes(args: dict[str, Any], seed: int) -> None:
    check(args, seed, compiled_card_kernels, WideCourse, preferring_images)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("form", [configuration, preferring_images])
def test_most_pods_are_placed_by_the_kernels(policy: str, form: Any) -> None:
    args = {"policy": policy, "workload": WORKLOAD}
    assert check(args, 1, compiled_card_kernels, WideCourse, form) > 10


NAMED = "if chosen < 0 or name_rank[row] < name_rank[chosen]:"
WRONG = {
    "a block keeps its best row": (
        "FGD",
        configuration,
        (
            "blocks[ca.N_HIGHEST, row // ca.BLOCK_ROWS] = STALE",
            "blocks[ca.N_HIGHEST, row // ca.BLOCK_ROWS] += 0",
        ),
    ),
    "the first of equal blocks": ("BestFit", configuration, (NAMED, "if chosen < 0:")),
    "rows of another model are alike": (
        "FGD",
        configuration,
        ("model[row] != model[other]", "False"),
    ),
    "rows with other cards are alike": (
        "FGD",
        configuration,
        ("is_same &= left[row, card] == left[other, card]", "is_same &= True"),
    ),
    "rows on which a pod does not fit have the lowest score": (
        "BestFit",
        preferring_images,
        ("np.int32(ABOVE_ALL) if score == NOT_FITTING else score", "score"),
    ),
    "cards alone decide": (
        "GpuPacking",
        preferring_images,
        ("1 if is_level(points[classes[c, at.STATIC]]) else 0", "1"),
    ),
}


def check_seeds(policy: str, form: Any, n_seeds: int, kernels: ModuleType) -> None:
    args = {"policy": policy, "gpuSel": "best", "workload": WORKLOAD}
    for seed in range(n_seeds):
        check(args, seed, kernels, WideCourse, form)


@pytest.fixture
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few rows, so that plain Python has few rows to evaluate."""
    monkeypatch.setattr(ca, "BLOCK_ROWS", 4)


@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.parametrize("name", WRONG)
def test_wrong_kernels_are_caught(name: str) -> None:
    policy, form, change = WRONG[name]
    with pytest.raises(AssertionError):
        check_seeds(policy, form, 30, plain_card_kernels(change))


@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.parametrize("form", [configuration, preferring_images])
def test_control_the_kernels_as_plain_python_are_right(form: Any) -> None:
    for policy in POLICIES:
        check_seeds(policy, form, 1, plain_card_kernels())
