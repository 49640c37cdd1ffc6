"""`status` of objects of other projects: known fields have their types, others are kept."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from stowplan.apis.machinery.errors import ApiError
from stowplan.batch.queue_models.kueue.kueue_options import KueueOptions
from stowplan.inputs.validation.api_rules import ApiServerRules
from tests.apiserver.small_cluster import SmallCluster

Tree = dict[str, Any]

VOLCANO, KAI, KUEUE = "scheduling.volcano.sh", "scheduling.run.ai", "kueue.x-k8s.io"
POD = {"containers": [{"name": "c", "image": "x"}], "restartPolicy": "Never"}
POD_SET = {"name": "main", "count": 1, "template": {"spec": POD}}
TASK = {"name": "w", "replicas": 0, "template": {"spec": POD}}
SPECS: dict[str, Tree] = {
    "batch.volcano.sh/jobs": {"tasks": [TASK]},
    f"{VOLCANO}/queues": {},
    f"{VOLCANO}/podgroups": {},
    f"{KAI}/queues": {},
    f"{KAI}/podgroups": {},
    f"{KAI}/bindrequests": {"podName": "p", "selectedNode": "n"},
    f"{KUEUE}/clusterqueues": {},
    f"{KUEUE}/localqueues": {"clusterQueue": "q"},
    f"{KUEUE}/workloads": {"podSets": [POD_SET]},
}
WRONG: list[tuple[str, Tree, str]] = [
    ("batch.volcano.sh/jobs", {"state": "Running"}, "status.state"),
    ("batch.volcano.sh/jobs", {"retryCount": "x"}, "status.retryCount"),
    (f"{VOLCANO}/queues", {"allocated": 5}, "status.allocated"),
    (f"{VOLCANO}/queues", {"state": ["Open"]}, "status.state"),
    (f"{VOLCANO}/podgroups", {"conditions": ["x"]}, "status.conditions[0]"),
    (f"{KAI}/queues", {"allocated": "x"}, "status.allocated"),
    (f"{KAI}/podgroups", {"resourcesStatus": 5}, "status.resourcesStatus"),
    (f"{KAI}/bindrequests", {"failedAttempts": "x"}, "status.failedAttempts"),
    (f"{KUEUE}/clusterqueues", {"conditions": "none"}, "status.conditions"),
    (f"{KUEUE}/localqueues", {"conditions": [{"type": 5}]}, "status.conditions[0].type"),
    (f"{KUEUE}/workloads", {"admission": 5}, "status.admission"),
    (f"{KUEUE}/workloads", {"requeueState": {"count": "x"}}, "status.requeueState.count"),
]


@cache
def shared() -> SmallCluster:
    """No controller changes the objects, as no time passes."""
    made = SmallCluster(volcano=True, kai=True, kueue=KueueOptions())
    for path, spec in SPECS.items():
        made.create(path, {"metadata": {"name": "x"}, "spec": spec})
    return made


@pytest.mark.parametrize(("path", "status", "field"), WRONG)
def test_a_known_field_has_its_type(path: str, status: Tree, field: str) -> None:
    before = shared().the(path, "x")
    with pytest.raises(ApiError) as caught:
        shared().api.update_status(path, {**before, "status": status})
    assert caught.value.code == 422
    assert f"{field}: Invalid value" in caught.value.message
    assert shared().the(path, "x") == before


@pytest.mark.parametrize(("path", "status", "field"), WRONG)
def test_so_it_has_in_files(path: str, status: Tree, field: str) -> None:
    tree = {**head(path), "spec": SPECS[path], "status": status}
    assert [one.path for one in ApiServerRules().mistakes(tree)] == [field]


def head(path: str) -> Tree:
    resource = shared().server.registry.by_path(path)
    assert resource is not None
    version, kind = resource.api_version, resource.kind
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}}


@pytest.mark.parametrize("path", list(SPECS))
def test_other_fields_are_kept(path: str) -> None:
    status = {"conditions": [{"type": "a", "later": {"b": 1}}], "later": {"c": [1]}}
    found = shared().the(path, "x")
    shared().api.update_status(path, {**found, "status": status})
    assert shared().the(path, "x")["status"] == status
    tree = {**head(path), "spec": SPECS[path], "status": status}
    assert [*ApiServerRules().mistakes(tree)] == []


def test_the_status_of_a_new_object_is_dropped() -> None:
    cluster = SmallCluster(volcano=True)
    tree = {"metadata": {"name": "x"}, "spec": {"tasks": [TASK]}, "status": {"state": 5}}
    made = cluster.create("batch.volcano.sh/jobs", tree)
    assert ("status" in made, made["spec"]["queue"]) == (False, "default")
