"""Pods whose node is not in the input."""

from __future__ import annotations

from pathlib import Path

import pytest

from stowplan.inputs.cluster_reader import read_cluster
from stowplan.inputs.input_error import InputError
from stowplan.simulation.simulate import simulate

NODE = """\
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: 4, memory: 16Gi, pods: 110}}
"""


def bound(name: str, node: str, owner: str = "", meta: str = "", phase: str = "Running") -> str:
    """A pod as in a dump."""
    owners = f", ownerReferences: [{{kind: {owner}, name: o, uid: o, controller: true}}]"
    return f"""\
---
apiVersion: v1
kind: Pod
metadata: {{name: {name}, uid: {name}, resourceVersion: "1"{owners if owner else ""}{meta}}}
spec:
  nodeName: {node}
  containers: [{{name: main, resources: {{requests: {{cpu: 1}}}}}}]
status: {{phase: {phase}}}
"""


DUMP = (
    NODE
    + bound("stays", "n1")
    + bound("web-1", "lost", "ReplicaSet")
    + bound("bare", "lost")
    + bound("agent", "lost", "DaemonSet")
    + bound("etcd", "lost", "Node")
    + bound("leaving", "lost", meta=", deletionTimestamp: 2026-01-01T00:00:00Z")
    + bound("done", "lost", phase="Succeeded")
)
ORPHANS = dict.fromkeys(("web-1", "bare", "agent", "etcd", "leaving"), "lost")


def dump(folder: Path) -> Path:
    path = folder / "dump.yaml"
    path.write_text(DUMP)
    return path


def test_orphans_are_pending_again_and_named(tmp_path: Path) -> None:
    cluster = read_cluster(dump(tmp_path))
    assert cluster.orphans == {f"default/{name}": "lost" for name in ORPHANS}
    assert [pod.key for pod in cluster.pending()] == ["default/web-1", "default/bare"]
    assert [pod.key for pod in cluster.bound()] == ["default/stays"]
    assert {pod.status.phase for pod in cluster.pending()} == {"Pending"}
    again, gone = cluster.notes
    assert again == (
        "2 pods pending again, bound to nodes that are not in the input:"
        " default/web-1 (node lost), default/bare (node lost)"
    )
    assert gone.startswith(
        "3 pods removed (of DaemonSets, static, or being deleted), bound to nodes"
    )


def test_a_simulation_places_orphans_like_pods_without_a_node(tmp_path: Path) -> None:
    run = simulate(dump(tmp_path))
    assert (run.summary["pods"], run.summary["placed"]) == (2, 2)
    assert run.summary["orphans"] == {f"default/{name}": "lost" for name in ORPHANS}


def test_orphans_can_be_left_out(tmp_path: Path) -> None:
    cluster = read_cluster(dump(tmp_path), orphans="ignore")
    assert cluster.pending() == []
    assert len(cluster.orphans) == 5
    assert "5 pods left out, bound to nodes that are not in the input:" in cluster.notes[0]


def test_orphans_can_be_refused(tmp_path: Path) -> None:
    wanted = r"5 pods bound to nodes that are not in the input: default/web-1 \(node lost\),"
    with pytest.raises(InputError, match=wanted):
        read_cluster(dump(tmp_path), orphans="error")


def test_the_word_for_what_becomes_of_them_is_checked(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected one of pending, ignore, error"):
        read_cluster(dump(tmp_path), orphans="drop")


def test_orphans_of_a_template_share_their_spec(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(NODE + bound("a", "lost") + bound("b", "gone"))
    one, other = read_cluster(path).pending()
    assert one.spec is other.spec


def test_many_orphans_are_counted_beyond_the_first_ten(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(NODE + "".join(bound(f"p{n}", "lost") for n in range(12)))
    assert read_cluster(path).notes[0].endswith("default/p9 (node lost) and 2 more")
