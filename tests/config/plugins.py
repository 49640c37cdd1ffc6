"""A registry shaped like the real one: the default plugins' names, points and order, no rules."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import msgspec

from stowplan.framework.extension_points import EXTENSION_POINTS
from stowplan.framework.problems import Problem
from stowplan.framework.profile import PluginUse
from stowplan.framework.runtime.registry import Registry
from stowplan.objects.pod import NodeAffinity, TopologySpreadConstraint


class Args(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    pass


class PreemptionArgs(Args, frozen=True):
    min_candidate_nodes_percentage: int = 10
    min_candidate_nodes_absolute: int = 100

    def problems(self, path: str) -> Iterator[Problem]:
        if not 0 <= self.min_candidate_nodes_percentage <= 100:
            got = str(self.min_candidate_nodes_percentage)
            yield Problem(f"{path}.minCandidateNodesPercentage", got, "0 to 100")
        if self.min_candidate_nodes_absolute < 0:
            got = str(self.min_candidate_nodes_absolute)
            yield Problem(f"{path}.minCandidateNodesAbsolute", got, "0 or more")


class ResourceSpec(Args, frozen=True):
    name: str
    weight: int = 1


class Strategy(Args, frozen=True):
    type: str = "LeastAllocated"
    resources: tuple[ResourceSpec, ...] = (ResourceSpec("cpu"), ResourceSpec("memory"))


class FitArgs(Args, frozen=True):
    ignored_resources: tuple[str, ...] = ()
    scoring_strategy: Strategy = Strategy()


class AffinityArgs(Args, frozen=True):
    added_affinity: NodeAffinity | None = None


class SpreadArgs(Args, frozen=True):
    default_constraints: tuple[TopologySpreadConstraint, ...] = ()
    defaulting_type: str = "System"


class DynamicArgs(Args, frozen=True):
    filter_timeout: timedelta = timedelta(seconds=10)


class SortArgs(Args, frozen=True):
    reverse: bool = False


class PostInitArgs(Args, frozen=True):
    even: int = 2

    def __post_init__(self) -> None:
        if self.even % 2:
            raise ValueError("an even number")


# Name, weight in the default list, points, arguments. Source: kube-scheduler v1.36.
DEFAULT: tuple[tuple[str, int, str, type[msgspec.Struct] | None], ...] = (
    ("SchedulingGates", 1, "preEnqueue", None),
    ("PrioritySort", 1, "queueSort", None),
    ("NodeUnschedulable", 1, "filter", None),
    ("NodeName", 1, "filter", None),
    ("TaintToleration", 3, "filter preScore score", None),
    ("NodeAffinity", 2, "preFilter filter preScore score", AffinityArgs),
    ("NodePorts", 1, "preFilter filter", None),
    ("NodeResourcesFit", 1, "preFilter filter preScore score", FitArgs),
    ("VolumeRestrictions", 1, "preFilter filter", None),
    ("NodeVolumeLimits", 1, "preFilter filter", None),
    ("VolumeBinding", 1, "preFilter filter preScore score reserve preBind", None),
    ("VolumeZone", 1, "preFilter filter", None),
    ("PodTopologySpread", 2, "preFilter filter preScore score", SpreadArgs),
    ("InterPodAffinity", 2, "preFilter filter preScore score", None),
    (
        "DynamicResources",
        2,
        "preEnqueue preFilter filter postFilter score reserve preBind",
        DynamicArgs,
    ),
    ("DefaultPreemption", 1, "preEnqueue postFilter", PreemptionArgs),
    ("NodeResourcesBalancedAllocation", 1, "preScore score", None),
    ("ImageLocality", 1, "score", None),
    ("DefaultBinder", 1, "bind", None),
    ("NodeDeclaredFeatures", 1, "preFilter filter", None),
)

DEFAULTS = tuple(PluginUse(name, weight) for name, weight, *_ in DEFAULT)


def plugin(name: str, points: str, args: type | None = None, weight: int = 1) -> type[Any]:
    """A plugin class that implements `points` and does nothing there."""
    body: dict[str, Any] = {EXTENSION_POINTS[point]: lambda self: None for point in points.split()}
    body |= {"name": name, "weight": weight}
    if args is not None:
        body["Args"] = args
    return type(name, (), body)


def registry(more: Mapping[str, str] | None = None) -> Registry:
    """The default plugins, some to sort and bind by, and `more`: name -> points."""
    full = Registry(plugin(name, points, args) for name, _, points, args in DEFAULT)
    for name, points in {"OtherBinder": "bind", **(more or {})}.items():
        full.register(plugin(name, points))
    full.register(plugin("OtherSort", "queueSort", SortArgs))
    full.register(plugin("Heavy", "score", PostInitArgs, weight=7))
    return full


def uses(text: str) -> list[PluginUse]:
    """Plugins as tests write them: `A B=5`, a weight where it is not 1."""
    pairs = (item.partition("=") for item in text.split())
    return [PluginUse(name, int(weight or 1)) for name, _, weight in pairs]


def plugin_set(text: str) -> dict[str, Any]:
    """A plugin set as tests write it: `A B=5 -C`, the disabled with a dash."""
    items = text.split()
    enabled = [item.partition("=") for item in items if not item.startswith("-")]
    return {
        "enabled": [
            {"name": name, "weight": int(weight)} if weight else {"name": name}
            for name, _, weight in enabled
        ],
        "disabled": [{"name": item[1:]} for item in items if item.startswith("-")],
    }
