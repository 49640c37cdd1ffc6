"""What-if equals: change the manifests by hand, run `simulate`.

The manifests are changed by code of this module, which knows nothing of what-if. The answer is
applied to the placements of a simulation of the manifests as they were.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from stowplan.forecast.cluster import QueryableCluster
from stowplan.forecast.what_if.loaded_cluster import LoadedCluster
from stowplan.forecast.what_if.questions import WhatIfOptions
from stowplan.insight.what_if import node_changes
from stowplan.insight.what_if.result import WhatIf
from stowplan.simulation.simulate import simulate

Tree = dict[str, Any]
Trees = list[Tree]
Asked = dict[str, str]

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
OPTIONS = WhatIfOptions(preemption=False)


# Generated manifests.


def node(name: str, zone: str, rng: random.Random) -> Tree:
    offered = {"cpu": str(rng.choice([4, 8])), "memory": "16Gi", "pods": "12"}
    pool = rng.choice(["small", "large"])
    labels = {HOST: name, ZONE: zone, "stowplan.dev/pool": pool, "disk": rng.choice(["ssd", "hdd"])}
    taints = [{"key": "team", "value": "x", "effect": "NoSchedule"}] if rng.random() < 0.2 else []
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints},
        "status": {"allocatable": offered, "capacity": offered},
    }


def pod_spec(app: str, rng: random.Random) -> Tree:
    requests = {"cpu": f"{rng.choice([500, 1000, 1500])}m", "memory": "1Gi"}
    spec: Tree = {"containers": [{"name": "c", "image": "x", "resources": {"requests": requests}}]}
    selector = {"matchLabels": {"app": app}}
    draw = rng.random()
    if draw < 0.2:
        term = {"topologyKey": HOST, "labelSelector": selector}
        key = "requiredDuringSchedulingIgnoredDuringExecution"
        spec["affinity"] = {"podAntiAffinity": {key: [term]}}
    elif draw < 0.4:
        spread = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
        spec["topologySpreadConstraints"] = [{**spread, "labelSelector": selector}]
    elif draw < 0.5:
        spec["nodeSelector"] = {"disk": "ssd"}
    if rng.random() < 0.3:
        spec["tolerations"] = [{"key": "team", "operator": "Exists"}]
    return spec


def deployment(app: str, replicas: int, rng: random.Random) -> Tree:
    labels = {"app": app}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": app, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod_spec(app, rng)},
        },
    }


def bound(name: str, on: str, owner: str, rng: random.Random) -> Tree:
    app = owner or "bare"
    meta: Tree = {"name": name, "namespace": "default", "labels": {"app": app}}
    if owner:
        meta["ownerReferences"] = [
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": f"{owner}-rs",
                "controller": True,
            }
        ]
    if rng.random() < 0.5:
        meta["creationTimestamp"] = f"2026-01-01T00:00:{rng.randrange(60):02}Z"
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"nodeName": on}}


def manifests(rng: random.Random) -> Trees:
    zones = ["a", "b", "c"][: rng.choice([2, 3])]
    nodes = [node(f"n{i}", rng.choice(zones), rng) for i in range(rng.randrange(3, 8))]
    running = {app: pod_spec(app, rng) for app in ("r0", "r1", "")}
    pods = []
    for index in range(rng.randrange(2, 14)):
        owner = rng.choice(list(running))
        on = rng.choice(nodes)["metadata"]["name"]
        one = bound(f"p{index}", on, owner, rng)
        one["spec"] |= copy.deepcopy(running[owner])
        pods.append(one)
    waiting = [deployment(f"d{i}", rng.randrange(1, 7), rng) for i in range(rng.randrange(1, 4))]
    return [*nodes, *pods, *waiting]


def of_kind(trees: Trees, kind: str) -> Trees:
    return [tree for tree in trees if tree["kind"] == kind]


def named(trees: Trees, kind: str, name: str) -> Tree:
    return next(tree for tree in of_kind(trees, kind) if tree["metadata"]["name"] == name)


# Changes by hand.


def leave(trees: Trees, nodes: set[str]) -> None:
    """The pods of these nodes are deleted, and created again at the end by their owners."""
    leaving = [p for p in of_kind(trees, "Pod") if p["spec"].get("nodeName") in nodes]
    owners = [json.dumps(p["metadata"].get("ownerReferences", p["metadata"])) for p in leaving]
    first = {owner: owners.index(owner) for owner in owners}
    order = sorted(range(len(leaving)), key=lambda at: (first[owners[at]], at))
    for pod in leaving:
        trees.remove(pod)
    for at in order:
        pod = leaving[at]
        if "ownerReferences" in pod["metadata"]:
            del pod["spec"]["nodeName"]
            pod["metadata"].pop("creationTimestamp", None)
            trees.append(pod)


def drain(trees: Trees, text: str) -> None:
    in_zone = [n for n in of_kind(trees, "Node") if n["metadata"]["labels"][ZONE] == text]
    # A change names nodes of the cluster as it was, not those that another change adds.
    nodes = [one for one in in_zone if "-new-" not in one["metadata"]["name"]]
    for one in nodes:
        one["spec"]["unschedulable"] = True
    leave(trees, {one["metadata"]["name"] for one in nodes})


def remove_node(trees: Trees, text: str) -> None:
    pods = [p for p in of_kind(trees, "Pod") if p["spec"].get("nodeName") == text]
    trees.remove(named(trees, "Node", text))
    # In their order: nobody evicts them one by one.
    for pod in pods:
        trees.remove(pod)
        if "ownerReferences" in pod["metadata"]:
            del pod["spec"]["nodeName"]
            pod["metadata"].pop("creationTimestamp", None)
            trees.append(pod)


def cordon(trees: Trees, text: str) -> None:
    named(trees, "Node", text)["spec"]["unschedulable"] = True


def taint(trees: Trees, text: str) -> None:
    name = text.partition("=")[0]
    new = {"key": "k", "value": "v", "effect": "NoSchedule"}
    named(trees, "Node", name)["spec"]["taints"].append(new)


def label(trees: Trees, text: str) -> None:
    name, key, value = text.split("=")
    named(trees, "Node", name)["metadata"]["labels"][key] = value


def scale(trees: Trees, text: str) -> None:
    name, _, number = text.removeprefix("deploy/").partition("=")
    named(trees, "Deployment", name)["spec"]["replicas"] = int(number)


def delete(trees: Trees, text: str) -> None:
    trees.remove(named(trees, "Deployment", text.removeprefix("deploy/")))


def add_nodes(trees: Trees, text: str) -> None:
    """New nodes like those of the pool in turn, after the other nodes."""
    pool, _, number = text.partition("=")
    members = [
        n for n in of_kind(trees, "Node") if n["metadata"]["labels"]["stowplan.dev/pool"] == pool
    ]
    kinds: dict[str, Tree] = {}
    for one in [one for one in members if not one.get("leaves")] or members:
        labels = {k: v for k, v in one["metadata"]["labels"].items() if k != HOST}
        content = json.dumps([labels, one["spec"]["taints"], one["status"]], sort_keys=True)
        kinds.setdefault(content, one)
    patterns = list(kinds.values())
    counts: dict[str, int] = {}
    at = max(index for index, tree in enumerate(trees) if tree["kind"] == "Node") + 1
    for index in range(int(number)):
        pattern = patterns[index % len(patterns)]
        name = pattern["metadata"]["name"]
        counts[name] = counts.get(name, 0) + 1
        new = copy.deepcopy(pattern)
        new.pop("leaves", None)
        new["metadata"]["name"] = f"{name}-new-{counts[name]}"
        new["metadata"]["labels"][HOST] = new["metadata"]["name"]
        trees.insert(at + index, new)


def mark_leaving(trees: Trees, by_kind: Asked) -> None:
    """Mark the nodes that other changes cordon, drain or remove: new ones are not like them."""
    for one in of_kind(trees, "Node"):
        name, zone = one["metadata"]["name"], one["metadata"]["labels"][ZONE]
        gone = (by_kind.get("cordon"), by_kind.get("remove-node"))
        one["leaves"] = name in gone or zone == by_kind.get("drain")


def submit(trees: Trees, text: str) -> None:
    trees += json.loads(Path(text).read_text())["items"]


BY_HAND: dict[str, Callable[[Trees, str], None]] = {
    "add-nodes": add_nodes,
    "label": label,
    "taint": taint,
    "cordon": cordon,
    "scale": scale,
    "delete": delete,
    "submit": submit,
    "drain": drain,
    "remove-node": remove_node,
}
"""In the order in which they apply."""


def asked(trees: Trees, rng: random.Random, folder: Path) -> list[Asked]:
    """One to three changes that do not contradict each other."""
    nodes = of_kind(trees, "Node")
    names = [one["metadata"]["name"] for one in nodes]
    rng.shuffle(names)
    zones = sorted({one["metadata"]["labels"][ZONE] for one in nodes})
    pools = sorted({one["metadata"]["labels"]["stowplan.dev/pool"] for one in nodes})
    apps = [one["metadata"]["name"] for one in of_kind(trees, "Deployment")]
    rng.shuffle(apps)
    file = folder / "new.json"
    new = deployment("new", rng.randrange(1, 5), rng)
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [new]}))
    texts = {
        "drain": rng.choice(zones),
        "cordon": names[0],
        "taint": f"{names[1]}=k=v:NoSchedule",
        "label": f"{names[2]}=disk={rng.choice(['ssd', 'hdd'])}",
        "scale": f"deploy/{apps[0]}={rng.randrange(9)}",
        "submit": str(file),
        "add-nodes": f"{rng.choice(pools)}={rng.randrange(1, 4)}",
    }
    if len(apps) > 1:
        texts["delete"] = f"deploy/{apps[1]}"
    chosen = rng.sample(sorted(texts), k=rng.randrange(1, 4))
    if rng.random() < 0.25 and "drain" not in chosen:
        named_nodes = {names[0], names[1], names[2]}
        rest = [name for name in names if name not in named_nodes]
        if rest:
            return [{kind: texts[kind]} for kind in chosen] + [{"remove-node": rest[0]}]
    return [{kind: texts[kind]} for kind in chosen]


# The comparison.


def write(folder: Path, name: str, trees: Trees) -> Path:
    path = folder / name
    items = [{k: v for k, v in tree.items() if k != "leaves"} for tree in trees]
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return path


def simulated(path: Path) -> dict[str, str]:
    cluster = QueryableCluster.from_files(path, validate="ignore")
    return {one.pod: one.node for one in simulate(cluster).placements}


def after_answer(before: dict[str, str], found: WhatIf) -> dict[str, str]:
    """Pod -> node, of the pods that are pending before they are decided on the changed cluster."""
    nodes = dict(before)
    for one in found.pods:
        if one.effect in ("deleted", "lost"):
            nodes.pop(one.pod, None)
        else:
            nodes[one.pod] = one.target
    return nodes


def check(seed: int, folder: Path) -> None:
    """Three questions about one loaded cluster, each against manifests changed by hand."""
    rng = random.Random(seed)
    trees = manifests(rng)
    path = write(folder, "before.json", trees)
    cluster = QueryableCluster.from_files(path, validate="ignore")
    before = simulated(path)
    for round_ in range(3):
        changes = asked(trees, rng, folder)
        changed = copy.deepcopy(trees)
        by_kind = {kind: text for one in changes for kind, text in one.items()}
        mark_leaving(changed, by_kind)
        for kind, change in BY_HAND.items():
            if kind in by_kind:
                change(changed, by_kind[kind])
        expected = simulated(write(folder, "after.json", changed))
        found = after_answer(before, cluster.what_if(changes, options=OPTIONS))
        assert found == expected, (seed, round_, changes)


def check_all(seeds: Iterable[int], folder: Path) -> None:
    for seed in seeds:
        check(seed, folder)


@pytest.mark.parametrize("seed", range(25))
def test_the_answer_is_that_of_changed_manifests(seed: int, tmp_path: Path) -> None:
    check(seed, tmp_path)


@pytest.mark.soak
def test_the_answer_is_that_of_changed_manifests_in_full(tmp_path: Path) -> None:
    check_all(range(25, 2000), tmp_path)


def test_control_drained_nodes_that_take_pods_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_changes, "cordoned", lambda node: node)
    with pytest.raises(AssertionError):
        check_all(range(25), tmp_path)


def test_control_ties_that_go_on_from_the_side_before_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide = LoadedCluster.decide

    def goes_on(self: LoadedCluster, *given: Any) -> Any:
        if self.n_loads:
            self._rng_state = self._run_rng.bit_generator.state
        return decide(self, *given)

    monkeypatch.setattr(LoadedCluster, "decide", goes_on)
    with pytest.raises(AssertionError):
        check_all(range(25), tmp_path)
