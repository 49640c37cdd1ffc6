"""KAI-Scheduler's controllers on a cluster: groups of owners, and statuses of groups and queues."""

from __future__ import annotations

import pytest

from stowplan.controllers.job_sets.job_set_kinds import JOB_SETS
from stowplan.controllers.kai.kai_kinds_served import KAI_POD_GROUPS, KAI_QUEUES
from tests.apiserver.small_cluster import JOBS, SmallCluster, Tree, container, job, pod

TORCH_JOBS, TF_JOBS = "kubeflow.org/pytorchjobs", "kubeflow.org/tfjobs"
EVENTS = "events"


def kai_cluster(*, validates: bool = True) -> SmallCluster:
    """A cluster with KAI's kinds, and a scheduler beside that binds what it makes no groups for."""
    return SmallCluster(kai=True, job_sets=True, schedules=False, validates=validates)


def of_kai(tree: Tree) -> Tree:
    """The pod, or the template, is one of KAI."""
    tree["spec"]["schedulerName"] = "kai-scheduler"
    return tree


def warnings(cluster: SmallCluster) -> list[str]:
    """Texts of the pod-grouper's events."""
    return [one["message"] for one in events(cluster)]


def events(cluster: SmallCluster, reason: str = "PodGrouperWarning") -> list[Tree]:
    return [one for one in cluster.list(EVENTS) if one["reason"] == reason]


def training(**replicas: int) -> Tree:
    template = of_kai({"spec": {"containers": [container()]}})
    specs = {name: {"replicas": n, "template": template} for name, n in replicas.items()}
    return {"metadata": {"name": "train"}, "spec": {"pytorchReplicaSpecs": specs}}


def test_groups_with_sub_groups_are_created() -> None:
    cluster = kai_cluster()
    cluster.create(TORCH_JOBS, training(Master=1, Worker=2))
    template = of_kai({"spec": {"containers": [container()]}})
    spec = {"parallelism": 2, "completions": 2, "template": template}
    jobs = [{"name": "workers", "replicas": 1, "template": {"spec": spec}}]
    cluster.create(JOB_SETS, {"metadata": {"name": "set"}, "spec": {"replicatedJobs": jobs}})
    cluster.run(1)
    groups = {
        one["metadata"]["ownerReferences"][0]["name"]: [
            sub_group["name"] for sub_group in one["spec"]["subGroups"]
        ]
        for one in cluster.list(KAI_POD_GROUPS)
    }
    assert groups == {"train": ["master", "worker"], "set": ["workers", "workers-replica-0"]}
    assert warnings(cluster) == []


def test_a_group_that_the_server_refuses_is_an_event_of_its_pods() -> None:
    cluster = kai_cluster()
    tree = job("below", parallelism=1)
    tree["metadata"]["annotations"] = {"kai.scheduler/batch-min-member": "-1"}
    of_kai(tree["spec"]["template"])
    cluster.create(JOBS, tree)
    cluster.run(1)
    (text,) = warnings(cluster)
    assert "spec.minMember: Invalid value: -1" in text
    # It is tried again, ever more seldom: 5, 10, 20, ... ms later.
    assert events(cluster)[0]["count"] == 8


def test_a_workload_that_the_grouper_skips_has_no_warning() -> None:
    cluster = kai_cluster()
    tree = job("left", parallelism=1)
    tree["metadata"]["annotations"] = {"kai.scheduler/skip-podgrouper": "true"}
    template = of_kai(tree["spec"]["template"])
    template["metadata"]["annotations"] = {"pod-group-name": "own"}
    cluster.create(JOBS, tree)
    cluster.run(1)
    assert len(cluster.pods()) == 1
    assert (warnings(cluster), cluster.list(KAI_POD_GROUPS)) == ([], [])


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (None, "spec.tfReplicaSpecs: Required value"),
        ({"tfReplicaSpecs": [1]}, "spec.tfReplicaSpecs: Required value"),
        ({"tfReplicaSpecs": {"Worker": None}}, "Worker.template.spec.containers: Required value"),
        ({"tfReplicaSpecs": {"Worker": {"template": "x"}}}, "spec.containers: Required value"),
        (
            {"tfReplicaSpecs": {"Worker": {"replicas": "two"}}},
            'spec.tfReplicaSpecs.Worker.replicas: Invalid value: "two": must be',
        ),
        ({"tfReplicaSpecs": {"Worker": {"replicas": -1}}}, "Invalid value: -1: must be"),
        ({"runPolicy": "x"}, "spec.runPolicy: Invalid value: must be an object"),
    ],
)
def test_a_job_of_kubeflow_that_makes_no_sense_fails(spec: Tree | None, text: str) -> None:
    """Its definition keeps every field."""
    cluster = kai_cluster()
    cluster.create(TF_JOBS, {"metadata": {"name": "x"}, **({} if spec is None else {"spec": spec})})
    cluster.run(5)
    (failed,) = cluster.the(TF_JOBS, "x")["status"]["conditions"]
    assert (failed["type"], failed["reason"]) == ("Failed", "TFJobFailedValidation")
    assert text in failed["message"]
    assert cluster.server.faults.counts == {}


def test_pods_of_a_job_that_the_server_refuses_are_an_event_of_the_job() -> None:
    cluster = kai_cluster()
    tree = training(Worker=1)
    template = tree["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    template["metadata"] = {"annotations": {"gpu-fraction": "half"}}
    cluster.create(TORCH_JOBS, tree)
    cluster.run(1)
    (text,) = events(cluster, "FailedCreatePod")
    assert 'gpu-fraction]: Invalid value: "half"' in text["message"]


@pytest.mark.parametrize("path", [TORCH_JOBS, JOB_SETS, "trainer.kubeflow.org/trainjobs"])
def test_jobs_without_a_spec_fail_no_controller(path: str) -> None:
    cluster = kai_cluster()
    cluster.create(path, {"metadata": {"name": "x"}})
    cluster.run(1)
    assert cluster.server.faults.counts == {}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(("gpu-fraction", text) for text in ("half", "", "0,5", "-0.5", "NaN", "1.5", "0")),
        *(("gpu-memory", text) for text in ("-5", "", "2Gi", "1.5", "0")),
        ("gpu-fraction-num-devices", "none"),
    ],
)
def test_a_garbled_part_of_a_card_counts_as_none(name: str, text: str) -> None:
    # As they may be there from another server, which checked nothing.
    cluster = kai_cluster(validates=False)
    cluster.create(KAI_QUEUES, {"metadata": {"name": "red"}, "spec": {}})
    notes = {name: text, "pod-group-name": "g", "received-resource-type": "Fraction"}
    if name == "gpu-fraction-num-devices":
        notes["gpu-fraction"] = "0.5"
    cluster.create(KAI_POD_GROUPS, {"metadata": {"name": "g"}, "spec": {"queue": "red"}})
    cluster.create("pods", of_kai(pod("garbled", notes=notes)))
    cluster.create("pods", of_kai(pod("half", notes={**notes, name: "1", "gpu-fraction": "0.5"})))
    cluster.run(1)
    status = cluster.the(KAI_POD_GROUPS, "g")["status"]
    assert status["resourcesStatus"]["requested"]["cpu"] == "200m"
    assert status["resourcesStatus"]["requested"]["nvidia.com/gpu"] == "500m"
    assert cluster.the(KAI_QUEUES, "red")["status"]["requested"]["cpu"] == "200m"
    assert cluster.server.faults.counts == {}


def test_an_amount_in_a_status_that_is_none_keeps_no_others_from_being_counted() -> None:
    cluster = kai_cluster(validates=False)
    cluster.create(KAI_QUEUES, {"metadata": {"name": "red"}, "spec": {}})
    for name, amount in (("a", "many"), ("b", "2")):
        made = cluster.create(
            KAI_POD_GROUPS, {"metadata": {"name": name}, "spec": {"queue": "red"}}
        )
        asked = {"resourcesStatus": {"requested": {"nvidia.com/gpu": amount}}}
        cluster.api.update_status(KAI_POD_GROUPS, {**made, "status": asked})
    cluster.cluster.tick(cluster.now)
    assert cluster.server.faults.counts == {}
