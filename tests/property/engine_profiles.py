"""Configurations that bear on what the engine makes of rules."""

from __future__ import annotations

from typing import Any

from stowplan.testing.builders import HOSTNAME, ZONE

Tree = dict[str, Any]

GPU, DONGLE = "nvidia.com/gpu", "example.com/dongle"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def _profile(points: Tree | None = None, **args: Tree) -> Tree:
    config = [{"name": name, "args": given} for name, given in args.items()]
    return {"profiles": [{"plugins": points or {}, "pluginConfig": config}]}


def _strategy(kind: str, shape: tuple[tuple[int, int], ...] = (), **weights: int) -> Tree:
    names = {"gpu": GPU, "dongle": DONGLE, "disk": "ephemeral-storage"}
    found: Tree = {
        "type": kind,
        "resources": [{"name": names.get(n, n), "weight": w} for n, w in weights.items()],
    }
    if shape:
        points = [{"utilization": used, "score": score} for used, score in shape]
        found["requestedToCapacityRatio"] = {"shape": points}
    return {"scoringStrategy": found}


def _weighed(**weights: int) -> Tree:
    enabled = [{"name": name, "weight": weight} for name, weight in weights.items()]
    return {"score": {"enabled": enabled, "disabled": [{"name": name} for name in weights]}}


def _without(point: str, *names: str) -> Tree:
    return {point: {"disabled": [{"name": name} for name in names]}}


def _spread(key: str, action: str, skew: int) -> Tree:
    return {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": action}


PROFILES: dict[str, Tree | None] = {
    "default": None,
    "most allocated": _profile(NodeResourcesFit=_strategy("MostAllocated", cpu=3, memory=1, gpu=5)),
    "least allocated": _profile(
        NodeResourcesFit=_strategy("LeastAllocated", cpu=1, disk=2, pods=1, dongle=1)
    ),
    "ratio": _profile(
        NodeResourcesFit=_strategy(
            "RequestedToCapacityRatio",
            ((0, 10), (40, 3), (75, 9), (100, 0)),
            cpu=1,
            memory=2,
            gpu=3,
        )
        | {"ignoredResources": [DONGLE]}
    ),
    "balance of three": _profile(
        _weighed(NodeResourcesBalancedAllocation=5),
        NodeResourcesBalancedAllocation={
            "resources": [{"name": name, "weight": 1} for name in ("cpu", "memory", GPU)]
        },
    ),
    "balance of one": _profile(
        NodeResourcesBalancedAllocation={"resources": [{"name": "memory", "weight": 1}]}
    ),
    "nodes weigh most": _profile(
        _weighed(NodeAffinity=40, TaintToleration=25, ImageLocality=30, PodTopologySpread=1)
    ),
    "weights beyond 32 bits": _profile(
        _weighed(NodeAffinity=9_000_000, TaintToleration=15_000_000, NodeResourcesFit=21_000_000)
    ),
    "hard affinity weighs much": _profile(InterPodAffinity={"hardPodAffinityWeight": 100}),
    "existing preferences are ignored": _profile(
        InterPodAffinity={
            "hardPodAffinityWeight": 0,
            "ignorePreferredTermsOfExistingPods": True,
        }
    ),
    "spread by default": _profile(
        PodTopologySpread={
            "defaultingType": "List",
            "defaultConstraints": [
                _spread(ZONE, "DoNotSchedule", 2),
                _spread(HOSTNAME, "ScheduleAnyway", 1),
            ],
        }
    ),
    "added affinity": _profile(
        NodeAffinity={
            "addedAffinity": {
                _REQUIRED: {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "cores", "operator": "Exists"}]}
                    ]
                },
                _PREFERRED: [
                    {
                        "weight": 10,
                        "preference": {
                            "matchExpressions": [
                                {"key": "disk", "operator": "In", "values": ["ssd"]}
                            ]
                        },
                    }
                ],
            }
        }
    ),
    "nodes are not filtered": _profile(
        _without("filter", "TaintToleration", "NodeUnschedulable", "NodeName")
    ),
    "room is not looked at": _profile(_without("multiPoint", "NodeResourcesFit", "NodeAffinity")),
    "filters without PreFilter": _profile(_without("preFilter", "PodTopologySpread")),
    "scores without PreScore": _profile(_without("preScore", "InterPodAffinity")),
    "PreFilters without filter": _profile(_without("filter", "NodeAffinity", "InterPodAffinity")),
    "no scores": _profile(_without("score", "*")),
    "few scores": _profile(
        _without("score", "PodTopologySpread", "NodeResourcesFit", "TaintToleration")
    ),
    "a share of the nodes": {"percentageOfNodesToScore": 50} | (_profile() or {}),
}
"""By what is special about them: bodies of configurations, None for none at all."""
