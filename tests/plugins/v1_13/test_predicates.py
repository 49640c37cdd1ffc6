"""The predicates of 1.13: what they refuse, with which words, and whether evictions may help."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from msgspec.structs import replace

from stowplan.framework import CycleState
from stowplan.objects.encoding.json_codec import convert
from stowplan.objects.node import Node, NodeCondition, NodeStatus
from stowplan.objects.pod import Pod
from stowplan.objects.workload import Service
from stowplan.plugins.v1_13.node_label import CheckNodeLabelPresence
from stowplan.plugins.v1_13.predicates.check_node_condition import (
    NETWORK_UNAVAILABLE,
    NODE_UNSCHEDULABLE,
    NOT_READY,
    OUT_OF_DISK,
    CheckNodeCondition,
    CheckNodeDiskPressure,
    CheckNodeMemoryPressure,
    CheckNodeUnschedulable,
)
from stowplan.plugins.v1_13.predicates.check_service_affinity import CheckServiceAffinity
from stowplan.plugins.v1_13.predicates.general_predicates import (
    GeneralPredicates,
    HostName,
    PodFitsHostPorts,
)
from stowplan.plugins.v1_13.predicates.match_inter_pod_affinity import (
    NO_MATCH,
    MatchInterPodAffinity,
)
from stowplan.plugins.v1_13.predicates.match_node_selector import MatchNodeSelector
from stowplan.plugins.v1_13.predicates.no_disk_conflict import NoDiskConflict
from stowplan.plugins.v1_13.predicates.pod_fits_resources import PodFitsResources
from stowplan.plugins.v1_13.taint_toleration import PodToleratesNodeTaints
from stowplan.testing import affinity, node, pod, term
from tests.plugins.v1_13.ask import Rule

HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
GPU = "example.com/gpu"


def tree(kind: type[Any], **fields: Any) -> Any:
    return convert(fields, kind)


def with_volumes(name: str, on: str = "", **source: Any) -> Pod:
    spec = {"nodeName": on, "containers": [{}], "volumes": [{"name": "v", **source}]}
    return tree(Pod, metadata={"name": name}, spec=spec)


# Resources.


def test_all_that_is_short_is_named_in_order() -> None:
    nodes = [node("n", cpu="1", memory="1Gi", pods=0, resources={"b.c/x": "1"})]
    asks = pod("p", cpu="2", memory="2Gi", resources={"b.c/x": "2", "a.c/y": "1"})
    assert Rule(PodFitsResources, nodes).refusals(asks) == {
        "n": [
            "Insufficient pods",
            "Insufficient cpu",
            "Insufficient memory",
            "Insufficient a.c/y",
            "Insufficient b.c/x",
        ]
    }


def test_a_pod_that_asks_for_nothing_needs_a_slot_only() -> None:
    full = pod("full", on="n", cpu="2", memory="1Gi")
    rule = Rule(PodFitsResources, [node("n", cpu="1", memory="1Gi", pods=2)], [full])
    assert rule.refusals(pod("p")) == {}
    # Asking for anything, even none of something, it needs a node that is not overcommitted.
    assert rule.refusals(pod("p", resources={GPU: "0"})) == {"n": ["Insufficient cpu"]}


def test_what_an_extender_looks_after_is_left_to_it() -> None:
    rule = Rule(PodFitsResources, [node("n")], ignoredResources=[GPU, "cpu"])
    assert rule.refusals(pod("p", resources={GPU: "5"})) == {}
    assert rule.refusals(pod("p", cpu="9")) == {"n": ["Insufficient cpu"]}


# All in one.


def test_general_predicates_name_everything_and_say_whether_evictions_may_help() -> None:
    holder = pod("holder", on="n", ports=[80])
    rule = Rule(GeneralPredicates, [node("n", cpu="1"), node("m")], [holder])
    asks = pod("p", cpu="2", ports=[80], node_selector={"disk": "ssd"})
    elsewhere = replace(asks, spec=replace(asks.spec, node_name="m"))
    assert rule.refusals(elsewhere) == {
        "n": [
            "Insufficient cpu",
            "node(s) didn't match the requested hostname",
            "node(s) didn't have free ports for the requested pod ports",
            "node(s) didn't match node selector",
        ],
        "m": ["node(s) didn't match node selector"],
    }
    assert rule.codes(elsewhere) == {"UnschedulableAndUnresolvable"}
    assert rule.codes(pod("p", cpu="2", ports=[80])) == {"Unschedulable"}


def test_the_parts_alone() -> None:
    nodes = [node("n"), node("m", labels={"disk": "ssd"})]
    holder = pod("holder", on="m", ports=["10.0.0.1:80"])
    asks = pod("p", ports=[80], node_selector={"disk": "ssd"})
    there = replace(asks, spec=replace(asks.spec, node_name="n"))
    assert Rule(HostName, nodes).refusals(there) == {"m": list(HostName.REJECTED.reasons)}
    assert Rule(PodFitsHostPorts, nodes, [holder]).refusals(asks).keys() == {"m"}
    assert Rule(MatchNodeSelector, nodes).refusals(asks).keys() == {"n"}


def test_a_malformed_node_selector_takes_every_node() -> None:
    asks = pod("p", node_selector={"disk": "no such value!", "zone": "a"})
    assert Rule(MatchNodeSelector, [node("n")]).refusals(asks) == {}


# What nodes say of themselves.


def telling(name: str, *conditions: str, cordoned: bool = False) -> Node:
    parsed = tuple(NodeCondition(*text.split("=")) for text in conditions)
    return replace(node(name, cordoned=cordoned), status=NodeStatus(conditions=parsed))


def test_conditions_are_named_in_their_order() -> None:
    nodes = [
        telling("well", "Ready=True", "OutOfDisk=False", "NetworkUnavailable=False"),
        telling("ill", "NetworkUnavailable=Unknown", "Ready=False", "OutOfDisk=True"),
        telling("shut", "Ready=True", cordoned=True),
        telling("mute"),
    ]
    assert Rule(CheckNodeCondition, nodes).refusals(pod("p")) == {
        "ill": [NETWORK_UNAVAILABLE, NOT_READY, OUT_OF_DISK],
        "shut": [NODE_UNSCHEDULABLE],
    }


def test_pressure_counts_as_last_reported_and_memory_for_best_effort_pods_only() -> None:
    nodes = [
        telling("n", "MemoryPressure=True", "DiskPressure=True"),
        telling("m", "MemoryPressure=True", "MemoryPressure=False"),
    ]
    assert Rule(CheckNodeMemoryPressure, nodes).refusals(pod("p")).keys() == {"n"}
    assert Rule(CheckNodeMemoryPressure, nodes).refusals(pod("p", cpu="1")) == {}
    assert Rule(CheckNodeMemoryPressure, nodes).refusals(pod("p", cpu="0")).keys() == {"n"}
    assert Rule(CheckNodeDiskPressure, nodes).refusals(pod("p", cpu="1")).keys() == {"n"}


def test_cordons_and_taints() -> None:
    nodes = [node("shut", cordoned=True), node("hard", taints=["a=b:NoSchedule"])]
    soft = node("soft", taints=["a=b:PreferNoSchedule"])
    strange = pod("p", tolerations=["node.kubernetes.io/unschedulable", "a=c"])
    assert Rule(CheckNodeUnschedulable, nodes).refusals(pod("p")) == {"shut": [NODE_UNSCHEDULABLE]}
    assert Rule(CheckNodeUnschedulable, nodes).refusals(strange) == {}
    refused = Rule(PodToleratesNodeTaints, [*nodes, soft]).refusals(strange)
    assert refused == {"hard": ["node(s) had taints that the pod didn't tolerate"]}


@pytest.mark.parametrize(
    ("presence", "refused"), [(True, {"none", "one"}), (False, {"one", "both"})]
)
def test_labels_are_all_there_or_none_is(presence: bool, refused: set[str]) -> None:
    nodes = [node("none"), node("one", labels={"a": ""}), node("both", labels={"a": "1", "b": "2"})]
    rule = Rule(CheckNodeLabelPresence, nodes, labels=["a", "b"], presence=presence)
    assert rule.refusals(pod("p")).keys() == refused


# Disks.


def test_disks_in_use() -> None:
    disk = {"gcePersistentDisk": {"pdName": "d", "readOnly": True}}
    written = {"gcePersistentDisk": {"pdName": "d"}}
    rule = Rule(NoDiskConflict, [node("n"), node("m")], [with_volumes("q", "n", **disk)])
    assert rule.refusals(with_volumes("p", **disk)) == {}
    assert rule.refusals(with_volumes("p", **written)) == {"n": ["node(s) had no available disk"]}
    assert rule.refusals(pod("p")) == {}


# Pods near and far.


def near(*terms: Any) -> Any:
    return affinity(near=list(terms))


def test_the_first_of_its_kind_goes_anywhere_even_without_the_label() -> None:
    nodes = [node("n", zone="a"), node("bare")]
    asks = pod("p", labels={"app": "web"}, affinity=near(term("app=web", ZONE)))
    assert Rule(MatchInterPodAffinity, nodes).refusals(asks) == {}
    friend = pod("q", on="n", labels={"app": "web"})
    assert Rule(MatchInterPodAffinity, nodes, [friend]).refusals(asks) == {
        "bare": [NO_MATCH, "node(s) didn't match pod affinity rules"]
    }
    # One that does not match its own terms waits for somebody else.
    alone = pod("p", affinity=near(term("app=web", ZONE)))
    assert Rule(MatchInterPodAffinity, nodes).refusals(alone).keys() == {"n", "bare"}


def test_terms_of_placed_pods_are_looked_at_first() -> None:
    hermit = pod("q", on="n", labels={"app": "web"}, affinity=affinity(apart=[term("app", ZONE)]))
    nodes = [node("n", zone="a"), node("m", zone="a"), node("o", zone="b")]
    required = affinity(apart=[term("app=web", HOST)])
    rule = Rule(MatchInterPodAffinity, nodes, [hermit])
    existing = [NO_MATCH, "node(s) didn't satisfy existing pods anti-affinity rules"]
    asks = pod("p", labels={"app": "x"}, affinity=required)
    assert rule.refusals(asks) == {"n": existing, "m": existing}
    own = [NO_MATCH, "node(s) didn't match pod anti-affinity rules"]
    assert rule.refusals(pod("p", affinity=required)) == {"n": own}
    assert rule.codes(asks) == {"Unschedulable"}


def test_several_terms_may_be_met_by_several_pods_that_match_all_of_them() -> None:
    nodes = [node("n", zone="a"), node("m", zone="a"), node("o", zone="b")]
    friends = [pod("q", on="n", labels={"app": "web"})]
    asks = pod("p", affinity=near(term("app=web", ZONE), term("app", HOST)))
    refused = Rule(MatchInterPodAffinity, nodes, friends).refusals(asks)
    assert refused.keys() == {"m", "o"}


def malformed(kind: str, group: str) -> dict[str, Any]:
    selector = {"matchExpressions": [{"key": "a", "operator": "Is"}]}
    stated = {"labelSelector": selector, "topologyKey": HOST}
    return {kind: {f"{group}DuringSchedulingIgnoredDuringExecution": [stated]}}


def wishing(name: str, required: dict[str, Any], on: str = "") -> Pod:
    spec = {"nodeName": on, "containers": [{}], "affinity": required}
    return tree(Pod, metadata={"name": name}, spec=spec)


def test_malformed_terms() -> None:
    nodes, other = [node("n")], pod("q", on="n")
    ill = wishing("q", malformed("podAntiAffinity", "required"), "n")
    found = Rule(MatchInterPodAffinity, nodes, [ill]).refusals(pod("p"))
    assert found["n"][0] == "error"
    assert "not a valid" in found["n"][1]
    asks = wishing("p", malformed("podAffinity", "required"))
    assert Rule(MatchInterPodAffinity, nodes, [other]).refusals(asks)["n"][0] == "error"
    assert Rule(MatchInterPodAffinity, nodes).refusals(asks)["n"][0] == NO_MATCH
    avoids = wishing("p", malformed("podAntiAffinity", "required"))
    assert Rule(MatchInterPodAffinity, nodes).refusals(avoids) == {}
    refused = Rule(MatchInterPodAffinity, nodes, [other]).refusals(avoids)
    assert refused == {"n": [NO_MATCH, "node(s) didn't match pod anti-affinity rules"]}


# Services.


def aged(one: Pod, days: int) -> Pod:
    when = datetime.datetime(2019, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(days)
    return replace(one, metadata=replace(one.metadata, creation_timestamp=when))


def service(**selector: str) -> Service:
    return tree(Service, metadata={"name": "s"}, spec={"selector": selector})


RACKS = [node("n", labels={"rack": "1"}), node("m", labels={"rack": "2"}), node("o")]
OLD = aged(pod("old", on="m", labels={"app": "web"}), 1)
YOUNG = aged(pod("young", on="n", labels={"app": "web"}), 2)


def test_the_oldest_peer_decides_where_a_service_goes() -> None:
    asks = pod("p", labels={"app": "web"})
    rule = Rule(CheckServiceAffinity, RACKS, [YOUNG, OLD], [service(app="web")], labels=["rack"])
    assert rule.refusals(asks) == {
        "n": ["node(s) didn't match service affinity"],
        "o": ["node(s) didn't match service affinity"],
    }
    # What the pod pins itself needs no peer, and without a service nobody is asked.
    pinned = pod("p", labels={"app": "web"}, node_selector={"rack": "1"})
    assert rule.refusals(pinned).keys() == {"m", "o"}
    without = Rule(CheckServiceAffinity, RACKS, [YOUNG, OLD], labels=["rack"])
    assert without.refusals(asks) == {}


def test_a_peer_that_leaves_is_asked_no_more() -> None:
    rule = Rule(CheckServiceAffinity, RACKS, [YOUNG, OLD], [service(app="web")], labels=["rack"])
    asks, walk, nodes = pod("p", labels={"app": "web"}), rule.walks[0], rule.snapshot.nodes
    state = CycleState()
    walk.run_pre_filter(asks, rule.snapshot, state)
    there = nodes.info(nodes.row("m"))
    what_if = state.clone()
    walk.run_remove_pod(asks, there.pods[0], there, what_if)
    assert walk.filter_node(asks, nodes.info(nodes.row("n")), what_if).is_success
    walk.run_remove_pod(asks, nodes.info(nodes.row("n")).pods[0], there, what_if)
    walk.run_add_pod(asks, there.pods[0], there, what_if)
    assert not walk.filter_node(asks, nodes.info(nodes.row("n")), what_if).is_success
    assert not walk.filter_node(asks, nodes.info(nodes.row("n")), state).is_success
