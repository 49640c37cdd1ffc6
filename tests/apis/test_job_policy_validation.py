"""Job policies that the API server rejects, with its texts.

Expected texts: recorded answers of kube-apiserver 1.36, and pkg/apis/batch/validation of that
version where none is recorded.
"""

from __future__ import annotations

from typing import Any

import pytest

from stowplan.apis.machinery.errors import ApiError
from tests.apiserver.small_cluster import SmallCluster, Tree

FAILURE = "spec.podFailurePolicy.rules[0]"
SUCCESS = "spec.successPolicy.rules[0]"


def causes(**spec: Any) -> str:
    """What is wrong with the Job; "" if it is created."""
    container = {"name": "c", "image": "i"}
    pod = {"restartPolicy": "Never", "containers": [container]}
    job: Tree = {"metadata": {"name": "x"}, "spec": {**spec, "template": {"spec": pod}}}
    try:
        SmallCluster(0).create("batch/jobs", job)
    except ApiError as error:
        return error.message.removeprefix('Job.batch "x" is invalid: ')
    return ""


def exit_codes(values: list[int], operator: str = "In", **more: str) -> Tree:
    return {
        "action": "Count",
        "onExitCodes": {"operator": operator, "values": values, **more},
    }


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (exit_codes([1, 2], containerName="c"), ""),
        (exit_codes([0], "NotIn"), ""),
        (
            exit_codes([0]),
            ".onExitCodes.values[0]: Invalid value: 0: must not be 0 for the In operator",
        ),
        (exit_codes([]), ".onExitCodes.values: Invalid value: []: at least one value is required"),
        (
            exit_codes([1], "Near"),
            '.onExitCodes.operator: Unsupported value: "Near": supported values: "In", "NotIn"',
        ),
        (
            exit_codes([1], ""),
            '.onExitCodes.operator: Required value: valid values: ["In" "NotIn"]',
        ),
        (
            exit_codes([1], containerName="d"),
            '.onExitCodes.containerName: Invalid value: "d": must be one of the container or'
            " initContainer names in the pod template",
        ),
        (
            {"action": "Ignore"},
            ": Invalid value: specifying one of OnExitCodes and OnPodConditions is required",
        ),
        (
            exit_codes([1]) | {"onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            ": Invalid value: specifying both OnExitCodes and OnPodConditions is not supported",
        ),
        (
            {"action": "Ignore", "onPodConditions": [{"type": "A", "status": "Maybe"}]},
            '.onPodConditions[0].status: Unsupported value: "Maybe": supported values: "False",'
            ' "True", "Unknown"',
        ),
        (
            {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [1]}},
            '.action: Invalid value: "FailIndex": requires the backoffLimitPerIndex to be set',
        ),
    ],
)
def test_pod_failure_policies(rule: Tree, expected: str) -> None:
    found = causes(podFailurePolicy={"rules": [rule]})
    assert found == (expected and FAILURE + expected)


def test_every_value_of_exit_codes_is_checked() -> None:
    values = f"{FAILURE}.onExitCodes.values"
    assert causes(podFailurePolicy={"rules": [exit_codes([2, 1, 1])]}) == (
        f"[{values}[2]: Duplicate value: 1, {values}: Invalid value: [2,1,1]: must be ordered]"
    )


def parsing(text: str, why: str) -> str:
    return f'.succeededIndexes: Invalid value: "{text}": error parsing succeededIndexes: {why}'


AT_MOST = "must be less than or equal to"


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"succeededIndexes": "0,2-4"}, ""),
        ({"succeededIndexes": "0,2-4", "succeededCount": 4}, ""),
        (
            {},
            ": Required value: at least one of succeededCount or succeededIndexes must be"
            " specified",
        ),
        ({"succeededIndexes": "0-5"}, parsing("0-5", 'too large index: "5"')),
        (
            {"succeededIndexes": "0-99999999999999999999"},
            parsing(
                "0-99999999999999999999",
                'cannot convert string to integer for index: "99999999999999999999"',
            ),
        ),
        (
            {"succeededIndexes": "3-1"},
            parsing("3-1", "non-increasing order, previous: 3, current: 1"),
        ),
        (
            {"succeededIndexes": "3,1"},
            parsing("3,1", "non-increasing order, previous: 3, current: 1"),
        ),
        (
            {"succeededIndexes": "0-1-2"},
            parsing(
                "0-1-2",
                'the fragment "0-1-2" violates the requirement that an index interval can have at'
                " most two parts separated by '-'",
            ),
        ),
        (
            {"succeededCount": 6},
            f".succeededCount: Invalid value: 6: {AT_MOST} 5 (the number of specified completions)",
        ),
        (
            {"succeededIndexes": "0-1", "succeededCount": 3},
            f".succeededCount: Invalid value: 3: {AT_MOST} 2 (the number of indexes in the"
            " specified succeededIndexes field)",
        ),
    ],
)
def test_success_policies(rule: Tree, expected: str) -> None:
    found = causes(completionMode="Indexed", completions=5, successPolicy={"rules": [rule]})
    assert found == (expected and SUCCESS + expected)


def test_a_success_policy_has_rules_and_indexes() -> None:
    text = "at least one rules must be specified when the successPolicy is specified"
    found = causes(completionMode="Indexed", completions=5, successPolicy={"rules": []})
    assert found == f"spec.successPolicy.rules: Required value: {text}"
    found = causes(successPolicy={"rules": [{"succeededCount": 1}]})
    assert found.endswith("requires indexed completion mode")
