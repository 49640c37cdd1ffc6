"""Node autoscaling in virtual time: when nodes come and go, which pool grows, and what stays.

Times and rules are those that Cluster Autoscaler documents (its FAQ).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stowplan.framework.problems import ConfigError
from stowplan.inputs.cluster_reader import read_cluster
from stowplan.insight.autoscaling.autoscale_config import (
    AutoscaleConfig,
    pool_templates,
    read_autoscale,
)
from stowplan.insight.autoscaling.scale_up import Option, choose
from stowplan.simulation.node_autoscaler import NodeEvent
from stowplan.simulation.replay import ReplayOptions
from stowplan.simulation.simulate import Simulation, simulate

Tree = dict[str, Any]


def node(name: str, cpu: str = "4", pool: str = "small", **meta: Any) -> Tree:
    offered = {"cpu": cpu, "memory": "16Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"stowplan.dev/pool": pool}, **meta},
        "status": {"allocatable": offered, "capacity": offered},
    }


def pod(name: str, cpu: str = "3", at: int = 0, runs: int | None = None, **more: Any) -> Tree:
    annotations = dict(more.pop("annotations", {}))
    if runs is not None:
        annotations["stowplan.dev/run-seconds"] = str(runs)
    minutes, seconds = divmod(at, 60)
    meta: Tree = {
        "name": name,
        "namespace": more.pop("namespace", "default"),
        "labels": {"app": more.pop("app", "w")},
        "annotations": annotations,
        "creationTimestamp": f"2024-01-01T00:{minutes:02}:{seconds:02}Z",
    }
    if more.pop("owned", True):
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "w", "uid": "w"}
        meta["ownerReferences"] = [{**owner, "controller": True}]
    spec: Tree = {
        "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}]
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {**spec, **more}}


def config(*pools: Tree, **settings: Any) -> AutoscaleConfig:
    tree = {
        "apiVersion": "stowplan.dev/autoscale/v1",
        "kind": "Autoscale",
        "pools": list(pools) or [{"name": "small", "max": 5}],
        **settings,
    }
    return read_autoscale(json.dumps(tree), "autoscale.yaml")


def run(
    folder: Path, manifests: list[Tree], autoscale: AutoscaleConfig, seed: int = 0, **more: Any
) -> Simulation:
    path = folder / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests}))
    cluster = read_cluster(path, validate="ignore")
    options = ReplayOptions(autoscale=autoscale, **more)
    return simulate(cluster, replay=options, seed=seed)


def happened(found: Simulation, action: str) -> list[tuple[float, str]]:
    return [(one.at_s, one.node) for one in found.node_events if one.action == action]


# Scale-up.


def test_a_node_comes_after_the_scan_and_the_startup_delay(tmp_path: Path) -> None:
    manifests = [node("n0"), pod("a"), pod("b", at=3)]
    pools = {"name": "small", "max": 5, "startupDelay": "90s"}
    found = run(tmp_path, manifests, config(pools), until_s=600)
    assert happened(found, "request") == [(10.0, "small-auto-1")]
    assert happened(found, "ready") == [(100.0, "small-auto-1")]
    assert [one.node for one in found.placements] == ["n0", "small-auto-1"]
    assert found.node_events[0] == NodeEvent(
        10.0, "request", "small-auto-1", "small", "for pod default/b"
    )


def test_as_many_nodes_as_the_pods_need_and_none_twice(tmp_path: Path) -> None:
    manifests = [node("n0"), *(pod(f"p{i}", "2") for i in range(7))]
    found = run(tmp_path, manifests, config(), until_s=300)
    # Two are on n0, five are left: three nodes, requested once although pods wait a minute.
    assert len(happened(found, "request")) == 3
    assert {at for at, _ in happened(found, "request")} == {10.0}
    assert all(one.node for one in found.placements)


def test_a_pool_grows_again_beside_the_nodes_that_it_added(tmp_path: Path) -> None:
    manifests = [node("n0"), *(pod(f"p{i}", at=200 * i) for i in range(4))]
    found = run(tmp_path, manifests, config(), until_s=900)
    assert [name for _, name in happened(found, "ready")] == [
        f"small-auto-{number}" for number in (1, 2, 3)
    ]
    assert all(one.node for one in found.placements)


def test_a_pool_does_not_grow_beyond_its_maximum(tmp_path: Path) -> None:
    manifests = [node("n0"), *(pod(f"p{i}") for i in range(5))]
    found = run(tmp_path, manifests, config({"name": "small", "max": 3}), until_s=900)
    assert len(happened(found, "request")) == 2
    assert sum(bool(one.node) for one in found.placements) == 3


def test_a_pool_is_filled_up_to_its_minimum(tmp_path: Path) -> None:
    autoscale = config({"name": "small", "max": 3, "min": 2})
    found = run(tmp_path, [node("n0"), pod("a", runs=60)], autoscale, until_s=3600)
    assert happened(found, "request") == [(10.0, "small-auto-1")]
    assert not happened(found, "remove")


def test_a_pod_that_no_pool_helps_adds_nothing(tmp_path: Path) -> None:
    manifests = [node("n0"), pod("a", "99"), pod("b", nodeSelector={"gpu": "yes"})]
    assert not run(tmp_path, manifests, config(), until_s=500).node_events


def test_taints_and_labels_of_the_template_count(tmp_path: Path) -> None:
    template = {
        "labels": {"gpu": "yes"},
        "taints": [{"key": "team", "value": "x"}],
        "allocatable": {"cpu": "8", "memory": "8Gi"},
    }
    pools = {"name": "gpu", "max": 5, "template": template}
    tolerations = [{"key": "team", "operator": "Exists"}]
    manifests = [
        node("n0"),
        pod("a", nodeSelector={"gpu": "yes"}),
        pod("b", nodeSelector={"gpu": "yes"}, tolerations=tolerations),
    ]
    found = run(tmp_path, manifests, config(pools), until_s=300)
    assert len(happened(found, "request")) == 1
    assert [one.node for one in found.placements] == ["", "gpu-auto-1"]


def test_a_starting_node_is_kept_for_its_pod(tmp_path: Path) -> None:
    """Small pods that wait for their own nodes do not take it away in the next scan."""
    template = {"allocatable": {"cpu": "16"}}
    large = {"name": "large", "max": 4, "startupDelay": "2m", "template": template}
    small = {"name": "small", "max": 5, "priority": 9}
    manifests = [node("n0"), *(pod(f"p{i}") for i in range(3)), pod("big", "14")]
    autoscale = config(small, large, expander=["priority"])
    found = run(tmp_path, manifests, autoscale, until_s=300)
    nodes = sorted(name for _, name in happened(found, "request"))
    assert nodes == ["large-auto-3", "small-auto-1", "small-auto-2"]
    assert all(one.node for one in found.placements)


# Expanders.

POOLS = (
    {"name": "small", "max": 9, "price": 1.0, "priority": 1},
    {"name": "large", "max": 9, "price": 9.0, "priority": 5},
)


@pytest.mark.parametrize(
    ("expander", "pool"),
    [("least-waste", "small"), ("price", "small"), ("priority", "large")],
)
def test_expanders_choose_a_pool(expander: str, pool: str, tmp_path: Path) -> None:
    manifests = [
        node("n0"),
        node("l0", "16", "large"),
        pod("a", "4", nodeName="n0"),
        pod("b", "16", nodeName="l0"),
        pod("c", "4", at=5),
    ]
    found = run(tmp_path, manifests, config(*POOLS, expander=[expander]), until_s=200)
    assert {one.pool for one in found.node_events} == {pool}


def test_most_pods_chooses_the_pool_that_helps_more_pods(tmp_path: Path) -> None:
    manifests = [
        node("n0"),
        node("l0", "16", "large"),
        pod("a", "4", nodeName="n0"),
        pod("b", "16", nodeName="l0"),
        pod("c", "4", at=5),
        pod("d", "10", at=5),
    ]
    found = run(tmp_path, manifests, config(*POOLS, expander=["most-pods"]), until_s=200)
    first = happened(found, "request")[0][1]
    assert first.startswith("large")


def options(tmp_path: Path, *sizes: tuple[int, int]) -> list[Option]:
    path = tmp_path / "nodes.json"
    nodes = [node("n0"), node("l0", "16", "large")]
    pods = [pod(f"p{i}", "1") for i in range(9)]
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*nodes, *pods]}))
    cluster = read_cluster(path, validate="ignore")
    pools = pool_templates(config(*POOLS), cluster.nodes, ())
    return [
        Option(pool, n_nodes, tuple(cluster.pods[:n_pods]), ())
        for pool, (n_nodes, n_pods) in zip(pools, sizes, strict=True)
    ]


def test_a_later_expander_breaks_ties_of_an_earlier_one(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    tied = options(tmp_path, (2, 4), (1, 4))
    found = choose(tied, ("most-pods", "priority"), rng)
    assert found is not None
    assert found.pool.pool.name == "large"
    found = choose(tied, ("most-pods", "price"), rng)
    assert found is not None
    assert found.pool.pool.name == "small"


def test_random_depends_on_the_seed_only(tmp_path: Path) -> None:
    tied = options(tmp_path, (2, 4), (1, 4))

    def chosen_by(seed: int) -> str:
        found = choose(tied, ("random",), np.random.default_rng(seed))
        assert found is not None
        return found.pool.pool.name

    assert {chosen_by(seed) for seed in range(20)} == {"small", "large"}
    assert chosen_by(3) == chosen_by(3)


def test_the_same_seed_gives_the_same_files(tmp_path: Path) -> None:
    manifests = [node("n0"), node("l0", "16", "large")]
    manifests += [pod(f"p{i}", "3", at=i * 20, runs=200 + 50 * i) for i in range(12)]
    autoscale = config(*POOLS, expander=["random"])
    one, two = (run(tmp_path, manifests, autoscale, seed=4).files() for _ in range(2))
    assert one == two
    assert b"request" in one["autoscaler.jsonl"]


# Scale-down.


def test_an_empty_node_goes_ten_minutes_after_it_is_unneeded(tmp_path: Path) -> None:
    manifests = [node("n0"), pod("a", runs=5000), pod("b", runs=1000)]
    found = run(tmp_path, manifests, config(), until_s=4000)
    ((at, name),) = happened(found, "remove")
    # b ends at about 1071 s; the next scan sees it.
    assert name == "small-auto-1"
    assert at == 1080.0 + 600.0
    assert found.summary["autoscaler"]["removed"] == 1


def test_nothing_goes_within_ten_minutes_of_a_scale_up(tmp_path: Path) -> None:
    autoscale = config(scaleDownUnneededTime="60s")
    manifests = [node("n0"), node("n1"), pod("a", at=0), pod("b", at=0), pod("c", at=1)]
    manifests += [node("n2", pool="other"), pod("x", "1", at=0, runs=30)]
    found = run(tmp_path, [*manifests, pod("d", "3", at=2)], autoscale, until_s=2000)
    added = happened(found, "request")[0][0]
    assert all(at >= added + 600 for at, _ in happened(found, "remove"))


def bound(name: str, home: str, cpu: str = "1", **more: Any) -> Tree:
    return pod(name, cpu, nodeName=home, **more)


LOCAL = [{"name": "t", "emptyDir": {}}]
SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"


@pytest.mark.parametrize(
    ("what", "goes"),
    [
        ({}, True),
        ({"owned": False}, False),
        ({"owned": False, "annotations": {SAFE: "true"}}, True),
        ({"annotations": {SAFE: "false"}}, False),
        ({"volumes": LOCAL}, False),
        ({"volumes": [{"name": "t", "emptyDir": {"medium": "Memory"}}]}, True),
        ({"volumes": [{"name": "t", "hostPath": {"path": "/x"}}]}, False),
        ({"volumes": LOCAL, "annotations": {f"{SAFE}-local-volumes": "t"}}, True),
        ({"volumes": LOCAL, "annotations": {SAFE: "true"}}, True),
        ({"namespace": "kube-system"}, False),
        ({"cpu": "2"}, False),
        ({"nodeSelector": {"only": "n1"}}, False),
    ],
)
def test_which_pods_keep_a_node(what: Tree, goes: bool, tmp_path: Path) -> None:
    keeper = {"annotations": {SAFE: "false"}}
    manifests = [node("n0"), node("n1"), bound("k", "n0", **keeper), bound("a", "n1", **what)]
    found = run(tmp_path, manifests, config(), until_s=1500)
    assert [name for _, name in happened(found, "remove")] == (["n1"] if goes else [])
    if goes:
        assert happened(found, "remove")[0][0] == 610.0


def test_control_without_the_rules_a_node_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stowplan.insight.autoscaling.scale_down.RULES", ())
    with pytest.raises(AssertionError):
        test_which_pods_keep_a_node({"owned": False}, False, tmp_path)


@pytest.mark.parametrize(("most", "goes"), [(0, False), (1, True)])
def test_a_budget_keeps_a_node(most: int, goes: bool, tmp_path: Path) -> None:
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "w", "namespace": "default"},
        "spec": {"maxUnavailable": most, "selector": {"matchLabels": {"app": "w"}}},
    }
    keeper = bound("k", "n0", annotations={SAFE: "false"}, app="k")
    manifests = [node("n0"), node("n1"), keeper, bound("a", "n1"), budget]
    found = run(tmp_path, manifests, config(), until_s=1500)
    assert bool(happened(found, "remove")) is goes


def test_an_annotated_node_stays(tmp_path: Path) -> None:
    disabled = {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}
    manifests = [node("n0"), node("n1", annotations=disabled), bound("k", "n0", "3")]
    assert not run(tmp_path, manifests, config(), until_s=1500).node_events


def test_a_pool_keeps_its_minimum(tmp_path: Path) -> None:
    manifests = [*(node(f"n{i}") for i in range(4)), bound("k", "n0", "3")]
    autoscale = config({"name": "small", "max": 9, "min": 3})
    found = run(tmp_path, manifests, autoscale, until_s=1500)
    assert len(happened(found, "remove")) == 1


def test_empty_nodes_go_together_and_others_one_by_one(tmp_path: Path) -> None:
    empty = [*(node(f"n{i}") for i in range(4)), bound("k", "n0", "3")]
    found = run(tmp_path, empty, config(), until_s=1500)
    assert [at for at, _ in happened(found, "remove")] == [610.0] * 3
    some = [node(f"n{i}") for i in range(4)]
    some += [bound("k", "n0", "2"), *(bound(f"p{i}", f"n{i}", "500m") for i in range(1, 4))]
    found = run(tmp_path, some, config(), until_s=2500)
    times = [at for at, _ in happened(found, "remove")]
    assert len(times) == 3
    assert len(set(times)) == 3
    # Pods that came from the first node move again with the second, and so on.
    assert found.summary["restarts"] == 6


def test_cost_counts_from_the_request(tmp_path: Path) -> None:
    pools = {"name": "small", "max": 5, "price": 3.6}
    found = run(tmp_path, [node("n0"), pod("a"), pod("b")], config(pools), until_s=3600)
    figures = found.summary["autoscaler"]
    assert figures["node_hours"]["small"] == pytest.approx(1 + 3590 / 3600, abs=1e-3)
    assert figures["cost"] == pytest.approx(3.6 * figures["node_hours"]["small"], abs=1e-3)
    assert figures["peak_nodes"] == 2


def test_without_an_autoscaler_nothing_changes(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    items = [node("n0"), pod("a"), pod("b")]
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    found = simulate(read_cluster(path, validate="ignore"), replay=ReplayOptions())
    assert "autoscaler" not in found.summary
    assert "autoscale" not in found.summary["replay"]
    assert set(found.files()) == {"placements.jsonl", "summary.json", "series.csv", "usage.json"}


# Consolidation as Karpenter's.

STAYS = {"karpenter.sh/do-not-disrupt": "true"}


def test_karpenter_removes_a_node_whatever_its_utilization(tmp_path: Path) -> None:
    manifests = [node("n0"), node("n1"), bound("k", "n0", "1"), bound("a", "n1", "3")]
    found = run(tmp_path, manifests, config(mode="karpenter"), until_s=300)
    assert happened(found, "remove") == [(10.0, "n0")]
    assert not run(tmp_path, manifests, config(), until_s=300).node_events
    stays = [*manifests[:2], bound("k", "n0", "1", annotations=STAYS), bound("a", "n1", "3")]
    found = run(tmp_path, stays, config(mode="karpenter"), until_s=300)
    assert happened(found, "remove") == [(10.0, "n1")]


def test_karpenter_replaces_a_node_by_a_cheaper_one(tmp_path: Path) -> None:
    manifests = [node("l0", "16", "large"), bound("a", "l0", "3")]
    small = {"name": "small", "max": 5, "price": 1.0, "template": {"allocatable": {"cpu": "4"}}}
    pools = (small, {"name": "large", "max": 5, "price": 4.0})
    found = run(tmp_path, manifests, config(*pools, mode="karpenter"), until_s=300)
    assert [(one.at_s, one.action, one.node) for one in found.node_events] == [
        (10.0, "request", "small-auto-1"),
        (70.0, "ready", "small-auto-1"),
        (70.0, "remove", "l0"),
    ]
    assert found.node_events[-1].reason == "replaced by small-auto-1: 1 pod evicted"
    assert found.summary["nodes"] == 1


# With controllers.


def test_workloads_of_a_replay_with_controllers(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {
            "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "3"}}}]
        },
    }
    web = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "annotations": {"stowplan.dev/replica-changes": "1800=1"}},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": "web"}},
            "template": template,
        },
    }
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [node("n0"), web]}))
    cluster = read_cluster(path, validate="ignore", keep_manifests=True)
    options = ReplayOptions(autoscale=config(), until_s=3600)
    found = simulate(cluster, replay=options)
    assert len(happened(found, "ready")) == 2
    assert len(happened(found, "remove")) == 2
    assert all(2400 <= at <= 2430 for at, _ in happened(found, "remove"))


# The file.


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pools": []}, "pools"),
        ({"pools": [{"name": "a", "max": 1, "min": 2}]}, "at most max, 1"),
        ({"pools": [{"name": "a", "max": 1}, {"name": "a", "max": 1}]}, "each pool once"),
        ({"pools": [{"name": "A b", "max": 1}]}, "lower-case letters"),
        ({"pools": [{"name": "a", "maxx": 1}]}, "maxx"),
        ({"expander": ["cheapest"]}, "expander"),
        ({"scanInterval": "0s"}, "more than 0s"),
        ({"scaleDownUtilizationThreshold": 2}, "scaleDownUtilizationThreshold"),
        ({"apiVersion": "v1"}, "apiVersion"),
        (
            {"pools": [{"name": "a", "max": 1, "template": {"allocatable": {"cpu": "x"}}}]},
            "pools[0].template.allocatable",
        ),
    ],
)
def test_mistakes_of_the_file_are_named(change: Tree, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config(**change) if "pools" not in change else read_autoscale(
            json.dumps({"apiVersion": "stowplan.dev/autoscale/v1", "kind": "Autoscale", **change}),
            "autoscale.yaml",
        )
    assert message in str(caught.value)


def test_a_pool_without_template_and_nodes_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a template, or one of the cluster's pools: small"):
        run(tmp_path, [node("n0"), pod("a")], config({"name": "other", "max": 2}))
