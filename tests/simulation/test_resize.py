"""Clusters of another size keep their mix."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from msgspec.structs import replace

from stowplan.inputs.cluster_reader import Cluster
from stowplan.inputs.cluster_resize import resized, shares
from stowplan.objects.meta import OwnerReference
from stowplan.objects.pod import PodStatus
from stowplan.simulation.simulate import simulate
from stowplan.testing import node, pod
from stowplan.testing.builders import HOSTNAME


def cluster() -> Cluster:
    small = [node(f"s{i}", cpu="4") for i in range(6)]
    large = [node(f"l{i}", cpu="64", labels={"pool": "large"}) for i in range(3)]
    return Cluster(nodes=[*small, *large], pods=[])


@pytest.mark.parametrize(("n_nodes", "small", "large"), [(3, 2, 1), (4, 3, 1), (18, 12, 6)])
def test_kinds_keep_their_shares(n_nodes: int, small: int, large: int) -> None:
    nodes = resized(cluster(), n_nodes).nodes
    found = Counter(one.name[0] for one in nodes)
    assert (found["s"], found["l"]) == (small, large)
    assert len({one.name for one in nodes}) == n_nodes
    assert all(one.labels[HOSTNAME] == one.name for one in nodes)
    assert all(("pool" in one.labels) == (one.name[0] == "l") for one in nodes)


def test_the_first_of_each_kind_stay() -> None:
    assert [one.name for one in resized(cluster(), 3).nodes] == ["s0", "s1", "l0"]
    assert resized(cluster(), 9).nodes == cluster().nodes


@pytest.mark.parametrize("total", [1, 2, 7, 100])
def test_shares_add_up(total: int) -> None:
    assert sum(shares([5, 3, 1], total)) == total


def test_pods_of_nodes_that_are_left_out_wait_again() -> None:
    start = cluster()
    daemon = pod("daemon", on="s5")
    owner = OwnerReference("apps/v1", "DaemonSet", "d", "d", True)
    meta = daemon.metadata
    daemon = type(daemon)(
        metadata=type(meta)(name="daemon", owner_references=(owner,)), spec=daemon.spec
    )
    start.pods = [pod("stays", on="s0"), pod("moves", on="s5"), daemon]
    small = resized(start, 3)
    assert [(one.name, one.node_name) for one in small.pods] == [("stays", "s0"), ("moves", "")]
    assert "3 nodes instead of 9, of the same mix" in small.notes


def test_pods_of_daemon_sets_go_with_their_nodes_before_they_are_bound(tmp_path: Path) -> None:
    text = """\
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec: {template: {metadata: {labels: {a: b}}, spec: {containers: [{name: main}]}}}
"""
    for n in range(10):
        text += f"---\napiVersion: v1\nkind: Node\nmetadata: {{name: n{n}}}\n"
        text += "status: {allocatable: {cpu: 4, pods: 10}}\n"
    path = tmp_path / "a.yaml"
    path.write_text(text)
    for n_nodes in (4, 10, 13):
        run = simulate(path, node_count=n_nodes)
        assert (run.summary["pods"], run.summary["placed"]) == (n_nodes, n_nodes), n_nodes
        assert len({one.node for one in run.placements}) == n_nodes
    assert (
        "6 pods removed with their nodes: of DaemonSets, static, or being deleted"
        in (simulate(path, node_count=4).summary["notes"])
    )


def test_new_nodes_get_daemons_beside_those_that_run(tmp_path: Path) -> None:
    owner = "{apiVersion: apps/v1, kind: DaemonSet, name: agent, uid: d, controller: true}"
    path = tmp_path / "a.yaml"
    path.write_text(f"""\
apiVersion: apps/v1
kind: DaemonSet
metadata: {{name: agent, uid: d}}
spec: {{template: {{metadata: {{labels: {{a: b}}}}, spec: {{containers: [{{name: main}}]}}}}}}
---
apiVersion: v1
kind: Node
metadata: {{name: n0}}
status: {{allocatable: {{cpu: 4, pods: 10}}}}
---
apiVersion: v1
kind: Pod
metadata: {{name: agent-x, uid: p, ownerReferences: [{owner}]}}
spec: {{nodeName: n0, containers: [{{name: main}}]}}
""")
    run = simulate(path, node_count=3)
    assert sorted(one.node for one in run.placements) == ["n0-2", "n0-3"]


def test_released_and_removed_pods_are_noted() -> None:
    start = cluster()
    start.pods = [pod("moves", on="s5"), pod("done", on="s5")]
    start.pods[1] = replace(start.pods[1], status=PodStatus(phase="Succeeded"))
    small = resized(start, 3)
    assert "1 pod of removed nodes pending again" in small.notes
    assert [one.status.phase for one in small.pods] == ["Pending", "Succeeded"]
