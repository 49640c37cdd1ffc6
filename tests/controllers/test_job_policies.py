"""Job policies: pod failures, success, back-off per index, replacement, other managers.

Expected values: kubernetes.io/docs/concepts/workloads/controllers/job (Pod failure policy, Success
policy, Backoff limit per index, Pod replacement policy), and kube-controller-manager v1.36,
pkg/controller/job.
"""

from __future__ import annotations

import pytest

from stowplan.controller_runtime.object_fields import find_condition
from stowplan.controllers.workloads.job_failure_policy import (
    match_pod_failure_policy,
    match_success_policy,
)
from tests.apiserver.small_cluster import JOBS, SmallCluster, Tree, job

COUNT = "batch.kubernetes.io/job-index-failure-count"
IGNORED = "batch.kubernetes.io/job-index-ignored-failure-count"
INDEX = "batch.kubernetes.io/job-completion-index"


def failed_pod(code: int = 0, condition: str = "", init: bool = False) -> Tree:
    state = {"terminated": {"exitCode": code}}
    statuses = [{"name": "c", "state": state}, {"name": "d", "state": {"running": {}}}]
    conditions = [{"type": condition, "status": "True"}] if condition else []
    return {
        "metadata": {"namespace": "n", "name": "p"},
        "status": {
            "phase": "Failed",
            ("initContainerStatuses" if init else "containerStatuses"): statuses,
            "conditions": conditions,
        },
    }


def codes(action: str, operator: str, values: list[int], name: str | None = None) -> Tree:
    found: Tree = {"operator": operator, "values": values}
    return {"action": action, "onExitCodes": found | ({"containerName": name} if name else {})}


def conditions(action: str, type_: str) -> Tree:
    return {"action": action, "onPodConditions": [{"type": type_, "status": "True"}]}


EXIT_TEXT = "Container c for pod n/p failed with exit code 42 matching FailJob rule at index 0"


@pytest.mark.parametrize(
    ("rules", "pod", "action", "message"),
    [
        ([codes("FailJob", "In", [1, 42])], failed_pod(42), "FailJob", EXIT_TEXT),
        ([codes("FailJob", "In", [1, 42])], failed_pod(42, init=True), "FailJob", EXIT_TEXT),
        ([codes("FailJob", "In", [42], "d")], failed_pod(42), "", ""),
        ([codes("FailJob", "In", [1])], failed_pod(42), "", ""),
        ([codes("Ignore", "NotIn", [1])], failed_pod(42), "Ignore", ""),
        # Exit code 0 never matches.
        ([codes("Ignore", "NotIn", [1])], failed_pod(0), "", ""),
        (
            [codes("Count", "In", [42]), codes("FailJob", "In", [42])],
            failed_pod(42),
            "Count",
            "",
        ),
        (
            [codes("Ignore", "In", [1]), conditions("FailJob", "DisruptionTarget")],
            failed_pod(42, "DisruptionTarget"),
            "FailJob",
            "Pod n/p has condition DisruptionTarget matching FailJob rule at index 1",
        ),
        ([conditions("FailIndex", "DisruptionTarget")], failed_pod(1), "", ""),
    ],
)
def test_pod_failure_rules(rules: list[Tree], pod: Tree, action: str, message: str) -> None:
    verdict = match_pod_failure_policy({"rules": rules}, pod)
    assert (verdict.action, verdict.message) == (action, message)
    assert verdict.is_counted == (action != "Ignore")


@pytest.mark.parametrize(
    ("rules", "succeeded", "message"),
    [
        ([{"succeededIndexes": "0,2-3"}], {0, 2}, ""),
        ([{"succeededIndexes": "0,2-3"}], {0, 2, 3}, "Matched rules at index 0"),
        ([{"succeededIndexes": "0-4", "succeededCount": 2}], {1, 4}, "Matched rules at index 0"),
        ([{"succeededIndexes": "0-1", "succeededCount": 2}], {1, 4}, ""),
        ([{"succeededCount": 3}, {"succeededCount": 1}], {7}, "Matched rules at index 1"),
        ([{"succeededIndexes": "x"}], {0, 1}, ""),
        ([{"succeededCount": 0}], set(), ""),
    ],
)
def test_success_rules(rules: list[Tree], succeeded: set[int], message: str) -> None:
    assert match_success_policy({"rules": rules}, 10, succeeded) == message


def ended(cluster: SmallCluster) -> tuple[str, str, str]:
    for type_ in ("Complete", "Failed"):
        found = find_condition(status(cluster).get("conditions", ()), type_)
        if found is not None:
            return type_, found["reason"], found["message"]
    return "", "", ""


def status(cluster: SmallCluster) -> Tree:
    found: Tree = cluster.the(JOBS, "j")["status"]
    return found


def finish(
    cluster: SmallCluster, pod: Tree, phase: str, code: int = 0, condition: str = ""
) -> None:
    """End a pod as a kubelet would, in a cluster without kubelets."""
    pod = cluster.the("pods", pod["metadata"]["name"])
    now = "2001-09-09T01:46:40Z"
    ended_state = {"exitCode": code, "finishedAt": now, "startedAt": now}
    pod["status"]["phase"] = phase
    pod["status"]["containerStatuses"] = [
        {
            "name": "c",
            "image": "i",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": {"terminated": ended_state},
        }
    ]
    if condition:
        pod["status"].setdefault("conditions", []).append({"type": condition, "status": "True"})
    cluster.api.now = cluster.now
    cluster.api.update_status("pods", pod)


def running(cluster: SmallCluster) -> list[Tree]:
    return [pod for pod in cluster.pods() if pod["status"]["phase"] == "Pending"]


def of_index(cluster: SmallCluster, index: int) -> Tree:
    found = [pod for pod in running(cluster) if pod["metadata"]["labels"][INDEX] == str(index)]
    assert len(found) == 1
    return found[0]


def test_a_rule_fail_job_ends_the_job_at_the_first_failure() -> None:
    cluster = SmallCluster(2)
    policy = {"rules": [codes("FailJob", "In", [42])]}
    notes = {"stowplan.dev/exit-code": "42"}
    cluster.create(JOBS, job("j", notes, podFailurePolicy=policy, backoffLimit=6))
    cluster.run(10)
    name = cluster.pods()[0]["metadata"]["name"]
    text = (
        f"Container c for pod default/{name} failed with exit code 42 matching FailJob rule at "
        "index 0"
    )
    assert ended(cluster) == ("Failed", "PodFailurePolicy", text)
    assert status(cluster)["failed"] == 1


def test_an_ignored_failure_does_not_count() -> None:
    cluster = SmallCluster(1, simulates_nodes=False, schedules=False)
    policy = {"rules": [conditions("Ignore", "DisruptionTarget")]}
    cluster.create(JOBS, job("j", podFailurePolicy=policy, backoffLimit=0))
    cluster.run(2)
    finish(cluster, running(cluster)[0], "Failed", 137, "DisruptionTarget")
    cluster.run(30)
    assert ended(cluster) == ("", "", "")
    assert status(cluster).get("failed", 0) == 0
    finish(cluster, running(cluster)[0], "Failed", 137)
    cluster.run(30)
    assert ended(cluster)[:2] == ("Failed", "BackoffLimitExceeded")
    assert status(cluster)["failed"] == 1


def test_a_success_policy_ends_the_other_pods() -> None:
    cluster = SmallCluster(1, simulates_nodes=False, schedules=False)
    spec = {"completionMode": "Indexed", "completions": 4, "parallelism": 4}
    policy = {"rules": [{"succeededIndexes": "0,3", "succeededCount": 1}]}
    cluster.create(JOBS, job("j", successPolicy=policy, **spec))
    cluster.run(2)
    finish(cluster, of_index(cluster, 1), "Succeeded")
    cluster.run(5)
    assert ended(cluster) == ("", "", "")
    finish(cluster, of_index(cluster, 3), "Succeeded")
    cluster.run(60)
    types = [each["type"] for each in status(cluster)["conditions"]]
    assert types == ["SuccessCriteriaMet", "Complete"]
    assert ended(cluster) == ("Complete", "SuccessPolicy", "Matched rules at index 0")
    assert status(cluster)["completedIndexes"] == "1,3"


PER_INDEX = {
    "completionMode": "Indexed",
    "completions": 3,
    "parallelism": 3,
    "backoffLimitPerIndex": 1,
}


def test_an_index_fails_alone_and_the_job_at_the_end() -> None:
    cluster = SmallCluster(1, simulates_nodes=False, schedules=False)
    cluster.create(JOBS, job("j", **PER_INDEX))
    cluster.run(2)
    assert of_index(cluster, 1)["metadata"]["annotations"][COUNT] == "0"
    finish(cluster, of_index(cluster, 1), "Failed", 1)
    cluster.run(30)
    again = of_index(cluster, 1)
    assert again["metadata"]["annotations"][COUNT] == "1"
    assert status(cluster)["failed"] == 1
    finish(cluster, again, "Failed", 1)
    cluster.run(30)
    assert status(cluster)["failedIndexes"] == "1"
    assert [pod["metadata"]["labels"][INDEX] for pod in running(cluster)] == ["0", "2"]
    for index in (0, 2):
        finish(cluster, of_index(cluster, index), "Succeeded")
    cluster.run(10)
    assert ended(cluster) == ("Failed", "FailedIndexes", "Job has failed indexes")
    found = status(cluster)
    assert (found["completedIndexes"], found["failedIndexes"]) == ("0,2", "1")
    assert (found["succeeded"], found["failed"]) == (2, 2)


def test_back_off_is_per_index() -> None:
    cluster = SmallCluster(1, simulates_nodes=False, schedules=False)
    cluster.create(JOBS, job("j", **PER_INDEX | {"backoffLimitPerIndex": 3}))
    cluster.run(2)
    finish(cluster, of_index(cluster, 0), "Failed", 1)
    cluster.run(3)
    # A pod failed at second 0 of the test: its index waits 10 s, the others do not.
    assert len(running(cluster)) == 2
    cluster.run(6)
    again = of_index(cluster, 0)
    finish(cluster, again, "Failed", 1)
    cluster.run(7)
    # The second failure, noted at second 0 too, waits 20 s.
    assert len(running(cluster)) == 2
    cluster.run(4)
    assert of_index(cluster, 0)["metadata"]["annotations"][COUNT] == "2"


def test_too_many_failed_indexes_end_the_job() -> None:
    cluster = SmallCluster(1, simulates_nodes=False, schedules=False)
    cluster.create(JOBS, job("j", **PER_INDEX | {"backoffLimitPerIndex": 0, "maxFailedIndexes": 1}))
    cluster.run(2)
    finish(cluster, of_index(cluster, 0), "Failed", 1)
    cluster.run(5)
    assert ended(cluster) == ("", "", "")
    finish(cluster, of_index(cluster, 2), "Failed", 1)
    cluster.run(60)
    text = "Job has exceeded the specified maximal number of failed indexes"
    assert ended(cluster) == ("Failed", "MaxFailedIndexesExceeded", text)
    assert status(cluster)["failedIndexes"] == "0,2"


def test_a_rule_fail_index_ends_an_index_at_once_and_ignored_failures_are_noted() -> None:
    cluster = SmallCluster(1, simulates_nodes=False, schedules=False)
    rules = [codes("FailIndex", "In", [42]), codes("Ignore", "In", [7])]
    cluster.create(JOBS, job("j", podFailurePolicy={"rules": rules}, **PER_INDEX))
    cluster.run(2)
    finish(cluster, of_index(cluster, 0), "Failed", 42)
    finish(cluster, of_index(cluster, 1), "Failed", 7)
    cluster.run(30)
    assert status(cluster)["failedIndexes"] == "0"
    notes = of_index(cluster, 1)["metadata"]["annotations"]
    assert (notes[COUNT], notes[IGNORED]) == ("0", "1")
    assert status(cluster)["failed"] == 1


@pytest.mark.parametrize(
    ("policy", "replaced_at_once"), [("Failed", 0), ("TerminatingOrFailed", 1)]
)
def test_pod_replacement_policy(policy: str, replaced_at_once: int) -> None:
    cluster = SmallCluster(2)
    notes = {"stowplan.dev/run-seconds": "forever", "stowplan.dev/stop-seconds": "20"}
    cluster.create(JOBS, job("j", notes, podReplacementPolicy=policy))
    cluster.run(5)
    cluster.delete("pods", cluster.pods()[0]["metadata"]["name"])
    # After the back-off of 10 s, before the pod has ended.
    cluster.run(15)
    living = [pod for pod in cluster.pods() if not pod["metadata"].get("deletionTimestamp")]
    assert len(living) == replaced_at_once
    cluster.run(40)
    living = [pod for pod in cluster.pods() if pod["status"]["phase"] == "Running"]
    assert len(living) == 1


def test_pods_of_a_suspended_job_do_not_count_as_failed() -> None:
    cluster = SmallCluster(2)
    notes = {"stowplan.dev/run-seconds": "20"}
    cluster.create(JOBS, job("j", notes, backoffLimit=0))
    cluster.run(5)
    cluster.change(JOBS, "j", suspend=True)
    cluster.run(5)
    cluster.change(JOBS, "j", suspend=False)
    cluster.run(60)
    assert ended(cluster)[0] == "Complete"
    assert status(cluster).get("failed", 0) == 0


def test_a_job_of_another_manager_is_left_alone() -> None:
    cluster = SmallCluster(1)
    cluster.create(JOBS, job("j", managedBy="example.com/other"))
    cluster.run(10)
    assert cluster.pods() == []
    assert status(cluster) == {}
