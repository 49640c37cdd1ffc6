"""How many pods of each benchmark case are walked: a path that falls back silently is noticed."""

from __future__ import annotations

import pytest

from stowplan.benchmarks.benchmark_workload import WorkloadSizes
from stowplan.benchmarks.cases.device_cases import GPU_SHARE_CASES
from stowplan.benchmarks.catalog import CASES
from stowplan.benchmarks.measurement import ENGINES, run_once

SIZES = WorkloadSizes(nodes=40, pods=30)
WALKED = {
    # A pod of each template; the others are refused as that one was.
    "unfit": 20,
    # The first pod of each template; the others follow from what has changed since.
    "preemption": 1,
    "preemption-pdb": 30,
    "PreemptionBasic": 1,
    "PreemptionPVs": 1,
    # One of all that are refused.
    "dra-refused": 1,
    # Claims by name (four of five pods wait until the first has written it), and resources by
    # classes.
    "SchedulingWithResourceClaim": 126,
    "ExtendedResource": 30,
    "ExtendedResource_25Classes": 30,
    "ExtendedResource_50Classes": 30,
    "ImplicitExtendedResource_25Classes": 30,
    "ExtendedResourceScoring": 30,
    # The pod that fits nowhere.
    "SchedulingWithMixedChurn": 1,
}
OTHERS = {case.name for case in GPU_SHARE_CASES}
"""Cards are placed by kernels that are compiled later."""


@pytest.mark.parametrize("name", [name for name in CASES if name not in OTHERS])
def test_no_more_pods_of_a_shape_are_walked_than_are_known_to_be(name: str) -> None:
    assert run_once(CASES[name], SIZES).walked == WALKED.get(name, 0)


def test_control_the_walk_is_counted() -> None:
    assert run_once(CASES["basic"], SIZES, ENGINES[-1]).walked == SIZES.pods
