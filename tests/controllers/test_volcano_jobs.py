"""Jobs, PodGroups and Queues of Volcano: what its controllers make of them, without a scheduler.

Expected values: volcano.sh/docs (VolcanoJob, PodGroup, Queue) and volcano master of 2026-08-20,
pkg/controllers.
"""

from __future__ import annotations

from typing import Any

import pytest

from stowplan.controllers.volcano.volcano_job_phases import (
    JobAction,
    JobCounts,
    JobEvent,
    action_for,
    next_phase,
)
from stowplan.controllers.volcano.volcano_kinds import (
    VOLCANO_COMMANDS,
    VOLCANO_JOBS,
    VOLCANO_POD_GROUPS,
    VOLCANO_QUEUES,
)
from tests.apiserver.small_cluster import SmallCluster, Tree, container, deployment

ASKS = {"resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}


def task(name: str, replicas: int, **more: Any) -> Tree:
    spec = {"containers": [container(**ASKS)], "restartPolicy": "Never"}
    return {"name": name, "replicas": replicas, "template": {"spec": spec}, **more}


def vcjob(name: str, *tasks: Tree, **spec: Any) -> Tree:
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"tasks": list(tasks), **spec},
    }


class VolcanoCluster(SmallCluster):
    """A cluster with Volcano's controllers, whose PodGroups the test admits."""

    def __init__(self) -> None:
        super().__init__(volcano=True, simulates_nodes=False, schedules=False)
        self.create(VOLCANO_QUEUES, {"metadata": {"name": "research"}, "spec": {"weight": 2}})
        self.settle()

    def submit(self, job: Tree) -> str:
        """Create a Job; the name of its PodGroup."""
        made = self.create(VOLCANO_JOBS, job)
        self.settle()
        return f"{made['metadata']['name']}-{made['metadata']['uid']}"

    def admit(self, group: str) -> None:
        """What the scheduler does in `enqueue`."""
        found = self.the(VOLCANO_POD_GROUPS, group)
        found["status"] = {"phase": "Inqueue"}
        self.api.update_status(VOLCANO_POD_GROUPS, found)
        self.settle()

    def command(self, path: str, name: str, action: str) -> None:
        """What `vcctl` does: a Command that names the object."""
        target = self.the(path, name)
        version = "scheduling.volcano.sh/v1beta1" if path == VOLCANO_QUEUES else ""
        reference = {
            "apiVersion": version or "batch.volcano.sh/v1alpha1",
            "kind": "Queue" if path == VOLCANO_QUEUES else "Job",
            "name": name,
            "uid": target["metadata"]["uid"],
            "controller": True,
        }
        meta = {"generateName": f"{name}-{action.lower()}-", "ownerReferences": [reference]}
        self.create(VOLCANO_COMMANDS, {"metadata": meta, "target": reference, "action": action})
        self.settle()

    def events(self, reason: str) -> list[str]:
        found = (one for one in self.list("events") if one["reason"] == reason)
        return [one.get("note") or one["message"] for one in found]

    def place(self, name: str) -> None:
        """What the scheduler does once a pod has a node."""
        self.server.bind(self.the("pods", name), "node", self.now)
        self.settle()

    def set_phase(self, name: str, phase: str, exit_code: int = 0) -> None:
        """What a kubelet reports of a pod."""
        pod = self.the("pods", name)
        pod["status"] |= {"phase": phase}
        if exit_code:
            ended = {"terminated": {"exitCode": exit_code}}
            pod["status"]["containerStatuses"] = [{"name": "c", "image": "i", "state": ended}]
        self.api.update_status("pods", pod)
        self.settle()

    def status(self, name: str) -> Tree:
        found: Tree = self.the(VOLCANO_JOBS, name)["status"]
        return found

    def phase(self, name: str) -> str:
        return str(self.status(name)["state"]["phase"])

    def names(self) -> list[str]:
        return sorted(pod["metadata"]["name"] for pod in self.pods())


def test_a_job_has_a_group_and_pods_once_the_group_is_admitted() -> None:
    cluster = VolcanoCluster()
    group = cluster.submit(
        vcjob("mpi", task("master", 1), task("worker", 3, minAvailable=2), queue="research")
    )
    spec = cluster.the(VOLCANO_POD_GROUPS, group)["spec"]
    assert spec == {
        "minMember": 3,
        "minTaskMember": {"master": 1, "worker": 2},
        "queue": "research",
        "minResources": {"cpu": "6", "memory": "3Gi", "pods": "3"},
    }
    assert (cluster.names(), cluster.phase("mpi")) == ([], "Pending")
    cluster.admit(group)
    assert cluster.names() == ["mpi-master-0", "mpi-worker-0", "mpi-worker-1", "mpi-worker-2"]
    pod = cluster.the("pods", "mpi-worker-1")
    assert pod["spec"]["schedulerName"] == "volcano"
    notes = pod["metadata"]["annotations"]
    assert notes["scheduling.k8s.io/group-name"] == group
    assert (notes["volcano.sh/task-spec"], notes["volcano.sh/task-index"]) == ("worker", "1")
    for name in cluster.names()[:3]:
        cluster.set_phase(name, "Running")
    assert cluster.phase("mpi") == "Running"
    assert cluster.status("mpi")["taskStatusCount"]["worker"] == {
        "phase": {"Pending": 1, "Running": 2}
    }


def test_a_job_ends_when_its_pods_have() -> None:
    cluster = VolcanoCluster()
    group = cluster.submit(vcjob("sort", task("w", 2), ttlSecondsAfterFinished=60))
    cluster.admit(group)
    for name in ("sort-w-0", "sort-w-1"):
        cluster.set_phase(name, "Running")
        cluster.set_phase(name, "Succeeded")
    assert cluster.phase("sort") == "Completed"
    assert [one["status"] for one in cluster.status("sort")["conditions"]] == [
        "Pending",
        "Running",
        "Completed",
    ]
    assert cluster.get(VOLCANO_POD_GROUPS, group) is None
    cluster.run(61.0)
    assert cluster.get(VOLCANO_JOBS, "sort") is None


def test_an_evicted_pod_restarts_the_job_by_its_policy() -> None:
    cluster = VolcanoCluster()
    policies = [{"event": "PodEvicted", "action": "RestartJob"}]
    group = cluster.submit(vcjob("train", task("w", 2), policies=policies))
    cluster.admit(group)
    uids = {pod["metadata"]["uid"] for pod in cluster.pods()}
    cluster.delete("pods", "train-w-0", grace_s=0)
    cluster.settle()
    # Both pods are gone, and the group is new: it has to be admitted again.
    cluster.run(40.0)
    assert (cluster.names(), cluster.phase("train")) == ([], "Pending")
    assert cluster.status("train")["retryCount"] == 1
    cluster.admit(group)
    assert cluster.names() == ["train-w-0", "train-w-1"]
    assert not uids & {pod["metadata"]["uid"] for pod in cluster.pods()}
    version = cluster.the("pods", "train-w-0")["metadata"]["annotations"]["volcano.sh/job-version"]
    assert version == "1"


def test_an_evicted_pod_is_replaced_without_a_policy() -> None:
    cluster = VolcanoCluster()
    cluster.admit(cluster.submit(vcjob("train", task("w", 2))))
    uid = cluster.the("pods", "train-w-0")["metadata"]["uid"]
    cluster.delete("pods", "train-w-0", grace_s=0)
    cluster.settle()
    assert cluster.the("pods", "train-w-0")["metadata"]["uid"] != uid
    assert cluster.phase("train") == "Pending"


def test_a_task_waits_for_those_that_it_depends_on() -> None:
    cluster = VolcanoCluster()
    depends = {"dependsOn": {"name": ["ps"]}}
    cluster.admit(cluster.submit(vcjob("tf", task("ps", 1), task("w", 1, **depends))))
    assert cluster.names() == ["tf-ps-0"]
    cluster.set_phase("tf-ps-0", "Running")
    assert cluster.names() == ["tf-ps-0", "tf-w-0"]


def test_pods_of_volcano_without_a_group_get_one() -> None:
    cluster = VolcanoCluster()
    web = deployment("web", 2)
    web["spec"]["template"]["spec"]["schedulerName"] = "volcano"
    cluster.create("apps/deployments", web)
    cluster.create("apps/deployments", deployment("other", 1))
    cluster.settle()
    (group,) = cluster.list(VOLCANO_POD_GROUPS)
    (owner,) = group["metadata"]["ownerReferences"]
    assert group["metadata"]["name"] == f"podgroup-{owner['uid']}"
    assert (owner["kind"], group["spec"]["minMember"]) == ("ReplicaSet", 1)
    key = "scheduling.k8s.io/group-name"
    named = [key in (pod["metadata"].get("annotations") or {}) for pod in cluster.pods()]
    assert sorted(named) == [False, True, True]


def test_queues_are_open_below_the_root_and_count_their_groups() -> None:
    cluster = VolcanoCluster()
    group = cluster.submit(vcjob("a", task("w", 1), queue="research"))
    assert {one["metadata"]["name"] for one in cluster.list(VOLCANO_QUEUES)} == {
        "root",
        "default",
        "research",
    }
    queue = cluster.the(VOLCANO_QUEUES, "research")
    assert (queue["spec"]["parent"], queue["status"]["state"]) == ("root", "Open")
    assert (queue["status"]["pending"], queue["status"]["inqueue"]) == (1, 0)
    cluster.admit(group)
    status = cluster.the(VOLCANO_QUEUES, "research")["status"]
    assert (status["pending"], status["inqueue"]) == (0, 1)


FAILED = JobEvent("PodFailed", "w", "p", 3)


def allocated(cluster: VolcanoCluster, queue: str) -> Tree:
    found: Tree = cluster.the(VOLCANO_QUEUES, queue)["status"]["allocated"]
    return found


def test_queues_have_what_their_placed_pods_request_and_those_above_them() -> None:
    cluster = VolcanoCluster()
    cluster.create(VOLCANO_QUEUES, {"metadata": {"name": "vision"}, "spec": {"parent": "research"}})
    cluster.settle()
    assert allocated(cluster, "vision") == {"cpu": "0", "memory": "0"}
    group = cluster.submit(vcjob("train", task("worker", 2), queue="vision", minAvailable=2))
    cluster.admit(group)
    for name in cluster.names():
        cluster.place(name)
    both = {"cpu": "4", "memory": "2Gi", "pods": "2"}
    assert [allocated(cluster, name) for name in ("vision", "research", "root")] == [both] * 3
    assert allocated(cluster, "default") == {"cpu": "0", "memory": "0"}
    cluster.set_phase(cluster.names()[0], "Succeeded")
    assert allocated(cluster, "root") == {"cpu": "2", "memory": "1Gi", "pods": "1"}


def test_a_closing_queue_is_closed_once_it_has_no_group() -> None:
    cluster = VolcanoCluster()
    cluster.submit(vcjob("last", task("worker", 1), queue="research"))
    queue = cluster.the(VOLCANO_QUEUES, "research")
    queue["status"] |= {"state": "Closing"}
    cluster.api.update_status(VOLCANO_QUEUES, queue)
    cluster.settle()
    assert cluster.the(VOLCANO_QUEUES, "research")["status"]["state"] == "Closing"
    cluster.delete(VOLCANO_JOBS, "last")
    cluster.settle()
    assert cluster.the(VOLCANO_QUEUES, "research")["status"]["state"] == "Closed"


@pytest.mark.parametrize(
    ("of_task", "of_job", "action"),
    [
        ([], [], JobAction("SyncJob", FAILED)),
        ([], [{"event": "PodFailed", "action": "AbortJob"}], JobAction("AbortJob", FAILED)),
        (
            [{"events": ["PodEvicted", "PodFailed"], "action": "RestartTask", "timeout": "1m30s"}],
            [{"event": "PodFailed", "action": "AbortJob"}],
            JobAction("RestartTask", FAILED, 90.0),
        ),
        ([], [{"exitCode": 3, "action": "TerminateJob"}], JobAction("TerminateJob", FAILED)),
        ([], [{"exitCode": 4, "action": "TerminateJob"}], JobAction("SyncJob", FAILED)),
        ([], [{"event": "*", "action": "CompleteJob"}], JobAction("CompleteJob", FAILED)),
    ],
)
def test_the_first_policy_that_an_event_meets_counts(
    of_task: list[Tree], of_job: list[Tree], action: JobAction
) -> None:
    job = {"spec": {"tasks": [{"name": "w", "policies": of_task}], "policies": of_job}}
    assert action_for(job, FAILED) == action


def counted(**numbers: int) -> JobCounts:
    counts = JobCounts(by_task={})
    for phase, number in numbers.items():
        for _ in range(number):
            counts.count("w", phase.capitalize())
    return counts


@pytest.mark.parametrize(
    ("phase", "counts", "spec", "after"),
    [
        ("Pending", counted(running=1), {}, "Pending"),
        ("Pending", counted(running=1, succeeded=1), {}, "Running"),
        ("Running", counted(running=1, pending=2), {}, "Pending"),
        ("Running", counted(succeeded=2, failed=1), {}, "Completed"),
        ("Running", counted(succeeded=1, failed=2), {}, "Failed"),
        ("Running", counted(succeeded=1, running=2), {"minSuccess": 1}, "Completed"),
        ("Running", counted(succeeded=1, failed=2), {"minSuccess": 2}, "Failed"),
        ("Aborting", counted(running=1), {}, "Aborting"),
        ("Aborting", counted(failed=1), {}, "Aborted"),
        ("Restarting", counted(), {}, "Pending"),
    ],
)
def test_the_phase_of_a_job_follows_from_its_pods(
    phase: str, counts: JobCounts, spec: Tree, after: str
) -> None:
    tasks = [{"name": "w", "replicas": 3, "minAvailable": 2}]
    job = {"spec": {"tasks": tasks, "minAvailable": 2, "maxRetry": 3, **spec}, "status": {}}
    assert next_phase(job, counts, phase) == after


def test_a_job_is_suspended_and_resumed_by_commands() -> None:
    cluster = VolcanoCluster()
    group = cluster.submit(vcjob("train", task("w", 3), ttlSecondsAfterFinished=5))
    cluster.admit(group)
    for name in cluster.names():
        cluster.set_phase(name, "Running")
    cluster.set_phase("train-w-0", "Succeeded")
    cluster.command(VOLCANO_JOBS, "train", "AbortJob")
    cluster.run(40.0)
    # What has ended stays; a job that may be resumed is not deleted when its time is over.
    assert (cluster.names(), cluster.phase("train")) == (["train-w-0"], "Aborted")
    assert cluster.get(VOLCANO_POD_GROUPS, group) is None
    assert cluster.list(VOLCANO_COMMANDS) == []
    assert cluster.events("CommandIssued") == [
        "Start to execute command AbortJob, and clean it up to make sure executed not more than "
        "once."
    ]
    cluster.command(VOLCANO_JOBS, "train", "RestartJob")
    assert cluster.phase("train") == "Aborted"
    cluster.command(VOLCANO_JOBS, "train", "ResumeJob")
    cluster.run(40.0)
    assert (cluster.phase("train"), cluster.status("train")["retryCount"]) == ("Pending", 1)
    cluster.admit(group)
    assert cluster.names() == ["train-w-0", "train-w-1", "train-w-2"]
    assert cluster.the("pods", "train-w-0")["status"]["phase"] == "Succeeded"


def test_a_command_for_a_job_that_is_gone_is_dropped() -> None:
    cluster = VolcanoCluster()
    reference = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "gone"}
    command = {"metadata": {"name": "late"}, "target": reference, "action": "TerminateJob"}
    cluster.create(VOLCANO_COMMANDS, command)
    cluster.settle()
    assert cluster.list(VOLCANO_COMMANDS) == []
    cluster.admit(cluster.submit(vcjob("gone", task("w", 1))))
    assert cluster.phase("gone") == "Pending"
    cluster.command(VOLCANO_JOBS, "gone", "TerminateJob")
    cluster.run(40.0)
    assert (cluster.names(), cluster.phase("gone")) == ([], "Terminated")


def state(cluster: VolcanoCluster, name: str) -> str:
    return str(cluster.the(VOLCANO_QUEUES, name)["status"]["state"])


def test_a_queue_is_closed_with_those_below_it_and_opened_again() -> None:
    cluster = VolcanoCluster()
    for name in ("vision", "speech"):
        cluster.create(VOLCANO_QUEUES, {"metadata": {"name": name}, "spec": {"parent": "research"}})
    cluster.submit(vcjob("last", task("w", 1), queue="vision"))
    cluster.command(VOLCANO_QUEUES, "speech", "CloseQueue")
    cluster.command(VOLCANO_QUEUES, "research", "CloseQueue")
    states = [state(cluster, name) for name in ("research", "vision", "speech")]
    assert states == ["Closed", "Closing", "Closed"]
    cluster.command(VOLCANO_QUEUES, "vision", "OpenQueue")
    assert state(cluster, "vision") == "Closing"
    (refused,) = cluster.events("OpenQueue")
    assert "because its parent queue research is closing or closed" in refused
    cluster.delete(VOLCANO_JOBS, "last")
    cluster.settle()
    assert state(cluster, "vision") == "Closed"
    # The one that was closed by itself stays closed.
    cluster.command(VOLCANO_QUEUES, "research", "OpenQueue")
    states = [state(cluster, name) for name in ("research", "vision", "speech")]
    assert states == ["Open", "Open", "Closed"]
    cluster.command(VOLCANO_QUEUES, "root", "CloseQueue")
    assert state(cluster, "root") == "Open"
    assert cluster.list(VOLCANO_COMMANDS) == []


def test_a_partition_restarts_alone() -> None:
    cluster = VolcanoCluster()
    parts = {"totalPartitions": 2, "partitionSize": 2}
    policies = [{"event": "PodFailed", "action": "RestartPartition"}]
    made = task("w", 4, partitionPolicy=parts, policies=policies)
    cluster.admit(cluster.submit(vcjob("train", made, maxRetry=5)))
    before = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in cluster.pods()}
    for name in cluster.names():
        cluster.set_phase(name, "Running")
    cluster.set_phase("train-w-3", "Failed")
    cluster.run(40.0)
    after = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in cluster.pods()}
    assert [name for name in before if before[name] != after[name]] == ["train-w-2", "train-w-3"]


def test_pods_that_stay_pending_end_a_job_after_the_timeout_of_its_policy() -> None:
    cluster = VolcanoCluster()
    policies = [{"event": "PodPending", "action": "AbortJob", "timeout": "60s"}]
    cluster.admit(cluster.submit(vcjob("train", task("w", 2), policies=policies, minAvailable=1)))
    cluster.run(50.0)
    cluster.set_phase("train-w-0", "Running")
    assert cluster.phase("train") == "Running"
    cluster.set_phase("train-w-1", "Running")
    cluster.run(60.0)
    # Both have started in time.
    assert cluster.phase("train") == "Running"
    cluster.delete("pods", "train-w-1", grace_s=0)
    cluster.run(50.0)
    assert cluster.phase("train") == "Running"
    cluster.run(70.0)
    assert cluster.phase("train") == "Aborted"


def test_a_group_that_lost_pods_meets_the_policy_on_unknown() -> None:
    cluster = VolcanoCluster()
    policies = [{"event": "Unknown", "action": "TerminateJob"}]
    group = cluster.submit(vcjob("train", task("w", 2), policies=policies))
    cluster.admit(group)
    found = cluster.the(VOLCANO_POD_GROUPS, group)
    found["status"] = {"phase": "Unknown"}
    cluster.api.update_status(VOLCANO_POD_GROUPS, found)
    cluster.run(40.0)
    assert cluster.phase("train") == "Terminated"


@pytest.mark.parametrize(
    ("limit", "restarts", "failed"), [(None, 3, True), (4, 3, False), (-1, 9, False)]
)
def test_a_task_has_failed_when_its_containers_started_too_often(
    limit: int | None, restarts: int, failed: bool
) -> None:
    cluster = VolcanoCluster()
    policies = [{"event": "TaskFailed", "action": "TerminateJob"}]
    more = {} if limit is None else {"maxRetry": limit}
    cluster.admit(cluster.submit(vcjob("train", task("w", 1, **more), policies=policies)))
    pod = cluster.the("pods", "train-w-0")
    again = {"name": "c", "image": "i", "restartCount": restarts, "state": {"running": {}}}
    pod["status"] |= {"phase": "Running", "containerStatuses": [again]}
    cluster.api.update_status("pods", pod)
    cluster.run(40.0)
    assert cluster.phase("train") == ("Terminated" if failed else "Running")
