"""Deleted namespaces: emptied, and removed when nothing is left."""

from __future__ import annotations

import pytest

from stowplan.apis.machinery.errors import ApiError
from stowplan.controller_runtime.object_fields import find_condition
from tests.apiserver.small_cluster import DEPLOYMENTS, SmallCluster, deployment, pod


def cluster() -> SmallCluster:
    made = SmallCluster(2)
    made.create("namespaces", {"metadata": {"name": "a"}})
    made.settle()
    return made


def test_the_content_is_deleted_first() -> None:
    made = cluster()
    inside = deployment("web", 3)
    inside["metadata"]["namespace"] = "a"
    made.create(DEPLOYMENTS, inside)
    made.create("configmaps", {"metadata": {"name": "m", "namespace": "a"}})
    made.run(5)
    assert len(made.pods("a")) == 3
    made.delete("namespaces", "a")
    assert made.the("namespaces", "a")["status"]["phase"] == "Terminating"
    made.run(60)
    assert made.get("namespaces", "a") is None
    assert made.pods("a") == []
    assert [each for each in made.list("events") if each["metadata"]["namespace"] == "a"] == []


def test_what_a_finalizer_holds_holds_the_namespace() -> None:
    made = cluster()
    held = pod("p")
    held["metadata"] |= {"namespace": "a", "finalizers": ["example.com/hold"]}
    made.create("pods", held)
    made.run(5)
    made.delete("namespaces", "a")
    made.run(60)
    conditions = made.the("namespaces", "a")["status"]["conditions"]
    remaining = find_condition(conditions, "NamespaceContentRemaining")
    assert remaining is not None
    assert remaining["message"] == "Some resources are remaining: pods. has 1 resource instances"
    holders = find_condition(conditions, "NamespaceFinalizersRemaining")
    assert "example.com/hold in 1 resource" in (holders or {})["message"]
    freed = made.the("pods", "p", "a")
    freed["metadata"]["finalizers"] = []
    made.api.update("pods", freed)
    made.run(10)
    assert made.get("namespaces", "a") is None


def test_nothing_new_gets_in_meanwhile() -> None:
    made = cluster()
    held = {"metadata": {"name": "m", "namespace": "a", "finalizers": ["example.com/hold"]}}
    made.create("configmaps", held)
    made.delete("namespaces", "a")
    with pytest.raises(ApiError) as raised:
        made.create("configmaps", {"metadata": {"name": "n", "namespace": "a"}})
    assert raised.value.code == 403
    with pytest.raises(ApiError) as raised:
        made.create("configmaps", {"metadata": {"name": "n", "namespace": "nosuch"}})
    assert (raised.value.code, raised.value.message) == (404, 'namespaces "nosuch" not found')
    with pytest.raises(ApiError) as raised:
        made.delete("namespaces", "kube-system")
    assert "this namespace may not be deleted" in raised.value.message


def test_a_full_namespace_is_emptied_in_bounded_looks() -> None:
    made = SmallCluster(0, simulates_nodes=False, schedules=False)
    made.create("namespaces", {"metadata": {"name": "a"}})
    for n in range(450):
        made.create("configmaps", {"metadata": {"name": f"m{n}", "namespace": "a"}})
    made.delete("namespaces", "a")
    before = made.server.version
    made.cluster.controller_manager.step(made.now)
    assert made.server.version - before < 450
    made.settle()
    assert made.get("namespaces", "a") is None
