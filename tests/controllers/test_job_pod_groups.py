"""Jobs that are gangs: their Workload, their PodGroup, and their pods."""

from __future__ import annotations

import pytest

from stowplan.apis.machinery.errors import ApiError
from stowplan.controllers.workloads.job_pod_groups import pod_group_name, workload_name
from stowplan.framework.feature_gates import FeatureGates
from tests.apiserver.small_cluster import JOBS, SmallCluster, Tree, job

GROUPS, WORKLOADS = "scheduling.k8s.io/podgroups", "scheduling.k8s.io/workloads"
GATES = FeatureGates(generic_workload=True, workload_with_job=True)


def cluster(gates: FeatureGates | None = GATES) -> SmallCluster:
    return SmallCluster(2, schedules=False, workloads=True, gates=gates)


def gang(name: str = "train", pods: int = 3, **spec: object) -> Tree:
    shape = {"parallelism": pods, "completions": pods, "completionMode": "Indexed"}
    return job(name, **{**shape, **spec})


def test_a_job_has_a_workload_and_a_group_that_its_pods_name() -> None:
    here = cluster()
    made = here.create(JOBS, gang())
    here.settle()
    (workload,) = here.list(WORKLOADS)
    (group,) = here.list(GROUPS)
    owner = {"apiGroup": "batch", "kind": "Job", "name": "train"}
    assert workload["spec"]["controllerRef"] == owner
    (template,) = workload["spec"]["podGroupTemplates"]
    assert template["name"] == "train-pgt-0"
    assert template["schedulingPolicy"] == {"gang": {"minCount": 3}}
    reference = {
        "workloadName": workload["metadata"]["name"],
        "podGroupTemplateName": "train-pgt-0",
    }
    assert group["spec"]["podGroupTemplateRef"] == {"workload": reference}
    assert group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 3}}
    owners = [(one["kind"], one.get("controller")) for one in group["metadata"]["ownerReferences"]]
    assert owners == [("Job", True), ("Workload", None)]
    pods = here.pods()
    assert len(pods) == 3
    for pod in pods:
        assert pod["spec"]["schedulingGroup"] == {"podGroupName": group["metadata"]["name"]}
        assert [one["uid"] for one in pod["metadata"]["ownerReferences"]] == [
            made["metadata"]["uid"]
        ]
    text = f"Created Workload {workload['metadata']['name']} for Job train"
    assert text in [event["message"] for event in here.list("events")]
    # The Job itself is as it was written.
    assert "schedulingGroup" not in here.the(JOBS, "train")["spec"]["template"]["spec"]


def test_a_pod_that_is_replaced_joins_the_group_and_all_go_with_the_job() -> None:
    here = cluster()
    here.create(JOBS, gang())
    here.settle()
    here.delete("pods", here.pods()[0]["metadata"]["name"])
    here.run(30)
    assert len({pod["spec"]["schedulingGroup"]["podGroupName"] for pod in here.pods()}) == 1
    assert len(here.pods()) == 3
    assert len(here.list(GROUPS)) == 1
    here.delete(JOBS, "train", propagation="Background")
    here.run(60)
    assert not here.pods()
    assert not here.list(GROUPS)
    assert not here.list(WORKLOADS)


@pytest.mark.parametrize(
    "shape",
    [
        {"pods": 1},
        {"completionMode": "NonIndexed"},
        {"completions": 4},
        {"gates": FeatureGates(generic_workload=True)},
    ],
)
def test_other_jobs_are_no_gangs(shape: dict[str, object]) -> None:
    here = cluster(shape.pop("gates", GATES))  # type: ignore[arg-type]
    here.create(JOBS, gang(**shape))  # type: ignore[arg-type]
    here.settle()
    assert here.pods()
    assert not here.list(WORKLOADS)
    assert not here.list(GROUPS)
    assert all("schedulingGroup" not in pod["spec"] for pod in here.pods())


def test_a_job_of_another_time_and_one_with_a_group_of_its_own_are_left_alone() -> None:
    here = cluster()
    started = here.create(JOBS, gang("old", suspend=True))
    started["status"] = {
        "conditions": [{"type": "Suspended", "status": "True", "reason": "r", "message": ""}]
    }
    here.api.update_status(JOBS, started)
    named = gang("named")
    named["spec"]["template"]["spec"]["schedulingGroup"] = {"podGroupName": "mine"}
    here.create(JOBS, named)
    here.settle()
    here.change(JOBS, "old", suspend=False)
    here.run(5)
    assert not here.list(WORKLOADS)
    assert {
        (pod["spec"].get("schedulingGroup") or {}).get("podGroupName") for pod in here.pods()
    } == {None, "mine"}


def test_a_workload_of_another_owner_is_not_taken() -> None:
    here = cluster()
    workload: Tree = {
        "metadata": {"name": "mine"},
        "spec": {
            "controllerRef": {"apiGroup": "batch", "kind": "Job", "name": "train"},
            "podGroupTemplates": [{"name": "t", "schedulingPolicy": {"basic": {}}}],
        },
    }
    here.create(WORKLOADS, workload)
    here.create(JOBS, gang())
    here.settle()
    assert len(here.list(WORKLOADS)) == 1
    assert not here.list(GROUPS)
    assert all("schedulingGroup" not in pod["spec"] for pod in here.pods())


def test_the_parallelism_of_a_gang_is_kept() -> None:
    here = cluster()
    here.create(JOBS, gang())
    here.settle()
    (group,) = here.list(GROUPS)
    name = group["metadata"]["name"]
    with pytest.raises(ApiError) as refused:
        here.change(JOBS, "train", parallelism=2)
    assert refused.value.code == 403
    assert refused.value.message.endswith(
        f'cannot change parallelism for a Job referencing gang-scheduled PodGroup "{name}"'
    )
    here.change(JOBS, "train", activeDeadlineSeconds=60)
    here.create(JOBS, gang("free", completionMode="NonIndexed"))
    here.change(JOBS, "free", parallelism=2)


def test_names_are_those_of_the_original_in_length() -> None:
    first, second = workload_name("train", "u1"), workload_name("train", "u2")
    assert first != second
    assert first.startswith("train-")
    assert len(workload_name("j" * 300, "u")) == 253
    for workload, template in (("w" * 250, "t"), ("w", "t" * 250), ("w" * 250, "t" * 250)):
        name = pod_group_name(workload, template)
        assert len(name) == 253
        assert name.startswith("w")
        assert "-t" in name
