"""CycleDecider: which refusals it caches, and which attempts it makes anew."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from stowplan.columns.nodetable import table_of
from stowplan.cycle import CycleDecider, decider
from stowplan.cycle.attempt import Attempt
from stowplan.cycle.engine.kernel_loading import EngineMode
from stowplan.framework import OK, NodeInfo, Snapshot, unschedulable
from stowplan.framework.deciders.decider import Decision
from stowplan.objects.pod import Pod
from stowplan.testing import node, pod
from tests.cycle.engine_and_walk import framework_for

pytest.importorskip("stowplan.columns.engine.kernels")


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
