"""Small clusters for the tests of rules: written down, or drawn; and a rule asked both ways."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np
from hypothesis import Phase, find, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample
from numpy.typing import NDArray

from stowplan.columns import NodeTable
from stowplan.columns.nodetable import table_of
from stowplan.framework import CycleState, FeatureGates, Framework, Registry, Snapshot, Status
from stowplan.framework.extension_points import points_of
from stowplan.framework.profile import PluginUse, Profile
from stowplan.objects.encoding.json_codec import convert
from stowplan.objects.node import Node, Taint
from stowplan.objects.pod import Pod, Toleration
from stowplan.plugins.pod_affinity.inter_pod_affinity import TopologyPairCounts
from stowplan.plugins.priority_sort import PrioritySort
from tests.soak import found_within

T = TypeVar("T")

Tree = dict[str, Any]


def words(text: str, joint: str = "=") -> dict[str, str]:
    """`a=1 b=2` as a dict; a word without `=` has the empty value."""
    return {k: v for k, _, v in (word.partition(joint) for word in text.split())}


def effect(word: str) -> Tree:
    """`key=value:Effect`, as taints are written; any part may be missing."""
    name, _, kind = word.partition(":")
    key, _, value = name.partition("=")
    return {"key": key, "value": value, "effect": kind}


def effects(text: str) -> list[Tree]:
    """Several of them."""
    return [effect(word) for word in text.split()]


def taint(text: str) -> Taint:
    return convert(effect(text), Taint)


def toleration(operator: str, text: str) -> Toleration:
    return convert({**effect(text), "operator": operator}, Toleration)


def node(
    name: str,
    labels: str = "",
    *,
    offers: str = "cpu=4 memory=8Gi pods=110",
    taints: str = "",
    images: str = "",
    cordoned: bool = False,
    features: str = "",
) -> Node:
    """A node; offers, labels and images (name=bytes) as words."""
    status: Tree = {
        "allocatable": words(offers),
        "images": [{"names": [k], "sizeBytes": int(v)} for k, v in words(images).items()],
        "declaredFeatures": features.split(),
    }
    spec = {"taints": effects(taints), "unschedulable": cordoned}
    meta = {"name": name, "labels": words(labels)}
    return convert({"metadata": meta, "spec": spec, "status": status}, Node)


def container(asks: str = "", *, image: str = "app", ports: Iterable[Tree] = ()) -> Tree:
    return {"image": image, "resources": {"requests": words(asks)}, "ports": list(ports)}


def pod(asks: str = "", *, on: str = "", name: str = "pod", **spec: Any) -> Pod:
    """A pod with one container, unless `spec` (as in JSON) says otherwise."""
    whole = {"containers": [container(asks)], "nodeName": on, **spec}
    return convert({"metadata": {"name": name}, "spec": whole}, Pod)


def table(nodes: Iterable[Node], pods: Iterable[Pod] = ()) -> NodeTable:
    return table_of(nodes, pods)


class Walks:
    """One plugin in a framework of its own, asked by rows and node by node."""

    def __init__(self, plugin: type[Any], args: Tree | None = None, **gates: bool) -> None:
        points: dict[str, tuple[PluginUse, ...]] = {
            point: (PluginUse(plugin.name),) for point in points_of(plugin)
        }
        points["queueSort"] = (PluginUse(PrioritySort.name),)
        decoded = {} if args is None else {plugin.name: convert(args, plugin.Args)}
        profile = Profile("test", points, decoded)
        registry = Registry([PrioritySort, plugin])
        self.name = plugin.name
        self.rows, self.each = (
            Framework(profile, registry, FeatureGates(**gates), columns=columns)
            for columns in (True, False)
        )

    def filters(
        self, framework: Framework, pod: Pod, nodes: NodeTable, *, turned: bool = False
    ) -> list[Status]:
        """The plugin's verdict per row; what PreFilter refuses, all rows do.

        turned: ask for the rows by number and backwards.
        """
        state = CycleState()
        outcome = framework.run_pre_filter(pod, Snapshot(nodes), state)
        if not outcome.status.is_success:
            return [outcome.status] * nodes.n_nodes
        rows = backwards(nodes) if turned else nodes.all_rows
        answers = framework.filters_separately(pod, nodes, rows, state)
        if not answers:
            return [Status()] * nodes.n_nodes
        verdicts = answers[self.name]
        found = [verdicts.explain(c) if c else Status() for c in verdicts.codes.tolist()]
        return found[::-1] if turned else found

    def scores(
        self, framework: Framework, pod: Pod, nodes: NodeTable, *, turned: bool = False
    ) -> list[int] | None:
        """The plugin's raw score per row; None when it does not score the pod."""
        state = CycleState()
        status = framework.run_pre_score(pod, Snapshot(nodes), np.arange(nodes.n_nodes), state)
        assert status.is_success, status
        rows = backwards(nodes) if turned else nodes.all_rows
        answers = framework.scores_separately(pod, nodes, rows, state)
        if not answers:
            return None
        found: list[int] = answers[self.name].tolist()
        return found[::-1] if turned else found

    def refusals(self, pod: Pod, nodes: NodeTable) -> dict[str, str]:
        """Node -> why it refuses, for those that do; the same by both walks."""
        found = self.filters(self.rows, pod, nodes)
        assert found == self.filters(self.each, pod, nodes)
        return {
            name: f"{status.code.title}: {status.message}"
            for name, status in zip(nodes.names, found, strict=True)
            if not status.is_success
        }

    def raw(self, pod: Pod, nodes: NodeTable) -> dict[str, int] | None:
        """Node -> raw score; the same by both walks."""
        found = self.scores(self.rows, pod, nodes)
        assert found == self.scores(self.each, pod, nodes)
        return None if found is None else dict(zip(nodes.names, found, strict=True))

    def final(self, pod: Pod, nodes: NodeTable) -> dict[str, int]:
        """Node -> score after NormalizeScore."""
        rows, state = np.arange(nodes.n_nodes), CycleState()
        assert self.rows.run_pre_score(pod, Snapshot(nodes), rows, state).is_success
        scores = self.rows.run_scores(pod, nodes, rows, state)
        return dict(zip(nodes.names, scores.total.tolist(), strict=True))

    def agree(self, pod: Pod, nodes: NodeTable) -> bool:
        """True when both walks give the same verdicts and the same raw scores."""
        asks = [
            ask
            for ask, point in ((self.filters, "filter"), (self.scores, "score"))
            if self.rows.at(point)
        ]
        return all(
            ask(self.rows, pod, nodes)
            == ask(self.rows, pod, nodes, turned=True)
            == ask(self.each, pod, nodes)
            for ask in asks
        )


def backwards(nodes: NodeTable) -> NDArray[np.int64]:
    """All rows by number, the last one first."""
    return np.arange(nodes.n_nodes)[::-1].copy()


# Drawn clusters: few values of everything, so that rules meet matches and near misses.

KEYS = ("disk", "zone", "cores")
VALUES = ("", "a", "b", "4", "16")
RESOURCES = ("cpu", "memory", "ephemeral-storage", "example.com/gpu", "hugepages-2Mi")
TAINT_EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
FEATURES = ("RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport")
NODE_NAMES = ("n0", "n1", "n2", "n3")

keys, values = st.sampled_from(KEYS), st.sampled_from(VALUES)
some_labels = st.dictionaries(keys, values, max_size=3)
amounts = st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 9), max_size=4)
some_taints = st.lists(
    st.fixed_dictionaries({"key": keys, "value": values, "effect": st.sampled_from(TAINT_EFFECTS)}),
    max_size=3,
)
some_tolerations = st.lists(
    st.fixed_dictionaries(
        {
            "key": keys | st.just("") | st.just("node.kubernetes.io/unschedulable"),
            "value": values,
            "effect": st.sampled_from(("", *TAINT_EFFECTS)),
            "operator": st.sampled_from(("", "Equal", "Exists", "Lt", "Gt")),
        }
    ),
    max_size=3,
)
some_ports = st.lists(
    st.fixed_dictionaries(
        {
            "hostPort": st.integers(0, 2),
            "hostIP": st.sampled_from(("", "0.0.0.0", "10.0.0.1", "10.0.0.2")),
            "protocol": st.sampled_from(("", "TCP", "UDP")),
        }
    ),
    max_size=2,
)
some_features = st.lists(st.sampled_from(FEATURES), max_size=2)
some_rules = st.sampled_from([[], [{"action": "RestartAllContainers"}]])
image_names = st.sampled_from(("app", "app:latest", "r.io:5000/db", "db@sha256:1"))
MIB = 1024 * 1024


@st.composite
def _requirements(draw: st.DrawFn) -> Tree:
    operator = draw(st.sampled_from(OPERATORS))
    some = {"In": values, "NotIn": values, "Gt": st.just("4"), "Lt": st.just("16")}.get(operator)
    n_values = draw(st.integers(1, 2)) if operator in ("In", "NotIn") else 1
    chosen = [] if some is None else draw(st.lists(some, min_size=n_values, max_size=n_values))
    return {"key": draw(keys), "operator": operator, "values": chosen}


requirements = _requirements()
field_requirements = st.fixed_dictionaries(
    {
        "key": st.sampled_from(("metadata.name", "metadata.namespace")),
        "operator": st.sampled_from(("In", "NotIn")),
        "values": st.sampled_from([[name] for name in (*NODE_NAMES, "")]),
    }
)
terms = st.fixed_dictionaries(
    {
        "matchExpressions": st.lists(requirements, max_size=2),
        "matchFields": st.lists(field_requirements, max_size=1),
    }
)
node_affinities = st.fixed_dictionaries(
    {},
    optional={
        "requiredDuringSchedulingIgnoredDuringExecution": st.fixed_dictionaries(
            {"nodeSelectorTerms": st.lists(terms, max_size=2)}
        ),
        "preferredDuringSchedulingIgnoredDuringExecution": st.lists(
            st.fixed_dictionaries({"weight": st.integers(0, 9), "preference": terms}), max_size=3
        ),
    },
)


ABOUT = ("affinity", "amounts", "features", "images", "name", "ports", "taints")


class Drawing:
    """Draws what a test is about, and the plain value of everything else."""

    def __init__(self, draw: st.DrawFn, about: tuple[str, ...]) -> None:
        self._draw = draw
        self._about = about

    def __call__(self, aspect: str, strategy: st.SearchStrategy[Any], plain: Any) -> Any:
        return self._draw(strategy) if aspect in self._about else plain

    def node(self, name: str) -> Node:
        sizes = st.integers(0, 2000).map(lambda n: n * MIB)
        random_images = st.dictionaries(image_names, sizes, max_size=2)
        images = self("images", random_images, {})
        tree = {
            "metadata": {"name": name, "labels": self("affinity", some_labels, {})},
            "spec": {
                "taints": self("taints", some_taints, []),
                "unschedulable": self("taints", st.booleans(), False),
            },
            "status": {
                "allocatable": {**self("amounts", amounts, {}), "pods": 2},
                "images": [{"names": [k], "sizeBytes": v} for k, v in images.items()],
                "declaredFeatures": self("features", some_features, []),
            },
        }
        return convert(tree, Node)

    def container(self, kind: str) -> Tree:
        return {
            "image": self("images", image_names, ""),
            "resources": {"requests": self("amounts", amounts, {})},
            "ports": self("ports", some_ports, []),
            "restartPolicyRules": self("features", some_rules, []),
            "restartPolicy": kind,
        }

    def pod(self, name: str, on: str) -> Pod:
        counts = st.sampled_from((1, 1, 2, 0))
        n_containers = self._draw(counts) if {"amounts", "images"} & set(self._about) else 1
        kinds = self("ports", st.sampled_from(("", "Always", None)), None)
        kinds = self("amounts", st.sampled_from(("", "Always", None)), kinds)
        spec = {
            "nodeName": on,
            "containers": [self.container("") for _ in range(n_containers)],
            "initContainers": [] if kinds is None else [self.container(kinds)],
            "tolerations": self("taints", some_tolerations, []),
            "affinity": {"nodeAffinity": self("affinity", node_affinities, {})},
            "nodeSelector": self("affinity", st.none() | some_labels, None),
            "hostNetwork": self("features", st.booleans(), False),
            "hostUsers": self("features", st.sampled_from((None, True, False)), None),
        }
        return convert({"metadata": {"name": name}, "spec": spec}, Pod)


@st.composite
def cases(draw: st.DrawFn, *about: str) -> tuple[Pod, NodeTable]:
    """A pending pod, and a cluster of up to four nodes with up to three pods on them.

    about: what varies, of ABOUT; all the rest is plain.
    """
    assert set(about) <= set(ABOUT), about
    drawing = Drawing(draw, about)
    names = NODE_NAMES[: draw(st.integers(0, len(NODE_NAMES)))]
    nodes = [drawing.node(name) for name in names]
    homes = draw(st.lists(st.sampled_from(names), max_size=3)) if names else []
    there = [drawing.pod(f"p{i}", home) for i, home in enumerate(homes)]
    named = drawing("name", st.sampled_from(("", *NODE_NAMES)), "")
    return drawing.pod("pod", named), table(nodes, there)


def is_found(strategy: st.SearchStrategy[T], fault: Callable[[T], bool]) -> bool:
    """True when something drawn shows a fault. The first that does will do, however large."""
    brief = settings(max_examples=found_within(1000), phases=[Phase.generate])
    try:
        find(strategy, fault, settings=brief)
    except NoSuchExample:
        return False
    return True


def is_caught(wrong: type[Any], *about: str, args: Tree | None = None) -> bool:
    """True when a drawn cluster shows that the walks of a plugin disagree."""
    walks = Walks(wrong, args)
    return is_found(cases(*about), lambda case: not walks.agree(*case))


def counts_by_pair(counts: TopologyPairCounts) -> dict[tuple[str, str], int]:
    """Every topology pair with a count."""
    pairs = set(counts._changes)
    for key, sums in counts._sums.items():
        values = counts._columns[key].vocabulary.values
        pairs.update((key, values[item]) for item in np.flatnonzero(sums))
    return {pair: n for pair in pairs if (n := counts.of(*pair))}
