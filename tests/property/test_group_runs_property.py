"""Gangs placed by one kernel call end as those that are placed pod by pod."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from stowplan.cache.cache import CacheError
from stowplan.conformance.pod_groups import pod_group_cases, pod_group_scripts
from stowplan.cycle.engine.row_subsets import RowSubset, SubsetTable
from stowplan.scheduler.pod_groups import group_run
from stowplan.scheduler.pod_groups.group_run import GroupRuns
from tests.conformance.test_pod_groups import with_attempted_pods

N_CASES, N_ALIKE = 25, 8
GATES = {"GenericWorkload": True, "GangScheduling": True}
TOPOLOGY = {**GATES, "TopologyAwareWorkloadScheduling": True}


def random_case(seed: int, gates: dict[str, bool] | None = None) -> bytes:
    """Nodes of a few sizes, gangs that come, partly too large, and other pods between them. gates:
    with TOPOLOGY the gangs have topology constraints."""
    gates = gates or GATES
    rng = np.random.default_rng(seed)

    def one_of(*values: Any) -> Any:
        return values[int(rng.integers(len(values)))]

    nodes = [
        {
            "metadata": {
                "name": f"n{i}",
                "labels": {"kubernetes.io/hostname": f"n{i}", "zone": one_of("a", "b")},
            },
            "status": {
                "allocatable": {"cpu": one_of("2", "4"), "memory": "8Gi", "pods": one_of("3", "9")}
            },
        }
        for i in range(int(rng.integers(2, 7)))
    ]
    groups, steps = [], []
    for number in range(int(rng.integers(1, 5))):
        size = int(rng.integers(1, 6))
        n_min = int(rng.integers(1, size + 1))
        policy = one_of({"gang": {"minCount": n_min}}, {"gang": {"minCount": size}}, {"basic": {}})
        spec_of_group: dict[str, Any] = {"schedulingPolicy": policy}
        if gates is TOPOLOGY:
            key = one_of("zone", "zone", "kubernetes.io/hostname", None, "rack")
            topology = [] if key is None else [{"key": key}]
            spec_of_group["schedulingConstraints"] = {"topology": topology}
        groups.append({"metadata": {"name": f"g{number}"}, "spec": spec_of_group})
        selector = one_of({}, {}, {"nodeSelector": {"zone": "a"}})
        priorities = (0,) if gates is TOPOLOGY and rng.random() < 0.7 else (0, 0, 5)
        cpu = one_of("500m", "1", "2")
        for each in range(size):
            spec: dict[str, Any] = {
                "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
                "priority": one_of(*priorities),
                **selector,
            }
            if rng.random() < 0.1:
                # It counts for the quorum, and is not attempted.
                spec["schedulingGates"] = [{"name": "later"}]
            spec["schedulingGroup"] = {"podGroupName": f"g{number}"}
            steps.append(
                {
                    "op": "addPod",
                    "object": {"metadata": {"name": f"p{number}-{each}"}, "spec": spec},
                }
            )
            if rng.random() < 0.2:
                steps.append({"op": "schedule", "max": 2})
        plain: dict[str, Any] = {
            "containers": [{"name": "c", "resources": {"requests": {"cpu": one_of("1", "2")}}}]
        }
        steps.append(
            {"op": "addPod", "object": {"metadata": {"name": f"s{number}"}, "spec": plain}}
        )
        steps.append({"op": "schedule", "max": 3})
    steps.append({"op": "addNode", "object": {**nodes[0], "metadata": {"name": "late"}}})
    steps += [{"op": "advance", "ms": 20000}, {"op": "schedule", "max": 9}]
    case = {"id": str(seed), "featureGates": gates, "nodes": nodes, "podGroups": groups}
    return json.dumps({**case, "steps": steps}).encode()


def alike_gangs(seed: int) -> bytes:
    """Gangs of one template and size, each in one of few zones, with plain pods between them that
    take and give back room, and some that are spread over the zones together with the gangs."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 4))
    nodes = [
        {
            "metadata": {"name": f"n{i}", "labels": {"zone": "abc"[i % 3]}},
            "status": {"allocatable": {"cpu": str(8 + i % 2), "memory": "8Gi", "pods": "9"}},
        }
        for i in range(int(rng.integers(4, 8)))
    ]
    spec = {
        "schedulingPolicy": {"gang": {"minCount": size}},
        "schedulingConstraints": {"topology": [{"key": "zone"}]},
    }
    spread = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "a"}},
    }
    groups, steps = [], []
    for number in range(6):
        groups.append({"metadata": {"name": f"g{number}"}, "spec": spec})
        for each in range(size):
            member = {
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
                "schedulingGroup": {"podGroupName": f"g{number}"},
            }
            name = {"name": f"p{number}-{each}", "labels": {"app": "a"}}
            steps.append({"op": "addPod", "object": {"metadata": name, "spec": member}})
        plain: dict[str, Any] = {
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "5"}}}],
            "nodeSelector": {"zone": "abc"[int(rng.integers(3))]},
        }
        if rng.random() < 0.5:
            # It counts the members.
            plain["topologySpreadConstraints"] = [spread]
            plain["nodeSelector"] = {}
        name = {"name": f"s{number}", "labels": {"app": "a"}}
        steps.append({"op": "addPod", "object": {"metadata": name, "spec": plain}})
        steps.append({"op": "schedule", "max": 3})
        if number and rng.random() < 0.5:
            steps.append({"op": "deletePod", "key": f"default/s{number - 1}"})
    case = {"id": str(seed), "featureGates": TOPOLOGY, "nodes": nodes, "podGroups": groups}
    return json.dumps({**case, "steps": steps}).encode()


def result(line: bytes, engine: str) -> Any:
    """The answer, in the order-free form of JSON."""
    case = pod_group_cases.read_case(line)
    found = with_attempted_pods(pod_group_scripts.answer(case, "", engine))
    return json.loads(json.dumps(found, sort_keys=True))


def differs(gates: dict[str, bool] = GATES, *, are_alike: bool = False) -> bool:
    cases = (
        alike_gangs(seed) if are_alike else random_case(seed, gates)
        for seed in range(N_ALIKE if are_alike else N_CASES)
    )
    return any(result(line, "auto") != result(line, "walk") for line in cases)


def test_kernels_place_gangs_as_the_walk_does(monkeypatch: pytest.MonkeyPatch) -> None:
    n_placed = []
    bind = GroupRuns.bind

    def counted(self: GroupRuns, *given: Any) -> None:
        n_placed.append(given)
        bind(self, *given)

    monkeypatch.setattr(GroupRuns, "bind", counted)
    assert not differs()
    assert len(n_placed) > N_CASES


@pytest.mark.parametrize("name", ["may_place", "_waiting_members"])
def test_a_wrong_variant_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without the quorum, and without the nominations of those that wait for it.
    monkeypatch.setattr(GroupRuns, name, lambda *_: name == "may_place")
    assert differs()


def test_members_that_are_left_in_the_columns_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    place = GroupRuns.place

    def wrong(self: GroupRuns, records: Any, *given: Any) -> None:
        place(self, records[:1], *given)

    monkeypatch.setattr(GroupRuns, "place", wrong)
    with pytest.raises(CacheError):
        differs()


def test_kernels_choose_the_domain_that_the_walk_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    n_placed = []
    place = GroupRuns._place_in_best

    def counted(self: GroupRuns, *given: Any) -> Any:
        found = place(self, *given)
        n_placed.append(found is not None)
        return found

    monkeypatch.setattr(GroupRuns, "_place_in_best", counted)
    assert not differs(TOPOLOGY)
    assert sum(n_placed) > N_CASES // 3


def test_nodes_of_other_domains_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    made = RowSubset.__init__

    def wrong(self: RowSubset, given: Any, rank: Any) -> None:
        made(self, given, rank)
        self.rows = np.argsort(rank)

    monkeypatch.setattr(RowSubset, "__init__", wrong)
    assert differs(TOPOLOGY)


def test_trials_that_outlive_a_change_of_their_nodes_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert not differs(are_alike=True)
    monkeypatch.setattr(SubsetTable, "follow", lambda _: None)
    assert differs(are_alike=True)


def test_a_domain_that_is_not_the_best_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_run, "best_placement", lambda *_: 0)
    assert differs(TOPOLOGY)
