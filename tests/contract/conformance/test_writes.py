"""Apply, quotas, evictions, namespaces and single kinds, as conformance tests ask for them.

Each test restates one of kubernetes v1.36, test/e2e; its file and name there are the docstring.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.conformance.conformance_client import (
    CLUSTER_DEFINITIONS,
    MAPS,
    MERGE,
    PODS,
    THINGS,
    ConformanceClient,
    config_map,
    definition,
    thing,
)

Tree = dict[str, Any]
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
QUOTAS = "/api/v1/namespaces/default/resourcequotas"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
NAMESPACES = "/api/v1/namespaces"
SECRETS = "/api/v1/namespaces/default/secrets"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"


def pod(name: str, labels: dict[str, str] | None = None, **spec: Any) -> Tree:
    resources = spec.pop("resources", {})
    containers = [{"name": "c", "image": "i", "resources": resources}]
    meta = {"name": name, "labels": labels or {}}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": meta if labels else {"name": name},
        "spec": {"containers": containers, **spec},
    }  # fmt: skip


def web(**spec: Any) -> Tree:
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    return {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template, **spec},
    }  # fmt: skip


# Server-side apply


def test_apply_creates_what_is_not_there() -> None:
    """apply.go: should create an applied object if it does not already exist"""
    client = ConformanceClient()
    made = client.apply(f"{MAPS}/a", config_map("a", x="1"), "one")
    assert (made.status, made.tree["data"]) == (201, {"x": "1"})
    assert client.apply(f"{MAPS}/a", config_map("a", x="1"), "one").status == 200


def test_apply_of_a_subresource() -> None:
    """apply.go: should work for subresources"""
    client = ConformanceClient(nodes=0)
    client.apply(f"{PODS}/p", pod("p"), "one")
    status = {**pod("p"), "status": {"message": "m"}}
    made = client.apply(f"{PODS}/p/status", status, "two")
    assert made.tree["status"]["message"] == "m"
    entries = made.tree["metadata"]["managedFields"]
    assert ("two", "status") in {(one["manager"], one.get("subresource", "")) for one in entries}


def test_apply_removes_what_its_manager_leaves_out() -> None:
    """apply.go: should remove a field if it is owned but removed in the apply request"""
    client = ConformanceClient()
    client.apply(f"{MAPS}/a", config_map("a", x="1", y="1"), "one")
    assert client.apply(f"{MAPS}/a", config_map("a", y="1"), "one").tree["data"] == {"y": "1"}


def test_apply_leaves_what_another_manager_has_as_well() -> None:
    """apply.go: should not remove a field if an owner unsets the field but other managers still
    have ownership of the field"""
    client = ConformanceClient()
    client.apply(f"{MAPS}/a", config_map("a", x="1", y="1"), "one")
    client.apply(f"{MAPS}/a", config_map("a", x="1"), "two")
    made = client.apply(f"{MAPS}/a", config_map("a", y="1"), "one")
    assert made.tree["data"] == {"x": "1", "y": "1"}


def test_apply_by_force() -> None:
    """apply.go: should ignore conflict errors if force apply is used"""
    client = ConformanceClient()
    client.apply(f"{MAPS}/a", config_map("a", x="1"), "one")
    refused = client.apply(f"{MAPS}/a", config_map("a", x="2"), "two")
    assert (refused.status, refused.tree["reason"]) == (409, "Conflict")
    assert client.apply(f"{MAPS}/a", config_map("a", x="2"), "two", force=True).status == 200


def test_apply_by_force_takes_the_fields() -> None:
    """apply.go: should give up ownership of a field if forced applied by a controller"""
    client = ConformanceClient(nodes=0)
    client.apply(f"{DEPLOYMENTS}/web", web(replicas=1), "client")
    client.apply(f"{DEPLOYMENTS}/web", web(replicas=3), "controller", force=True)
    made = client.apply(f"{DEPLOYMENTS}/web", web(), "client")
    assert (made.status, made.tree["spec"]["replicas"]) == (200, 3)


def test_apply_of_a_custom_kind() -> None:
    """apply.go: should work for CRDs"""
    client = ConformanceClient()
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    client.done("POST", CLUSTER_DEFINITIONS, definition(schema))
    client.apply(f"{THINGS}/a", thing("a", size=1), "one")
    assert client.apply(f"{THINGS}/a", thing("a", size=2), "two").status == 409
    assert client.apply(f"{THINGS}/a", thing("a", size=2), "one").tree["size"] == 2


# Quotas


def quota(**hard: str) -> Tree:
    return {"metadata": {"name": "q"}, "spec": {"hard": hard}}


def used(client: ConformanceClient, name: str = "q") -> dict[str, str]:
    client.cluster.run(30)
    found: dict[str, str] = client.done("GET", f"{QUOTAS}/{name}").tree["status"]["used"]
    return found


def test_the_status_of_a_quota() -> None:
    """resource_quota.go: should create a ResourceQuota and ensure its status is promptly
    calculated"""
    client = ConformanceClient()
    client.done("POST", QUOTAS, quota(pods="5", configmaps="10"))
    found = client.done("GET", f"{QUOTAS}/q").tree["status"]
    assert (found["hard"]["pods"], found["used"]["pods"]) == ("5", "0")


@pytest.mark.parametrize(
    ("path", "tree", "resource"),
    [
        (MAPS, config_map("x"), "configmaps"),
        (SECRETS, {"metadata": {"name": "x"}}, "secrets"),
        (
            "/api/v1/namespaces/default/services",
            {"metadata": {"name": "x"}, "spec": {"ports": [{"port": 80}]}},
            "services",
        ),
        (DEPLOYMENTS, {**web(), "metadata": {"name": "x"}}, "count/deployments.apps"),
    ],
)
def test_a_quota_counts_objects(path: str, tree: Tree, resource: str) -> None:
    """resource_quota.go: should create a ResourceQuota and capture the life of a configMap, secret,
    service, replica set"""
    client = ConformanceClient(nodes=0)
    client.done("POST", QUOTAS, quota(**{resource: "9"}))
    before = int(used(client)[resource])
    client.done("POST", path, tree)
    assert int(used(client)[resource]) == before + 1
    client.done("DELETE", f"{path}/x")
    assert int(used(client)[resource]) == before


def test_a_quota_counts_requests_of_pods() -> None:
    """resource_quota.go: should create a ResourceQuota and capture the life of a pod"""
    client = ConformanceClient(nodes=0)
    client.done("POST", QUOTAS, quota(cpu="1", pods="5"))
    client.done("POST", PODS, pod("a", resources={"requests": {"cpu": "600m"}}))
    assert used(client) == {"cpu": "600m", "pods": "1"}
    refused = client.send("POST", PODS, pod("b", resources={"requests": {"cpu": "500m"}}))
    assert (refused.status, refused.tree["reason"]) == (403, "Forbidden")
    assert "exceeded quota: q, requested: cpu=500m, used: cpu=600m, limited: cpu=1" in (
        refused.message
    )
    client.done("DELETE", f"{PODS}/a", {"gracePeriodSeconds": 0})
    assert used(client) == {"cpu": "0", "pods": "0"}


def test_quotas_with_scopes() -> None:
    """resource_quota.go: should verify ResourceQuota with best effort scope; with terminating
    scopes"""
    client = ConformanceClient(nodes=0)
    scopes = ("BestEffort", "NotBestEffort", "Terminating", "NotTerminating")
    for scope in scopes:
        tree = {"metadata": {"name": scope.lower()}}
        client.done("POST", QUOTAS, {**tree, "spec": {"hard": {"pods": "5"}, "scopes": [scope]}})
    client.done("POST", PODS, pod("a"))
    client.done(
        "POST", PODS, pod("b", resources={"requests": {"cpu": "1"}}, activeDeadlineSeconds=60)
    )
    counts = {scope: used(client, scope.lower())["pods"] for scope in scopes}
    assert counts == dict.fromkeys(scopes, "1")


def test_a_quota_is_changed() -> None:
    """resource_quota.go: should be able to update and delete ResourceQuota; should apply changes to
    a resourcequota status"""
    client = ConformanceClient(nodes=0)
    client.done("POST", QUOTAS, quota(pods="1"))
    client.done("POST", PODS, pod("a"))
    assert client.send("POST", PODS, pod("b")).status == 403
    client.done("PATCH", f"{QUOTAS}/q", {"spec": {"hard": {"pods": "2"}}}, MERGE)
    client.cluster.run(30)
    client.done("POST", PODS, pod("b"))
    client.done("DELETE", f"{QUOTAS}/q")
    client.done("POST", PODS, pod("c"))


# Evictions


def test_an_eviction_waits_for_the_budget() -> None:
    """disruption.go: should block an eviction until the PDB is updated to allow it"""
    client = ConformanceClient(nodes=1)
    client.done("POST", PODS, pod("a", {"app": "a"}))
    client.cluster.run(60)
    selector = {"matchLabels": {"app": "a"}}
    body = {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": selector}}
    client.done("POST", BUDGETS, body)
    client.cluster.run(60)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}}
    refused = client.send("POST", f"{PODS}/a/eviction", eviction)
    assert (refused.status, refused.tree["reason"]) == (429, "TooManyRequests")
    client.done("PATCH", f"{BUDGETS}/b", {"spec": {"minAvailable": 0}}, MERGE)
    client.cluster.run(60)
    assert client.send("POST", f"{PODS}/a/eviction", eviction).status == 201


def test_the_status_of_a_budget() -> None:
    """disruption.go: should observe PodDisruptionBudget status updated"""
    client = ConformanceClient(nodes=1)
    selector = {"matchLabels": {"app": "a"}}
    body = {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": selector}}
    client.done("POST", BUDGETS, body)
    for name in ("a1", "a2", "a3"):
        client.done("POST", PODS, pod(name, {"app": "a"}))
    client.cluster.run(60)
    status = client.done("GET", f"{BUDGETS}/b").tree["status"]
    assert (status["currentHealthy"], status["disruptionsAllowed"]) == (3, 2)


# Namespaces


def test_a_namespace_takes_its_objects_with_it() -> None:
    """namespace.go: should ensure that all pods are removed when a namespace is deleted; should
    ensure that all services are removed"""
    client = ConformanceClient(nodes=0)
    client.done("POST", NAMESPACES, {"metadata": {"name": "away"}})
    client.done("POST", f"{NAMESPACES}/away/pods", pod("a"))
    client.done("POST", f"{NAMESPACES}/away/configmaps", config_map("m"))
    client.done("DELETE", f"{NAMESPACES}/away")
    client.cluster.run(120)
    assert client.send("GET", f"{NAMESPACES}/away").status == 404
    client.done("POST", NAMESPACES, {"metadata": {"name": "away"}})
    assert client.done("GET", f"{NAMESPACES}/away/pods").names() == []


def test_a_namespace_with_a_finalizer() -> None:
    """namespace.go: should apply a finalizer to a Namespace"""
    client = ConformanceClient()
    client.done("POST", NAMESPACES, {"metadata": {"name": "held"}})
    tree = client.done("GET", f"{NAMESPACES}/held").tree
    tree["spec"]["finalizers"].append("example.com/e2e")
    client.done("PUT", f"{NAMESPACES}/held/finalize", tree)
    client.done("DELETE", f"{NAMESPACES}/held")
    client.cluster.run(120)
    found = client.done("GET", f"{NAMESPACES}/held").tree
    assert (found["status"]["phase"], found["spec"]["finalizers"]) == (
        "Terminating", ["example.com/e2e"],
    )  # fmt: skip
    found["spec"]["finalizers"] = []
    client.done("PUT", f"{NAMESPACES}/held/finalize", found)
    client.cluster.run(120)
    assert client.send("GET", f"{NAMESPACES}/held").status == 404


def test_the_status_of_a_namespace() -> None:
    """namespace.go: should apply changes to a namespace status"""
    client = ConformanceClient()
    condition = {"type": "Seen", "status": "True", "reason": "E2E", "message": "m"}
    patch = {"metadata": {"annotations": {"a": "b"}}, "status": {"conditions": [condition]}}
    made = client.done("PATCH", f"{NAMESPACES}/default/status", patch, MERGE).tree
    (found,) = made["status"]["conditions"]
    assert {**found, **condition} == found


# Garbage collection


def test_dependents_of_two_owners_stay_with_the_other() -> None:
    """garbage_collector.go: should not delete dependents that have both valid owner and owner
    that's waiting for dependents to be deleted"""
    client = ConformanceClient(nodes=0)
    owners = [client.done("POST", MAPS, config_map(name)).tree for name in ("one", "two")]
    owner_references = [
        {
            "apiVersion": "v1", "kind": "ConfigMap", "name": one["metadata"]["name"],
            "uid": one["metadata"]["uid"],
        }
        for one in owners
    ]  # fmt: skip
    child = config_map("child")
    child["metadata"]["ownerReferences"] = owner_references
    client.done("POST", MAPS, child)
    client.done("DELETE", f"{MAPS}/one", {"propagationPolicy": "Foreground"})
    client.cluster.run(30)
    found = client.done("GET", f"{MAPS}/child").tree
    assert [one["name"] for one in found["metadata"]["ownerReferences"]] == ["two"]
    client.done("DELETE", f"{MAPS}/two")
    client.cluster.run(30)
    assert client.send("GET", f"{MAPS}/child").status == 404


def test_orphans_stay() -> None:
    """garbage_collector.go: should orphan RS created by deployment when deleteOptions.
    PropagationPolicy is Orphan"""
    client = ConformanceClient(nodes=0)
    client.done("POST", DEPLOYMENTS, web(replicas=1))
    client.cluster.run(10)
    client.done("DELETE", f"{DEPLOYMENTS}/web", {"propagationPolicy": "Orphan"})
    client.cluster.run(60)
    sets = client.done("GET", "/apis/apps/v1/namespaces/default/replicasets").tree["items"]
    assert len(sets) == 1
    assert "ownerReferences" not in sets[0]["metadata"]


# Single kinds


def test_an_immutable_config_map() -> None:
    """configmap_volume.go: should be immutable if `immutable` field is set"""
    client = ConformanceClient()
    client.done("POST", MAPS, {**config_map("a", x="1"), "immutable": True})
    for patch in ({"data": {"x": "2"}}, {"immutable": False}):
        refused = client.send("PATCH", f"{MAPS}/a", patch, MERGE)
        assert refused.status == 422
    client.done("PATCH", f"{MAPS}/a", {"metadata": {"labels": {"a": "b"}}}, MERGE)


@pytest.mark.parametrize("path", [MAPS, SECRETS])
def test_an_empty_key(path: str) -> None:
    """configmap.go: should fail to create ConfigMap with empty key; secrets.go: should fail to
    create secret due to empty secret key"""
    client = ConformanceClient()
    refused = client.send("POST", path, {"metadata": {"name": "a"}, "data": {"": "dmFsdWU="}})
    assert refused.status == 422
    assert 'data[]: Invalid value: ""' in refused.message


def test_a_priority_class_is_not_changed() -> None:
    """preemption.go: verify PriorityClass endpoints can be operated with different HTTP methods"""
    client = ConformanceClient()
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    client.done("POST", path, {"metadata": {"name": "p1"}, "value": 1})
    client.done("PATCH", f"{path}/p1", {"metadata": {"labels": {"a": "b"}}}, MERGE)
    refused = client.send("PATCH", f"{path}/p1", {"value": 2}, MERGE)
    assert refused.status == 422
    assert "may not be changed in an update" in refused.message


def test_the_life_of_an_event() -> None:
    """events.go: should ensure that an event can be fetched, patched, deleted, and listed; should
    delete a collection of events"""
    client = ConformanceClient()
    event = {
        "metadata": {"name": "e", "labels": {"a": "b"}}, "action": "Do", "reason": "Test",
        "type": "Normal", "note": "n", "reportingController": "c", "reportingInstance": "i",
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
    }  # fmt: skip
    client.done("POST", EVENTS, event)
    series = {"series": {"count": 2, "lastObservedTime": "2026-01-01T00:01:00.000000Z"}}
    assert client.done("PATCH", f"{EVENTS}/e", series, MERGE).tree["series"]["count"] == 2
    core = client.done("GET", "/api/v1/namespaces/default/events/e").tree
    assert (core["message"], core["involvedObject"]["name"]) == ("n", "p")
    client.done("DELETE", f"{EVENTS}?labelSelector=a=b")
    assert client.send("GET", f"{EVENTS}/e").status == 404


def test_ephemeral_containers_are_added() -> None:
    """ephemeral_containers.go: will start an ephemeral container in an existing pod"""
    client = ConformanceClient(nodes=0)
    client.done("POST", PODS, pod("a"))
    debug = {"name": "debug", "image": "i"}
    patch = {"spec": {"ephemeralContainers": [debug]}}
    made = client.done("PATCH", f"{PODS}/a/ephemeralcontainers", patch, MERGE).tree
    assert [one["name"] for one in made["spec"]["ephemeralContainers"]] == ["debug"]
    refused = client.send("PATCH", f"{PODS}/a", {"spec": {"ephemeralContainers": []}}, MERGE)
    assert refused.status == 422
