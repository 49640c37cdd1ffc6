"""The priorities of 1.13: scores from 0 to 10, before and after the reduce."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from stowplan.framework import CycleState, FeatureGates, Framework, PluginUse, Profile, Registry
from stowplan.objects.encoding.json_codec import convert
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.workload import ReplicaSet, ReplicationController, Service, StatefulSet
from stowplan.plugins.priority_sort import PrioritySort
from stowplan.plugins.v1_13.node_label import NodeLabelPriority
from stowplan.plugins.v1_13.priorities.balanced_resource_allocation import (
    BalancedResourceAllocation,
)
from stowplan.plugins.v1_13.priorities.image_locality_priority import ImageLocalityPriority
from stowplan.plugins.v1_13.priorities.inter_pod_affinity_priority import InterPodAffinityPriority
from stowplan.plugins.v1_13.priorities.node_affinity_priority import NodeAffinityPriority
from stowplan.plugins.v1_13.priorities.node_prefer_avoid_pods import (
    ANNOTATION,
    NodePreferAvoidPodsPriority,
)
from stowplan.plugins.v1_13.priorities.resource_priorities import (
    EqualPriority,
    LeastRequestedPriority,
    MostRequestedPriority,
    RequestedToCapacityRatioPriority,
    ResourceLimitsPriority,
)
from stowplan.plugins.v1_13.priorities.selector_spread import (
    SelectorSpreadPriority,
    ServiceSpreadingPriority,
)
from stowplan.plugins.v1_13.priorities.service_anti_affinity import ServiceAntiAffinityPriority
from stowplan.plugins.v1_13.taint_toleration import TaintTolerationPriority
from stowplan.testing import affinity, node, pod, term
from tests.plugins.v1_13.ask import Rule

HOST = "kubernetes.io/hostname"
BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"


def tree(kind: type[Any], **fields: Any) -> Any:
    return convert(fields, kind)


# Resources.


FILL = [node("n", cpu="10", memory="10Gi"), node("tiny", cpu="1", memory="10Gi"), node("odd")]
ASKS = pod("p", cpu="3", memory="1Gi")


def test_least_and_most() -> None:
    nodes = [*FILL[:2], node("none", cpu="0", memory="0")]
    least, most = Rule(LeastRequestedPriority, nodes), Rule(MostRequestedPriority, nodes)
    # 7 and 9 of ten free; what does not fit scores nothing.
    assert least.scores(ASKS) == {"n": 8, "tiny": 4, "none": 0}
    assert most.scores(ASKS) == {"n": 2, "tiny": 0, "none": 0}


@pytest.mark.parametrize(
    ("shape", "score"),
    [
        (None, 8),
        ([(0, 0), (100, 10)], 2),
        # 30 percent lies between 10 and 0: truncated toward zero, also where the line falls.
        ([(20, 10), (90, 3)], 9),
        ([(50, 4)], 4),
        ([(0, 0), (5, 10)], 10),
    ],
)
def test_a_shape_over_utilization(shape: list[tuple[int, int]] | None, score: int) -> None:
    points = [{"utilization": u, "score": s} for u, s in shape or ()]
    args = {"shape": points} if shape else {}
    rule = Rule(RequestedToCapacityRatioPriority, FILL[:1], **args)
    assert rule.scores(ASKS) == {"n": score}


def test_what_does_not_fit_is_as_good_as_full() -> None:
    points = [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
    rule = Rule(RequestedToCapacityRatioPriority, [FILL[1]], shape=points)
    assert rule.scores(ASKS) == {"tiny": 5}


def test_balance() -> None:
    rule = Rule(BalancedResourceAllocation, [*FILL[:2], node("none", cpu="0")])
    assert rule.scores(ASKS) == {"n": 8, "tiny": 0, "none": 0}


def test_limits_break_ties() -> None:
    def limited(**limits: str) -> Pod:
        container = {"resources": {"limits": limits}}
        return tree(Pod, metadata={"name": "p"}, spec={"containers": [container]})

    rule = Rule(ResourceLimitsPriority, FILL[:2])
    assert rule.scores(limited(cpu="2")) == {"n": 1, "tiny": 0}
    assert rule.scores(limited(cpu="20", memory="1Gi")) == {"n": 1, "tiny": 1}
    assert rule.scores(limited()) == {"n": 0, "tiny": 0}
    assert Rule(EqualPriority, FILL[:2]).scores(limited()) == {"n": 1, "tiny": 1}


# Labels, taints, annotations, images.


def preferring(*terms: tuple[int, dict[str, Any]]) -> Pod:
    stated = [{"weight": weight, "preference": preference} for weight, preference in terms]
    preferred = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": stated}}
    return tree(Pod, metadata={"name": "p"}, spec={"containers": [{}], "affinity": preferred})


def on(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


NAMED = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}


def test_node_affinity_looks_at_labels_only() -> None:
    nodes = [node("n", labels={"disk": "ssd", "cores": "8"}), node("m", labels={"disk": "hdd"})]
    asks = preferring((5, on("disk", "In", "ssd")), (2, on("cores", "Gt", "4")), (9, NAMED))
    rule = Rule(NodeAffinityPriority, nodes)
    assert rule.mapped(asks) == {"n": 7, "m": 0}
    assert rule.scores(asks) == {"n": 10, "m": 0}
    both = preferring((5, {**on("disk", "Exists"), **NAMED}), (3, {}))
    assert rule.mapped(both) == {"n": 5, "m": 5}


def test_a_malformed_term_with_a_weight_fails_the_attempt() -> None:
    rule = Rule(NodeAffinityPriority, [node("n")])
    assert "Unsupported value" in rule.failure(preferring((1, on("disk", "Foo", "x"))))
    assert "-5" in rule.failure(preferring((1, on("cores", "Gt", "-5"))))
    assert rule.failure(preferring((0, on("disk", "Foo", "x")))) == ""


def test_all_that_fails_is_named_together() -> None:
    names = (InterPodAffinityPriority, NodeAffinityPriority)
    uses = tuple(PluginUse(plugin.name) for plugin in names)
    points = {"preScore": uses, "score": uses, "queueSort": (PluginUse(PrioritySort.name),)}
    full = Registry([PrioritySort, *names])
    framework = Framework(Profile("test", points), full, FeatureGates())
    selector = {"matchExpressions": [{"key": "a", "operator": "Is"}]}
    near = {"weight": 1, "podAffinityTerm": {"labelSelector": selector, "topologyKey": HOST}}
    asks = preferring((1, on("disk", "Foo", "x")))
    stated = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [near]}}
    preferred = convert(stated, type(affinity()))
    assert asks.spec.affinity is not None
    both = replace(asks.spec.affinity, pod_affinity=preferred.pod_affinity)
    asks = replace(asks, spec=replace(asks.spec, affinity=both))
    snapshot = Rule(EqualPriority, [node("n")], [pod("q", on="n")]).snapshot
    rows = snapshot.nodes.order
    message = framework.run_pre_score(asks, snapshot, rows, CycleState()).message
    assert '"Is" is not a valid' in message
    assert 'Unsupported value: "Foo"' in message
    assert "[" in message


def test_taints() -> None:
    nodes = [
        node("none"),
        node("one", taints=["a:PreferNoSchedule", "b:NoSchedule"]),
        node("two", taints=["a:PreferNoSchedule", "c:PreferNoSchedule"]),
    ]
    rule = Rule(TaintTolerationPriority, nodes)
    assert rule.mapped(pod("p")) == {"none": 0, "one": 1, "two": 2}
    assert rule.scores(pod("p")) == {"none": 10, "one": 5, "two": 0}
    assert rule.scores(pod("p", tolerations=["a", "c"])) == {"none": 10, "one": 10, "two": 10}


def test_labels() -> None:
    nodes = [node("n", labels={"gpu": ""}), node("m")]
    assert Rule(NodeLabelPriority, nodes, label="gpu", presence=True).scores(pod("p")) == {
        "n": 10,
        "m": 0,
    }
    assert Rule(NodeLabelPriority, nodes, label="gpu").scores(pod("p")) == {"n": 0, "m": 10}


def avoiding(name: str, text: str) -> Node:
    plain = node(name)
    return replace(plain, metadata=replace(plain.metadata, annotations={ANNOTATION: text}))


def of_controller(kind: str, uid: str) -> Pod:
    owner = {"kind": kind, "uid": uid, "controller": True}
    meta = {"name": "p", "ownerReferences": [{"kind": "Other", "uid": uid}, owner]}
    return tree(Pod, metadata=meta, spec={"containers": [{}]})


def test_nodes_that_ask_to_be_left_alone() -> None:
    entry = '{"podSignature": {"podController": {"kind": "ReplicaSet", "uid": "u"}}}'
    text = '{"preferAvoidPods": [' + entry + "]}"
    nodes = [
        avoiding("asks", text),
        avoiding("shouts", text.replace("uid", "UID").replace("prefer", "PREFER")),
        avoiding("broken", text + "}"),
        avoiding("wrong", text.replace('"u"', "7")),
        avoiding("null", "null"),
    ]
    rule = Rule(NodePreferAvoidPodsPriority, nodes)
    others = dict.fromkeys(("broken", "wrong", "null"), 10)
    avoided = {"asks": 0, "shouts": 0, **others}
    everywhere = dict.fromkeys(avoided, 10)
    assert rule.scores(of_controller("ReplicaSet", "u")) == avoided
    assert rule.scores(of_controller("ReplicaSet", "v")) == everywhere
    assert rule.scores(of_controller("StatefulSet", "u")) == everywhere
    assert rule.scores(pod("p")) == everywhere


def test_images_count_with_the_size_that_their_node_reports() -> None:
    nodes = [
        node("n", images={"app:latest": "1000Mi"}),
        node("m", images={"app:latest": "500Mi"}),
        node("o"),
        node("q"),
    ]
    rule = Rule(ImageLocalityPriority, nodes)
    # Half of the nodes have it: 500 and 250 of 23 to 1000 MiB.
    assert rule.scores(pod("p", image="app")) == {"n": 4, "m": 2, "o": 0, "q": 0}
    assert rule.scores(pod("p", image="other")) == {"n": 0, "m": 0, "o": 0, "q": 0}


# Other pods.


WEB = {"app": "web"}


def service(name: str, selector: dict[str, str] | None) -> Service:
    spec = {} if selector is None else {"selector": selector}
    return tree(Service, metadata={"name": name}, spec=spec)


def spread(name: str, zone: str = "") -> Node:
    return node(name, labels={BETA_ZONE: zone} if zone else {})


def placed(*homes: str) -> list[Pod]:
    return [pod(f"{home}{i}", on=home, labels=WEB) for i, home in enumerate(homes)]


def test_pods_of_any_selector_are_spread_over_nodes_and_zones() -> None:
    nodes = [spread("a", "z1"), spread("b", "z1"), spread("c", "z2"), spread("bare")]
    pods = placed("a", "a", "b", "c")
    rule = Rule(SelectorSpreadPriority, nodes, pods, [service("s", WEB)])
    asks = pod("p", labels=WEB)
    assert rule.mapped(asks) == {"a": 2, "b": 1, "c": 1, "bare": 0}
    # Two thirds by zone (0, 0, 6.6 of 10), one by node (0, 5, 5), rounded down.
    assert rule.scores(asks) == {"a": 0, "b": 1, "c": 6, "bare": 10}
    twin = Rule(ServiceSpreadingPriority, nodes, pods, [service("s", WEB)])
    assert twin.scores(asks) == rule.scores(asks)
    assert set(rule.scores(pod("other", labels={"app": "x"})).values()) == {10}


def test_a_pod_of_several_selectors_counts_once() -> None:
    both = {**WEB, "tier": "x"}
    objects = [service("s", WEB), service("t", {"tier": "x"}), service("all", None)]
    pods = [pod("1", on="n", labels=both), pod("2", on="n", labels=WEB)]
    rule = Rule(SelectorSpreadPriority, [node("n"), node("m")], pods, objects)
    assert rule.mapped(pod("p", labels=both)) == {"n": 2, "m": 0}
    # An empty selector of a service takes every pod of the namespace.
    every = Rule(SelectorSpreadPriority, [node("n")], pods, [service("all", {})])
    assert every.mapped(pod("p")) == {"n": 2}


def selecting(kind: type[Any], name: str, **selector: Any) -> Any:
    return tree(kind, metadata={"name": name}, spec={"selector": selector})


def test_controllers_and_sets_select_too_unless_one_of_their_kind_is_malformed() -> None:
    nodes, pods, asks = [node("n")], placed("n"), pod("p", labels=WEB)

    def found(*objects: Any) -> int:
        return Rule(SelectorSpreadPriority, nodes, pods, objects).mapped(asks)["n"]

    good = {"matchLabels": WEB}
    bad = {"matchExpressions": [{"key": "a", "operator": "Is"}]}
    assert found(selecting(ReplicationController, "rc", **WEB)) == 1
    assert found(selecting(ReplicationController, "rc")) == 0
    assert found(selecting(ReplicaSet, "rs", **good)) == 1
    assert found(selecting(ReplicaSet, "rs")) == 0
    assert found(selecting(ReplicaSet, "rs", **good), selecting(ReplicaSet, "odd", **bad)) == 0
    assert found(selecting(StatefulSet, "ss", **good), selecting(ReplicaSet, "odd", **bad)) == 1


def test_terminating_pods_do_not_count_as_peers() -> None:
    gone = tree(
        Pod,
        metadata={"name": "q", "labels": WEB, "deletionTimestamp": "2019-01-01T00:00:00Z"},
        spec={"nodeName": "n", "containers": [{}]},
    )
    rule = Rule(SelectorSpreadPriority, [node("n")], [gone], [service("s", WEB)])
    assert rule.mapped(pod("p", labels=WEB)) == {"n": 0}


def test_a_service_is_spread_over_the_values_of_a_label() -> None:
    nodes = [node(name, labels={"rack": rack}) for name, rack in (("a", "1"), ("b", "1"))]
    nodes += [node("c", labels={"rack": "2"}), node("bare")]
    objects = [service("s", WEB), service("t", {})]
    rule = Rule(ServiceAntiAffinityPriority, nodes, placed("a", "c", "bare"), objects, label="rack")
    # A third of the pods is in each rack; the pod without a rack counts in the total.
    assert rule.scores(pod("p", labels=WEB)) == {"a": 6, "b": 6, "c": 6, "bare": 0}
    empty = Rule(ServiceAntiAffinityPriority, nodes, placed("a"), label="rack")
    assert empty.scores(pod("p", labels=WEB)) == {"a": 10, "b": 10, "c": 10, "bare": 0}


def test_preferences_of_both_sides_and_zero_among_the_sums() -> None:
    nodes = [node("n"), node("m"), node("o")]
    fan = affinity(prefer_near=[(4, term("app=web", HOST))])
    hater = affinity(prefer_apart=[(2, term("app=web", HOST))])
    pods = [pod("fan", on="n", affinity=fan), pod("hater", on="m", affinity=hater)]
    rule = Rule(InterPodAffinityPriority, nodes, pods)
    asks = pod("p", labels=WEB)
    assert rule.mapped(asks) == {"n": 4, "m": -2, "o": 0}
    assert rule.scores(asks) == {"n": 10, "m": 0, "o": 3}
    alike = Rule(InterPodAffinityPriority, nodes[:1], pods[:1])
    # Even where all sums are equal: the least is 0.
    assert alike.scores(asks) == {"n": 10}


def test_required_terms_of_placed_pods_count_with_the_hard_weight() -> None:
    bound = affinity(near=[term("app=web", HOST)])
    pods = [pod("q", on="n", affinity=bound)]
    rule = Rule(InterPodAffinityPriority, [node("n"), node("m")], pods, hardPodAffinityWeight=7)
    assert rule.mapped(pod("p", labels=WEB)) == {"n": 7, "m": 0}
