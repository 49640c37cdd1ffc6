"""Capacity on small generated clusters, against brute force and by replaying plans.

What fits is computed from the manifests by code of the tests alone.
"""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stowplan.forecast.capacity import capacity, compact, fit_nodes, trial_frameworks
from stowplan.inputs.cluster_reader import Cluster, read_cluster
from stowplan.insight.capacity import bounds
from stowplan.insight.capacity.compact import CompactPlan, DrainStep, Move
from stowplan.insight.capacity.node_fit import NodeFit
from stowplan.objects.quantity import amount
from stowplan.simulation.scheduler_configuration import read_deciders
from stowplan.simulation.simulate import fill_of
from tests.soak import examples

Tree = dict[str, Any]
RESOURCES = ("cpu", "memory", "pods")
QUIET = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
TAINT = {"key": "team", "value": "a", "effect": "NoSchedule"}


def read(manifests: list[Tree], folder: Path) -> Cluster:
    path = folder / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests}))
    return read_cluster(path, validate="ignore")


def write(manifests: list[Tree], folder: Path) -> Path:
    path = folder / "workload.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests}))
    return path


def node(name: str, cpu: str, memory: str, pool: str, **spec: Any) -> Tree:
    offered = {"cpu": cpu, "memory": memory, "pods": spec.pop("pods", "110")}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"stowplan.dev/pool": pool, "disk": pool}},
        "spec": spec,
        "status": {"allocatable": offered, "capacity": offered},
    }


def pod(name: str, cpu: str, memory: str, home: str = "", owner: str = "", app: str = "w") -> Tree:
    spec: Tree = {
        "containers": [
            {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
        ]
    }
    if home:
        spec["nodeName"] = home
    meta: Tree = {"name": name, "namespace": "default", "uid": name, "labels": {"app": app}}
    if owner:
        kind = "DaemonSet" if owner == "agent" else "ReplicaSet"
        meta["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": owner, "controller": True}
        ]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def asked(one: Tree) -> Counter[str]:
    found: Counter[str] = Counter(pods=1)
    for container in one["spec"]["containers"]:
        for name, quantity in container["resources"]["requests"].items():
            found[name] += amount(name, quantity)
    return found


def offered(one: Tree) -> Counter[str]:
    return Counter({name: amount(name, q) for name, q in one["status"]["allocatable"].items()})


def of_kind(manifests: list[Tree], kind: str) -> list[Tree]:
    return [one for one in manifests if one["kind"] == kind]


def accepts(one: Tree, wanted: Tree) -> bool:
    """Taints, cordons and the node selector."""
    tolerated = [t.get("key") for t in wanted["spec"].get("tolerations", [])]
    if one["spec"].get("unschedulable"):
        return False
    if any(taint["key"] not in tolerated for taint in one["spec"].get("taints", [])):
        return False
    chosen = wanted["spec"].get("nodeSelector", {}).items()
    return all(one["metadata"]["labels"].get(key) == value for key, value in chosen)


def free_on(manifests: list[Tree], name: str) -> Counter[str]:
    (one,) = [n for n in of_kind(manifests, "Node") if n["metadata"]["name"] == name]
    left = offered(one)
    for other in of_kind(manifests, "Pod"):
        if other["spec"].get("nodeName") == name:
            left.subtract(asked(other))
    return left


# How many more fit.


@st.composite
def clusters(draw: st.DrawFn) -> list[Tree]:
    found = []
    for number in range(draw(st.integers(1, 4))):
        spec: Tree = {"pods": draw(st.sampled_from(["3", "110"]))}
        if draw(st.integers(0, 3)) == 0:
            spec["taints"] = [TAINT]
        if draw(st.integers(0, 4)) == 0:
            spec["unschedulable"] = True
        cpu, memory = draw(st.sampled_from(["2", "5"])), draw(st.sampled_from(["2Gi", "9Gi"]))
        found.append(node(f"n{number}", cpu, memory, draw(st.sampled_from("ab")), **spec))
    for number in range(draw(st.integers(0, 4))):
        home = draw(st.sampled_from([one["metadata"]["name"] for one in of_kind(found, "Node")]))
        cpu, memory = draw(st.sampled_from(["500m", "1"])), draw(st.sampled_from(["256Mi", "1Gi"]))
        one = pod(f"b{number}", cpu, memory, home)
        if all(left >= asked(one)[name] for name, left in free_on(found, home).items()):
            found.append(one)
    return found


@st.composite
def wanted_pods(draw: st.DrawFn) -> Tree:
    cpu = draw(st.sampled_from(["300m", "700m", "1", "3"]))
    one = pod("w", cpu, draw(st.sampled_from(["100Mi", "1Gi", "4Gi"])))
    if draw(st.integers(0, 3)) == 0:
        one["spec"]["tolerations"] = [{"key": "team", "operator": "Exists"}]
    if draw(st.integers(0, 3)) == 0:
        one["spec"]["nodeSelector"] = {"disk": "a"}
    return one


def fits_by_hand(manifests: list[Tree], wanted: Tree) -> int:
    needs = asked(wanted)
    total = 0
    for one in of_kind(manifests, "Node"):
        if accepts(one, wanted):
            left = free_on(manifests, one["metadata"]["name"])
            total += min(left[name] // needs[name] for name in RESOURCES)
    return total


def divided(manifests: list[Tree], wanted: Tree) -> int:
    """The wrong variant: what is free on all nodes together, divided."""
    needs = asked(wanted)
    free: Counter[str] = Counter()
    for one in of_kind(manifests, "Node"):
        if accepts(one, wanted):
            free.update(free_on(manifests, one["metadata"]["name"]))
    return min(free[name] // needs[name] for name in RESOURCES)


@given(manifests=clusters(), wanted=wanted_pods())
@settings(QUIET, max_examples=examples(25))
def test_as_many_pods_fit_as_by_hand(manifests: list[Tree], wanted: Tree, tmp_path: Path) -> None:
    found = capacity(write([wanted], tmp_path), read(manifests, tmp_path))
    assert found.units[0].count == fits_by_hand(manifests, wanted)
    assert sum(found.units[0].nodes.values()) == sum(found.units[0].pools.values())
    if found.units[0].count == 0:
        assert found.units[0].reasons


@given(manifests=clusters(), wanted=wanted_pods(), least=st.integers(2, 4))
@settings(QUIET, max_examples=examples(12))
def test_as_many_gangs_fit_as_by_hand(
    manifests: list[Tree], wanted: Tree, least: int, tmp_path: Path
) -> None:
    group = {
        "apiVersion": "scheduling.incubator.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "default"},
        "spec": {"minMember": least},
    }
    members = []
    for number in range(least):
        member = copy.deepcopy(wanted)
        member["metadata"] |= {"name": f"w{number}", "uid": f"w{number}"}
        member["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": "g"}
        members.append(member)
    found = capacity(write([group, *members], tmp_path), read(manifests, tmp_path))
    (unit,) = found.units
    assert (unit.kind, unit.pods_per_unit) == ("gang", least)
    assert unit.count == fits_by_hand(manifests, wanted) // least


def test_control_division_is_caught(tmp_path: Path) -> None:
    manifests = [node(f"n{i}", "5", "9Gi", "a") for i in range(3)]
    wanted = pod("w", "3", "1Gi")
    assert divided(manifests, wanted) == 5
    found = capacity(write([wanted], tmp_path), read(manifests, tmp_path))
    assert found.units[0].count == fits_by_hand(manifests, wanted) == 3


# The fewest nodes.

POOLS = {"small": ("2", "4Gi"), "large": ("7", "9Gi")}


def pool_nodes() -> list[Tree]:
    return [node(f"{name}-0", cpu, memory, name) for name, (cpu, memory) in POOLS.items()]


@st.composite
def workloads(draw: st.DrawFn) -> list[Tree]:
    found = []
    for number in range(draw(st.integers(1, 6))):
        cpu = draw(st.sampled_from(["500m", "1", "1500m", "2", "4"]))
        found.append(pod(f"w{number}", cpu, draw(st.sampled_from(["512Mi", "2Gi", "3Gi", "5Gi"]))))
    return found


def least_cost(pods: list[Tree], prices: dict[str, float]) -> float:
    """The cost of the cheapest nodes into which the pods can be packed, by trying all."""
    needs = sorted((tuple(asked(one)[name] for name in RESOURCES) for one in pods), reverse=True)
    shapes = {name: tuple(offered(node("n", *POOLS[name], name)).values()) for name in prices}

    @cache
    def cheapest(at: int, rooms: tuple[tuple[int, ...], ...]) -> float:
        if at == len(needs):
            return 0.0
        best = float("inf")
        for i, room in enumerate(rooms):
            if all(n <= r for n, r in zip(needs[at], room, strict=True)):
                best = min(best, cheapest(at + 1, without(rooms, i, room, needs[at])))
        for name, shape in shapes.items():
            if all(n <= r for n, r in zip(needs[at], shape, strict=True)):
                added = without((*rooms, shape), len(rooms), shape, needs[at])
                best = min(best, prices[name] + cheapest(at + 1, added))
        return best

    return cheapest(0, ())


def without(
    rooms: tuple[tuple[int, ...], ...], i: int, room: tuple[int, ...], need: tuple[int, ...]
) -> tuple[tuple[int, ...], ...]:
    left = tuple(r - n for r, n in zip(room, need, strict=True))
    return tuple(sorted([*rooms[:i], left, *rooms[i + 1 :]]))


def all_run(pods: list[Tree], counts: dict[str, int], folder: Path) -> bool:
    """Whether a placement run, with nothing of the search, places all pods on these nodes."""
    nodes = [
        node(f"{name}-{i}", *POOLS[name], name) for name, n in counts.items() for i in range(n)
    ]
    if not nodes:
        return False
    cluster = read([*nodes, *pods], folder)
    deciders = read_deciders()
    run = fill_of(cluster, deciders.configuration, deciders.registry, None)
    return all(one.node for one in run.place_all(cluster.pending(), None))


def check_fit(pods: list[Tree], prices: dict[str, float], folder: Path) -> NodeFit:
    found = fit_nodes(read(pool_nodes(), folder), write(pods, folder), prices=prices)
    least = least_cost(pods, prices)
    if found.unplaceable:
        assert least == float("inf")
        return found
    counts = {one.pool: one.nodes for one in found.pools}
    assert all_run(pods, counts, folder)
    assert sum(one.pods for one in found.pools) == len(pods)
    assert found.lower_bound <= least + 1e-6 <= found.cost + 2e-6
    assert found.is_least
    for mix in cheaper(prices, found.cost):
        assert not all_run(pods, mix, folder), (mix, found)
    return found


def cheaper(prices: dict[str, float], cost: float) -> Iterator[dict[str, int]]:
    ranges = [range(int(cost / price) + 1) for price in prices.values()]
    for numbers in product(*ranges):
        mix = dict(zip(prices, numbers, strict=True))
        if sum(n * prices[name] for name, n in mix.items()) < cost - 1e-6:
            yield mix


@given(
    pods=workloads(),
    prices=st.sampled_from(
        [{"small": 1.0, "large": 1.0}, {"small": 1.0, "large": 3.06}, {"large": 2.0}]
    ),
)
@settings(QUIET, max_examples=examples(10))
def test_no_cheaper_nodes_run_the_workload(
    pods: list[Tree], prices: dict[str, float], tmp_path: Path
) -> None:
    check_fit(pods, prices, tmp_path)


def demand(pods: list[Tree], prices: dict[str, float]) -> bounds.Demand:
    needs = np.array([[asked(one)[name] for name in RESOURCES] for one in pods], dtype=float)
    shapes = [offered(node("n", *POOLS[name], name)) for name in prices]
    offers = np.array([[shape[name] for name in RESOURCES] for shape in shapes], dtype=float)
    fits = (needs[:, None, :] <= offers[None, :, :]).all(axis=2)
    alone = np.zeros(fits.shape)
    return bounds.demand_of([1] * len(pods), needs, offers, alone, fits, list(prices.values()))


def check_bound(pods: list[Tree], prices: dict[str, float]) -> float:
    """The bound is at most what the best packing costs, and no packing is proven impossible."""
    least = least_cost(pods, prices)
    if least == float("inf"):
        return 0.0
    found = bounds.lower_bound(demand(pods, prices)).price
    assert found <= least + 1e-6
    plenty = [len(pods)] * len(prices)
    assert not bounds.is_impossible(demand(pods, prices), plenty)
    return found


@given(pods=workloads(), prices=st.sampled_from([{"small": 1.0, "large": 3.06}, {"large": 2.0}]))
@settings(QUIET, max_examples=examples(20))
def test_no_packing_costs_less_than_the_bound(pods: list[Tree], prices: dict[str, float]) -> None:
    check_bound(pods, prices)


def test_control_a_wrong_bound_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods of exactly a half taken for more than a half: one per node, where two fit."""
    pods = [pod(f"w{i}", "1", "512Mi") for i in range(4)]
    assert check_bound(pods, {"small": 1.0}) == pytest.approx(2.0, rel=0.01)
    right = bounds.demand_of

    def wrong(counts: Any, requests: Any, *others: Any) -> Any:
        return right(counts, requests * (1 + 1e-6), *others)

    monkeypatch.setattr(bounds, "demand_of", wrong)
    with pytest.raises(AssertionError):
        check_bound(pods, {"small": 1.0})


# Nodes to empty.


@st.composite
def running(draw: st.DrawFn) -> list[Tree]:
    found: list[Tree] = []
    n_nodes = draw(st.integers(2, 5))
    for number in range(n_nodes):
        spec: Tree = {}
        if draw(st.integers(0, 4)) == 0:
            spec["taints"] = [TAINT]
        found.append(node(f"n{number}", draw(st.sampled_from(["3", "5"])), "9Gi", "a", **spec))
    for number in range(draw(st.integers(1, 9))):
        home = f"n{draw(st.integers(0, n_nodes - 1))}"
        owner = draw(st.sampled_from(["web", "web", "db", "db", "agent", ""]))
        one = pod(
            f"b{number}", draw(st.sampled_from(["500m", "1", "2"])), "1Gi", home, owner, owner
        )
        if all(left >= asked(one)[name] for name, left in free_on(found, home).items()):
            found.append(one)
    for app in ("web", "db"):
        if draw(st.booleans()):
            limit = draw(
                st.sampled_from(
                    [{"maxUnavailable": 1}, {"minAvailable": 2}, {"minAvailable": "50%"}]
                )
            )
            found.append(
                {
                    "apiVersion": "policy/v1",
                    "kind": "PodDisruptionBudget",
                    "metadata": {"name": app, "namespace": "default"},
                    "spec": {"selector": {"matchLabels": {"app": app}}, **limit},
                }
            )
    return found


def least_healthy(budget: Tree, n_pods: int) -> int:
    spec = budget["spec"]
    if "maxUnavailable" in spec:
        return n_pods - int(spec["maxUnavailable"])
    value = spec["minAvailable"]
    if isinstance(value, str):
        return -(-int(value.removesuffix("%")) * n_pods // 100)
    return int(value)


def replay(manifests: list[Tree], plan: CompactPlan) -> None:
    """Apply a plan to the manifests move by move; fails where a rule is broken."""
    now = copy.deepcopy(manifests)
    emptied = [step.node for step in plan.steps]
    assert len(set(emptied)) == len(emptied)
    for one in of_kind(now, "Node"):
        if one["metadata"]["name"] in emptied:
            one["spec"]["unschedulable"] = True
    by_key = {f"default/{one['metadata']['name']}": one for one in of_kind(now, "Pod")}
    nodes = {one["metadata"]["name"]: one for one in of_kind(now, "Node")}
    for step in plan.steps:
        for move in step.moves:
            moved = by_key[move.pod]
            assert moved["spec"]["nodeName"] == step.node
            (owner,) = moved["metadata"]["ownerReferences"]
            assert owner["kind"] != "DaemonSet"
            for budget in of_kind(now, "PodDisruptionBudget"):
                app = budget["spec"]["selector"]["matchLabels"]["app"]
                alike = [p for p in by_key.values() if p["metadata"]["labels"]["app"] == app]
                if moved in alike:
                    assert len(alike) - 1 >= least_healthy(budget, len(alike)), "budget"
            assert accepts(nodes[move.node], moved), "refused"
            left = free_on(now, move.node)
            assert all(left[name] >= asked(moved)[name] for name in RESOURCES), "full"
            moved["spec"]["nodeName"] = move.node
        stays = [p for p in by_key.values() if p["spec"]["nodeName"] == step.node]
        assert all(p["metadata"]["ownerReferences"][0]["kind"] == "DaemonSet" for p in stays)


@given(manifests=running())
@settings(QUIET, max_examples=examples(25))
def test_a_plan_can_be_followed(manifests: list[Tree], tmp_path: Path) -> None:
    cluster = read(manifests, tmp_path)
    plan = compact(cluster)
    assert plan == compact(cluster)
    replay(manifests, plan)
    named = {step.node for step in plan.steps} | {one.node for one in plan.blockers}
    assert named == {node.name for node in cluster.nodes}


def two_nodes() -> list[Tree]:
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "maxUnavailable": 1},
    }
    return [
        node("n0", "3", "9Gi", "a"),
        node("n1", "5", "9Gi", "a"),
        pod("w0", "2", "1Gi", "n0", "web", "web"),
        pod("w1", "2", "1Gi", "n1", "web", "web"),
        budget,
    ]


def with_move(plan: CompactPlan, home: str) -> CompactPlan:
    step = plan.steps[0]
    moves = tuple(Move(move.pod, home) for move in step.moves)
    changed = DrainStep(step.node, step.pool, step.price, moves, step.commands)
    return CompactPlan(plan.api_version, plan.nodes, plan.saved, (changed,))


def test_control_broken_plans_are_caught(tmp_path: Path) -> None:
    manifests = two_nodes()
    plan = compact(read(manifests, tmp_path))
    assert [step.node for step in plan.steps] == ["n0"]
    replay(manifests, plan)
    with pytest.raises(AssertionError, match="refused"):
        replay(manifests, with_move(plan, "n0"))
    full = [*manifests, pod("x", "2", "1Gi", "n1", "db", "db")]
    with pytest.raises(AssertionError, match="full"):
        replay(full, plan)
    strict = copy.deepcopy(manifests)
    strict[-1]["spec"] = {**strict[-1]["spec"], "maxUnavailable": 0}
    with pytest.raises(AssertionError, match="budget"):
        replay(strict, plan)
    assert not compact(read(strict, tmp_path)).steps


def test_frameworks_of_trials_evict_nothing() -> None:
    frameworks = trial_frameworks(read_deciders())
    assert not any(framework.at("postFilter") for framework in frameworks.values())
