"""CycleDecider: which refusals it caches, and which attempts it makes anew."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from stowplan.columns.engine import numpy_kernels
from stowplan.columns.nodetable import table_of
from stowplan.cycle import CycleDecider, decider
from stowplan.cycle.attempt import Attempt
from stowplan.cycle.engine.kernel_loading import EngineMode
from stowplan.framework import OK, NodeInfo, Snapshot, unschedulable
from stowplan.framework.deciders.decider import Decision
from stowplan.objects.pod import Pod
from stowplan.testing import node, pod
from tests.cycle.engine_and_walk import framework_for

compiled = pytest.importorskip("stowplan.columns.engine.kernels")


class Moody:
    """Refuses every pod once, depending on its own state."""

    name = "Moody"
    REFUSED = unschedulable("not now")

    def __init__(self) -> None:
        self.seen: set[str] = set()

    def filter(self, pod: Pod, node: NodeInfo) -> Any:
        if pod.labels.get("app") in self.seen:
            return OK
        self.seen.add(pod.labels["app"])
        return self.REFUSED


class MoodyWithPorts(Moody):
    """The same, and it declares which pods it concerns."""

    def applies_to(self, pod: Pod) -> bool:
        return True


class Asked:
    """Decides pods on one full node, and counts the walks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *plugins: Any) -> None:
        self.n_walks = 0
        self.framework = framework_for(plugins=plugins)
        self.decider = CycleDecider(EngineMode.COMPILED)
        assert self.decider.engine() is not None
        self.snapshot = Snapshot(table_of([node("n1", cpu="2")]))
        right = decider.filter_pod

        def counting(*given: Any) -> Attempt:
            self.n_walks += 1
            return right(*given)

        monkeypatch.setattr(decider, "filter_pod", counting)

    def decide(self, asked: Pod) -> Decision:
        return self.decider.decide(asked, self.snapshot, self.framework, None)


BIG = pod("big", cpu="4", labels={"app": "big"})


def test_a_refusal_is_repeated_from_the_cache_while_nothing_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = Asked(monkeypatch)
    first = asked.decide(BIG)
    again = asked.decide(replace(BIG, metadata=replace(BIG.metadata, name="other", uid="o")))
    assert first.message == again.message
    assert asked.n_walks == 1
    asked.snapshot.nodes.update_node(node("n1", cpu="8"))
    assert asked.decide(BIG).node_name == "n1"


def test_a_cached_refusal_is_not_used_for_other_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = Asked(monkeypatch)
    assert asked.decide(BIG).refusal is not None
    assert asked.decide(pod("small", cpu="1")).node_name == "n1"


def test_nominations_disable_the_refusal_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch)
    asked.decide(BIG)
    asked.snapshot.nominations.add(pod("vip", cpu="1"), "n1")
    asked.decide(BIG)
    assert asked.n_walks == 2


@pytest.mark.parametrize("plugin", [Moody, MoodyWithPorts])
def test_plugins_with_state_of_their_own_are_called_again(
    plugin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Asked(monkeypatch, plugin)
    small = pod("small", cpu="1", labels={"app": "small"})
    assert asked.decide(small).refusal is not None
    assert asked.decide(small).node_name == "n1"


class Loading:
    """A decider in mode AUTO whose kernels are not loaded yet. n_tried: attempts to load them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, found: Any) -> None:
        self.found = found
        self.n_tried = 0
        self.n_placed = 0
        self.decider = CycleDecider(EngineMode.AUTO)
        self.framework = framework_for()
        self.snapshot = Snapshot(table_of([node("n1", cpu="8"), node("n2", cpu="8")]))
        monkeypatch.setattr(decider, "is_loaded", lambda: False)
        monkeypatch.setattr(decider, "load_kernels", self._load)

    def _load(self) -> Any:
        self.n_tried += 1
        return self.found

    def kernels(self) -> Any:
        engine = self.decider.engine()
        assert engine is not None
        return engine.kernels

    def place(self, n_pods: int) -> None:
        engine = self.decider.engine()
        assert engine is not None
        pods = [pod(f"web-{self.n_placed + i}", cpu="100m") for i in range(n_pods)]
        self.n_placed += n_pods
        classes = [engine.class_of(one, self.framework) for one in pods]
        assert len(engine.run(pods, classes).place(0, self.snapshot)) == n_pods


def test_numpy_kernels_place_until_compiling_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decider, "COMPILE_ROWS_MIN", 10)
    loading = Loading(monkeypatch, found=compiled)
    loading.place(5)
    assert loading.kernels() is numpy_kernels
    loading.place(1)
    assert loading.kernels() is compiled
    assert loading.n_tried == 1


def test_numpy_kernels_place_until_others_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    loading = Loading(monkeypatch, found=compiled)
    assert loading.kernels() is numpy_kernels
    monkeypatch.setattr(decider, "is_loaded", lambda: True)
    assert loading.kernels() is compiled


def test_without_numba_loading_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decider, "COMPILE_ROWS_MIN", 0)
    loading = Loading(monkeypatch, found=None)
    for _ in range(3):
        loading.place(1)
    assert loading.kernels() is numpy_kernels
    assert loading.n_tried == 1


def test_the_walk_has_no_engine() -> None:
    assert CycleDecider(EngineMode.WALK).engine() is None
