"""Where pods of KAI's model may go apart from amounts: volumes, host ports, and overhead."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from stowplan.assembly.sessions import kai_rules
from stowplan.assembly.sessions.kai_volumes import VolumeBindings
from stowplan.batch.queue_models.kai import kai_objects
from stowplan.batch.queue_models.kai.state.kai_node import KaiNode
from tests.batch.queue_models.test_kai_model import node, queue
from tests.cli.run import run

Tree = dict[str, Any]

NODES = [node(name, 4) for name in ("n1", "n2", "n3")]
for one in NODES:
    one["metadata"]["labels"] = {"kubernetes.io/hostname": one["metadata"]["name"]}
CLASS = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "local"},
    "provisioner": "kubernetes.io/no-provisioner",
    "volumeBindingMode": "WaitForFirstConsumer",
}


def volume(name: str, on: str) -> Tree:
    term = {"key": "kubernetes.io/hostname", "operator": "In", "values": [on]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "local": {"path": "/x"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
        },
    }


def claim(name: str) -> Tree:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


def pod(name: str, cpu: str = "1", **spec: Any) -> Tree:
    asked = {"requests": {"cpu": cpu}, "limits": {"nvidia.com/gpu": "1"}}
    container = {"name": "c", "image": "i", "resources": asked}
    container |= {key: spec.pop(key) for key in ("ports",) if key in spec}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {"kai.scheduler/queue": "red"},
        },
        "spec": {"schedulerName": "kai-scheduler", "containers": [container], **spec},
    }


def with_claim(name: str, of: str) -> Tree:
    return pod(name, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": of}}])


def placed(tmp_path: Path, *objects: Tree) -> tuple[dict[str, str], str]:
    """Pod -> node of those that are placed, and what is said."""
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump_all([queue("red", -1), *copy.deepcopy(objects)]))
    ran = run("simulate", str(path), "--compat", "kai", "-o", "yaml")
    found = yaml.safe_load(ran.out)
    output = run("simulate", str(path), "--compat", "kai").out
    return {
        one["pod"].rpartition("/")[2]: one["node"] for one in found["placements"] if one["node"]
    }, output


def volumes_keep(tmp_path: Path) -> None:
    objects = (*NODES, CLASS, claim("data"), with_claim("p", "data"))
    assert placed(tmp_path, *objects, volume("v3", "n3"))[0] == {"p": "n3"}
    nodes, output = placed(tmp_path, *objects)
    assert not nodes
    assert "3 node(s) didn't find available persistent volumes to bind" in output
    nodes, output = placed(tmp_path, *NODES, with_claim("p", "none"))
    assert not nodes
    assert 'persistentvolumeclaim "none" not found' in output


def volumes_differ(tmp_path: Path) -> None:
    """A gang of pods that each could have any of the volumes."""
    group = {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "default"},
        "spec": {"minMember": 3, "queue": "red"},
    }
    pods = [with_claim(f"p{i}", f"data-{i}") for i in range(3)]
    for one in pods:
        one["metadata"]["annotations"] = {"pod-group-name": "g"}
    claims = [claim(f"data-{i}") for i in range(3)]
    volumes = [volume(f"v{i}", f"n{i}") for i in (1, 2, 3)]
    objects = (*NODES, CLASS, group, *claims, *pods)
    assert sorted(placed(tmp_path, *objects, *volumes)[0].values()) == ["n1", "n2", "n3"]
    assert not placed(tmp_path, *objects, *volumes[:2])[0]


def ports_keep(tmp_path: Path) -> None:
    ports = [{"containerPort": 80, "hostPort": 80}]
    pods = [pod(f"p{i}", ports=ports) for i in range(4)]
    nodes, output = placed(tmp_path, *NODES, *pods)
    assert sorted(nodes.values()) == ["n1", "n2", "n3"]
    assert "3 node(s) didn't have free ports for the requested pod ports" in output


def overhead_counts(tmp_path: Path) -> None:
    cpu = NODES[0]["status"]["allocatable"]["cpu"]
    assert len(placed(tmp_path, NODES[0], pod("p", cpu))[0]) == 1
    nodes, output = placed(tmp_path, NODES[0], pod("p", cpu, overhead={"cpu": "1"}))
    assert not nodes
    assert "1 Insufficient cpu" in output


def selectors_count(tmp_path: Path) -> None:
    """A pod keeps away from pods of the namespaces that its term selects, and wants none else."""

    def of(name: str, namespace: str, selector: Tree | None) -> Tree:
        term: Tree = {
            "labelSelector": {"matchLabels": {"kai.scheduler/queue": "red"}},
            "topologyKey": "kubernetes.io/hostname",
        }
        if selector is not None:
            term["namespaceSelector"] = selector
        rule = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        made = pod(name, affinity={"podAntiAffinity": rule})
        made["metadata"]["namespace"] = namespace
        return made

    spaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        for name, labels in (("default", {}), ("lab", {"team": "a"}), ("shop", {"team": "b"}))
    ]
    there = pod("there", nodeName="n1")
    there["metadata"]["namespace"], there["status"] = "lab", {"phase": "Running"}
    for selector, is_kept_away in (
        (None, False),
        ({}, True),
        ({"matchLabels": {"team": "a"}}, True),
        ({"matchLabels": {"team": "b"}}, False),
    ):
        nodes, output = placed(tmp_path, NODES[0], *spaces, there, of("p", "default", selector))
        assert ("p" not in nodes) == is_kept_away, selector
        # A binding would be refused as well; it is the session that knows why.
        assert ("didn't match pod anti-affinity rules" in output) == is_kept_away, selector


def test_namespace_selectors_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    selectors_count(tmp_path)
    monkeypatch.setattr(
        kai_rules, "_is_about", lambda session, term, owner, name: name == owner.namespace
    )
    with pytest.raises(AssertionError):
        selectors_count(tmp_path)


def test_a_pod_goes_where_its_volumes_are(tmp_path: Path) -> None:
    volumes_keep(tmp_path)


def test_pods_of_a_session_get_different_volumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volumes_differ(tmp_path)
    monkeypatch.setattr(VolumeBindings, "take", lambda self, task: None)
    with pytest.raises(AssertionError):
        volumes_differ(tmp_path)


def test_each_node_has_a_host_port_once(tmp_path: Path) -> None:
    ports_keep(tmp_path)


def test_overhead_is_asked_for(tmp_path: Path) -> None:
    overhead_counts(tmp_path)


def test_a_session_without_these_rules_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(VolumeBindings, "refusal", lambda self, task, node: "")
    monkeypatch.setattr(KaiNode, "has_ports_for", lambda self, task: True)
    monkeypatch.setattr(kai_objects, "plus", lambda one, _: one)
    for check in (volumes_keep, ports_keep, overhead_counts):
        with pytest.raises(AssertionError):
            check(tmp_path)


def test_the_reason_of_a_gang_names_a_pod_that_fits_nowhere(tmp_path: Path) -> None:
    group = {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "default"},
        "spec": {"minMember": 3, "queue": "red"},
    }
    pods = [pod("a"), pod("b"), pod("z", nodeSelector={"no": "node"})]
    for one in pods:
        one["metadata"]["annotations"] = {"pod-group-name": "g"}
    nodes, output = placed(tmp_path, *NODES, group, *pods)
    assert not nodes
    assert "0/3 nodes fit pod default/z: 3 node(s) didn't match node selector" in output
