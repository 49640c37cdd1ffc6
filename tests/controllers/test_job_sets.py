"""JobSets on a cluster: the Jobs that their controller makes, and how they end.

Expected values: jobset.sigs.k8s.io/docs (concepts; tasks: basic examples, failure policy, startup
policy), and JobSet of 2026-08-18.
"""

from __future__ import annotations

from typing import Any

from stowplan.batch.queue_models.kueue.kueue_options import KueueOptions
from stowplan.controllers.job_sets.job_set_kinds import JOB_SETS
from tests.apiserver.small_cluster import JOBS, SmallCluster, Tree

LABEL = "jobset.sigs.k8s.io"


def replicated(name: str, replicas: int = 1, pods: int = 1, run: int = 60, **more: Any) -> Tree:
    """A replicated job whose pods run for some seconds."""
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}
    notes = {"stowplan.dev/run-seconds": str(run), **more.pop("notes", {})}
    template = {"metadata": {"annotations": notes}, "spec": {"containers": [container]}}
    spec = {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": template}
    return {"name": name, "replicas": replicas, "template": {"spec": spec}, **more}


class JobSetCluster(SmallCluster):
    """A cluster with JobSets."""

    def __init__(self, kueue: KueueOptions | None = None, start_s: float = 1.0) -> None:
        super().__init__(job_sets=True, kueue=kueue, start_s=start_s)

    def job_set(self, name: str, *jobs: Tree, **more: Any) -> Tree:
        """Create a JobSet, and let a second pass."""
        meta = {"name": name, **more.pop("meta", {})}
        made = self.create(
            JOB_SETS, {"metadata": meta, "spec": {"replicatedJobs": [*jobs], **more}}
        )
        self.run(1)
        return made

    def state(self, name: str) -> dict[str, tuple[str, str]]:
        """Type -> status and reason of conditions."""
        conditions = self.the(JOB_SETS, name)["status"].get("conditions") or ()
        return {one["type"]: (one["status"], one["reason"]) for one in conditions}

    def counts(self, name: str) -> dict[str, dict[str, int]]:
        """Replicated job -> its numbers that are not 0."""
        return {
            one["name"]: {key: n for key, n in one.items() if key != "name" and n}
            for one in self.the(JOB_SETS, name)["status"]["replicatedJobsStatus"]
        }

    def jobs(self) -> list[str]:
        """Names of all Jobs."""
        return sorted(one["metadata"]["name"] for one in self.list(JOBS))


def test_a_jobset_makes_its_jobs_and_completes_with_them() -> None:
    cluster = JobSetCluster()
    cluster.job_set("train", replicated("driver"), replicated("workers", 2, 3))
    assert cluster.jobs() == ["train-driver-0", "train-workers-0", "train-workers-1"]
    job = cluster.the(JOBS, "train-workers-1")
    assert job["spec"]["completionMode"] == "Indexed"
    labels = job["spec"]["template"]["metadata"]["labels"]
    marks = {key.partition("/")[2]: labels[key] for key in labels if key.startswith(LABEL)}
    assert marks.pop("jobset-uid")
    assert marks.pop("job-key") == "f7cd59a344a70b9510e91bf1b6f8a70533d949ef"
    assert marks == {
        "jobset-name": "train", "replicatedjob-name": "workers", "replicatedjob-replicas": "2",
        "global-replicas": "3", "job-index": "1", "job-global-index": "2", "restart-attempt": "0",
        "group-name": "default", "group-replicas": "3", "job-group-index": "2",
    }  # fmt: skip
    cluster.run(10)
    assert cluster.counts("train") == {
        "driver": {"ready": 1, "active": 1}, "workers": {"ready": 2, "active": 2},
    }  # fmt: skip
    assert len(cluster.pods()) == 7
    cluster.run(120)
    assert cluster.state("train") == {"Completed": ("True", "AllJobsCompleted")}
    assert cluster.the(JOB_SETS, "train")["status"]["terminalState"] == "Completed"
    assert cluster.counts("train") == {"driver": {"succeeded": 1}, "workers": {"succeeded": 2}}


def test_one_job_is_enough_if_the_success_policy_declares_it() -> None:
    cluster = JobSetCluster()
    policy = {"operator": "All", "targetReplicatedJobs": ["driver"]}
    jobs = replicated("driver", run=30), replicated("workers", 2, run=9000)
    cluster.job_set("train", *jobs, successPolicy=policy, ttlSecondsAfterFinished=100)
    cluster.run(60)
    assert cluster.state("train")["Completed"] == ("True", "AllJobsCompleted")
    # What still runs is deleted.
    assert cluster.jobs() == ["train-driver-0"]
    cluster.run(120)
    assert cluster.list(JOB_SETS) == []
    assert cluster.jobs() == []


def fail(cluster: JobSetCluster, job: str) -> None:
    """Have the pod of a Job fail."""
    (pod,) = cluster.pods(**{"batch.kubernetes.io/job-name": job})
    pod["status"]["phase"] = "Failed"
    cluster.api.update_status("pods", pod)
    cluster.run(60)


def test_a_failed_job_fails_its_jobset_or_restarts_it() -> None:
    cluster = JobSetCluster()
    job = replicated("workers", 2, run=9000)
    job["template"]["spec"]["template"]["spec"]["restartPolicy"] = "Never"
    cluster.job_set("plain", job)
    fail(cluster, "plain-workers-0")
    assert cluster.state("plain") == {"Failed": ("True", "FailedJobs")}
    assert cluster.jobs() == ["plain-workers-0"]
    cluster.delete(JOB_SETS, "plain", propagation="Foreground")
    cluster.run(60)
    rule = {"action": "FailJobSet", "onJobFailureReasons": ["DeadlineExceeded"]}
    cluster.job_set("again", job, failurePolicy={"maxRestarts": 1, "rules": [rule]})
    first = {one["metadata"]["uid"] for one in cluster.list(JOBS)}
    fail(cluster, "again-workers-1")
    assert cluster.state("again")["RestartingJobSet"] == ("False", "JobsReady")
    status = cluster.the(JOB_SETS, "again")["status"]
    assert (status["restarts"], status["restartsCountTowardsMax"]) == (1, 1)
    assert cluster.jobs() == ["again-workers-0", "again-workers-1"]
    assert not first & {one["metadata"]["uid"] for one in cluster.list(JOBS)}
    fail(cluster, "again-workers-1")
    assert cluster.state("again")["Failed"] == ("True", "ReachedMaxRestarts")


def test_replicated_jobs_start_in_order() -> None:
    cluster = JobSetCluster(start_s=10.0)
    jobs = replicated("driver", run=100), replicated("workers", run=100)
    cluster.job_set("train", *jobs, startupPolicy={"startupPolicyOrder": "InOrder"})
    assert cluster.jobs() == ["train-driver-0"]
    assert cluster.state("train")["StartupPolicyInProgress"][0] == "True"
    cluster.run(20)
    assert cluster.jobs() == ["train-driver-0", "train-workers-0"]
    cluster.run(20)
    assert cluster.state("train")["StartupPolicyCompleted"][0] == "True"
    assert cluster.state("train")["StartupPolicyInProgress"][0] == "False"
    depends = [{"name": "first", "status": "Complete"}]
    cluster.job_set("deps", replicated("first"), replicated("second", dependsOn=depends))
    cluster.run(30)
    assert "deps-second-0" not in cluster.jobs()
    cluster.run(70)
    assert "deps-second-0" in cluster.jobs()


def test_a_suspended_jobset_has_no_pods_and_runs_where_its_template_places_it_then() -> None:
    cluster = JobSetCluster()
    cluster.job_set("train", replicated("workers", 2, run=9000), suspend=True)
    assert cluster.counts("train") == {"workers": {"suspended": 2}}
    assert cluster.pods() == []
    for node in ("node-1", "node-2"):
        found = cluster.the(JOB_SETS, "train")
        place = found["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        place["nodeSelector"] = {"kubernetes.io/hostname": node}
        found["spec"]["suspend"] = False
        cluster.api.update(JOB_SETS, found)
        cluster.run(10)
        assert cluster.state("train")["Suspended"] == ("False", "ResumeJobs")
        assert {one["spec"]["nodeName"] for one in cluster.pods()} == {node}
        cluster.change(JOB_SETS, "train", suspend=True)
        cluster.run(60)
        assert cluster.state("train")["Suspended"] == ("True", "SuspendedJobs")
        assert cluster.pods() == []


def test_a_jobset_of_another_controller_is_left_alone() -> None:
    cluster = JobSetCluster()
    cluster.job_set("theirs", replicated("workers"), managedBy="example.com/theirs")
    assert cluster.jobs() == []
    # One without jobs, and one with a template that is refused, hold up no other.
    cluster.job_set("empty")
    bad = replicated("workers")
    bad["template"]["spec"]["template"]["spec"]["containers"] = []
    cluster.job_set("bad", bad)
    cluster.job_set("good", replicated("workers"))
    assert cluster.jobs() == ["good-workers-0"]
    events = {(one["involvedObject"]["name"], one["reason"]) for one in cluster.list("events")}
    assert ("bad", "JobCreationFailed") in events
