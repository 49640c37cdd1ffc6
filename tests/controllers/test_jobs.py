"""Jobs: completion, counting, retries, failure, suspension and TTL."""

from __future__ import annotations

import pytest

from stowplan.controller_runtime.object_fields import find_condition
from stowplan.controllers.workloads.job_sync_state import JobBackoff
from tests.apiserver.small_cluster import JOBS, SmallCluster, Tree, job

TRACKING = "batch.kubernetes.io/job-tracking"


def done(cluster: SmallCluster, name: str = "j") -> tuple[str, str]:
    for type_ in ("Complete", "Failed"):
        found = find_condition(cluster.the(JOBS, name)["status"].get("conditions", ()), type_)
        if found is not None and found["status"] == "True":
            return type_, found["reason"]
    return "", ""


def status(cluster: SmallCluster, name: str = "j") -> Tree:
    found: Tree = cluster.the(JOBS, name)["status"]
    return found


def test_a_job_runs_to_its_completions() -> None:
    cluster = SmallCluster(3)
    cluster.create(JOBS, job("j", completions=5, parallelism=2))
    most = 0

    def watch(of: SmallCluster) -> None:
        nonlocal most
        most = max(most, sum(p["status"]["phase"] in ("Pending", "Running") for p in of.pods()))

    cluster.run(30, watch)
    assert most == 2
    assert status(cluster)["succeeded"] == 5
    assert done(cluster) == ("Complete", "CompletionsReached")
    assert status(cluster)["uncountedTerminatedPods"] == {}
    assert all(TRACKING not in p["metadata"].get("finalizers", ()) for p in cluster.pods())
    types = [each["type"] for each in status(cluster)["conditions"]]
    assert types == ["SuccessCriteriaMet", "Complete"]


def test_failed_pods_are_retried_with_patience_until_the_limit() -> None:
    cluster = SmallCluster(2)
    cluster.create(JOBS, job("j", {"stowplan.dev/exit-code": "3"}, backoffLimit=2))
    cluster.run(5)
    assert status(cluster)["failed"] == 1
    assert len(cluster.pods()) == 1
    cluster.run(12)
    assert len(cluster.pods()) == 2
    cluster.run(60)
    assert done(cluster) == ("Failed", "BackoffLimitExceeded")
    assert status(cluster)["failed"] == 3
    types = [each["type"] for each in status(cluster)["conditions"]]
    assert types == ["FailureTarget", "Failed"]


@pytest.mark.parametrize(
    "more",
    [{}, {"completionMode": "Indexed"}, {"completionMode": "Indexed", "backoffLimitPerIndex": 4}],
)
def test_failed_pods_are_counted_before_the_pause_ends(more: Tree) -> None:
    cluster = SmallCluster(3)
    notes = {"stowplan.dev/run-seconds": "600"}
    cluster.create(JOBS, job("j", notes, completions=4, parallelism=4, **more))
    cluster.run(5)
    assert (status(cluster)["active"], status(cluster)["ready"]) == (4, 4)
    victims = sorted(p["metadata"]["name"] for p in cluster.pods())[:2]
    for name in victims:
        cluster.delete("pods", name)
    cluster.run(4)
    found = status(cluster)
    # Of an index alone, the last failed pod stays until another one takes its place.
    kept = victims if "backoffLimitPerIndex" in more else []
    left = [p["metadata"]["name"] for p in cluster.pods() if p["status"]["phase"] == "Failed"]
    assert sorted(left) == kept
    assert (found["active"], found["ready"], found.get("failed", 0)) == (2, 2, 2 - len(kept))
    cluster.run(30)
    found = status(cluster)
    assert (found["active"], found["ready"], found["failed"]) == (4, 4, 2)
    assert len(cluster.pods()) == 4


def test_the_pause_between_failures_doubles_and_a_success_ends_it() -> None:
    none = JobBackoff()
    assert none.until() == 0.0
    one = none.after([], [100.0])
    two = one.after([], [120.0])
    assert (one.until(), two.until()) == (110.0, 140.0)
    assert two.after([130.0], [125.0]).until() == 0.0
    assert two.after([130.0], [125.0, 131.0]).until() == 141.0
    assert JobBackoff(30, 0.0).until() == 600.0


def test_containers_that_restart_count_against_the_limit() -> None:
    cluster = SmallCluster(2)
    notes = {"stowplan.dev/exit-code": "1", "stowplan.dev/run-seconds": "1"}
    cluster.create(JOBS, job("j", notes, policy="OnFailure", backoffLimit=2))
    cluster.run(60)
    assert done(cluster) == ("Failed", "BackoffLimitExceeded")
    cluster.create(JOBS, job("k", {"stowplan.dev/exit-code": "1,0"}, policy="OnFailure"))
    cluster.run(60)
    assert done(cluster, "k") == ("Complete", "CompletionsReached")
    assert [p["status"]["containerStatuses"][0]["restartCount"] for p in cluster.pods(app="k")] == [
        1
    ]


def test_an_indexed_job_has_one_pod_per_index() -> None:
    cluster = SmallCluster(3)
    cluster.create(JOBS, job("j", completions=3, parallelism=3, completionMode="Indexed"))
    cluster.settle()
    label = "batch.kubernetes.io/job-completion-index"
    pods = sorted(cluster.pods(), key=lambda p: p["metadata"]["labels"][label])
    assert [p["metadata"]["labels"][label] for p in pods] == ["0", "1", "2"]
    assert [p["metadata"]["annotations"][label] for p in pods] == ["0", "1", "2"]
    assert [p["spec"]["hostname"] for p in pods] == ["j-0", "j-1", "j-2"]
    assert all(p["metadata"]["name"].startswith(f"j-{i}-") for i, p in enumerate(pods))
    cluster.run(10)
    assert status(cluster)["completedIndexes"] == "0-2"
    assert done(cluster) == ("Complete", "CompletionsReached")


def test_an_index_whose_pod_is_deleted_is_tried_again() -> None:
    cluster = SmallCluster(3)
    notes = {"stowplan.dev/run-seconds": "60"}
    cluster.create(JOBS, job("j", notes, completions=2, parallelism=2, completionMode="Indexed"))
    cluster.run(5)
    victim = min(p["metadata"]["name"] for p in cluster.pods())
    cluster.delete("pods", victim)
    cluster.run(200)
    assert status(cluster)["completedIndexes"] == "0,1"
    assert status(cluster)["failed"] == 1


def test_a_suspended_job_has_no_pods_and_starts_again() -> None:
    cluster = SmallCluster(2)
    cluster.create(JOBS, job("j", {"stowplan.dev/run-seconds": "20"}, suspend=True))
    cluster.run(5)
    assert cluster.pods() == []
    assert "startTime" not in status(cluster)
    cluster.change(JOBS, "j", suspend=False)
    cluster.run(5)
    assert len(cluster.pods()) == 1
    cluster.change(JOBS, "j", suspend=True)
    cluster.run(5)
    assert cluster.pods() == []
    suspended = find_condition(status(cluster)["conditions"], "Suspended")
    assert (suspended or {}).get("status") == "True"
    cluster.change(JOBS, "j", suspend=False)
    cluster.run(60)
    assert done(cluster) == ("Complete", "CompletionsReached")


def test_a_job_that_runs_too_long_is_ended() -> None:
    cluster = SmallCluster(2)
    notes = {"stowplan.dev/run-seconds": "forever"}
    cluster.create(JOBS, job("j", notes, activeDeadlineSeconds=10))
    cluster.run(9)
    assert done(cluster) == ("", "")
    cluster.run(5)
    assert done(cluster) == ("Failed", "DeadlineExceeded")
    assert cluster.pods() == []


def test_a_finished_job_is_deleted_after_its_ttl() -> None:
    cluster = SmallCluster(2)
    cluster.create(JOBS, job("j", ttlSecondsAfterFinished=30))
    cluster.run(10)
    assert done(cluster) == ("Complete", "CompletionsReached")
    cluster.run(40)
    assert cluster.get(JOBS, "j") is None
    assert cluster.pods() == []


def test_a_deleted_job_lets_its_pods_go() -> None:
    cluster = SmallCluster(2)
    cluster.create(JOBS, job("j", {"stowplan.dev/run-seconds": "forever"}, parallelism=2))
    cluster.run(5)
    cluster.delete(JOBS, "j", propagation="Background")
    cluster.run(60)
    assert cluster.get(JOBS, "j") is None
    assert cluster.pods() == []


def test_more_parallelism_makes_pods_and_less_takes_them() -> None:
    cluster = SmallCluster(3)
    notes = {"stowplan.dev/run-seconds": "forever"}
    cluster.create(JOBS, job("j", notes, completions=8, parallelism=2))
    cluster.run(3)
    cluster.change(JOBS, "j", parallelism=4)
    cluster.run(3)
    assert status(cluster)["active"] == 4
    cluster.change(JOBS, "j", parallelism=1)
    cluster.run(3)
    assert status(cluster)["active"] == 1
    assert status(cluster)["ready"] == 1


def test_labels_of_a_job_are_those_of_its_template_where_it_has_none() -> None:
    # As on a real API server, with the labels that the template gets there.
    made = SmallCluster(1)
    made.create(JOBS, job("web"))
    own = job("own")
    own["metadata"]["labels"] = {"a": "b"}
    made.create(JOBS, own)
    found = made.the(JOBS, "web")
    uid = found["metadata"]["uid"]
    assert found["metadata"]["labels"] == {
        "app": "web", "job-name": "web", "batch.kubernetes.io/job-name": "web",
        "controller-uid": uid, "batch.kubernetes.io/controller-uid": uid,
    }  # fmt: skip
    assert found["spec"]["template"]["metadata"]["labels"] == found["metadata"]["labels"]
    assert made.the(JOBS, "own")["metadata"]["labels"] == {"a": "b"}
