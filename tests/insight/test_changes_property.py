"""Changes on generated clusters: each lets the pod run, and no cheaper one of its kind does.

The changes are applied to the manifests by code of the tests; the cheaper ones are enumerated by
it, too, and tried by reading the manifests and explaining the pod again.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stowplan.cycle.change import PodChanges
from stowplan.forecast.explain import explain, explain_changes
from stowplan.inputs.cluster_reader import Cluster, read_cluster
from stowplan.objects.quantity import amount
from tests.insight.json_patch import applied
from tests.soak import examples

Tree = dict[str, Any]

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
TAINT = {"key": "team", "value": "a", "effect": "NoSchedule"}
OTHER_TAINT = {"key": "dedicated", "effect": "NoExecute"}
CORDON_TAINT = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def read(manifests: list[Tree], folder: Path) -> Cluster:
    path = folder / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests}))
    return read_cluster(path, validate="ignore")


def key_of(cluster: Cluster) -> str:
    return next(pod.key for pod in cluster.pods if pod.labels.get("app") == "w" and pod.name != "r")


def can_run(manifests: list[Tree], folder: Path) -> bool:
    cluster = read(manifests, folder)
    return bool(explain(key_of(cluster), cluster, compare_max=-1, changes=False).node)


# Clusters.


@st.composite
def pod_specs(draw: st.DrawFn) -> Tree:
    spec: Tree = {"containers": [{"name": "c", "image": "x"}]}
    requests: Tree = {}
    if draw(st.booleans()):
        requests["cpu"] = draw(st.sampled_from(["1", "1500m", "3", "5"]))
    if draw(st.booleans()):
        requests["memory"] = draw(st.sampled_from(["1Gi", "3Gi", "9Gi"]))
    if requests:
        resources: Tree = {"requests": requests}
        if draw(st.booleans()):
            resources["limits"] = dict(requests)
        spec["containers"][0]["resources"] = resources
    if draw(st.integers(0, 3)) == 0:
        spec["containers"].append(
            {"name": "d", "image": "x", "resources": {"requests": {"cpu": "500m"}}}
        )
    if draw(st.integers(0, 3)) == 0:
        spec["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    if draw(st.integers(0, 4)) == 0:
        spec["nodeSelector"] = {"disk": "ssd"}
    if draw(st.integers(0, 3)) == 0:
        spec["tolerations"] = [{"key": "other", "operator": "Exists"}]
    affinity: Tree = {}
    if draw(st.integers(0, 4)) == 0:
        expressions = [{"key": ZONE, "operator": "In", "values": [draw(st.sampled_from("ab"))]}]
        if draw(st.booleans()):
            expressions.append({"key": "tier", "operator": "NotIn", "values": ["low"]})
        terms = [{"matchExpressions": expressions}]
        if draw(st.booleans()):
            terms.append({"matchExpressions": [{"key": "pool", "operator": "Exists"}]})
        affinity["nodeAffinity"] = {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
        }
    for name in ("podAffinity", "podAntiAffinity"):
        if draw(st.integers(0, 4)) == 0:
            selector = {"matchLabels": {"app": draw(st.sampled_from(["w", "b"]))}}
            key = draw(st.sampled_from([HOST, ZONE]))
            affinity[name] = {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"labelSelector": selector, "topologyKey": key}
                ]
            }
    if affinity:
        spec["affinity"] = affinity
    if draw(st.integers(0, 3)) == 0:
        spec["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": draw(st.sampled_from([HOST, ZONE])),
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": draw(st.sampled_from(["w", "b"]))}},
            }
        ]
    return spec


@st.composite
def nodes(draw: st.DrawFn, number: int) -> Tree:
    name = f"n{number}"
    labels = {HOST: name, ZONE: draw(st.sampled_from("ab"))}
    for key, values in (("disk", ["ssd", "hdd", None, None]), ("tier", ["low", None])):
        value = draw(st.sampled_from(values))
        if value is not None:
            labels[key] = value
    spec: Tree = {}
    taints = [taint for taint in (TAINT, OTHER_TAINT) if draw(st.integers(0, 3)) == 0]
    if draw(st.integers(0, 3)) == 0:
        spec["unschedulable"] = True
        taints.insert(draw(st.integers(0, len(taints))), CORDON_TAINT)
    if taints:
        spec["taints"] = copy.deepcopy(taints)
    offered = {
        "cpu": draw(st.sampled_from(["2", "4"])),
        "memory": draw(st.sampled_from(["2Gi", "8Gi"])),
        "pods": draw(st.sampled_from(["2", "4", "110"])),
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": {"allocatable": offered, "capacity": offered},
    }


def bound_pod(name: str, node: str, app: str, cpu: str, memory: str, *, port: bool) -> Tree:
    container: Tree = {
        "name": "c",
        "image": "x",
        "resources": {"requests": {"cpu": cpu, "memory": memory}},
    }
    if port:
        container["ports"] = [{"containerPort": 80, "hostPort": 80}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": app}},
        "spec": {"nodeName": node, "containers": [container]},
    }


@st.composite
def clusters(draw: st.DrawFn) -> list[Tree]:
    n_nodes = draw(st.integers(1, 3))
    found = [draw(nodes(number)) for number in range(n_nodes)]
    for number in range(draw(st.integers(0, 4))):
        pod = bound_pod(
            f"b{number}",
            f"n{draw(st.integers(0, n_nodes - 1))}",
            draw(st.sampled_from(["b", "c"])),
            draw(st.sampled_from(["500m", "1", "2"])),
            draw(st.sampled_from(["512Mi", "1Gi"])),
            port=draw(st.integers(0, 3)) == 0,
        )
        pod["spec"]["priority"] = draw(st.sampled_from([-10, 0, 10]))
        found.append(pod)
    spec = draw(pod_specs())
    if draw(st.booleans()):
        found.append(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "w", "labels": {"app": "w"}},
                "spec": spec,
            }
        )
        return found
    template = {"metadata": {"labels": {"app": "w"}}, "spec": spec}
    found.append(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "w"},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"app": "w"}},
                "template": template,
            },
        }
    )
    return found


# The changes that there are, enumerated: (kind, cost, manifests after it).

Variant = tuple[str, int, list[Tree]]


def spec_of(manifest: Tree) -> Tree:
    spec: Tree = manifest["spec"]
    return spec if manifest["kind"] == "Pod" else spec["template"]["spec"]


def variants(manifests: list[Tree], costs: dict[str, int]) -> Iterator[Variant]:
    """Single changes, each of kinds that have a cost cheaper than it, of others any."""

    def own() -> tuple[list[Tree], Tree]:
        changed = copy.deepcopy(manifests)
        return changed, spec_of(changed[-1])

    yield from _lower_requests(manifests, costs.get("request", 101))
    for taint in (TAINT, OTHER_TAINT):
        changed, spec = own()
        operator = {"operator": "Equal"} if "value" in taint else {"operator": "Exists"}
        spec.setdefault("tolerations", []).append({**taint, **operator})
        yield "toleration", 10, changed
    yield from _relax_affinity(manifests)
    for index, constraint in enumerate(own()[1].get("topologySpreadConstraints", [])):
        for skew in range(constraint["maxSkew"] + 1, 6):
            changed, spec = own()
            spec["topologySpreadConstraints"][index]["maxSkew"] = skew
            yield "spread", 10 * (skew - constraint["maxSkew"]), changed
        changed, spec = own()
        spec["topologySpreadConstraints"][index]["whenUnsatisfiable"] = "ScheduleAnyway"
        yield "spread", 50, changed
    for at, manifest in enumerate(manifests):
        if manifest["kind"] == "Node":
            yield from _change_node(manifests, at)
            yield from _free(manifests, manifest["metadata"]["name"])


def _lower_requests(manifests: list[Tree], below: int) -> Iterator[Variant]:
    """The deepest cut of each request that costs less."""
    for index, container in enumerate(spec_of(manifests[-1])["containers"]):
        for resource, quantity in container.get("resources", {}).get("requests", {}).items():
            asked = amount(resource, quantity)
            least = math.ceil(asked * (1 - (below - 1) / 100))
            changed = copy.deepcopy(manifests)
            requests = spec_of(changed[-1])["containers"][index]["resources"]["requests"]
            requests[resource] = f"{least}m" if resource == "cpu" else str(least)
            yield "request", below - 1, changed


def _relax_affinity(manifests: list[Tree]) -> Iterator[Variant]:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    spec = spec_of(manifests[-1])
    for key in spec.get("nodeSelector", {}):
        changed = copy.deepcopy(manifests)
        del spec_of(changed[-1])["nodeSelector"][key]
        yield "affinity", 20, changed
    affinity = spec.get("affinity", {})
    for name in ("podAffinity", "podAntiAffinity"):
        for index, _ in enumerate(affinity.get(name, {}).get(required, [])):
            changed = copy.deepcopy(manifests)
            del spec_of(changed[-1])["affinity"][name][required][index]
            yield "affinity", 20, changed
    if "nodeAffinity" not in affinity:
        return
    changed = copy.deepcopy(manifests)
    del spec_of(changed[-1])["affinity"]["nodeAffinity"][required]
    yield "affinity", 50, changed
    for i, term in enumerate(affinity["nodeAffinity"][required]["nodeSelectorTerms"]):
        for j, expression in enumerate(term["matchExpressions"]):
            for value in "ab" if expression["operator"] == "In" else "":
                changed = copy.deepcopy(manifests)
                terms = spec_of(changed[-1])["affinity"]["nodeAffinity"][required]
                terms["nodeSelectorTerms"][i]["matchExpressions"][j]["values"].append(value)
                yield "affinity", 10, changed
            if len(term["matchExpressions"]) > 1:
                changed = copy.deepcopy(manifests)
                terms = spec_of(changed[-1])["affinity"]["nodeAffinity"][required]
                del terms["nodeSelectorTerms"][i]["matchExpressions"][j]
                yield "affinity", 20, changed


def _change_node(manifests: list[Tree], at: int) -> Iterator[Variant]:
    node = manifests[at]
    for taint in node["spec"].get("taints", []):
        if taint != CORDON_TAINT:
            changed = copy.deepcopy(manifests)
            changed[at]["spec"]["taints"].remove(taint)
            yield "taint", 20, changed
    if node["spec"].get("unschedulable"):
        changed = copy.deepcopy(manifests)
        changed[at]["spec"] = {
            "taints": [t for t in node["spec"].get("taints", []) if t != CORDON_TAINT]
        }
        yield "uncordon", 10, changed
    for key, value in (("disk", "ssd"), ("pool", "x"), ("tier", "high")):
        changed = copy.deepcopy(manifests)
        changed[at]["metadata"]["labels"][key] = value
        yield "label", 20, changed
    fresh = copy.deepcopy(node)
    fresh["metadata"]["name"] = fresh["metadata"]["labels"][HOST] = "fresh"
    fresh["spec"].pop("unschedulable", None)
    fresh["spec"]["taints"] = [t for t in fresh["spec"].get("taints", []) if t != CORDON_TAINT]
    yield "add-node", 1000, [fresh, *manifests]


def _free(manifests: list[Tree], node: str) -> Iterator[Variant]:
    there = [m for m in manifests if m["kind"] == "Pod" and m["spec"].get("nodeName") == node]
    for size in range(1, len(there) + 1):
        for some in combinations(there, size):
            priorities = [pod["spec"]["priority"] for pod in some]
            cost = sum(100 if p < 0 else 200 if p == 0 else 400 for p in priorities)
            yield "free", cost, [m for m in manifests if m not in some]


# Properties.


def check(manifests: list[Tree], folder: Path) -> PodChanges:
    cluster = read(manifests, folder)
    key = key_of(cluster)
    found = explain_changes(key, cluster)
    if can_run(manifests, folder):
        assert not found.changes
        return found
    assert found == explain_changes(key, cluster)
    assert list(found.changes) == sorted(found.changes, key=lambda change: change.cost)
    costs: dict[str, int] = {}
    for change in found.changes:
        assert change.kind not in costs
        costs[change.kind] = change.cost
        objects = msgspec.to_builtins(change)["objects"]
        assert objects
        assert can_run(applied(manifests, objects), folder), change.text
    for kind, cost, changed in variants(manifests, costs):
        if "combined" in costs or cost < costs.get(kind, 10**6):
            assert not can_run(changed, folder), (kind, cost, changed, found.changes)
    return found


@given(manifests=clusters())
@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_each_change_lets_the_pod_run_and_none_of_its_kind_is_cheaper(
    manifests: list[Tree], tmp_path: Path
) -> None:
    check(manifests, tmp_path)
