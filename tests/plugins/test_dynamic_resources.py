"""DynamicResources: claims that are missing, and pods without claims."""

from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from stowplan.framework import CycleState, Framework
from stowplan.framework.diagnosis import Diagnosis
from stowplan.objects.encoding.json_codec import convert
from stowplan.objects.pod import Pod
from stowplan.plugins.devices.dynamic_resources import DynamicResources, DynamicResourcesArgs
from tests.plugins.volume_cases import Case, case, framework_of, node, refusals

MISSING = 'UnschedulableAndUnresolvable: could not find ResourceClaim "default/{}"'


def claiming(*claims: dict[str, Any], made: dict[str, str | None] | None = None) -> Pod:
    """A pod with resource claims. made: entry -> the claim made for it, None where none was."""
    statuses = [{"name": k, "resourceClaimName": v} for k, v in (made or {}).items()]
    tree = {
        "metadata": {"name": "pod"},
        "spec": {"resourceClaims": list(claims)},
        "status": {"resourceClaimStatuses": statuses},
    }
    return convert(tree, Pod)


def asking(pod: Pod) -> Case:
    return case(pod, [node("n1"), node("n2")])


NAMED = {"name": "gpu", "resourceClaimName": "shared"}
TEMPLATE = {"name": "gpu", "resourceClaimTemplateName": "one-gpu"}


@pytest.mark.parametrize(
    ("pod", "why"),
    [
        (claiming(), ""),
        (claiming(NAMED), MISSING.format("shared")),
        (claiming(TEMPLATE, made={"gpu": "pod-gpu"}), MISSING.format("pod-gpu")),
        # On purpose no claim was made: there is nothing to wait for.
        (claiming(TEMPLATE, made={"gpu": None}), ""),
        (
            claiming(TEMPLATE),
            'UnschedulableAndUnresolvable: pod "default/pod": ResourceClaim not created yet',
        ),
        (
            claiming({"name": "gpu"}),
            'UnschedulableAndUnresolvable: pod "default/pod", spec.resourceClaim "gpu": '
            "none of the supported fields are set",
        ),
    ],
)
def test_filter(pod: Pod, why: str) -> None:
    found = refusals(DynamicResources, asking(pod))
    assert found == (dict.fromkeys(("n1", "n2"), why) if why else {})


def post_filter(framework: Framework, asked_for: Case, state: CycleState) -> tuple[str, str, str]:
    result = framework.run_post_filter(asked_for.pod, asked_for.snapshot, Diagnosis(2), state)
    assert result.nominated_node is None
    return result.status.code.title, result.status.message, result.status.plugin


@pytest.mark.parametrize(
    ("pod", "text"),
    [
        (claiming(), "no new claims to deallocate"),
        (claiming(TEMPLATE), "no new claims to deallocate"),
        (claiming(NAMED), "no new claims to deallocate"),
    ],
)
def test_post_filter(pod: Pod, text: str) -> None:
    framework, state, asked_for = framework_of(DynamicResources), CycleState(), asking(pod)
    framework.run_pre_filter(pod, asked_for.snapshot, state)
    found = post_filter(framework, asked_for, state)
    assert found == ("Unschedulable", text, "DynamicResources")


def test_post_filter_fails_where_pre_filter_did_not_run() -> None:
    found = post_filter(framework_of(DynamicResources), asking(claiming()), CycleState())
    assert found == ("Error", "not found", "DynamicResources")


def test_without_its_gate_it_does_nothing() -> None:
    framework = framework_of(DynamicResources, dynamic_resource_allocation=False)
    state, asked_for = CycleState(), asking(claiming(NAMED))
    framework.run_pre_filter(asked_for.pod, asked_for.snapshot, state)
    assert state.skip_filter == {"DynamicResources"}
    assert post_filter(framework, asked_for, state)[1] == "plugin disabled"


def test_every_node_scores_nothing() -> None:
    framework, state, asked_for = framework_of(DynamicResources), CycleState(), asking(claiming())
    scores = framework.run_scores(asked_for.pod, asked_for.nodes, np.arange(2), state)
    assert scores.raw["DynamicResources"].tolist() == [0, 0]
    assert scores.final["DynamicResources"].tolist() == [0, 0]


def test_args() -> None:
    wrong = DynamicResourcesArgs(timedelta(seconds=-1), timedelta(milliseconds=500))
    assert [str(problem) for problem in wrong.problems("args")] == [
        "args.filterTimeout: Invalid value: -1s: expected 0s or more",
        "args.bindingTimeout: Invalid value: 0.5s: expected 1s or more",
    ]
    assert not list(DynamicResourcesArgs().problems("args"))


def test_signature_is_the_claims() -> None:
    rule: DynamicResources = framework_of(DynamicResources).members["DynamicResources"].plugin
    assert rule.signature(claiming(NAMED)) == rule.signature(claiming(NAMED))
    assert rule.signature(claiming(NAMED)) != rule.signature(claiming(TEMPLATE))
    assert rule.signature(claiming(TEMPLATE)) != rule.signature(
        claiming(TEMPLATE, made={"gpu": None})
    )
