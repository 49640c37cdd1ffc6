"""Every registered plugin keeps the contract; column and scalar walk agree on any cluster."""

from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from stowplan.assembly import registry
from stowplan.framework import FeatureGates, NodeTable, Rows
from stowplan.objects.pod import Pod
from stowplan.plugins.taint_toleration import TaintToleration
from stowplan.testing import Check, CheckFailed, check_plugin, checks
from tests.soak import examples

# `make soak` runs what bears this mark, and here it makes for more seeds.
pytestmark = pytest.mark.hypothesis
SEEDS = range(examples(5))

EVENTS, WHAT_IF = "events_to_register_are_complete", "add_and_remove_pod_agree_with_filter"
INHERITED = {
    ("InterPodAffinity", EVENTS): "a pod that goes counts if all anti-affinity terms are about it",
    ("NodeVolumeLimits", EVENTS): "a new node is not heard of",
    ("VolumeBinding", EVENTS): "a CSIDriver that goes is not heard of",
    ("VolumeRestrictions", EVENTS): "a pod of another namespace that frees a disk is not heard of",
    ("PodTopologySpread", WHAT_IF): "counts for an empty selector what PreFilter does not count",
    ("VolumeRestrictions", WHAT_IF): "a claim is taken off for each of the pods that use it",
}
"""What kube-scheduler's own rules do not keep of the contract, and ours not either."""

INHERITED_CONFIGURED = INHERITED | {
    ("NodeAffinity", EVENTS): "a node that meets addedAffinity now may have been selected before",
    ("NodeResourcesFit", EVENTS): "ignored resources count for a new node",
}


def kept(listed: list[Check], inherited: dict[tuple[str, str], str]) -> list[Check]:
    return [check for check in listed if (check.plugin.name, check.name) not in inherited]


@pytest.mark.parametrize(
    "check",
    [
        check
        for entry in registry().values()
        for check in kept(checks(entry.plugin, seeds=SEEDS), INHERITED)
    ],
)
def test_a_registered_plugin_keeps_the_contract(check: Check) -> None:
    check()


def _resources(**weights: int) -> list[dict[str, Any]]:
    names = {"gpu": "nvidia.com/gpu"}
    return [{"name": names.get(name, name), "weight": w} for name, w in weights.items()]


_SHAPE = [{"utilization": u, "score": s} for u, s in ((0, 10), (70, 3), (100, 0))]
_RISING = [{"utilization": u, "score": s} for u, s in ((0, 0), (50, 9), (100, 10))]
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

CONFIGURED: list[tuple[str, dict[str, Any], dict[str, bool]]] = [
    (
        "NodeResourcesFit",
        {"scoringStrategy": {"type": "MostAllocated", "resources": _resources(cpu=3, gpu=1)}},
        {},
    ),
    (
        "NodeResourcesFit",
        {
            "ignoredResources": ["example.com/dongle"],
            "ignoredResourceGroups": ["nvidia.com"],
            "scoringStrategy": {
                "type": "RequestedToCapacityRatio",
                "resources": _resources(memory=1, gpu=5),
                "requestedToCapacityRatio": {"shape": _SHAPE},
            },
        },
        {"SidecarContainers": False},
    ),
    ("NodeResourcesBalancedAllocation", {"resources": _resources(cpu=1, memory=1, gpu=1)}, {}),
    (
        "NodeAffinity",
        {
            "addedAffinity": {
                _REQUIRED: {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "cores", "operator": "Exists"}]}
                    ]
                }
            }
        },
        {},
    ),
    (
        "InterPodAffinity",
        {"hardPodAffinityWeight": 0, "ignorePreferredTermsOfExistingPods": True},
        {},
    ),
    (
        "PodTopologySpread",
        {
            "defaultingType": "List",
            "defaultConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": "topology.kubernetes.io/zone",
                    "whenUnsatisfiable": "DoNotSchedule",
                }
            ],
        },
        {},
    ),
    ("VolumeBinding", {"shape": _RISING}, {"StorageCapacityScoring": True}),
    ("NodeVolumeLimits", {}, {"VolumeLimitScaling": True}),
    ("TaintToleration", {}, {"TaintTolerationComparisonOperators": True}),
    ("NodeDeclaredFeatures", {}, {"NodeDeclaredFeatures": False}),
]
"""Plugin, arguments as a configuration writes them, feature gates."""


def configured(name: str, args: dict[str, Any], gates: dict[str, bool]) -> list[Check]:
    entry = registry()[name]
    decoded = msgspec.convert(args, entry.args)
    problems = decoded.problems("args") if args else ()
    assert not list(problems)
    seeds, switches = range(examples(4)), FeatureGates.of(gates)
    listed = checks(entry.plugin, decoded, seeds=seeds, gates=switches)
    return kept(listed, INHERITED_CONFIGURED)


@pytest.mark.parametrize(("name", "check"), list(INHERITED))
def test_what_is_inherited_is_still_so(name: str, check: str) -> None:
    (listed,) = (c for c in checks(registry()[name].plugin, seeds=range(40)) if c.name == check)
    with pytest.raises(CheckFailed):
        listed()


@pytest.mark.parametrize(
    "check",
    [
        pytest.param(check, id=f"{check.__name__}-{number}")
        for number, case in enumerate(CONFIGURED)
        for check in configured(*case)
    ],
)
def test_a_configured_plugin_keeps_the_contract(check: Check) -> None:
    check()


class ForgetsNoExecute(TaintToleration):
    """Its column walk looks at NoSchedule alone, its scalar walk at NoExecute as well."""

    def filter_column(self, pod: Pod, nodes: NodeTable, rows: Rows) -> NDArray[np.bool_]:
        def repels(taint: Any) -> bool:
            hard = frozenset({"NoSchedule"})
            return self.is_untolerated(taint, pod, hard)

        return nodes.taints.count_where(repels, rows) == 0


def test_control_wrong_column() -> None:
    with pytest.raises(CheckFailed, match="column_agrees_with_scalar") as failure:
        check_plugin(ForgetsNoExecute, seeds=range(5))
    assert failure.value.plugin == "TaintToleration"
    assert "filter on node" in str(failure.value)
