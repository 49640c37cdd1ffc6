"""What Volcano's users have reported, each as a cluster: how Volcano decides it (`--compat
volcano-1.15`), and how it is decided here."""

from __future__ import annotations

import pytest

from stowplan.config.session_configuration import VOLCANO_1_15
from tests.batch.queue_models.volcano_clusters import SessionCluster, node, queue, tiers


def evictions(cluster: SessionCluster, compat: str, n_sessions: int) -> list[int]:
    """How many pods each of some sessions evicts."""
    return [len(cluster.run(compat)["evicts"]) for _ in range(n_sessions)]


def full_tree() -> SessionCluster:
    """A root with the amounts of the cluster, all of which one branch uses, and a job of the other
    branch."""
    whole = {"capability": {"cpu": "16"}}
    queues = [
        queue("root", **whole),
        queue("org1", "root", deserved={"cpu": "8"}),
        queue("org2", "root", deserved={"cpu": "8"}),
        queue("team1", "org1", deserved={"cpu": "8"}),
        queue("team2", "org2", deserved={"cpu": "8"}),
    ]
    config = tiers("priority conformance", "capacity/ predicates nodeorder")
    cluster = SessionCluster([node("n0"), node("n1")], queues, config)
    for name in ("n0", "n1"):
        cluster.add_job(f"old-{name}", "team1", 8, 8, running=name, cpu=1)
        cluster.groups[-1]["spec"]["minResources"] = {"cpu": "8"}
    cluster.add_job("new", "team2", 4, 4, cpu=1)
    cluster.groups[-1]["spec"]["minResources"] = {"cpu": "4"}
    return cluster


@pytest.mark.parametrize(("compat", "used"), [("", 4), (VOLCANO_1_15, 0)])
def test_4817_and_4679_a_branch_gets_back_what_it_deserves_though_the_root_is_full(
    compat: str, used: int
) -> None:
    cluster = full_tree()
    evictions(cluster, compat, 4)
    assert cluster.used("team2") == used
    assert cluster.used("root") == 16 - (4 if used else 0) + used


def test_4679_a_queue_does_not_get_more_than_it_deserves_so() -> None:
    cluster = full_tree()
    cluster.add_job("more", "team2", 8, 8, cpu=1)
    cluster.groups[-1]["spec"]["minResources"] = {"cpu": "8"}
    evictions(cluster, "", 5)
    assert cluster.groups[-1]["status"]["phase"] == "Pending"
    assert cluster.used("team2") == 4


def test_4679_nothing_is_admitted_for_what_others_may_keep() -> None:
    # The other branch has what it deserves, or nothing may be reclaimed from it.
    for change in ({"deserved": {"cpu": "16"}}, {"reclaimable": False}):
        cluster = full_tree()
        cluster.queues[3]["spec"] |= change
        assert evictions(cluster, "", 3) == [0, 0, 0]
        assert cluster.groups[-1]["status"]["phase"] == "Pending"


def test_4679_nothing_is_admitted_where_no_action_reclaims() -> None:
    cluster = full_tree()
    cluster.config = cluster.config.replace(", reclaim", "")
    evictions(cluster, "", 2)
    assert cluster.groups[-1]["status"]["phase"] == "Pending"


def spare_bundle(reclaims: bool) -> SessionCluster:
    """A full node with a gang of eleven pods that needs one of them, and a pod that needs room."""
    action = "gangreclaim" if reclaims else "gangpreempt"
    config = tiers(
        "priority gang conformance", "capacity predicates", actions=f"allocate, {action}"
    )
    owners = ("qa", "qb") if reclaims else ("qa", "qa")
    queues = [queue("qa", deserved={"cpu": "2"}), queue("qb", deserved={"cpu": "9"})]
    cluster = SessionCluster([node("n", 11)], queues, config)
    cluster.priority_classes = [
        {"metadata": {"name": name}, "value": value} for name, value in (("low", 10), ("high", 100))
    ]
    cluster.add_job("victim", owners[0], 11, 1, running="n", cpu=1)
    cluster.groups[-1]["spec"]["priorityClassName"] = "low"
    cluster.add_job("urgent", owners[1], 1, 1, cpu=1)
    cluster.groups[-1]["spec"]["priorityClassName"] = "high"
    cluster.groups[-1]["status"]["phase"] = "Inqueue"
    # What Volcano's Job controller states of its pods.
    for pod in cluster.pods.values():
        pod["metadata"]["annotations"]["volcano.sh/preemptable"] = "true"
    return cluster


@pytest.mark.parametrize("reclaims", [False, True])
@pytest.mark.parametrize(("compat", "n_evicted"), [("", 1), (VOLCANO_1_15, 10)])
def test_5984_of_the_last_bundle_only_what_is_needed_is_evicted(
    compat: str, n_evicted: int, reclaims: bool
) -> None:
    cluster = spare_bundle(reclaims)
    assert evictions(cluster, compat, 1) == [n_evicted]


def kept_apart(owner: str) -> SessionCluster:
    """Two full nodes, on the first a pod that a new one must not be beside. owner: its queue."""
    config = tiers("gang conformance", "capacity predicates", actions="allocate, reclaim")
    queues = [queue("rich", deserved={"cpu": "2"}), queue("poor", deserved={"cpu": "8"})]
    cluster = SessionCluster([node("n0"), node("n1")], queues, config)
    cluster.add_job("guard", owner, 2, running="n0", cpu=1)
    # Of two pods the gang keeps the second.
    cluster.pods["ns/guard-0"]["metadata"]["labels"] = {"app": "guard"}
    cluster.add_job("old0", "rich", 6, running="n0", cpu=1)
    cluster.add_job("old1", "rich", 8, running="n1", cpu=1)
    cluster.add_job("new", "poor", 1, cpu=2)
    cluster.groups[-1]["status"]["phase"] = "Inqueue"
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "guard"}},
    }
    apart = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    cluster.pods["ns/new-0"]["spec"]["affinity"] = {"podAntiAffinity": apart}
    for one in cluster.nodes:
        one["metadata"]["labels"] = {"kubernetes.io/hostname": one["metadata"]["name"]}
    return cluster


@pytest.mark.parametrize(("compat", "node_name"), [("", "n1"), (VOLCANO_1_15, "n0")])
def test_4926_nothing_is_evicted_on_a_node_that_the_pod_cannot_use(
    compat: str, node_name: str
) -> None:
    cluster = kept_apart("poor")
    before = {key: pod["spec"].get("nodeName") for key, pod in cluster.pods.items()}
    found = cluster.run(compat)
    assert {before[key] for key in found["evicts"]} == {node_name}
    assert len(found["evicts"]) == 2


def test_4926_what_stands_in_the_way_is_evicted_where_it_may_be() -> None:
    cluster = kept_apart("rich")
    cluster.nodes.pop()
    cluster.pods = {
        key: pod for key, pod in cluster.pods.items() if pod["spec"].get("nodeName") != "n1"
    }
    found = cluster.run()
    assert "ns/guard-0" in found["evicts"]
    assert len(found["evicts"]) == 2
    assert found["pipelined"] == {"ns/new-0": "n0"}


def rivals() -> SessionCluster:
    """Two jobs in two queues, neither of which can have all of its pods."""
    config = tiers(
        "priority gang conformance", "proportion predicates", actions="allocate, reclaim"
    )
    cluster = SessionCluster([node(f"n{i}") for i in range(4)], [queue("a"), queue("b")], config)
    for name in "ab":
        cluster.add_job(f"job-{name}", name, 5, 1, cpu=7)
        cluster.groups[-1]["status"]["phase"] = "Inqueue"
    return cluster


@pytest.mark.parametrize("compat", ["", VOLCANO_1_15])
def test_3869_two_jobs_do_not_reclaim_from_each_other_for_ever(compat: str) -> None:
    cluster = rivals()
    counts = evictions(cluster, compat, 10)
    assert counts[-4:] == [0, 0, 0, 0]
    assert {cluster.used(name) for name in "ab"} <= {7, 14, 21}
    assert cluster.used("a") + cluster.used("b") == 28
