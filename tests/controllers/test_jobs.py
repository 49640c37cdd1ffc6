"""Jobs: completion, counting, retries, failure, suspension and TTL."""

from __future__ import annotations

from stowplan.controller_runtime.object_fields import find_condition
from stowplan.controllers.workloads.job_sync_state import JobBackoff
from tests.apiserver.small_cluster import JOBS, Tree, World, job

TRACKING = "batch.kubernetes.io/job-tracking"


def done(world: World, name: str = "j") -> tuple[str, str]:
    for type_ in ("Complete", "Failed"):
        found = find_condition(world.the(JOBS, name)["status"].get("conditions", ()), type_)
        if found is not None and found["status"] == "True":
            return type_, found["reason"]
    return "", ""


def status(world: World, name: str = "j") -> Tree:
    found: Tree = world.the(JOBS, name)["status"]
    return found


def test_a_job_runs_to_its_completions() -> None:
    world = World(3)
    world.create(JOBS, job("j", completions=5, parallelism=2))
    most = 0

    def watch(of: World) -> None:
        nonlocal most
        most = max(most, sum(p["status"]["phase"] in ("Pending", "Running") for p in of.pods()))

    world.run(30, watch)
    assert most == 2
    assert status(world)["succeeded"] == 5
    assert done(world) == ("Complete", "CompletionsReached")
    assert status(world)["uncountedTerminatedPods"] == {}
    assert all(TRACKING not in p["metadata"].get("finalizers", ()) for p in world.pods())
    types = [each["type"] for each in status(world)["conditions"]]
    assert types == ["SuccessCriteriaMet", "Complete"]


def test_failed_pods_are_retried_with_patience_until_the_limit() -> None:
    world = World(2)
    world.create(JOBS, job("j", {"stowplan.dev/exit-code": "3"}, backoffLimit=2))
    world.run(5)
    assert status(world)["failed"] == 1
    assert len(world.pods()) == 1
    world.run(12)
    assert len(world.pods()) == 2
    world.run(60)
    assert done(world) == ("Failed", "BackoffLimitExceeded")
    assert status(world)["failed"] == 3
    types = [each["type"] for each in status(world)["conditions"]]
    assert types == ["FailureTarget", "Failed"]


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
    world = World(2)
    notes = {"stowplan.dev/exit-code": "1", "stowplan.dev/run-seconds": "1"}
    world.create(JOBS, job("j", notes, policy="OnFailure", backoffLimit=2))
    world.run(60)
    assert done(world) == ("Failed", "BackoffLimitExceeded")
    world.create(JOBS, job("k", {"stowplan.dev/exit-code": "1,0"}, policy="OnFailure"))
    world.run(60)
    assert done(world, "k") == ("Complete", "CompletionsReached")
    assert [p["status"]["containerStatuses"][0]["restartCount"] for p in world.pods(app="k")] == [1]


def test_an_indexed_job_has_one_pod_per_index() -> None:
    world = World(3)
    world.create(JOBS, job("j", completions=3, parallelism=3, completionMode="Indexed"))
    world.settle()
    label = "batch.kubernetes.io/job-completion-index"
    pods = sorted(world.pods(), key=lambda p: p["metadata"]["labels"][label])
    assert [p["metadata"]["labels"][label] for p in pods] == ["0", "1", "2"]
    assert [p["metadata"]["annotations"][label] for p in pods] == ["0", "1", "2"]
    assert [p["spec"]["hostname"] for p in pods] == ["j-0", "j-1", "j-2"]
    assert all(p["metadata"]["name"].startswith(f"j-{i}-") for i, p in enumerate(pods))
    world.run(10)
    assert status(world)["completedIndexes"] == "0-2"
    assert done(world) == ("Complete", "CompletionsReached")


def test_an_index_whose_pod_is_deleted_is_tried_again() -> None:
    world = World(3)
    notes = {"stowplan.dev/run-seconds": "60"}
    world.create(JOBS, job("j", notes, completions=2, parallelism=2, completionMode="Indexed"))
    world.run(5)
    victim = min(p["metadata"]["name"] for p in world.pods())
    world.delete("pods", victim)
    world.run(200)
    assert status(world)["completedIndexes"] == "0,1"
    assert status(world)["failed"] == 1


def test_a_suspended_job_has_no_pods_and_starts_again() -> None:
    world = World(2)
    world.create(JOBS, job("j", {"stowplan.dev/run-seconds": "20"}, suspend=True))
    world.run(5)
    assert world.pods() == []
    assert "startTime" not in status(world)
    world.change(JOBS, "j", suspend=False)
    world.run(5)
    assert len(world.pods()) == 1
    world.change(JOBS, "j", suspend=True)
    world.run(5)
    assert world.pods() == []
    suspended = find_condition(status(world)["conditions"], "Suspended")
    assert (suspended or {}).get("status") == "True"
    world.change(JOBS, "j", suspend=False)
    world.run(60)
    assert done(world) == ("Complete", "CompletionsReached")


def test_a_job_that_runs_too_long_is_ended() -> None:
    world = World(2)
    notes = {"stowplan.dev/run-seconds": "forever"}
    world.create(JOBS, job("j", notes, activeDeadlineSeconds=10))
    world.run(9)
    assert done(world) == ("", "")
    world.run(5)
    assert done(world) == ("Failed", "DeadlineExceeded")
    assert world.pods() == []


def test_a_finished_job_is_deleted_after_its_ttl() -> None:
    world = World(2)
    world.create(JOBS, job("j", ttlSecondsAfterFinished=30))
    world.run(10)
    assert done(world) == ("Complete", "CompletionsReached")
    world.run(40)
    assert world.get(JOBS, "j") is None
    assert world.pods() == []


def test_a_deleted_job_lets_its_pods_go() -> None:
    world = World(2)
    world.create(JOBS, job("j", {"stowplan.dev/run-seconds": "forever"}, parallelism=2))
    world.run(5)
    world.delete(JOBS, "j", propagation="Background")
    world.run(60)
    assert world.get(JOBS, "j") is None
    assert world.pods() == []


def test_more_parallelism_makes_pods_and_less_takes_them() -> None:
    world = World(3)
    notes = {"stowplan.dev/run-seconds": "forever"}
    world.create(JOBS, job("j", notes, completions=8, parallelism=2))
    world.run(3)
    world.change(JOBS, "j", parallelism=4)
    world.run(3)
    assert status(world)["active"] == 4
    world.change(JOBS, "j", parallelism=1)
    world.run(3)
    assert status(world)["active"] == 1
    assert status(world)["ready"] == 1
