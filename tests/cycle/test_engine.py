"""The engine, case by case."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from stowplan.columns.engine import arrays as at
from stowplan.columns.images import ImageIndex
from stowplan.columns.nodetable import NodeTable
from stowplan.cycle import decide
from stowplan.cycle.engine.class_arrays import ClassArrays
from stowplan.framework import OK, NodeInfo, Rows, Snapshot, error
from stowplan.framework.plugin import RestrictTo
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.workload import PriorityClass
from stowplan.testing import affinity, node, pod, spread, term
from stowplan.testing.builders import HOSTNAME, ZONE
from tests.cycle.engine_and_walk import BY_WALK, NOWHERE, Both, copies, framework_for
from tests.property.engine_kernels import plain

pytest.importorskip("stowplan.columns.engine.kernels")


def without(point: str, *names: str) -> dict[str, Any]:
    return {"plugins": {point: {"disabled": [{"name": name} for name in names]}}}


def test_nothing_is_placed_without_nodes() -> None:
    both = Both([])
    assert both.run(copies(pod("web"), 2)) == [BY_WALK, BY_WALK]
    both.both(lambda one: one.nodes.add_node(node("n1")))
    assert both.run([pod("db")]) == ["n1"]
    both.both(lambda one: one.nodes.remove_node("n1"))
    assert both.run([pod("cache")]) == [BY_WALK]


def test_raw_scores_of_closed_domains_do_not_count_for_the_highest() -> None:
    """Zone b has the node with the most soft taints, and no pod that this one must be near."""
    soft = ["x:PreferNoSchedule", "y:PreferNoSchedule", "z:PreferNoSchedule"]
    nodes = [
        node("a1", zone="a", cpu="2"),
        node("a2", zone="a", taints=soft[:1], cpu="60"),
        node("b1", zone="b", taints=soft),
    ]
    peer = pod("db", labels={"app": "db"}, on="a1", cpu="1")
    near = affinity(near=[term("app=db", ZONE)])
    both = Both(nodes, [peer])
    assert both.run(copies(pod("web", cpu="500m", affinity=near), 3)) == ["a1", "a1", "a2"]


def zones_that_open_and_close(kernels: ModuleType | None = None) -> list[str]:
    """While zone b is closed the highest count is 1, and its node would score below zero."""
    soft = ["x:PreferNoSchedule", "y:PreferNoSchedule"]
    nodes = [
        node("a1", zone="a", cpu="2"),
        node("a2", zone="a", taints=soft[:1], cpu="60"),
        node("b1", zone="b", taints=soft, cpu="60"),
    ]
    even = spread("app=web", ZONE)
    both = Both(nodes, [pod("old", labels={"app": "web"}, on="b1")], kernels=kernels)
    return both.run(copies(pod("web", cpu="1", labels={"app": "web"}, spread=[even]), 6))


def test_a_closed_domain_that_opens_counts_from_then_on() -> None:
    assert zones_that_open_and_close() == ["a1", "a1", "b1", "a2", "b1", "a2"]


def test_control_negative_scores_are_noticed() -> None:
    wrong = plain(("normal = min(raw[static, k, row], highest)", "normal = raw[static, k, row]"))
    with pytest.raises(AssertionError):
        zones_that_open_and_close(wrong)


def test_a_pod_of_another_client_may_bring_the_first_term_of_its_kind() -> None:
    """The topology key was unknown when the class was planned."""
    nodes = [node("n1", labels={"rack": "r1"}), node("n2", labels={"rack": "r2"}, cpu="1")]
    both = Both(nodes)
    web = pod("web", cpu="100m", labels={"app": "web"})
    assert both.run(copies(web, 1)) == ["n1"]
    loner = pod("loner", on="n1", affinity=affinity(apart=[term("app=web", "rack")]))
    both.both(lambda one: one.nodes.add_pod(loner))
    assert both.run(copies(replace(web, metadata=replace(web.metadata, name="more")), 2)) == [
        "n2",
        "n2",
    ]
    both.both(lambda one: one.nodes.remove_pod(loner.uid))
    assert both.run([pod("last", cpu="100m", labels={"app": "web"})]) == ["n1"]


def test_scores_that_no_leaf_can_hold_are_left_to_the_walk() -> None:
    enabled = [{"name": "NodeResourcesFit", "weight": 22_000_000}]
    off = [{"name": "NodeResourcesFit"}]
    heavy = framework_for({"plugins": {"score": {"enabled": enabled, "disabled": off}}})
    nodes = [node("n1"), node("n2", cpu="8")]
    both = Both(nodes, framework=heavy)
    assert both.run([pod("web", cpu="1")]) == [BY_WALK]
    assert [info.pod.name for info in both.fast.nodes.pods[1]] == ["web"]


def test_soft_spread_over_hosts_counts_all_pods() -> None:
    """A constraint that honours taints excludes the tainted node, but not the pods on it."""
    nodes = [node("n1", taints=["gpu:NoSchedule"]), node("n2", cpu="2", memory="8Gi")]
    there = [pod(f"old-{i}", on="n1", labels={"app": "web"}) for i in range(3)]
    soft = spread("app=web", HOSTNAME, hard=False, node_taints_policy="Honor")
    both = Both(nodes, there, framework=framework_for(without("filter", "TaintToleration")))
    web = pod("web", labels={"app": "web"}, cpu="100m", spread=[soft])
    assert both.run(copies(web, 3)) == ["n2", "n2", "n2"]


def spread_beside_nodes_left_out() -> None:
    nodes = [
        node("a1", zone="a", labels={"disk": "ssd"}, cpu="60"),
        node("b1", zone="b", labels={"disk": "ssd"}),
        node("a2", zone="a"),
    ]
    labels = {"app": "web"}
    other = pod("other", labels=labels, cpu="1", affinity=affinity(nodes="!disk"))
    even = pod(
        "even",
        labels=labels,
        cpu="1",
        node_selector={"disk": "ssd"},
        spread=[spread("app=web", ZONE)],
    )
    both = Both(nodes)
    assert both.run([*copies(other, 2), *copies(even, 2)]) == ["a2", "a2", "a1", "b1"]


def test_pods_on_nodes_that_a_constraint_leaves_out_do_not_count() -> None:
    spread_beside_nodes_left_out()


def test_control_pods_that_should_not_count_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a placement is counted wherever it is."""
    monkeypatch.setattr(ClassArrays, "add_mask", lambda self, mask: -1)
    with pytest.raises(AssertionError):
        spread_beside_nodes_left_out()


def test_the_first_pod_of_an_affinity_group_stays_with_it() -> None:
    nodes = [node("a1", zone="a"), node("b1", zone="b", cpu="8"), node("c1")]
    own = affinity(near=[term("app=web", ZONE)])
    both = Both(nodes)
    assert both.run(copies(pod("web", labels={"app": "web"}, cpu="1", affinity=own), 8)) == [
        *["b1"] * 8
    ]
    stranger = pod("db", labels={"app": "db"}, affinity=affinity(near=[term("app=api", ZONE)]))
    assert both.run([stranger]) == [NOWHERE]


# Images: a placement updates the number of nodes with the row's images.


def with_image(name: str, n_pods: int = 110) -> Node:
    return node(name, images={"tool:2": "900Mi"}, cpu="64", pods=n_pods)


def many_placed_on_rows_behind() -> list[str]:
    """Two nodes with the image arrive and fill up: only now do pods reach nodes whose count is old,
    and the first of these scores higher from its first pod on."""
    both = Both([with_image("n1"), with_image("n2"), *(node(f"bare{i}") for i in range(4))])
    for name in ("m1", "m2"):
        both.both(lambda one, name=name: one.nodes.add_node(with_image(name, 1)))  # type: ignore[misc]
    return both.run(copies(pod("web", image="tool:2", cpu="1", memory="1Gi"), 6))


def test_within_a_run_image_counts_are_updated_with_placements() -> None:
    assert many_placed_on_rows_behind() == ["m1", "m2", "n1", "n1", "n1", "n1"]


def test_control_stale_image_counts_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: the run goes on with scores as they were."""
    monkeypatch.setattr(ImageIndex, "behind", lambda self, n: np.zeros(n, dtype=np.uint8))
    with pytest.raises(AssertionError, match="wanted"):
        many_placed_on_rows_behind()


def images_after_a_run() -> None:
    both = Both([*map(with_image, ("n1", "n2", "n3")), node("bare", cpu="64")])
    both.run(copies(pod("web", cpu="1", memory="1Gi"), 9))
    for name in ("m1", "m2"):
        both.both(lambda one, name=name: one.nodes.add_node(with_image(name)))  # type: ignore[misc]
    both.both(lambda one: one.nodes.refresh())
    for row in range(4):
        assert both.fast.nodes.images.of_row(row) == both.slow.nodes.images.of_row(row)


def test_after_a_run_only_the_last_row_has_image_counts_to_update() -> None:
    images_after_a_run()


def test_control_rows_that_update_too_much_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: all rows with placements take over what has happened after the run."""
    right = NodeTable.enter

    def enter(self: NodeTable, placed: Any, rows: list[int]) -> None:
        right(self, placed, rows)
        self._unrefreshed.update((self.names[row], None) for row in rows)

    monkeypatch.setattr(NodeTable, "enter", enter)
    with pytest.raises(AssertionError):
        images_after_a_run()


# Custom plugins.


class Picky:
    """Leaves one node, in PreFilter only."""

    name = "Picky"
    node_only = True

    def pre_filter(self, pod: Pod) -> RestrictTo:
        return RestrictTo(frozenset({"n2"}))

    def signature(self, pod: Pod) -> object:
        return ()


class Broken:
    """Breaks its contract for one of the nodes."""

    name = "Broken"
    node_only = True

    def filter(self, pod: Pod, node: NodeInfo) -> Any:
        return error("no connection") if node.name == "n1" else OK


class Raises:
    """Breaks its contract."""

    name = "Raises"
    node_only = True

    def filter(self, pod: Pod, node: NodeInfo) -> Any:
        raise ValueError("boom")


class Relative:
    """Scores by the number of rows that passed."""

    name = "Relative"
    node_only = True

    def pre_score(self, pod: Pod, rows: Rows) -> Any:
        return OK

    def score(self, pod: Pod) -> int:
        return 1


class Counts:
    """Reads pods without declaring it."""

    name = "Counts"

    def filter(self, pod: Pod, node: NodeInfo) -> Any:
        return OK


class Harbour:
    """Allows pods depending on an object, without declaring it."""

    name = "Harbour"
    node_only = True

    def pre_filter(self, pod: Pod, snapshot: Snapshot) -> RestrictTo:
        found = snapshot.object_store.find(PriorityClass, "harbour")
        return RestrictTo(frozenset(() if found is None else found.labels))

    def signature(self, pod: Pod) -> object:
        return ()


def test_objects_that_custom_plugins_read_are_tracked() -> None:
    def harbour(name: str) -> PriorityClass:
        return PriorityClass(metadata=ObjectMeta(name="harbour", labels={name: ""}))

    nodes = [node("n1", cpu="64"), node("n2")]
    both = Both(nodes, objects=[harbour("n2")], framework=framework_for(plugins=[Harbour]))
    assert both.run([pod("a", cpu="1")]) == ["n2"]
    both.both(lambda one: one.object_store.put(harbour("n1")))
    assert both.run([pod("b", cpu="1")]) == ["n1"]


@pytest.mark.parametrize(
    ("plugin", "wanted"),
    [(Picky, "n2"), (Broken, BY_WALK), (Relative, BY_WALK), (Counts, BY_WALK)],
    ids=lambda value: getattr(value, "name", ""),
)
def test_custom_plugins_are_called_in_full(plugin: Any, wanted: str) -> None:
    nodes = [node("n1", cpu="64"), node("n2")]
    both = Both(nodes, framework=framework_for(plugins=[plugin]))
    assert both.run([pod("web", cpu="1")]) == [wanted]


def test_a_plugin_that_breaks_the_contract_is_left_to_the_walk() -> None:
    both = Both([node("n1")], framework=framework_for(plugins=[Raises]))
    run = both.engine.run([pod("web")], [both.class_of(pod("web"))])
    assert run.place(0, both.fast) == []
    decision = decide(pod("web"), both.slow, both.framework)
    assert decision.refusal is not None
    assert "boom" in decision.message


def pods_for_rare_resources(kernels: ModuleType | None = None) -> list[str]:
    """Two resources that few of the nodes have; equal nodes, and one that is fuller."""
    rare = {"a.com/x": "2"}
    nodes = [node(f"n{i}", resources=rare if i % 4 == 1 else None) for i in range(12)]
    nodes.append(node("both", resources={**rare, "b.com/y": "1"}, cpu="2"))
    both = Both(nodes, [pod("old", on="n1", cpu="1")], kernels=kernels)
    placed = both.run(copies(pod("x", cpu="100m", resources={"a.com/x": "1"}), 9))
    placed += both.run(copies(pod("y", resources={"a.com/x": "1", "b.com/y": "1"}), 2))
    params = both.engine._class_arrays
    assert params is not None
    assert params.classes[: params.n_classes, at.N_FEW].tolist() == [4, 1]
    both.both(lambda one: one.nodes.update_node(node("n3", resources={"b.com/y": "2"})))
    placed += both.run(copies(pod("z", resources={"b.com/y": "1"}), 3))
    owing = pod("owing", on="n4", resources={"b.com/y": "-3"})
    both.both(lambda one: one.nodes.add_pod(owing))
    return placed + both.run(copies(pod("late", resources={"b.com/y": "1"}), 3))


def test_rows_that_offer_what_is_requested_are_evaluated_alone() -> None:
    placed = pods_for_rare_resources()
    assert placed[:4] == ["n5", "n9", "n5", "n9"]
    assert placed[-6:] == ["n3", "n3", "both", "n4", "n4", "n4"]


FEW_WRONG = {
    "of equal rows the last": ("(total == best and its < smallest)", "total == best"),
    "the first that fits": ("if chosen < 0 or total > best or (total", "if chosen < 0 or (total"),
    "all but the last": ("range(classes[c, at.N_FEW])", "range(classes[c, at.N_FEW] - 1)"),
}


@pytest.mark.parametrize("wrong", FEW_WRONG)
def test_control_few_rows_evaluated_otherwise_are_noticed(wrong: str) -> None:
    with pytest.raises(AssertionError):
        pods_for_rare_resources(plain(FEW_WRONG[wrong]))
