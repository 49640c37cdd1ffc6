"""NUMA zones of KAI-Scheduler's model as a user sees them: files, KAI's snapshots, recordings."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.batch.queue_models.test_kai_model import node, queue
from tests.cli.run import run

Tree = dict[str, Any]

SHARD = """
apiVersion: kai.scheduler/v1
kind: SchedulingShard
metadata: {name: default}
spec:
  plugins:
    numa: {enabled: true%s}
"""
ALIGN = "1 node(s) cannot NUMA-align the pod's resources under their Topology Manager policy"


def report(name: str, *cpus: str) -> Tree:
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": name},
        "topologyPolicies": ["SingleNUMANodePodLevel"],
        "zones": [
            {
                "name": f"node-{i}",
                "type": "Node",
                "resources": [{"name": "cpu", "capacity": n, "allocatable": n, "available": n}],
            }
            for i, n in enumerate(cpus)
        ],
    }


def guaranteed(name: str, cpu: str) -> Tree:
    resources = {"limits": {"cpu": cpu, "memory": "1Gi"}}
    spec = {
        "schedulerName": "kai-scheduler",
        "containers": [{"name": "c", "image": "i", "resources": resources}],
    }
    meta = {"name": name, "namespace": "default", "labels": {"kai.scheduler/queue": "red"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


OBJECTS = [
    node("a", 1),
    report("a", "4", "4"),
    queue("red", 1),
    *(guaranteed(name, "3") for name in ("first", "second", "third")),
]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kai.yaml").write_text(SHARD % "")
    (tmp_path / "off.yaml").write_text("scheduler: kai\n")
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump_all(OBJECTS))
    return tmp_path


def explained(*arguments: str) -> Tree:
    ran = run("explain", "pod/third", *arguments, "-o", "json")
    found: Tree = json.loads(ran.out)
    return found


def test_a_pod_that_no_zone_holds_is_explained(files: Path) -> None:
    found = explained("--config", "kai.yaml", "-f", "cluster.yaml")
    assert ALIGN in json.dumps(found)
    table = run("explain", "pod/third", "--config", "kai.yaml", "-f", "cluster.yaml").out
    assert f"0/1 nodes fit pod default/third: {ALIGN}" in table
    # Without the plugin the node has room.
    assert (
        ALIGN not in run("explain", "pod/third", "--config", "off.yaml", "-f", "cluster.yaml").out
    )
    simulated = run("simulate", "--config", "off.yaml", "-f", "cluster.yaml")
    assert "3 of 3 pods placed" in simulated.out


def test_what_would_be_if_a_pod_were_gone(files: Path) -> None:
    ran = run("what-if", "--base-config", "kai.yaml", "-f", "cluster.yaml", "--delete", "pod/first")
    assert "1 placed, 1 deleted; 0 pending (before: 1)" in ran.out
    assert "default/third" in ran.out


def test_a_recording_has_the_zones_and_what_pods_have_of_them(files: Path) -> None:
    ran = run("simulate", "--config", "kai.yaml", "-f", "cluster.yaml", "--record", "run.rec")
    assert "2 of 3 pods placed" in ran.out
    assert ALIGN in run("explain", "pod/third", "--record", "run.rec").out


def test_a_snapshot_of_kai_has_the_zones(files: Path) -> None:
    bare = [
        {key: part for key, part in one.items() if key not in ("apiVersion", "kind")}
        for one in OBJECTS
    ]
    raw = {
        "nodes": bare[:1],
        "nodeResourceTopologies": bare[1:2],
        "queues": bare[2:3],
        "pods": bare[3:],
    }
    with zipfile.ZipFile(files / "snapshot.zip", "w") as archive:
        archive.writestr("snapshot.json", json.dumps({"rawObjects": raw}))
    ran = run("simulate", "--config", "kai.yaml", "-f", "snapshot.zip")
    assert "2 of 3 pods placed" in ran.out
    assert ALIGN in ran.out


def test_a_zone_with_an_amount_that_is_none_is_a_mistake(files: Path) -> None:
    broken = report("a", "4", "four")
    (files / "cluster.yaml").write_text(yaml.safe_dump_all([node("a", 1), broken]))
    ran = run("simulate", "--config", "kai.yaml", "-f", "cluster.yaml")
    assert ran.code == 2
    for part in ("NodeResourceTopology a", "zones[1].resources[0].capacity", "'four'"):
        assert part in ran.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ("reconstructAvailable: perhaps", "expected true or false"),
        ("ignoreList: [memory]", "names of resources with commas between them"),
        ("ignorelist: memory", "did you mean 'ignoreList'?"),
    ],
)
def test_mistakes_of_its_arguments(files: Path, arguments: str, part: str) -> None:
    (files / "kai.yaml").write_text(SHARD % f", arguments: {{{arguments}}}")
    ran = run("simulate", "--config", "kai.yaml", "-f", "cluster.yaml")
    assert ran.code == 2
    assert part in ran.err
    assert "numa" in ran.err or "plugins[" in ran.err


def test_the_plugin_gives_no_warning(files: Path) -> None:
    ran = run("simulate", "--config", "kai.yaml", "-f", "cluster.yaml")
    assert "numa" not in ran.err
