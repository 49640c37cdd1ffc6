"""Conditions and events of Workloads, and stopped queues, as Kueue of 2026-08-22 writes them.

Expected values: its pkg/controller/jobframework/reconciler.go, pkg/controller/core, pkg/workload.
"""

from __future__ import annotations

import pytest

from stowplan.batch.queue_models.kueue.kueue_options import KueueOptions, PodsReadyOptions
from stowplan.controllers.kueue.kueue_kinds import (
    CLUSTER_QUEUES,
    LOCAL_QUEUES,
    PRIORITY_CLASSES,
    WORKLOADS,
)
from tests.apiserver.small_cluster import JOBS, Tree
from tests.controllers.test_kueue_jobs import QUEUE, KueueCluster, pod_spec


def events(cluster: KueueCluster, kind: str, name: str) -> dict[str, str]:
    """Reason -> the last message, of an object whose name begins so."""
    return {
        one["reason"]: one["message"]
        for one in cluster.list("events")
        if one["involvedObject"]["kind"] == kind and one["involvedObject"]["name"].startswith(name)
    }


def preempted() -> KueueCluster:
    """A job of two pods that makes room for an urgent one after ten seconds."""
    cluster = KueueCluster()
    cluster.queue("q", "2", preemption={"withinClusterQueue": "LowerPriority"})
    cluster.create(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 9})
    cluster.job("low", 2)
    cluster.run(9)
    cluster.job("urgent", 2, run=50, labels={"kueue.x-k8s.io/priority-class": "high"})
    cluster.run(40)
    return cluster


def test_a_workload_that_was_evicted_is_evaluated_again() -> None:
    cluster = preempted()
    found = cluster.conditions("low")
    assert found["Evicted"] == ("True", "Preempted")
    assert found["Preempted"] == ("True", "InClusterQueue")
    assert found["Requeued"] == ("True", "Preempted")
    assert found["Admitted"] == ("False", "NoReservation")
    assert cluster.message("low", "Admitted") == "The workload has no reservation"
    # It was tried meanwhile.
    assert found["QuotaReserved"] == ("False", "WaitingForQuota")
    workload = cluster.workload("low")
    assert 9 <= workload["status"]["accumulatedPastExecutionTimeSeconds"] <= 45
    job = cluster.the(JOBS, "low")
    assert workload["metadata"]["labels"] == {"kueue.x-k8s.io/job-uid": job["metadata"]["uid"]}
    cluster.run(30)
    found = cluster.conditions("low")
    assert found["Evicted"] == ("False", "QuotaReserved")
    assert cluster.message("low", "Evicted").startswith("Previously: Preempted to accommodate")


def test_a_preempted_job_waits_as_an_equal_one_that_is_tried_before_it() -> None:
    cluster = KueueCluster()
    cluster.queue("q", "2", preemption={"withinClusterQueue": "LowerPriority"})
    held = {"clusterQueue": "q", "stopPolicy": "Hold"}
    cluster.create(LOCAL_QUEUES, {"metadata": {"name": "held"}, "spec": held})
    cluster.create(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 9})
    cluster.job("older", 2, queue="held")
    cluster.job("low", 2, run=500)
    cluster.change(LOCAL_QUEUES, "held", stopPolicy="None")
    cluster.run(5)
    assert cluster.running() == {"low": 2}
    cluster.job("urgent", 2, run=500, labels={"kueue.x-k8s.io/priority-class": "high"})
    cluster.run(60)
    assert cluster.running() == {"urgent": 2}
    # The older one gets no quota, so the other is not tried at all.
    found = cluster.conditions("low")
    assert found["Evicted"] == ("True", "Preempted")
    assert found["QuotaReserved"] == ("False", "WaitingForQuota")
    text = "Bypassed scheduling evaluation because an equivalent workload recently failed"
    assert cluster.message("low") == text
    assert cluster.conditions("older")["QuotaReserved"] == ("False", "WaitingForQuota")
    assert cluster.message("older") != text


def test_quota_that_was_given_back_is_pending_evaluation() -> None:
    """Where nothing evaluates it: its queue is stopped."""
    cluster = KueueCluster()
    cluster.queue("q", "2")
    cluster.job("a", 2)
    cluster.change(CLUSTER_QUEUES, "q", stopPolicy="HoldAndDrain")
    cluster.run(40)
    assert cluster.running() == {}
    found = cluster.conditions("a")
    assert found["Evicted"] == ("True", "ClusterQueueStopped")
    assert cluster.message("a", "Evicted") == "The ClusterQueue is stopped"
    assert found["Requeued"] == ("False", "ClusterQueueStopped")
    assert found["QuotaReserved"] == ("False", "Suspended")
    assert cluster.message("a") == "ClusterQueue q is inactive"
    assert events(cluster, "Workload", "job-a-")["EvictedDueToClusterQueueStopped"]
    assert events(cluster, "Job", "a")["Stopped"] == "The ClusterQueue is stopped"
    cluster.change(CLUSTER_QUEUES, "q", stopPolicy="None")
    cluster.run(5)
    assert cluster.conditions("a")["Requeued"] == ("True", "ClusterQueueRestarted")
    assert cluster.running() == {"a": 2}


@pytest.mark.parametrize(("policy", "running"), [("Hold", {"a": 2}), ("HoldAndDrain", {})])
def test_a_stopped_local_queue_holds_or_drains(policy: str, running: dict[str, int]) -> None:
    cluster = KueueCluster()
    cluster.queue("q", "4")
    cluster.job("a", 2)
    cluster.change(LOCAL_QUEUES, "q", stopPolicy=policy)
    cluster.job("b", 2)
    cluster.run(40)
    assert cluster.running() == running
    assert cluster.conditions("b")["QuotaReserved"] == ("False", "Suspended")
    assert cluster.message("b") == "LocalQueue q is inactive"
    cluster.change(LOCAL_QUEUES, "q", stopPolicy="None")
    cluster.run(5)
    assert cluster.running() == {"a": 2, "b": 2}
    if policy == "HoldAndDrain":
        assert cluster.conditions("a")["Requeued"] == ("True", "LocalQueueRestarted")


def test_events_of_a_job_from_its_workload_to_its_end() -> None:
    cluster = preempted()
    cluster.run(150)
    name = cluster.workload("low")["metadata"]["name"]
    of_job = events(cluster, "Job", "low")
    assert of_job["CreatedWorkload"] == f"Created Workload: default/{name}"
    assert of_job["Started"] == "Admitted by clusterQueue q"
    assert of_job["Stopped"].startswith("Preempted to accommodate a workload (UID: ")
    assert of_job["FinishedWorkload"] == f"Workload 'default/{name}' is declared finished"
    of_workload = events(cluster, "Workload", "job-low-")
    text = (
        "; preemptor effective priority: 9 (base: 9, boost: 0)"
        "; preemptee effective priority: 0 (base: 0, boost: 0)"
    )
    assert of_workload["Preempted"].endswith(text)
    assert of_workload["EvictedDueToPreempted"].startswith("Preempted to accommodate")
    urgent = events(cluster, "Workload", "job-urgent-")["PreemptedWorkload"]
    uid = cluster.workload("low")["metadata"]["uid"]
    assert urgent == f"Preempted workload default/{name} (UID: {uid}) in ClusterQueue q{text}"


def test_pods_that_fail_are_waited_for_again() -> None:
    options = KueueOptions(pods_ready=PodsReadyOptions(timeout_s=20, recovery_s=60, backoff_s=5))
    cluster = KueueCluster(options)
    cluster.queue("q", "2")
    cluster.job("a", 2, run=1000)
    cluster.run(10)
    assert cluster.conditions("a")["PodsReady"] == ("True", "Started")
    # One pod disappears, and the next one finds no node.
    cluster.schedules = False
    lost = cluster.pods()[0]
    cluster.delete("pods", lost["metadata"]["name"])
    cluster.run(40)
    assert cluster.conditions("a")["PodsReady"] == ("False", "WaitForRecovery")
    text = "At least one pod has failed, waiting for recovery"
    assert cluster.message("a", "PodsReady") == text
    assert "Evicted" not in cluster.conditions("a")
    cluster.schedules = True
    cluster.run(10)
    assert cluster.conditions("a")["PodsReady"] == ("True", "Recovered")
    cluster.schedules = False
    cluster.delete("pods", cluster.pods()[0]["metadata"]["name"])
    # The pod has half a minute to end.
    cluster.run(100)
    assert events(cluster, "Workload", "job-a-")["EvictedDueToPodsReadyTimeout"]


def test_a_job_runs_no_longer_than_it_may() -> None:
    cluster = KueueCluster()
    cluster.queue("q", "2")
    cluster.job("a", 2, run=1000, labels={"kueue.x-k8s.io/max-exec-time-seconds": "30"})
    cluster.run(20)
    assert cluster.running() == {"a": 2}
    cluster.run(45)
    assert cluster.running() == {}
    reason = "DeactivatedDueToMaximumExecutionTimeExceeded"
    assert cluster.conditions("a")["Evicted"] == ("True", reason)
    text = "The workload is deactivated due to exceeding the maximum execution time"
    assert cluster.message("a", "Evicted") == text
    found = events(cluster, "Workload", "job-a-")
    assert found["MaximumExecutionTimeExceeded"] == "The maximum execution time (30s) exceeded"
    # It runs again once it is activated.
    cluster.change(WORKLOADS, cluster.workload("a")["metadata"]["name"], active=True)
    cluster.run(5)
    assert cluster.running() == {"a": 2}
    assert cluster.conditions("a")["Requeued"] == ("True", "Reactivated")


def test_a_waiting_job_may_change_its_queue_and_its_priority() -> None:
    cluster = KueueCluster()
    cluster.queue("q", "1")
    cluster.queue("other", "4")
    cluster.create(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 9})
    cluster.job("a", 2)
    job = cluster.the(JOBS, "a")
    job["metadata"]["labels"] |= {QUEUE: "other", "kueue.x-k8s.io/priority-class": "high"}
    cluster.api.update(JOBS, job)
    cluster.run(3)
    assert cluster.running() == {"a": 2}
    spec = cluster.workload("a")["spec"]
    assert (spec["queueName"], spec["priority"]) == ("other", 9)
    name = cluster.workload("a")["metadata"]["name"]
    assert events(cluster, "Job", "a")["UpdatedWorkload"] == (
        f"Updated workload priority class: default/{name}"
    )


def test_a_job_that_kueue_did_not_start_is_stopped() -> None:
    cluster = KueueCluster()
    cluster.queue("q", "1")
    notes = {"stowplan.dev/run-seconds": "1000"}
    template = {"metadata": {"annotations": notes}, "spec": pod_spec()}
    cluster.create(JOBS, {"metadata": {"name": "a"}, "spec": {"template": template}})
    cluster.run(3)
    assert cluster.running() == {"a": 1}
    job: Tree = cluster.the(JOBS, "a")
    job["metadata"]["labels"] = {**(job["metadata"].get("labels") or {}), QUEUE: "q"}
    cluster.api.update(JOBS, job)
    cluster.run(40)
    text = "Missing Workload; unable to restore pod templates"
    assert events(cluster, "Job", "a")["Stopped"] == text
    assert events(cluster, "Job", "a")["Started"] == "Admitted by clusterQueue q"
    assert cluster.running() == {"a": 1}
