"""Refusal cache: a cached refusal equals the refusal of a walk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stowplan.columns.nodetable import table_of
from stowplan.cycle import CycleDecider, decide, refusal_cache
from stowplan.cycle.engine import Engine
from stowplan.cycle.engine.kernel_loading import EngineMode
from stowplan.cycle.refusal_cache import ClassRefusal, RefusalCache
from stowplan.framework import Framework, Snapshot
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.testing import node, pod
from stowplan.testing.generators.choices import chance, pick, random_int
from tests.cycle.engine_and_walk import framework_for
from tests.soak import examples

pytest.importorskip("stowplan.columns.engine.kernels")

SEEDS = st.integers(0, 2**32 - 1)
USUAL: Framework = framework_for()
FIRST = dict.fromkeys(("NodeResourcesFit", *(member.name for member in USUAL.at("filter"))))
FRAMEWORKS: tuple[Framework, ...] = (
    USUAL,
    # Resources are checked first here, so another filter's refusal replaces that one.
    framework_for(
        {
            "plugins": {
                "filter": {
                    "disabled": [{"name": "*"}],
                    "enabled": [{"name": name} for name in FIRST],
                }
            }
        }
    ),
)
TEMPLATES = (
    pod("small", cpu="1"),
    pod("big", cpu="5", memory="4Gi"),
    pod("vip", cpu="4", priority=10),
    pod("choosy", cpu="3", node_selector={"disk": "ssd"}),
    pod("port", cpu="2", ports=[80]),
)


class Waiting:
    """Pods that wait on a small cluster with changing pods.

    n_unasked: refusals without a walk though something had changed.
    """

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.framework = pick(self.rng, FRAMEWORKS)
        self.decider = CycleDecider(EngineMode.COMPILED)
        engine = self.decider.engine()
        assert isinstance(engine, Engine)
        self.engine = engine
        self.born = 0
        self.snapshot = Snapshot(table_of(self.node() for _ in range(random_int(self.rng, 1, 5))))
        self.there: list[str] = []
        self.n_unasked = 0

    def name(self) -> str:
        self.born += 1
        return f"x{self.born}"

    def node(self, name: str = "") -> Node:
        labels = {"disk": pick(self.rng, ("ssd", "hdd"))}
        is_closed = chance(self.rng, 6)
        cpu = str(random_int(self.rng, 3, 6))
        return node(name or self.name(), cpu=cpu, labels=labels, cordoned=is_closed)

    def change(self) -> None:
        nodes = self.snapshot.nodes
        what = random_int(self.rng, 0, 9)
        if what < 5:
            uid = self.name()
            request = pick(self.rng, TEMPLATES[:1] + TEMPLATES[-1:])
            priority = random_int(self.rng, 0, 1) * 10
            spec = replace(request.spec, priority=priority)
            some = replace(
                request, spec=spec, metadata=replace(request.metadata, name=uid, uid=uid)
            )
            nodes.add_pod(some, pick(self.rng, nodes.names))
            self.there.append(uid)
        elif what < 8 and self.there:
            nodes.remove_pod(self.there.pop(random_int(self.rng, 0, len(self.there) - 1)))
        elif what == 8:
            nodes.update_node(self.node(pick(self.rng, nodes.names)))
        elif nodes.n_nodes > 1 and chance(self.rng, 2):
            gone = pick(self.rng, nodes.names)
            on_it = {info.uid for info in nodes.pods[nodes.row(gone)]}
            for uid in on_it:
                nodes.remove_pod(uid)
            self.there = [uid for uid in self.there if uid not in on_it]
            nodes.remove_node(gone)
        else:
            nodes.add_node(self.node())

    def ask(self, template: Pod) -> None:
        nodes = self.snapshot.nodes
        nodes.refresh()
        one = self.engine.class_of(template, self.framework)
        assert one is not None
        kept = one.refused
        got = self.decider.decide(template, self.snapshot, self.framework, None)
        self.n_unasked += kept is not None and one.refused is kept
        wanted = decide(template, self.snapshot, self.framework)
        assert got.node_name == wanted.node_name
        assert (got.message, got.reasons) == (wanted.message, wanted.reasons)
        assert (got.plugins, got.nominated_node) == (wanted.plugins, wanted.nominated_node)

    def plan(self) -> None:
        """As for a run in which pods of all templates occur."""
        self.snapshot.nodes.refresh()
        classes = [self.engine.class_of(one, self.framework) for one in TEMPLATES]
        self.engine.heads([one for one in classes if one is not None], self.snapshot)


def wait(seed: int, n_steps: int = 40) -> Waiting:
    waiting = Waiting(seed)
    for _ in range(n_steps):
        if chance(waiting.rng, 2):
            waiting.plan()
        waiting.ask(pick(waiting.rng, TEMPLATES))
        waiting.change()
    return waiting


def wait_often(n_seeds: int) -> None:
    for seed in range(n_seeds):
        wait(seed)


@settings(max_examples=examples(60))
@given(SEEDS)
def test_cached_refusals_equal_those_of_the_walk(seed: int) -> None:
    wait(seed)


def test_many_are_refused_without_a_walk() -> None:
    assert sum(wait(seed).n_unasked for seed in range(20)) > 20


def plans_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a refusal by an older plan stays valid."""
    right = Engine.is_planned
    monkeypatch.setattr(
        Engine, "is_planned", lambda self, one, made_for, now: right(self, one, one.made_for, now)
    )


def rows_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a refusal stays valid until more than pods change."""
    monkeypatch.setattr(ClassRefusal, "_is_the_same", lambda *given: True)


def no_pod_is_evictable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: pods of lower priority are not checked again."""
    monkeypatch.setattr(refusal_cache, "_may_post_filter_help", lambda *given: False)


def earlier_filters_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: only the filter that refused a node is run again."""
    right = np.where
    monkeypatch.setattr(
        refusal_cache.np, "where", lambda mine, differs, others: right(mine, differs, False)
    )


@pytest.mark.parametrize(
    "wrong",
    [plans_do_not_matter, rows_are_not_asked, no_pod_is_evictable, earlier_filters_are_forgotten],
)
def test_control_wrong_variants_are_noticed(
    wrong: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong(monkeypatch)
    with pytest.raises((AssertionError, IndexError)):
        wait_often(300)


def test_the_refusal_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusal_cache, "CELLS_MAX", 2)
    forgotten: list[Any] = []
    monkeypatch.setattr(ClassRefusal, "forget_verdicts", lambda self: forgotten.append(self))
    kept: Any = RefusalCache()
    ones: list[Any] = [type("One", (), {})() for _ in range(5)]
    for one in ones:
        kept.keep(one, ClassRefusal.__new__(ClassRefusal), 1)
    assert forgotten == [one.refused for one in ones[:3]]
