"""Queues and Jobs that Volcano's webhooks refuse are refused, in their words."""

from __future__ import annotations

from typing import Any

import pytest

from stowplan.apis.machinery.errors import ApiError
from tests.apiserver.small_cluster import SmallCluster, Tree, container

GROUPS, HYPER_NODES = "scheduling.volcano.sh/podgroups", "topology.volcano.sh/hypernodes"
BOTH_TIERS = {"mode": "hard", "highestTierAllowed": 1, "highestTierName": "rack"}
QUEUES, JOBS = "scheduling.volcano.sh/queues", "batch.volcano.sh/jobs"


def queue(name: str, parent: str = "", **spec: Any) -> Tree:
    more = {"parent": parent} if parent else {}
    return {"metadata": {"name": name}, "spec": {"weight": 1, **more, **spec}}


def annotated(name: str, path: str, weights: str) -> Tree:
    """A queue of hierarchical drf."""
    tree = queue(name)
    notes = {"volcano.sh/hierarchy": path, "volcano.sh/hierarchy-weights": weights}
    return {**tree, "metadata": {**tree["metadata"], "annotations": notes}}


def job(queue: str = "default", replicas: int = 2, **spec: Any) -> Tree:
    pod = {"containers": [container()], "restartPolicy": "Never"}
    task = {"name": "w", "replicas": replicas, "template": {"spec": pod}, **spec.pop("task", {})}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {"queue": queue, "tasks": [task], **spec},
    }


def group(**spec: Any) -> Tree:
    return {"metadata": {"name": "g"}, "spec": {"minMember": 1, **spec}}


def hyper_node(*members: Tree) -> Tree:
    return {"metadata": {"name": "h"}, "spec": {"tier": 1, "members": list(members)}}


def close(cluster: SmallCluster, name: str) -> None:
    found = cluster.get(QUEUES, name)
    assert found is not None
    found["status"] = {**(found.get("status") or {}), "state": "Closed"}
    cluster.api.update_status(QUEUES, found)


def failed(action: str, event: str = "PodFailed") -> Tree:
    return {"event": event, "action": action}


@pytest.fixture(scope="module")
def cluster() -> SmallCluster:
    made = SmallCluster(volcano=True, simulates_nodes=False, schedules=False)
    made.create(
        QUEUES,
        queue(
            "org",
            deserved={"cpu": "8"},
            guarantee={"resource": {"cpu": "4"}},
            capability={"cpu": "16"},
        ),
    )
    amounts = {"deserved": {"cpu": "5"}, "guarantee": {"resource": {"cpu": "3"}}}
    made.create(QUEUES, queue("team", "org", **amounts))
    made.create(QUEUES, annotated("deep", "root/sci/dev", "1/1/1"))
    made.create(QUEUES, queue("busy"))
    made.create(QUEUES, queue("shut"))
    made.settle()
    busy = made.the(QUEUES, "busy")
    busy["status"] = {"state": "Open", "allocated": {"cpu": "2", "memory": "0", "pods": "2"}}
    made.api.update_status(QUEUES, busy)
    return made


def refusal(cluster: SmallCluster, path: str, tree: Tree) -> str:
    with pytest.raises(ApiError) as caught:
        cluster.create(path, tree)
    assert caught.value.code == 403
    return caught.value.message


@pytest.mark.parametrize(
    ("tree", "text"),
    [
        (queue("a", "nowhere"), 'failed to get parent queue of queue a: queues "nowhere" not'),
        (queue("a", "a"), "queue a cannot use itself as parent"),
        (
            queue("a", "org", deserved={"cpu": "2"}, guarantee={"resource": {"cpu": "2"}}),
            "sum of children's guarantee (cpu 5) exceeds parent's guarantee limit (cpu 4)",
        ),
        (
            queue("a", "org", deserved={"cpu": "3500m"}),
            "sum of children's deserved (cpu 8500m) exceeds parent's deserved limit (cpu 8)",
        ),
        (queue("a", "org", capability={"cpu": "17"}), "exceeds its ancestor's capability=16"),
        (
            queue("a", guarantee={"resource": {"cpu": "2"}}, deserved={"cpu": "1"}),
            "deserved[cpu]=1 must be >= guarantee[cpu]=2",
        ),
        (
            queue("a", deserved={"cpu": "2"}, capability={"cpu": "1"}),
            "deserved[cpu]=2 must be <= capability[cpu]=1",
        ),
        (
            queue("a", capability={"cpu": "-1"}),
            'spec.capability.cpu: Invalid value: "-1": must be greater than or equal to 0',
        ),
        (
            queue("a", "busy"),
            "queue busy cannot be the parent queue of queue a because it has allocated Pods: 2",
        ),
        (
            annotated("a", "root/sci/x", "1/2"),
            "volcano.sh/hierarchy must have the same length with volcano.sh/hierarchy-weights",
        ),
        (annotated("a", "root/x", "1/0"), "0 in the 1/0 must be larger than 0"),
        (annotated("a", "root/x", "1/much"), "much in the 1/much is invalid number"),
        (
            annotated("a", "root/sci", "1/1"),
            "root/sci is not allowed to be in the sub path of root/sci/dev of queue deep",
        ),
    ],
)
def test_a_queue_that_does_not_fit_the_tree_is_refused(
    cluster: SmallCluster, tree: Tree, text: str
) -> None:
    assert text in refusal(cluster, QUEUES, tree)


def test_an_amount_that_is_none_is_refused_by_the_definition(cluster: SmallCluster) -> None:
    with pytest.raises(ApiError, match=r"spec\.deserved\.cpu in body") as caught:
        cluster.create(QUEUES, queue("a", deserved={"cpu": "much"}))
    assert caught.value.code == 422


def test_a_cycle_of_parents_is_refused(cluster: SmallCluster) -> None:
    cluster.create(QUEUES, queue("one"))
    cluster.create(QUEUES, queue("two", "one"))
    with pytest.raises(ApiError, match="exceeds the maximum allowed depth of 5"):
        cluster.change(QUEUES, "one", "", parent="two")
    for name, text in (("root", "`root` queue can not be deleted"), ("one", "1 child queues: two")):
        with pytest.raises(ApiError, match=text):
            cluster.delete(QUEUES, name)
    cluster.delete(QUEUES, "two")
    cluster.delete(QUEUES, "one")


def test_a_queue_whose_amounts_do_not_change_may_be_changed(cluster: SmallCluster) -> None:
    # The tree may have become wrong meanwhile; Volcano looks at it when amounts or parent change.
    cluster.change(QUEUES, "team", "", weight=3)
    with pytest.raises(ApiError, match="exceeds parent's deserved limit"):
        cluster.change(QUEUES, "team", "", deserved={"cpu": "9"})
    with pytest.raises(ApiError, match="root queue's resource attributes"):
        cluster.change(QUEUES, "root", "", capability={"cpu": "4"})


@pytest.mark.parametrize(
    ("path", "tree", "text"),
    [
        (GROUPS, group(queue="nowhere"), 'unable to find queue: queues "nowhere" not found'),
        (
            GROUPS,
            group(queue="shut"),
            "can only submit PodGroup to queue with state `Open`, queue `shut` status is `Closed`",
        ),
        (
            GROUPS,
            group(networkTopology=BOTH_TIERS),
            "must not specify 'highestTierAllowed' and 'highestTierName'",
        ),
        (
            GROUPS,
            group(subGroupPolicy=[{"name": "s", "networkTopology": BOTH_TIERS}]),
            "in subGroupPolicy 's': must not specify 'highestTierAllowed'",
        ),
        (HYPER_NODES, hyper_node(), "member must have at least one member"),
        (
            HYPER_NODES,
            hyper_node({"type": "Node", "selector": {"regexMatch": {"pattern": "node-("}}}),
            "member regexMatch pattern is invalid",
        ),
    ],
)
def test_groups_and_hyper_nodes_are_refused(
    cluster: SmallCluster, path: str, tree: Tree, text: str
) -> None:
    if path == GROUPS:
        close(cluster, "shut")
    assert text in refusal(cluster, path, tree)


@pytest.mark.parametrize(
    ("tree", "text"),
    [
        (job("nowhere"), 'unable to find job queue: queues "nowhere" not found'),
        (job("org"), "can only submit job to leaf queue, queue `org` has 1 child queues"),
        (job(minAvailable=3), "job 'minAvailable' should not be greater than total replicas in"),
        (
            job(task={"minAvailable": 3}),
            "'minAvailable' is greater than 'replicas' in task: w, job: j",
        ),
        (job(networkTopology=BOTH_TIERS), "must not specify 'highestTierAllowed'"),
        (
            job(task={"partitionPolicy": {"totalPartitions": 2, "partitionSize": 2}}),
            "'Replicas' are not equal to TotalPartitions*PartitionSize in task: w, job: j",
        ),
        (
            job(task={"partitionPolicy": {"totalPartitions": 2}}),
            "'PartitionSize' must be greater than 0 in task: w, job: j",
        ),
        (job(tasks=[]), "No task specified in job spec"),
        (job(plugins={"slurm": []}), "unable to find job plugin: slurm"),
        (job(volumes=[{"mountPath": "/d"}]), "either VolumeClaim or VolumeClaimName must be"),
        (
            job(task={"dependsOn": {"name": ["w"]}}),
            "job has dependencies between tasks, but doesn't form a directed acyclic graph(DAG)",
        ),
        (job("root"), "can not submit job to root queue"),
        (
            job(policies=[failed("RestartJob"), failed("AbortJob")]),
            "duplicate event PodFailed  across different policy",
        ),
        (
            job(policies=[{**failed("AbortJob"), "exitCode": 3}]),
            "must not specify event and exitCode simultaneously",
        ),
        (job(policies=[{"action": "AbortJob"}]), "either event and exitCode should be specified"),
        (job(policies=[failed("Retry")]), "invalid policy action; valid events are * PodFailed"),
        (job(policies=[failed("AbortJob", "PodFell")]), "invalid policy event"),
        (
            job(task={"policies": [failed("AbortJob", "*"), failed("RestartTask")]}),
            "if there's * here, no other policy should be here",
        ),
    ],
)
def test_a_job_that_could_not_run_is_refused(cluster: SmallCluster, tree: Tree, text: str) -> None:
    assert text in refusal(cluster, JOBS, tree)


def test_what_is_left_out_is_filled_in_when_an_object_is_created(cluster: SmallCluster) -> None:
    made = cluster.create(JOBS, job(plugins={"mpi": []}) | {"metadata": {"name": "filled"}})["spec"]
    assert (made["schedulerName"], made["maxRetry"], made["minAvailable"]) == ("volcano", 3, 2)
    assert made["plugins"] == {"mpi": [], "svc": [], "ssh": []}
    # What starts a job stays as it was when more pods are wanted.
    tasks = [{**made["tasks"][0], "replicas": 5}]
    after = cluster.change(JOBS, "filled", tasks=tasks)["spec"]
    assert (after["minAvailable"], after["tasks"][0]["minAvailable"]) == (2, 2)
    below = cluster.create(QUEUES, annotated("low", "sci/low", "2/3"))
    assert below["metadata"]["annotations"] == {
        "volcano.sh/hierarchy": "root/sci/low",
        "volcano.sh/hierarchy-weights": "1/2/3",
    }
    assert below["spec"]["reclaimable"] is True
    notes = {"scheduling.volcano.sh/queue-name": "team"}
    cluster.create("namespaces", {"metadata": {"name": "lab", "annotations": notes}})
    named = {**group(), "metadata": {"name": "g", "namespace": "lab"}}
    assert cluster.create(GROUPS, named)["spec"]["queue"] == "team"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"queue": "team"}, "job updates may not change fields other than `minAvailable`"),
        ({"maxRetry": 7}, "job updates may not change fields other than `minAvailable`"),
        ({"tasks": [], "minAvailable": 0}, "job updates may not add or remove tasks"),
        ({"minAvailable": 9}, "job 'minAvailable' must not be greater than total replicas"),
        ({"minAvailable": -1}, "job 'minAvailable' must be >= 0"),
        ({"task": {"replicas": 1}}, "'minAvailable' must be <= 'replicas' in task: w"),
        ({"task": {"minAvailable": -1}}, "'minAvailable' must be >= 0 in task: w"),
        ({"task": {"replicas": -1}}, "'replicas' must be >= 0 in task: w"),
        ({"task": {"name": "other"}}, "job updates may not change fields other than"),
        ({"minAvailable": 1, "priorityClassName": "", "policies": []}, ""),
        ({"task": {"replicas": 4, "minAvailable": 3}}, ""),
    ],
)
def test_a_job_changes_in_size_and_priority_only(
    cluster: SmallCluster, change: Tree, text: str
) -> None:
    if cluster.get(JOBS, "changed") is None:
        cluster.create(JOBS, job() | {"metadata": {"name": "changed"}})
    spec = dict(change)
    if "task" in spec:
        (first,) = cluster.the(JOBS, "changed")["spec"]["tasks"]
        spec["tasks"] = [{**first, **spec.pop("task")}]
    if not text:
        cluster.change(JOBS, "changed", **spec)
        return
    with pytest.raises(ApiError) as caught:
        cluster.change(JOBS, "changed", **spec)
    assert text in caught.value.message
