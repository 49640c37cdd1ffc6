"""Volcano's plugins that read the measured load of nodes: usage and rescheduling.

Expected values by hand from volcano master of 2026-08-20, pkg/scheduler/plugins/usage and
rescheduling.
"""

from __future__ import annotations

from typing import Any

import pytest

from stowplan.assembly.sessions.volcano_sessions import VOLCANO_ACTIONS, VOLCANO_PLUGINS
from stowplan.batch.queue_models.volcano.model.volcano_objects import VolcanoObjects, cluster_of
from stowplan.batch.queue_models.volcano.volcano_hooks import HOOKS
from stowplan.batch.queue_models.volcano.volcano_options import VolcanoOptions, VolcanoPluginOption
from stowplan.batch.queue_models.volcano.volcano_session import VolcanoSession
from stowplan.columns.nodetable import table_of
from stowplan.conformance.queue_models.queue_model_cases import QueueModelCase
from stowplan.conformance.queue_models.volcano_cases import answer
from stowplan.objects.encoding.json_codec import convert
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import PodGroup, Queue
from tests.batch.queue_models.volcano_clusters import SessionCluster, Tree, node, queue

USAGE = """
actions: "allocate"
tiers:
- plugins:
  - name: gang
  - name: usage
    arguments: {usage.weight: 5, cpu.weight: 1, memory.weight: 1, thresholds: {cpu: 80, mem: 80}}
"""


def loaded(name: str, cpu: str, memory: str, **notes: str) -> Tree:
    made = node(name, 8)
    load = {"stowplan.dev/usage-cpu": cpu, "stowplan.dev/usage-memory": memory}
    more = {f"stowplan.dev/usage-{key}": value for key, value in notes.items()}
    made["metadata"]["annotations"] = load | more
    return made


def asked(nodes: list[Tree], running: str = "") -> Tree:
    """What a session says of one pod that requests 1 cpu and 1Gi."""
    cluster = SessionCluster(nodes, [queue("q")], USAGE)
    if running:
        cluster.add_job("old", "q", 1, running=running, cpu=4, memory="32Gi")
    cluster.add_job("new", "q", 1, cpu=1, memory="1Gi")
    objects = {
        "nodes": nodes,
        "queues": cluster.queues,
        "podGroups": cluster.groups,
        "pods": list(cluster.pods.values()),
    }
    found: Tree = answer(QueueModelCase("case", "volcano", "made", USAGE, objects))
    return found


def test_nodes_score_by_what_is_free_of_them() -> None:
    found = asked([loaded("a", "50", "30"), loaded("b", "10", "20"), node("unmeasured")])
    # ((1 - 0.5) + (1 - 0.3)) / 2 * 100 * 5, and so on.
    assert found["scores"]["ns/new-0"] == pytest.approx({"a": 300, "b": 425, "unmeasured": 0})
    assert found["sessions"][0]["binds"] == {"ns/new-0": "b"}


def test_a_node_above_a_threshold_takes_no_pod_while_the_measurement_is_recent() -> None:
    old = loaded("old", "99", "10", time="2020-01-01T00:00:00Z")
    found = asked([loaded("cpu", "80.5", "0"), loaded("memory", "0", "81"), old])
    assert found["fits"]["ns/new-0"] == {"cpu": False, "memory": False, "old": True}


def test_a_pod_that_no_measurement_knows_counts_with_a_part_of_its_request() -> None:
    found = asked([loaded("a", "0", "0"), loaded("b", "0", "0")], running="a")
    # 0.7 of 4 of 8 cpu, and of 32 of 64 GiB: 0.35 of each.
    assert found["scores"]["ns/new-0"] == pytest.approx({"a": 325, "b": 500})


def rescheduled(now: float, last_runs: dict[str, float], **thresholds: Any) -> list[str]:
    """Pods that `shuffle` evicts from a node with 90 % of its cpu in use beside one with 10 %."""
    pods = [
        {
            "metadata": {"name": name, "annotations": {"scheduling.k8s.io/group-name": "g"}},
            "spec": {
                "nodeName": "busy",
                "priority": priority,
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
            },
            "status": {"phase": "Running"},
        }
        for name, priority in (("high", 9), ("low", 1), ("middle", 5))
    ]
    trees = [loaded("busy", "90", "10"), loaded("idle", "10", "10")]
    nodes = [convert(tree, Node) for tree in trees]
    typed = [convert(tree, Pod) for tree in pods]
    group = convert({"metadata": {"name": "g"}, "spec": {"queue": "q"}}, PodGroup)
    objects = VolcanoObjects(typed, [group], [convert({"metadata": {"name": "q"}}, Queue)], now=now)
    cluster = cluster_of(table_of(nodes, typed), objects)
    cluster.last_runs = last_runs
    switches = frozenset(switch for needed in HOOKS.values() for switch in needed)
    arguments = {"interval": "5m", "strategies": [{"name": "lowNodeUtilization"} | thresholds]}
    option = VolcanoPluginOption("rescheduling", switches, arguments)
    options = VolcanoOptions(("shuffle",), ((option,),))
    session = VolcanoSession(cluster, options, None, VOLCANO_PLUGINS)  # type: ignore[arg-type]
    VOLCANO_ACTIONS["shuffle"](session)
    return [task.pod.name for task in session.evicted]


LOW = {"params": {"thresholds": {"cpu": 20, "memory": 20}, "targetThresholds": {"cpu": 70}}}


def test_pods_of_low_priority_leave_a_loaded_node_until_it_is_below_the_target() -> None:
    runs: dict[str, float] = {}
    assert rescheduled(1000.0, runs, **LOW) == []
    # 90 % - 12.5 % of the first is above 70 %, - 12.5 % of the second is not.
    assert rescheduled(1300.5, runs, **LOW) == ["low", "middle"]
    assert rescheduled(1301.0, runs, **LOW) == []


def test_nothing_is_moved_where_no_node_has_a_low_load() -> None:
    none = {"params": {"thresholds": {"cpu": 5, "memory": 5}, "targetThresholds": {"cpu": 70}}}
    assert rescheduled(2000.0, {"rescheduling": 0.0}, **none) == []
