"""Capacity of particular clusters: gangs by sessions, volumes, daemons, zones, cut searches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stowplan.forecast.capacity import NOT_FOLLOWED, capacity, compact, fit_nodes
from stowplan.inputs.cluster_reader import Cluster, read_cluster
from stowplan.inputs.input_error import InputError
from tests.insight.test_capacity_property import Tree, node, pod, read, write

DEFAULT = """
actions: "allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: drf
  - name: predicates
  - name: proportion
  - name: nodeorder
"""


def of(name: str, kind: str, spec: Tree, version: str, **meta: Any) -> Tree:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **meta}, "spec": spec}


def gang(least: int, n_pods: int, cpu: str) -> list[Tree]:
    version = "scheduling.incubator.k8s.io/v1alpha1"
    found = [of("g", "PodGroup", {"minMember": least}, version, namespace="default")]
    for number in range(n_pods):
        member = pod(f"w{number}", cpu, "1Gi")
        member["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": "g"}
        member["spec"]["schedulerName"] = "kube-batch"
        found.append(member)
    return found


def test_sessions_decide_gangs_within_the_limits_of_queues(tmp_path: Path) -> None:
    config = tmp_path / "conf.yaml"
    config.write_text(DEFAULT)
    queue = of("default", "Queue", {"weight": 1}, "scheduling.incubator.k8s.io/v1alpha1")
    nodes = [node(f"n{i}", "5", "64Gi", "a") for i in range(4)]
    workload = write(gang(3, 4, "2"), tmp_path)
    (unit,) = capacity(workload, read([*nodes, queue], tmp_path), config=str(config)).units
    # Two pods fit on each of four nodes: two gangs of three.
    assert (unit.kind, unit.count, unit.pods_per_unit) == ("gang", 2, 3)
    assert unit.reasons


def test_the_reason_is_that_of_the_copies(tmp_path: Path) -> None:
    """Jobs of the cluster wait for reasons of their own; the group of the template has no pods, and
    takes no room."""
    config = tmp_path / "volcano.yaml"
    config.write_text("scheduler: volcano\n")
    version = "scheduling.volcano.sh/v1beta1"

    def job(name: str, cpu: str) -> list[Tree]:
        spec = {"minMember": 1, "minResources": {"cpu": cpu}, "queue": "default"}
        member = pod(f"{name}-0", cpu, "1Gi")
        member["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": name}
        member["spec"]["schedulerName"] = "volcano"
        return [of(name, "PodGroup", spec, version, namespace="default"), member]

    queue = of("default", "Queue", {"weight": 1}, version)
    cluster = read([node("n1", "16", "64Gi", "a"), queue, *job("large", "20")], tmp_path)
    (unit,) = capacity(write(job("x", "12"), tmp_path), cluster, config=str(config)).units
    assert unit.count == 1
    assert unit.message == "not inqueue: overcommit leaves the cluster cpu 7200m, 12 asked"


def test_gangs_without_sessions_are_decided_pod_by_pod(tmp_path: Path) -> None:
    members = gang(3, 4, "2")
    for member in members[1:]:
        del member["spec"]["schedulerName"]
    nodes = [node(f"n{i}", "5", "64Gi", "a") for i in range(4)]
    found = capacity(write(members, tmp_path), read(nodes, tmp_path))
    assert found.units[0].count == 2
    assert "gangs were decided pod by pod" in found.notes[0]


def test_several_templates_are_counted_alone_and_together(tmp_path: Path) -> None:
    nodes = [node("n0", "10", "64Gi", "a")]
    workload = write([pod("a", "1", "1Gi"), pod("b", "3", "1Gi")], tmp_path)
    units = capacity(workload, read(nodes, tmp_path)).units
    assert [(one.name, one.kind, one.count) for one in units] == [
        ("pod/a", "pod", 10),
        ("pod/b", "pod", 3),
        ("all of them", "workload", 2),
    ]


def test_volumes_of_each_copy_are_its_own(tmp_path: Path) -> None:
    """Local volumes bound at first use: as many pods fit as there are volumes."""
    local = of(
        "local",
        "StorageClass",
        {},
        "storage.k8s.io/v1",
    )
    del local["spec"]
    local |= {
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    hosts = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["a"]}]}
    volumes = [
        of(
            f"v{i}",
            "PersistentVolume",
            {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "local",
                "nodeAffinity": {"required": {"nodeSelectorTerms": [hosts]}},
            },
            "v1",
        )
        for i in range(3)
    ]
    for volume in volumes:
        volume["status"] = {"phase": "Available"}
    claim = {
        "metadata": {"name": "data"},
        "spec": {
            "storageClassName": "local",
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    template = pod("x", "1", "1Gi")
    db = of(
        "db",
        "StatefulSet",
        {
            "replicas": 1,
            "serviceName": "db",
            "selector": {"matchLabels": {"app": "w"}},
            "template": {"metadata": {"labels": {"app": "w"}}, "spec": template["spec"]},
            "volumeClaimTemplates": [claim],
        },
        "apps/v1",
        namespace="default",
    )
    nodes = [node("n0", "10", "64Gi", "a"), node("n1", "10", "64Gi", "b")]
    cluster = read([*nodes, local, *volumes], tmp_path)
    (unit,) = capacity(write([db], tmp_path), cluster).units
    assert (unit.name, unit.count) == ("statefulset/db", 3)
    assert unit.nodes == {"n0": 3}
    assert sum(unit.reasons.values()) == 2


def test_new_nodes_run_the_daemons_of_their_pool(tmp_path: Path) -> None:
    daemon = pod("agent-1", "1", "1Gi", "n0", "agent", "agent")
    cluster = read([node("n0", "4", "64Gi", "a"), daemon], tmp_path)
    found = fit_nodes(cluster, write([pod(f"w{i}", "2", "1Gi") for i in range(3)], tmp_path))
    # A daemon and one pod: the second pod of 2 cores does not fit beside them.
    assert (found.nodes, found.lower_bound, found.gap) == (3, 3.0, 0.0)


def test_a_cluster_is_its_own_workload(tmp_path: Path) -> None:
    nodes = [node(f"n{i}", "4", "64Gi", "a") for i in range(4)]
    pods = [pod(f"w{i}", "2", "1Gi", f"n{i}", "web") for i in range(4)]
    found = fit_nodes(read([*nodes, *pods], tmp_path))
    assert [(one.pool, one.nodes, one.pods) for one in found.pools] == [("a", 2, 4)]


def test_one_pod_per_node_is_in_the_bound(tmp_path: Path) -> None:
    pods = [pod(f"w{i}", "100m", "1Gi") for i in range(4)]
    term = {"labelSelector": {"matchLabels": {"app": "w"}}, "topologyKey": "kubernetes.io/hostname"}
    anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    for one in pods:
        one["spec"]["affinity"] = anti
    spread = node("n0", "4", "64Gi", "a")
    spread["metadata"]["labels"]["kubernetes.io/hostname"] = "n0"
    found = fit_nodes(read([spread], tmp_path), write(pods, tmp_path))
    assert (found.nodes, found.lower_bound) == (4, 4.0)


def test_new_nodes_of_a_pool_take_its_zones_in_turn(tmp_path: Path) -> None:
    zone = "topology.kubernetes.io/zone"
    nodes = [node(f"n{i}", "4", "64Gi", "a") for i in range(2)]
    for one, name in zip(nodes, "xy", strict=True):
        one["metadata"]["labels"][zone] = name
    pods = [pod(f"w{i}", "1", "1Gi") for i in range(2)]
    for one in pods:
        one["spec"]["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": zone,
                "whenUnsatisfiable": "DoNotSchedule",
                "minDomains": 2,
                "labelSelector": {"matchLabels": {"app": "w"}},
            }
        ]
    found = fit_nodes(read(nodes, tmp_path), write(pods, tmp_path))
    assert (found.nodes, found.is_least) == (2, True)


def test_a_cut_search_for_nodes_reports_what_is_left(tmp_path: Path) -> None:
    shapes = (("1500m", "3Gi"), ("700m", "5Gi"), ("2", "1Gi"), ("900m", "2Gi"))
    pods = [pod(f"w{i}", *shapes[i % 4]) for i in range(40)]
    nodes = [node("n0", "4", "9Gi", "a"), node("n1", "7", "16Gi", "b")]
    cluster = read(nodes, tmp_path)
    prices = {"a": 1.0, "b": 1.7}
    cut = fit_nodes(cluster, write(pods, tmp_path), prices=prices, decisions=400)
    assert cut.not_searched
    assert not cut.is_least
    assert cut.pools == () or cut.lower_bound <= cut.cost


def test_a_cut_search_for_empty_nodes_reports_what_is_left(tmp_path: Path) -> None:
    nodes = [node(f"n{i}", "8", "64Gi", "a") for i in range(6)]
    pods = [pod(f"w{i}", "500m", "1Gi", f"n{i % 6}", "web") for i in range(12)]
    plan = compact(read([*nodes, *pods], tmp_path), moves=2)
    assert [step.node for step in plan.steps] == ["n0"]
    assert plan.not_searched == ("4 nodes, after 5 moved pods",)


def test_as_many_nodes_are_emptied_as_the_room_allows(tmp_path: Path) -> None:
    nodes = [node(f"n{i}", "8", "64Gi", "a") for i in range(6)]
    pods = [pod(f"w{i}", "2", "1Gi", f"n{i % 6}", "web") for i in range(12)]
    plan = compact(read([*nodes, *pods], tmp_path))
    assert len(plan.steps) == 3
    assert {one.reason for one in plan.blockers} == {"kept: it takes pods of other nodes"}
    assert plan.cordon == "kubectl cordon " + " ".join(step.node for step in plan.steps)


def test_commands_have_the_flags_that_the_pods_need(tmp_path: Path) -> None:
    web = pod("w0", "1", "1Gi", "n0", "web")
    web["spec"]["volumes"] = [{"name": "t", "emptyDir": {}}]
    daemon = pod("agent-0", "1", "1Gi", "n0", "agent", "agent")
    keeper = pod("k", "1", "1Gi", "n1")
    cluster = read(
        [node("n0", "8", "9Gi", "a"), node("n1", "8", "9Gi", "a"), web, daemon, keeper], tmp_path
    )
    (step,) = compact(cluster).steps
    assert step.commands == ("kubectl drain n0 --ignore-daemonsets --delete-emptydir-data",)


def test_a_plan_that_moves_volumes_reports_what_it_does_not_follow(tmp_path: Path) -> None:
    web = pod("w0", "1", "1Gi", "n0", "web")
    nodes = [node("n0", "8", "9Gi", "a"), node("n1", "8", "9Gi", "a")]
    nodes.append(pod("k", "1", "1Gi", "n1"))
    assert not compact(read([*nodes, web], tmp_path)).notes
    web["spec"]["volumes"] = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
    spec = {"storageClassName": "local", "accessModes": ["ReadWriteOnce"]}
    claim = of("data", "PersistentVolumeClaim", spec, "v1", namespace="default")
    local = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "local"},
        "provisioner": "example.com/local",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    plan = compact(read([*nodes, web, claim, local], tmp_path))
    assert plan.steps
    assert plan.notes == (NOT_FOLLOWED,)


def test_results_as_frames_need_a_library(tmp_path: Path) -> None:
    cluster = read([node("n0", "8", "9Gi", "a")], tmp_path)
    found = capacity(write([pod("w", "1", "1Gi")], tmp_path), cluster)
    with pytest.raises((ImportError, ValueError)):
        found.to_frame("nope")


def test_a_workload_must_have_pods(tmp_path: Path) -> None:
    cluster = read([node("n0", "8", "9Gi", "a")], tmp_path)
    with pytest.raises(InputError, match="no pods"):
        capacity(Cluster([], []), cluster)
    with pytest.raises(InputError, match="limit"):
        capacity(write([pod("w", "1", "1Gi")], tmp_path), cluster, limit=0)


def test_a_priority_class_of_the_cluster_is_known(tmp_path: Path) -> None:
    high = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "high"},
        "value": 1000,
    }
    wanted = pod("w", "1", "1Gi")
    wanted["spec"]["priorityClassName"] = "high"
    path = tmp_path / "cluster.yaml"
    items = [node("n0", "8", "9Gi", "a"), high]
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    found = capacity(write([wanted], tmp_path), read_cluster(path, validate="ignore"))
    assert found.units[0].count == 8
