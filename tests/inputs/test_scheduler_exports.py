"""Exports of kube-scheduler-simulator and KAI are read as clusters; what is missing is named."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from stowplan.inputs.cluster_reader import read_cluster
from stowplan.inputs.input_error import InputError

NODE = {
    "metadata": {"name": "n1", "uid": "u1", "resourceVersion": "1", "creationTimestamp": None},
    "spec": {},
    "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}},
}


def pod(name: str, **meta: Any) -> dict[str, Any]:
    own = {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1"}
    containers = [{"name": "c", "image": "a", "resources": {"requests": {"cpu": "1"}}}]
    return {"metadata": own | meta, "spec": {"containers": containers}, "status": {}}


def test_an_export_of_kube_scheduler_simulator(tmp_path: Path) -> None:
    results = {"scheduler-simulator/selected-node": "n1", "scheduler-simulator/score-result": "{}"}
    tree = {
        "pods": [pod("a", annotations=results), pod("b")],
        "nodes": [NODE],
        "pvs": None,
        "pvcs": [],
        "storageClasses": [{"metadata": {"name": "fast"}, "provisioner": "p"}],
        "priorityClasses": [{"metadata": {"name": "high"}, "value": 10}],
        "schedulerConfig": {"kind": "KubeSchedulerConfiguration"},
        "namespaces": [{"metadata": {"name": "shop"}}],
    }
    (tmp_path / "export.json").write_text(json.dumps(tree))
    cluster = read_cluster(tmp_path / "export.json")
    assert [one.name for one in cluster.nodes] == ["n1"]
    assert [one.name for one in cluster.pods] == ["a", "b"]
    assert {type(one).__name__ for one in cluster.objects} >= {"StorageClass"}
    assert any("schedulerConfig is not read" in note for note in cluster.notes)


def kai(path: Path, raw: dict[str, Any], name: str = "snapshot.json") -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, json.dumps({"config": {}, "schedulerParams": {}, "rawObjects": raw}))
    return path


def test_a_kai_snapshot(tmp_path: Path) -> None:
    volume = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
    volume["hostPath"] = {"path": "/x"}
    raw = {
        "pods": [pod("a")],
        "nodes": [NODE],
        "queues": [{"metadata": {"name": "q"}, "spec": {"parentQueue": "d"}}],
        "podGroups": [
            {"metadata": {"name": "g", "namespace": "default"}, "spec": {"minMember": 2}}
        ],
        "bindRequests": [
            {
                "metadata": {"name": "a", "namespace": "default"},
                "spec": {"podName": "a", "selectedNode": NODE["metadata"]["name"]},
            }
        ],
        "unknownObjects": [{}, {}],
        "configMaps": None,
        "topologies": [],
        "persistentVolumes": [{"metadata": {"name": "pv"}, "spec": volume}],
    }
    cluster = read_cluster(kai(tmp_path / "snapshot.zip", raw))
    assert (len(cluster.nodes), len(cluster.pods)) == (1, 1)
    assert "not read of the KAI snapshot (1 pod): 2 unknownObjects" in cluster.notes
    assert [one.node_name for one in cluster.pods] == [NODE["metadata"]["name"]]
    assert any("no PersistentVolumes" in note for note in cluster.notes)
    kinds = {type(one).__name__: one.name for one in cluster.objects}
    assert kinds["KaiQueueObject"] == "q"
    assert kinds["KaiPodGroupObject"] == "g"
    assert kinds["PersistentVolume"] == "pv"


@pytest.mark.parametrize(
    ("raw", "name", "part"),
    [
        ({"pods": {}, "nodes": 5}, "snapshot.json", "rawObjects: nodes: Invalid value: 5"),
        ({"nodes": [NODE, 7]}, "snapshot.json", r"nodes\[1\]: Invalid value: 7"),
        ({}, "other.json", "snapshot.json: an archive without it"),
    ],
)
def test_a_broken_snapshot_is_one_clear_error(
    tmp_path: Path, raw: dict[str, Any], name: str, part: str
) -> None:
    with pytest.raises(InputError, match=part):
        read_cluster(kai(tmp_path / "snapshot.zip", raw, name))


def test_a_damaged_archive(tmp_path: Path) -> None:
    path = kai(tmp_path / "snapshot.zip", {"nodes": [NODE]})
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(InputError, match="unable to unzip"):
        read_cluster(path)


def _change(event: str, kind: str, name: str, **more: Any) -> bytes:
    meta = {"name": name, **({} if kind == "Node" else {"namespace": "default"})}
    resource = {"apiVersion": "v1", "kind": kind, "metadata": meta, **more}
    record = {"time": "2026-01-01T00:00:00Z", "event": event, "resource": resource}
    return json.dumps(record).encode() + b"\n"


def _recorded() -> list[bytes]:
    status = {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}}
    spec = {"containers": [{"name": "c", "image": "i"}]}
    return [
        _change("Add", "Node", "n1", status=status),
        _change("Add", "Pod", "a", spec=spec),
        _change("Add", "Pod", "gone", spec=spec),
        _change("Update", "Pod", "a", spec={**spec, "nodeName": "n1"}),
        _change("Delete", "Pod", "gone"),
        _change("Add", "Pod", "b", spec=spec),
    ]


def test_a_simulator_recording_is_the_state_at_its_end(tmp_path: Path) -> None:
    lines = _recorded()
    path = tmp_path / "recorded.jsonl"
    path.write_bytes(b"".join(lines))
    cluster = read_cluster(path)
    assert [(pod.name, pod.node_name) for pod in cluster.pods] == [("a", "n1"), ("b", "")]
    assert any("after 6 changes" in note for note in cluster.notes)
    # As the simulator's earlier versions wrote it, and in two files.
    path.write_bytes(b"[" + b",".join(lines) + b"]")
    assert read_cluster(path).pods == cluster.pods
    first, second = tmp_path / "1.jsonl", tmp_path / "2.jsonl"
    first.write_bytes(b"".join(lines[:3]))
    second.write_bytes(b"".join(lines[3:]))
    assert read_cluster([first, second]).pods == cluster.pods


def test_a_cut_or_wrong_line_of_a_simulator_recording(tmp_path: Path) -> None:
    lines = _recorded()
    path = tmp_path / "recorded.jsonl"
    path.write_bytes(b"".join(lines)[:-5])
    cluster = read_cluster(path)
    assert [pod.name for pod in cluster.pods] == ["a"]
    assert any("incomplete" in note for note in cluster.notes)
    path.write_bytes(lines[0][:-5] + b"\n" + lines[1])
    with pytest.raises(InputError, match="line 1"):
        read_cluster(path)
    path.write_bytes(lines[0] + _change("Sync", "Pod", "a"))
    with pytest.raises(InputError, match="expected one of Add, Update, Delete"):
        read_cluster(path)
