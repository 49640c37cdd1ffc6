"""What is reported of two listings of a cluster: decisions of Volcano, KAI-Scheduler and
Kueue beside those of the model of each."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from stowplan.assembly.deciders import ConfigText, Deciders, deciders_of
from stowplan.forecast.queue_comparison import queue_comparer as comparer_module
from stowplan.forecast.queue_comparison.queue_comparer import (
    ADMITTED,
    AS_GOOD,
    EVICTED,
    HERE_ONLY,
    OTHER_NODE,
    SAME,
    STARTED,
    THERE_ONLY,
    DecisionMismatch,
    QueueComparer,
)
from stowplan.inputs.cluster_reader import Cluster, read_objects
from tests.batch.queue_models import test_kai_model as kai
from tests.batch.queue_models import test_volcano_model as volcano

Tree = dict[str, Any]

VICTIM = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
ClusterPair = tuple[tuple[Tree, ...], tuple[Tree, ...]]
KUEUE = "kueue.x-k8s.io/v1beta2"


def stored(tree: Tree, **status: Any) -> Tree:
    """An object as an API server has it."""
    meta = {"namespace": "default", **tree["metadata"], "uid": f"u-{tree['metadata']['name']}"}
    return {**tree, "metadata": meta, "status": {**tree.get("status", {}), **status}}


def listed(*trees: Tree) -> Cluster:
    return read_objects(map(stored, trees), "listing", validate="ignore")


def bound(tree: Tree, node: str, **more: Any) -> Tree:
    status = {"phase": "Running", **more.pop("status", {})}
    meta = {**tree["metadata"], **more}
    return {**tree, "metadata": meta, "spec": {**tree["spec"], "nodeName": node}, "status": status}


def evicted(tree: Tree) -> Tree:
    gone = {"deletionTimestamp": "2026-01-01T00:00:30Z"}
    return bound(tree, tree["spec"]["nodeName"], status={"conditions": [VICTIM]}, **gone)


def in_phase(tree: Tree, phase: str) -> Tree:
    return {**tree, "status": {"phase": phase}}


def volcano_comparer(text: str = volcano.CAPACITY) -> QueueComparer:
    return QueueComparer(volcano.deciders(text))


def compared(comparer: QueueComparer, *rounds: tuple[Tree, ...]) -> list[DecisionMismatch]:
    """The differences of the last of several listings."""
    found: list[DecisionMismatch] = []
    for trees in rounds:
        found = comparer.next(listed(*trees))
    return found


QUEUE = volcano.queue("q")
GROUP = volcano.group("g", 1, "q", 1)
POD = volcano.pod("p", of="g")


def test_a_start_on_the_same_node_is_the_same() -> None:
    comparer = volcano_comparer()
    before = (volcano.node("n"), QUEUE, GROUP, POD)
    after = (volcano.node("n"), QUEUE, in_phase(GROUP, "Running"), bound(POD, "n"))
    assert compared(comparer, before, after) == []
    assert comparer.counts == {(STARTED, SAME): 1, (ADMITTED, SAME): 1}


def test_a_pod_that_came_and_started_between_two_listings_is_compared() -> None:
    comparer = volcano_comparer()
    nodes = (volcano.node("n", 8), volcano.node("small", 4), QUEUE)
    after = (*nodes, in_phase(GROUP, "Running"), bound(POD, "small"))
    (found,) = compared(comparer, nodes, after)
    assert (found.what, found.key, found.here, found.there) == (STARTED, "default/p", "n", "small")
    assert comparer.counts[STARTED, OTHER_NODE] == 1


def test_equal_nodes_are_equally_good() -> None:
    comparer = volcano_comparer()
    nodes = (volcano.node("a"), volcano.node("b"), QUEUE)
    for node in "ab":
        found = compared(
            comparer, (*nodes, GROUP, POD), (*nodes, in_phase(GROUP, "Running"), bound(POD, node))
        )
        assert found == []
    assert comparer.counts[STARTED, SAME] == comparer.counts[STARTED, AS_GOOD] == 1


def test_what_the_model_refuses_has_its_reason() -> None:
    comparer = volcano_comparer()
    small = volcano.queue("q", capability={"cpu": "1"})
    large = volcano.group("g", 1, "q", 2)
    asks = volcano.pod("p", of="g", cpu=2)
    node = volcano.node("n")
    started, admitted = sorted(
        compared(
            comparer, (node, small, large, asks), (node, small, in_phase(large, "Running"),
                                                 bound(asks, "n"))
        ),
        key=lambda one: one.what,
        reverse=True,
    )  # fmt: skip
    why = "not inqueue: queue q's capability cpu 1, 0 in use, 2 asked"
    assert started == DecisionMismatch(STARTED, "default/p", "", "n", why)
    assert admitted == DecisionMismatch(ADMITTED, "podgroup default/g", "no", "yes", why)
    assert comparer.counts == {(STARTED, THERE_ONLY): 1, (ADMITTED, THERE_ONLY): 1}


def full_cluster() -> tuple[list[Tree], list[Tree], list[Tree]]:
    """Nodes and queues, pods of one queue that has all, and a job of the other."""
    fixed = [volcano.node("n", 4)]
    fixed += [volcano.queue(name, deserved={"cpu": "2"}, reclaimable=True) for name in ("a", "b")]
    fixed.append(in_phase(volcano.group("old", 1, "a", 1), "Running"))
    old = [volcano.pod(f"old-{i}", of="old", node="n") for i in range(4)]
    new = [volcano.group("new", 1, "b", 1), volcano.pod("new-0", of="new")]
    return fixed, old, new


def test_victims_are_compared() -> None:
    fixed, old, new = full_cluster()
    before = (*fixed, *old, *new)
    inqueue = [in_phase(new[0], "Inqueue"), new[1]]
    differing: list[DecisionMismatch] = []
    counts: Counter[tuple[str, str]] = Counter()
    for place in range(4):
        pods = [evicted(one) if i == place else one for i, one in enumerate(old)]
        comparer = volcano_comparer(volcano.WITHOUT_OVERCOMMIT)
        differing += compared(comparer, before, (*fixed, *pods, *inqueue))
        counts += comparer.counts
    # One of the four is the model's victim.
    assert counts == {(EVICTED, SAME): 1, (EVICTED, THERE_ONLY): 3, (ADMITTED, SAME): 4}
    assert len(differing) == 3
    assert differing[0].why.startswith("here: default/old-")


def test_what_only_the_model_decides_counts_the_second_time() -> None:
    fixed, old, new = full_cluster()
    trees = (*fixed, *old, *new)
    comparer = volcano_comparer(volcano.WITHOUT_OVERCOMMIT)
    assert compared(comparer, trees, trees) == []
    found = {one.what: one for one in compared(comparer, trees)}
    assert found.keys() == {EVICTED, ADMITTED}
    assert (found[EVICTED].here, found[EVICTED].there) == ("yes", "no")
    assert compared(comparer, trees) == []
    assert comparer.counts[EVICTED, HERE_ONLY] == 1


def test_a_pod_that_is_deleted_for_another_reason_is_no_victim() -> None:
    fixed, old, _ = full_cluster()
    gone = {
        **old[0],
        "metadata": {**old[0]["metadata"], "deletionTimestamp": "2026-01-01T00:00:30Z"},
    }
    comparer = volcano_comparer()
    assert compared(comparer, (*fixed, *old), (*fixed, gone, *old[1:])) == []
    assert comparer.counts == {}


def test_starts_by_kai_are_compared() -> None:
    comparer = QueueComparer(kai.deciders())
    queues = (kai.queue("top", 4), kai.queue("leaf", 2, limit=2, parent="top"))
    group, nodes = kai.group("g", "leaf", 1), (kai.node("n", 4),)
    pods = [kai.pod(f"p{i}", of="g", gpus=2) for i in range(2)]
    before = (*nodes, *queues, group, *pods)
    after = (*nodes, *queues, group, *(bound(one, "n") for one in pods))
    (found,) = compared(comparer, before, after)
    assert (found.what, found.here, found.there) == (STARTED, "", "n")
    assert comparer.counts == {(STARTED, SAME): 1, (STARTED, THERE_ONLY): 1}


def kai_reclaim(*, noted: bool) -> list[ClusterPair]:
    """Two listings each: a pod of one queue ends, while another queue asks for its quota. noted:
    KAI has written the time of the eviction to the group."""
    queues = (kai.queue("rich", 2), kai.queue("poor", 2))
    old, new = kai.group("old", "rich", 1), (kai.group("new", "poor", 1), kai.pod("new-0", "new"))
    pods = [kai.pod(f"old-{i}", "old", node="n") for i in range(4)]
    found = []
    for place in range(4):
        ending = {"deletionTimestamp": "2026-01-01T00:00:30Z"}
        changed = [bound(one, "n", **ending) if i == place else one for i, one in enumerate(pods)]
        notes = {"kai.scheduler/last-eviction-timestamp": "2026-01-01T00:00:00Z"}
        meta = {**old["metadata"], **({"annotations": notes} if noted else {})}
        fixed = (kai.node("n", 4), *queues, *new)
        found.append(((*fixed, old, *pods), (*fixed, {**old, "metadata": meta}, *changed)))
    return found


def test_victims_of_kai_are_known_by_the_time_on_their_group() -> None:
    """KAI writes a condition to the pod only with a flag."""
    counts: Counter[tuple[str, str]] = Counter()
    for before, after in kai_reclaim(noted=True):
        comparer = QueueComparer(kai.deciders())
        compared(comparer, before, after)
        counts += comparer.counts
    # One of the four is the model's victim.
    assert counts == {(EVICTED, SAME): 1, (EVICTED, THERE_ONLY): 3}


def test_pods_of_kai_that_end_otherwise_are_no_victims() -> None:
    before, after = kai_reclaim(noted=False)[0]
    comparer = QueueComparer(kai.deciders())
    assert compared(comparer, before, after) == []
    assert comparer.counts == {}


def kueue_objects(*workloads: Tree) -> tuple[Tree, ...]:
    quota = {"name": "cpu", "nominalQuota": 4}
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [quota]}]}]
    queue = {"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": "cq"}}
    local = {"apiVersion": KUEUE, "kind": "LocalQueue", "metadata": {"name": "lq"}}
    return (
        volcano.node("n"),
        {"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": "f"}, "spec": {}},
        {**queue, "spec": {"namespaceSelector": {}, "resourceGroups": groups}},
        {**local, "spec": {"clusterQueue": "cq"}},
        *workloads,
    )


def workload(name: str, cpu: int, *, admitted: bool = False) -> Tree:
    container = {"name": "c", "resources": {"requests": {"cpu": str(cpu)}}}
    pod_set = {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
    tree: Tree = {
        "apiVersion": KUEUE,
        "kind": "Workload",
        "metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"queueName": "lq", "priority": 0, "podSets": [pod_set]},
    }
    if admitted:
        usage = {"name": "main", "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": str(cpu)}}
        kinds = ("QuotaReserved", "Admitted")
        tree["status"] = {
            "admission": {"clusterQueue": "cq", "podSetAssignments": [{**usage, "count": 1}]},
            "conditions": [{"type": one, "status": "True", "reason": one} for one in kinds],
        }
    return tree


def kueue_deciders() -> Deciders:
    return deciders_of([ConfigText("scheduler: kueue", "kueue.yaml")], admits=True)


def test_admissions_by_kueue_are_compared() -> None:
    comparer = QueueComparer(kueue_deciders())
    before = kueue_objects(workload("small", 3), workload("large", 5))
    after = kueue_objects(workload("small", 3, admitted=True), workload("large", 5, admitted=True))
    (found,) = compared(comparer, before, after)
    assert (found.what, found.key, found.here) == (ADMITTED, "workload default/large", "no")
    assert "cpu" in found.why
    assert comparer.counts == {(ADMITTED, SAME): 1, (ADMITTED, THERE_ONLY): 1}


def test_judging_the_cluster_with_the_decisions_in_it_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(comparer_module, "without_decisions", lambda before, after, decided: after)
    with pytest.raises(AssertionError):
        test_a_start_on_the_same_node_is_the_same()
