"""Jobs and pods with a queue of Kueue on a cluster: what its controllers make of them.

Expected values: kueue.sigs.k8s.io/docs (concepts: Workload, ClusterQueue, Admission Check,
Topology Aware Scheduling; tasks: Run Jobs, Run Plain Pods), and Kueue of 2026-08-22.
"""

from __future__ import annotations

from typing import Any

import pytest

from stowplan.batch.queue_models.kueue.kueue_options import KueueOptions, PodsReadyOptions
from stowplan.controllers.kueue.kueue_kinds import (
    CHECKS,
    CLUSTER_QUEUES,
    COHORTS,
    FLAVORS,
    LOCAL_QUEUES,
    PRIORITY_CLASSES,
    TOPOLOGIES,
    WORKLOADS,
)
from tests.apiserver.small_cluster import JOBS, SmallCluster, Tree

QUEUE = "kueue.x-k8s.io/queue-name"
HOST = "kubernetes.io/hostname"


class KueueCluster(SmallCluster):
    """A cluster with Kueue, three nodes and a flavor."""

    def __init__(
        self, options: KueueOptions | None = None, *, validates: bool = True, **flavor: Any
    ) -> None:
        super().__init__(kueue=options or KueueOptions(), validates=validates)
        self.create(FLAVORS, {"metadata": {"name": "f"}, "spec": flavor})

    def queue(self, name: str, cpu: str, **more: Any) -> None:
        """A ClusterQueue and its LocalQueue."""
        quota = {"name": "cpu", "nominalQuota": cpu}
        group = {"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [quota]}]}
        spec = {"namespaceSelector": {}, "resourceGroups": [group], **more}
        self.create(CLUSTER_QUEUES, {"metadata": {"name": name}, "spec": spec})
        self.create(LOCAL_QUEUES, {"metadata": {"name": name}, "spec": {"clusterQueue": name}})

    def job(self, name: str, pods: int, queue: str = "q", run: int = 100, **more: Any) -> None:
        """Create a Job of pods with one CPU, and let a second pass."""
        labels = {QUEUE: queue, **more.pop("labels", {})}
        notes = {"stowplan.dev/run-seconds": str(run), **more.pop("pod_notes", {})}
        meta = {"name": name, "labels": labels, "annotations": more.pop("notes", {})}
        template = {"metadata": {"annotations": notes}, "spec": pod_spec()}
        self.create(
            JOBS,
            {
                "metadata": meta,
                "spec": {"parallelism": pods, "completions": pods, "template": template, **more},
            },
        )
        self.run(1)

    def workload(self, job: str) -> Tree:
        """The Workload of a Job."""
        found = (
            one for one in self.list(WORKLOADS) if one["metadata"]["name"].startswith(f"job-{job}-")
        )
        return next(found)

    def conditions(self, job: str) -> dict[str, tuple[str, str]]:
        """Type -> status and reason."""
        conditions = self.workload(job).get("status", {}).get("conditions", [])
        return {one["type"]: (one["status"], one["reason"]) for one in conditions}

    def message(self, job: str, kind: str = "QuotaReserved") -> str:
        """Message of a condition."""
        conditions = self.workload(job)["status"]["conditions"]
        return next(str(one["message"]) for one in conditions if one["type"] == kind)

    def running(self) -> dict[str, int]:
        """Job -> pods that are there."""
        found: dict[str, int] = {}
        for one in self.pods():
            if one["status"]["phase"] not in ("Succeeded", "Failed"):
                name = one["metadata"]["name"].rpartition("-")[0]
                found[name] = found.get(name, 0) + 1
        return found


def pod_spec(cpu: str = "1") -> Tree:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    return {"restartPolicy": "Never", "containers": [container]}


def test_a_job_starts_when_another_has_ended() -> None:
    cluster = KueueCluster()
    cluster.queue("q", "3")
    cluster.job("a", 2, run=60)
    cluster.job("b", 2)
    assert cluster.running() == {"a": 2}
    assert cluster.the(JOBS, "b")["spec"]["suspend"] is True
    assert cluster.conditions("a")["Admitted"] == ("True", "Admitted")
    assert cluster.conditions("b") == {
        "QuotaReserved": ("False", "WaitingForQuota"),
        "Admitted": ("False", "NoReservation"),
        "PodsReady": ("False", "WaitForStart"),
    }
    assert cluster.message("b") == (
        "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor f, "
        "1 more needed"
    )
    admission = cluster.workload("a")["status"]["admission"]
    assert admission["clusterQueue"] == "q"
    assert admission["podSetAssignments"] == [
        {"name": "main", "count": 2, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "2"}}
    ]
    cluster.run(70)
    assert cluster.running() == {"b": 2}
    assert cluster.conditions("a")["Finished"] == ("True", "Succeeded")
    status = cluster.the(CLUSTER_QUEUES, "q")["status"]
    assert (status["pendingWorkloads"], status["admittedWorkloads"]) == (0, 1)
    reasons = {one["reason"] for one in cluster.list("events")}
    assert reasons >= {"CreatedWorkload", "QuotaReserved", "Admitted", "Started", "WaitingForQuota"}


def test_pods_whose_quota_is_no_longer_needed_are_given_back() -> None:
    cluster = KueueCluster()
    cluster.queue("q", "2")
    cluster.job("a", 2, run=30, completions=3)
    cluster.job("b", 1)
    cluster.run(35)
    # One completion is left, so that the other pod's quota is free.
    assert cluster.running() == {"a": 1, "b": 1}
    assert cluster.workload("a")["status"]["reclaimablePods"] == [{"name": "main", "count": 1}]


def test_preemption_stops_a_job_which_runs_again_later() -> None:
    cluster = KueueCluster(nodeLabels={HOST: "node-1"}, tolerations=[{"key": "spot"}])
    cluster.queue("q", "2", preemption={"withinClusterQueue": "LowerPriority"})
    cluster.create(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 9})
    cluster.job("low", 2)
    template = cluster.the(JOBS, "low")["spec"]["template"]["spec"]
    assert template["nodeSelector"] == {HOST: "node-1"}
    assert {"key": "spot"} in template["tolerations"]
    cluster.job("urgent", 2, run=50, labels={"kueue.x-k8s.io/priority-class": "high"})
    cluster.run(5)
    assert cluster.conditions("low")["Evicted"] == ("True", "Preempted")
    assert cluster.conditions("low")["Preempted"] == ("True", "InClusterQueue")
    preempted = cluster.message("low", "Evicted")
    assert "due to prioritization in the ClusterQueue" in preempted
    events = {one["reason"]: one.get("note") or one["message"] for one in cluster.list("events")}
    assert events["WaitingForPreemptedWorkloads"] == (
        "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor f, "
        "2 more needed. Pending the preemption of 1 workload(s)"
    )
    cluster.run(35)
    assert cluster.running() == {"urgent": 2}
    assert cluster.the(JOBS, "low")["spec"]["suspend"] is True
    assert "nodeSelector" not in cluster.the(JOBS, "low")["spec"]["template"]["spec"]
    assert "admission" not in cluster.workload("low")["status"]
    assert cluster.conditions("low")["Requeued"] == ("True", "Preempted")
    cluster.run(60)
    assert cluster.running() == {"low": 2}
    assert cluster.conditions("low")["Evicted"] == ("False", "QuotaReserved")
    assert cluster.message("low", "Evicted") == f"Previously: {preempted}"
    assert cluster.the(JOBS, "urgent")["status"]["succeeded"] == 2


def test_borrowed_quota_is_reclaimed_by_its_owner() -> None:
    cluster = KueueCluster()
    any_priority = {"reclaimWithinCohort": "Any"}
    cluster.queue("q", "2", cohortName="all", preemption=any_priority)
    cluster.queue("other", "2", cohortName="all", preemption=any_priority)
    cluster.job("a", 4)
    usage = cluster.the(CLUSTER_QUEUES, "q")["status"]["flavorsUsage"][0]["resources"]
    assert usage == [{"name": "cpu", "total": "4", "borrowed": "2"}]
    cluster.job("b", 2, queue="other")
    cluster.run(40)
    assert cluster.running() == {"b": 2}
    assert cluster.conditions("a")["Preempted"] == ("True", "InCohortReclamation")


def test_fewer_pods_rather_than_none() -> None:
    cluster = KueueCluster()
    cluster.queue("q", "3")
    cluster.job("a", 5, run=20, notes={"kueue.x-k8s.io/job-min-parallelism": "2"})
    assert cluster.running() == {"a": 3}
    assert cluster.the(JOBS, "a")["spec"]["parallelism"] == 3
    cluster.run(50)
    assert cluster.conditions("a")["Finished"] == ("True", "Succeeded")


@pytest.mark.parametrize(
    ("answer", "state"), [("Ready=30", "Ready"), ("Rejected=30", "Rejected"), ("", "Pending")]
)
def test_an_admission_check_is_answered_by_its_annotation(answer: str, state: str) -> None:
    cluster = KueueCluster()
    spec = {"controllerName": "example.com/check"}
    meta = {"name": "check", "annotations": {"stowplan.dev/check-answer": answer}}
    cluster.create(CHECKS, {"metadata": meta, "spec": spec})
    cluster.queue("q", "3", admissionChecksStrategy={"admissionChecks": [{"name": "check"}]})
    cluster.job("a", 2, run=1000)
    if not answer:
        # Nobody declares the check active.
        (active,) = cluster.the(CLUSTER_QUEUES, "q")["status"]["conditions"]
        assert (active["status"], active["reason"], active["message"]) == (
            "False",
            "AdmissionCheckInactive",
            "Can't admit new workloads: references inactive AdmissionCheck(s): check.",
        )
        assert cluster.conditions("a")["QuotaReserved"] == ("False", "Suspended")
        return
    assert cluster.conditions("a")["QuotaReserved"] == ("True", "QuotaReserved")
    assert cluster.conditions("a")["Admitted"] == ("False", "UnsatisfiedAdmissionChecks")
    (check,) = cluster.workload("a")["status"]["admissionChecks"]
    assert (check["name"], check["state"]) == ("check", "Pending")
    cluster.run(40)
    assert cluster.running() == ({"a": 2} if state == "Ready" else {})
    if state == "Rejected":
        assert cluster.conditions("a")["Evicted"] == ("True", "DeactivatedDueToAdmissionCheck")
        assert cluster.the(JOBS, "a")["spec"]["suspend"] is True
        (check,) = cluster.workload("a")["status"]["admissionChecks"]
        text = "Reset to Pending after eviction. Previously: Rejected"
        assert (check["state"], check["message"]) == ("Pending", text)


def test_a_workload_that_a_check_sends_back_is_tried_again_after_a_backoff() -> None:
    cluster = KueueCluster()
    meta = {"name": "check", "annotations": {"stowplan.dev/check-answer": "Retry"}}
    cluster.create(CHECKS, {"metadata": meta, "spec": {"controllerName": "example.com/check"}})
    cluster.queue("q", "3", admissionChecksStrategy={"admissionChecks": [{"name": "check"}]})
    cluster.job("a", 2)
    assert cluster.conditions("a")["Evicted"] == ("True", "AdmissionCheck")
    answered = "Answered by the annotation stowplan.dev/check-answer"
    text = f'Evicted due to AdmissionCheck in Retry state: "check" ({answered})'
    assert cluster.message("a", "Evicted") == text
    assert cluster.conditions("a")["Requeued"] == ("False", "AdmissionCheck")
    check = cluster.the(CHECKS, "check")
    check["metadata"]["annotations"]["stowplan.dev/check-answer"] = "Ready"
    cluster.api.update(CHECKS, check)
    cluster.run(50)
    assert cluster.running() == {}
    cluster.run(20)
    assert cluster.running() == {"a": 2}


def test_a_job_whose_pods_do_not_get_ready_is_evicted_and_tried_again() -> None:
    cluster = KueueCluster(
        KueueOptions(pods_ready=PodsReadyOptions(timeout_s=60, backoff_s=100, requeues_max=1)),
        nodeLabels={"no": "node"},
    )
    cluster.queue("q", "2")
    cluster.job("a", 2)
    cluster.run(50)
    assert cluster.running() == {"a": 2}
    cluster.run(15)
    assert cluster.conditions("a")["Evicted"] == ("True", "PodsReadyTimeout")
    assert cluster.conditions("a")["Requeued"] == ("False", "PodsReadyTimeout")
    assert cluster.running() == {}
    # Another one has the quota meanwhile.
    flavor = cluster.the(FLAVORS, "f")
    flavor["spec"] = {}
    cluster.api.update(FLAVORS, flavor)
    cluster.job("b", 2, run=30)
    assert cluster.running() == {"b": 2}
    flavor = cluster.the(FLAVORS, "f")
    flavor["spec"] = {"nodeLabels": {"no": "node"}}
    cluster.api.update(FLAVORS, flavor)
    cluster.run(110)
    assert cluster.running() == {"a": 2}
    assert cluster.conditions("a")["Requeued"] == ("True", "BackoffFinished")
    # The second time is one too many.
    cluster.run(70)
    reason = "DeactivatedDueToRequeuingLimitExceeded"
    assert cluster.conditions("a")["Evicted"] == ("True", reason)
    assert cluster.workload("a")["spec"]["active"] is False


def test_one_job_at_a_time_until_its_pods_are_ready() -> None:
    cluster = KueueCluster(KueueOptions(pods_ready=PodsReadyOptions(blocks=True)))
    cluster.queue("q", "8")
    cluster.queue("other", "8")
    for name, queue in (("a", "q"), ("b", "other")):
        meta = {"name": name, "labels": {QUEUE: queue}}
        template = {"metadata": {"annotations": {}}, "spec": pod_spec()}
        template["metadata"]["annotations"] = {"stowplan.dev/run-seconds": "100"}
        spec = {"parallelism": 2, "completions": 2, "template": template}
        cluster.create(JOBS, {"metadata": meta, "spec": spec})
    cluster.run(0.5)
    assert len(cluster.running()) == 1
    cluster.run(5)
    assert cluster.running() == {"a": 2, "b": 2}
    admitted = [
        one["lastTransitionTime"]
        for name in ("a", "b")
        for one in cluster.workload(name)["status"]["conditions"]
        if one["type"] == "Admitted"
    ]
    assert admitted[0] != admitted[1]


def test_a_queue_without_its_flavor_starts_with_it() -> None:
    cluster = KueueCluster()
    cluster.queue("q", "3")
    cluster.delete(FLAVORS, "f")
    cluster.job("a", 2)
    active = cluster.the(CLUSTER_QUEUES, "q")["status"]["conditions"][0]
    assert (active["status"], active["reason"]) == ("False", "FlavorNotFound")
    text = "Can't admit new workloads: references missing ResourceFlavor(s): f."
    assert active["message"] == text
    assert cluster.conditions("a")["QuotaReserved"] == ("False", "Suspended")
    assert cluster.message("a") == "ClusterQueue q is inactive"
    assert cluster.running() == {}
    cluster.create(FLAVORS, {"metadata": {"name": "f"}, "spec": {}})
    cluster.run(2)
    assert cluster.running() == {"a": 2}


def test_objects_that_cannot_be_read_keep_nothing_from_being_admitted(
    faults: list[str],
) -> None:
    cluster = KueueCluster(validates=False)
    cluster.queue("q", "2")
    quota = {"name": "cpu", "nominalQuota": "abc"}
    flavors = [{"name": "f", "resources": [quota]}]
    group = {"coveredResources": ["cpu"], "flavors": flavors}
    selector = {"matchExpressions": [{"key": "a", "operator": "Foo"}]}
    specs: list[Tree] = [
        {"resourceGroups": 3},
        {"resourceGroups": [group]},
        {"namespaceSelector": selector},
        {"fairSharing": {"weight": "zz"}},
    ]
    for i, spec in enumerate(specs):
        cluster.create(CLUSTER_QUEUES, {"metadata": {"name": f"bad-{i}"}, "spec": spec})
    pod_sets: list[Tree] = [
        {"name": "main", "count": "x"},
        {"name": "main", "count": 1, "template": {"spec": pod_spec("oops")}},
    ]
    for i, pod_set in enumerate(pod_sets):
        spec = {"queueName": "q", "podSets": [pod_set]}
        cluster.create(WORKLOADS, {"metadata": {"name": f"bad-{i}"}, "spec": spec})
    cluster.job("a", 2)
    assert cluster.running() == {"a": 2}
    named = {text.split(":")[0].rpartition("/")[2] for text in faults}
    assert named == {"bad-0", "bad-1", "bad-2", "bad-3"}
    faults.clear()


def test_cohorts_in_a_cycle_admit_nothing_until_it_is_cut() -> None:
    cluster = KueueCluster()
    for name, parent in (("left", "right"), ("right", "left")):
        cluster.create(COHORTS, {"metadata": {"name": name}, "spec": {"parentName": parent}})
    cluster.queue("q", "3", cohortName="left")
    cluster.job("a", 2)
    assert cluster.running() == {}
    assert cluster.message("a") == "ClusterQueue q is inactive"
    (active,) = cluster.the(CLUSTER_QUEUES, "q")["status"]["conditions"]
    assert active["message"] == "Can't admit new workloads: Cohort left is in a cycle."
    cluster.change(COHORTS, "right", parentName="")
    cluster.run(2)
    assert cluster.running() == {"a": 2}


def test_a_workload_that_is_deactivated_gives_its_quota_back() -> None:
    cluster = KueueCluster()
    cluster.queue("q", "2")
    cluster.job("a", 2)
    cluster.job("b", 2)
    cluster.change(WORKLOADS, cluster.workload("a")["metadata"]["name"], active=False)
    cluster.run(40)
    assert cluster.running() == {"b": 2}
    assert cluster.conditions("a")["Evicted"] == ("True", "Deactivated")


def test_a_job_and_a_queue_that_are_deleted() -> None:
    cluster = KueueCluster()
    cluster.queue("q", "2")
    cluster.job("a", 2)
    cluster.job("b", 2)
    cluster.delete(JOBS, "a", propagation="Background")
    cluster.run(40)
    assert cluster.running() == {"b": 2}
    cluster.delete(LOCAL_QUEUES, "q")
    cluster.job("c", 1)
    assert cluster.message("c") == "LocalQueue q doesn't exist"


def queued_pod(name: str, group: str = "", total: int = 0) -> Tree:
    labels = {QUEUE: "q"} | ({"kueue.x-k8s.io/pod-group-name": group} if group else {})
    notes = {"stowplan.dev/run-seconds": "50"}
    notes |= {"kueue.x-k8s.io/pod-group-total-count": str(total)} if group else {}
    return {"metadata": {"name": name, "labels": labels, "annotations": notes}, "spec": pod_spec()}


def test_plain_pods_and_groups_of_them() -> None:
    cluster = KueueCluster()
    cluster.queue("q", "3")
    for name in ("one", "two"):
        cluster.create("pods", queued_pod(name, "train", 3))
    cluster.run(2)
    # The group is not complete.
    assert cluster.list(WORKLOADS) == []
    cluster.create("pods", queued_pod("three", "train", 3))
    cluster.run(1)
    cluster.create("pods", queued_pod("single"))
    cluster.run(5)
    phases = {one["metadata"]["name"]: one["status"]["phase"] for one in cluster.pods()}
    assert phases == {"one": "Running", "two": "Running", "three": "Running", "single": "Pending"}
    assert cluster.the("pods", "single")["spec"]["schedulingGates"]
    assert len(cluster.the(WORKLOADS, "train")["metadata"]["ownerReferences"]) == 3
    cluster.run(60)
    assert cluster.the("pods", "single")["status"]["phase"] == "Running"
    finished = cluster.the(WORKLOADS, "train")["status"]["conditions"]
    assert any(one["type"] == "Finished" and one["status"] == "True" for one in finished)


def test_pods_go_to_their_places_in_a_topology() -> None:
    cluster = KueueCluster()
    levels = [{"nodeLabel": "rack"}, {"nodeLabel": HOST}]
    cluster.create(TOPOLOGIES, {"metadata": {"name": "racks"}, "spec": {"levels": levels}})
    spec = {"topologyName": "racks", "nodeLabels": {"kubernetes.io/os": "linux"}}
    flavor = cluster.the(FLAVORS, "f")
    flavor["spec"] = spec
    cluster.api.update(FLAVORS, flavor)
    for node, rack in zip(cluster.list("nodes"), ("r1", "r1", "r2"), strict=True):
        node["metadata"]["labels"]["rack"] = rack
        cluster.api.update("nodes", node)
    cluster.run(1)
    size = int(cluster.list("nodes")[0]["status"]["allocatable"]["cpu"])
    cluster.queue("q", "1000")
    notes = {"kueue.x-k8s.io/podset-required-topology": "rack"}
    cluster.job("a", size + 1, pod_notes=notes)
    assert cluster.running() == {"a": size + 1}
    hosts = [one["spec"]["nodeSelector"][HOST] for one in cluster.pods()]
    assert {host: hosts.count(host) for host in set(hosts)} == {"node-1": size, "node-2": 1}
    cluster.job("b", 3 * size, pod_notes=notes)
    assert cluster.conditions("b")["QuotaReserved"] == ("False", "TopologyPlacementFailed")


DEFINITIONS = "apiextensions.k8s.io/customresourcedefinitions"


def define(cluster: SmallCluster, group: str, version: str, kind: str) -> str:
    """Define a kind of any content; its path."""
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {
        "name": version, "served": True, "storage": True, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }  # fmt: skip
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    spec = {"group": group, "names": names, "scope": "Namespaced", "versions": [served]}
    cluster.create(DEFINITIONS, {"metadata": {"name": f"{plural}.{group}"}, "spec": spec})
    cluster.settle()
    return f"{group}/{plural}"


def test_a_jobset_starts_and_stops_with_its_workload() -> None:
    cluster = KueueCluster(nodeLabels={HOST: "node-1"})
    path = define(cluster, "jobset.x-k8s.io", "v1alpha2", "JobSet")
    cluster.queue("q", "6")
    jobs = [
        {
            "name": name,
            "replicas": n,
            "template": {"spec": {"parallelism": 2, "template": {"spec": pod_spec()}}},
        }
        for name, n in (("driver", 1), ("workers", 2))
    ]
    meta = {"name": "train", "labels": {QUEUE: "q"}}
    made = cluster.create(path, {"metadata": meta, "spec": {"replicatedJobs": jobs}})
    assert made["spec"]["suspend"] is True
    cluster.run(1)
    (workload,) = cluster.list(WORKLOADS)
    pod_sets = [(one["name"], one["count"]) for one in workload["spec"]["podSets"]]
    assert pod_sets == [("driver", 2), ("workers", 4)]
    started = cluster.the(path, "train")["spec"]
    assert started["suspend"] is False
    for one in started["replicatedJobs"]:
        assert one["template"]["spec"]["template"]["spec"]["nodeSelector"] == {HOST: "node-1"}
    # Its Job is what the JobSet's controller makes, and no job of its own for Kueue.
    owner = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "train",
        "uid": made["metadata"]["uid"], "controller": True,
    }  # fmt: skip
    labels = {QUEUE: "q"}
    child = {"name": "train-driver-0", "labels": labels, "ownerReferences": [owner]}
    notes = {"stowplan.dev/run-seconds": "1000"}
    template = {"metadata": {"annotations": notes}, "spec": pod_spec()}
    cluster.create(JOBS, {"metadata": child, "spec": {"parallelism": 2, "template": template}})
    cluster.run(5)
    assert cluster.running() == {"train-driver-0": 2}
    assert len(cluster.list(WORKLOADS)) == 1
    cluster.change(WORKLOADS, workload["metadata"]["name"], active=False)
    cluster.run(2)
    stopped = cluster.the(path, "train")["spec"]
    assert stopped["suspend"] is True
    # As long as pods are there, so is the quota.
    assert "admission" in cluster.list(WORKLOADS)[0]["status"]
    cluster.change(JOBS, "train-driver-0", suspend=True)
    cluster.run(40)
    assert "admission" not in cluster.list(WORKLOADS)[0]["status"]
    for one in cluster.the(path, "train")["spec"]["replicatedJobs"]:
        assert "nodeSelector" not in one["template"]["spec"]["template"]["spec"]


def test_a_job_of_kubeflow_gives_its_quota_back_when_it_ends() -> None:
    cluster = KueueCluster()
    path = define(cluster, "kubeflow.org", "v1", "PyTorchJob")
    cluster.queue("q", "4")
    replicas = {
        name: {"replicas": n, "template": {"spec": pod_spec()}}
        for name, n in (("Master", 1), ("Worker", 3))
    }
    for name in ("first", "next"):
        meta = {"name": name, "labels": {QUEUE: "q"}}
        cluster.create(path, {"metadata": meta, "spec": {"pytorchReplicaSpecs": replicas}})
        cluster.run(1)
    suspended = {
        one["metadata"]["name"]: one["spec"]["runPolicy"]["suspend"] for one in cluster.list(path)
    }
    assert suspended == {"first": False, "next": True}
    first = cluster.the(path, "first")
    first["status"] = {"conditions": [{"type": "Succeeded", "status": "True", "message": "done"}]}
    cluster.api.update_status(path, first)
    cluster.run(1)
    assert cluster.the(path, "next")["spec"]["runPolicy"]["suspend"] is False
