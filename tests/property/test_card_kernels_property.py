"""Pods that kernels place on GPU cards have the nodes and the cards that the walk gives them."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stowplan.assembly.deciders import ConfigText, deciders_of
from stowplan.columns.engine import card_kernels as compiled_card_kernels
from stowplan.messages import events as happened
from stowplan.messages.effects import Bind
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.scheduler import Scheduler
from tests.plugins.gpu_share.gpu_cases import configuration, gpu_node, gpu_pod
from tests.property.engine_kernels import plain_card_kernels
from tests.soak import examples

WORKLOAD = [
    {"cpuMilli": 1000, "num": 1, "milli": 300, "count": 6},
    {"cpuMilli": 4000, "num": 1, "milli": 500, "models": "A|B", "count": 5},
    {"cpuMilli": 2000, "num": 2, "milli": 400, "count": 2},
    {"cpuMilli": 8000, "num": 1, "milli": 1000, "count": 3},
    {"cpuMilli": 16000, "num": 4, "milli": 1000, "models": "B", "count": 1},
    {"cpuMilli": 2000, "count": 2},
]
POLICIES = ("FGD", "BestFit", "DotProd", "GpuPacking", "GpuClustering", "Random")
ARGS = st.fixed_dictionaries(
    {
        "policy": st.sampled_from(POLICIES),
        "gpuSel": st.sampled_from(("best", "worst", "random", "FGDScore", "DotProductScore")),
        "dimExt": st.sampled_from(("merge", "share", "divide", "extend")),
        "norm": st.sampled_from(("node", "pod", "max")),
        "ties": st.sampled_from(("name", "any")),
        "workload": st.just(WORKLOAD),
    }
)
SHAPES = ((1, 300), (1, 500), (1, 999), (1, 1), (1, 1000), (2, 1000), (2, 400), (4, 1000), (0, 0))
SEEDS = st.integers(0, 2**32 - 1)

Placements = list[tuple[str, str, dict[str, str]]]


class Course:
    """One scheduler whose pods come, are bound and leave, drawn from a seed."""

    def __init__(self, text: str, seed: int, engine: str) -> None:
        deciders = deciders_of([ConfigText(text, "config")])
        self.scheduler: Scheduler = deciders.scheduler(engine=engine)
        self.random = random.Random(seed)
        self.placements: Placements = []
        self.bound: list[Pod] = []
        self._pending: dict[str, Pod] = {}
        self._n_pods = 0

    def run(self, n_batches: int) -> Placements:
        """Bindings in their order."""
        draw = self.random
        self._handle([happened.NodeAdded(one) for one in self.nodes()])
        for _ in range(n_batches):
            leaving = [self.bound.pop(draw.randrange(len(self.bound))) for _ in self.bound[::4]]
            self._handle([happened.PodDeleted(one) for one in leaving])
            pods = [self._pod() for _ in range(draw.randint(1, 20))]
            self._pending |= {one.uid: one for one in pods}
            self._handle([happened.PodAdded(one) for one in pods])
        return self.placements

    def nodes(self) -> list[Node]:
        """A few nodes, most of them different."""
        draw = self.random
        return [
            gpu_node(f"n{draw.randrange(10**6)}", draw.choice((0, 1, 2, 4, 8, 12)),
                     draw.choice(("", "A", "B")), draw.choice(("0", "4", "16", "64")),
                     zone=draw.choice("xyz"))
            for _ in range(draw.randint(1, 8))
        ]  # fmt: skip

    def more_of_pod(self) -> dict[str, Any]:
        """What the next pod has beside its request of cards."""
        return {}

    def _pod(self) -> Pod:
        draw = self.random
        self._n_pods += 1
        num, milli = draw.choice(SHAPES)
        return gpu_pod(
            f"p{self._n_pods}", num, milli, models=draw.choice(("", "", "A", "A|B", "B|")),
            cards="0" if draw.random() < 0.05 else "", cpu=draw.choice(("500m", "1", "4")),
            **self.more_of_pod(),
        )  # fmt: skip

    def _handle(self, events: list[Any]) -> None:
        while events:
            answers: list[Any] = []
            for effect in self.scheduler.handle(events, 0):
                if isinstance(effect, Bind):
                    self.placements.append((effect.uid, effect.node, dict(effect.annotations)))
                    pod = self._pending.pop(effect.uid)
                    notes = {**pod.metadata.annotations, **effect.annotations}
                    bound = replace(
                        pod,
                        metadata=replace(pod.metadata, annotations=notes),
                        spec=replace(pod.spec, node_name=effect.node),
                    )
                    self.bound.append(bound)
                    answers += [
                        happened.BindDone(effect.effect, effect.uid), happened.PodUpdated(bound)
                    ]  # fmt: skip
            events = answers


def check(
    args: dict[str, Any],
    seed: int,
    kernels: ModuleType,
    course: type[Course] = Course,
    configuration: Callable[..., str] = configuration,
) -> int:
    """Compare both; returns how many pods the kernels placed."""
    if args.get("dimExt") == "merge" and args["gpuSel"] == "DotProductScore":
        args = {**args, "gpuSel": "best"}
    text = configuration(**args)
    walked = course(text, seed, "walk").run(4)
    fast = course(text, seed, "compiled")
    engine = fast.scheduler.pod_lane.decider.engine()
    assert engine is not None
    counting: Any = CountingKernels(kernels)
    engine.card_kernels = lambda: counting
    assert fast.run(4) == walked
    return int(counting.n_placed)


class CountingKernels:
    """Kernels that count the pods that they place."""

    def __init__(self, kernels: ModuleType) -> None:
        self._kernels = kernels
        self.n_placed = 0

    def run(self, *arguments: Any) -> int:
        """See `card_kernels.run`."""
        n_placed: int = self._kernels.run(*arguments)
        self.n_placed += n_placed
        return n_placed


@settings(max_examples=examples(12))
@given(ARGS, SEEDS)
def test_nodes_and_cards_are_those_of_the_walk(args: dict[str, Any], seed: int) -> None:
    check(args, seed, compiled_card_kernels)


@pytest.mark.parametrize("policy", POLICIES)
def test_most_pods_are_placed_by_the_kernels(policy: str) -> None:
    args = {"policy": policy, "workload": WORKLOAD}
    assert sum(check(args, seed, compiled_card_kernels) for seed in range(2)) > 20


WRONG = {
    "a row is not evaluated again": (
        "if last[row] == i:\n            evaluate",
        "if last[row] > i:\n            evaluate",
    ),
    "a card that no longer suffices is counted": ("n_suiting -= 1", "n_suiting -= 0"),
    "ties go to another name": (
        "name_rank[row] < name_rank[first]:\n                first = row",
        "name_rank[row] < name_rank[first] + 2:\n                first = row",
    ),
    "any model is accepted": ("access[c, model[row]] == 0:", "access[c, model[row]] == 2:"),
    "the last of equal cards": (
        "if score > best:\n            best, card_of_best",
        "if score >= best:\n            best, card_of_best",
    ),
}


def check_seeds(n_seeds: int, kernels: ModuleType) -> None:
    args = {"policy": "FGD", "gpuSel": "FGDScore", "workload": WORKLOAD}
    for seed in range(n_seeds):
        check(args, seed, kernels)


@pytest.mark.parametrize("name", WRONG)
def test_wrong_kernels_are_caught(name: str) -> None:
    with pytest.raises(AssertionError):
        check_seeds(30, plain_card_kernels(WRONG[name]))


def test_control_the_kernels_as_plain_python_are_right() -> None:
    check_seeds(2, plain_card_kernels())


def test_the_kernels_are_not_loaded_before_compiling_pays() -> None:
    text = configuration(policy="FGD", gpuSel="FGDScore", workload=WORKLOAD)
    assert Course(text, 1, "auto").run(2) == Course(text, 1, "walk").run(2)
