"""The rules of 1.13 keep the contract with arguments of their own; a wrong column is caught."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from stowplan.assembly import registry
from stowplan.columns.pods.podcounts import MatchingPods, PodSelection
from stowplan.framework import CycleState, NodeTable, Rows
from stowplan.objects.pod import Pod
from stowplan.plugins.v1_13.priorities.priority_metadata import PriorityMetadata
from stowplan.plugins.v1_13.priorities.selector_spread import SelectorSpreadPriority
from stowplan.testing import Check, CheckFailed, check_plugin, checks
from tests.soak import examples, found_within

pytestmark = pytest.mark.slow

ZONE = "topology.kubernetes.io/zone"
RISING = [{"utilization": 0, "score": 2}, {"utilization": 70, "score": 10}]

CONFIGURED: list[tuple[str, dict[str, Any]]] = [
    ("PodFitsResources", {"ignoredResources": ["nvidia.com/gpu", "example.com/dongle"]}),
    ("GeneralPredicates", {"ignoredResources": ["nvidia.com/gpu"]}),
    ("CheckNodeLabelPresence", {"labels": [ZONE, "disk"], "presence": True}),
    ("CheckServiceAffinity", {"labels": [ZONE]}),
    ("MaxEBSVolumeCount", {"attachVolumeLimit": False}),
    ("MaxCSIVolumeCountPred", {"attachVolumeLimit": False}),
    ("NodeLabelPriority", {"label": "disk", "presence": True}),
    ("ServiceAntiAffinityPriority", {"label": ZONE}),
    ("RequestedToCapacityRatioPriority", {"shape": RISING}),
    ("InterPodAffinityPriority", {"hardPodAffinityWeight": 100}),
    ("BalancedResourceAllocation", {"balanceAttachedVolumes": True}),
]


def configured(name: str, args: dict[str, Any]) -> list[Check]:
    entry = registry()[name]
    decoded = msgspec.convert(args, entry.args)
    return checks(entry.plugin, decoded, seeds=range(examples(4)))


@pytest.mark.parametrize("check", [one for case in CONFIGURED for one in configured(*case)])
def test_a_configured_rule_keeps_the_contract(check: Check) -> None:
    check()


class CountsEverywhere(SelectorSpreadPriority):
    """Its column walk counts the pods of other namespaces as well."""

    def score_column(
        self, pod: Pod, nodes: NodeTable, rows: Rows, state: CycleState
    ) -> NDArray[np.int64]:
        counts = np.zeros(nodes.n_nodes, dtype=np.int64)
        for selector in PriorityMetadata.read(state).selectors:
            counts += MatchingPods.of(nodes).counts(PodSelection(selector, terminating=False))
        chosen: NDArray[np.int64] = counts[rows]
        return chosen


def test_control_pods_of_other_namespaces_are_found() -> None:
    with pytest.raises(CheckFailed, match="column_agrees_with_scalar"):
        check_plugin(CountsEverywhere, seeds=range(found_within(60)))
