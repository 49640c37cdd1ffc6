"""ResourceQuota and LimitRanger admission, and the usage that the quota controller counts.

Expected values: kubernetes.io/docs/concepts/policy/resource-quotas and .../limit-range, and the
texts of kube-apiserver v1.36, plugin/pkg/admission.
"""

from __future__ import annotations

import json
import random

import pytest

from stowplan.apis.machinery.errors import ApiError
from stowplan.apis.machinery.http_messages import HttpRequest, HttpResponse
from stowplan.apis.schema.json_parser import LONG_BYTES
from stowplan.apiserver.http.deferred_work import PendingRequest
from tests.apiserver.small_cluster import (
    DEPLOYMENTS,
    JOBS,
    SmallCluster,
    Tree,
    container,
    deployment,
    job,
)
from tests.apiserver.small_cluster import pod as plain_pod

QUOTAS, RANGES = "resourcequotas", "limitranges"


def quota(hard: dict[str, str], name: str = "q", **spec: object) -> Tree:
    return {"metadata": {"name": name}, "spec": {"hard": hard, **spec}}


def pod(
    name: str, requests: Tree | None = None, limits: Tree | None = None, **spec: object
) -> Tree:
    resources = {"requests": requests or {}, "limits": limits or {}}
    return plain_pod(name, containers=[container(resources=resources)], **spec)


def used(cluster: SmallCluster, name: str = "q") -> dict[str, str]:
    found: dict[str, str] = cluster.the(QUOTAS, name)["status"]["used"]
    return found


def refused(cluster: SmallCluster, path: str, obj: Tree) -> str:
    with pytest.raises(ApiError) as error:
        cluster.create(path, obj)
    assert error.value.code == 403
    return error.value.message


def test_a_pod_beyond_the_quota_is_refused() -> None:
    cluster = SmallCluster(2)
    cluster.create(QUOTAS, quota({"pods": "2", "requests.cpu": "1", "limits.memory": "1Gi"}))
    cluster.settle()
    assert used(cluster) == {"pods": "0", "requests.cpu": "0", "limits.memory": "0"}
    cluster.create("pods", pod("a", {"cpu": "600m"}, {"memory": "256Mi"}))
    assert used(cluster) == {"pods": "1", "requests.cpu": "600m", "limits.memory": "256Mi"}
    assert refused(cluster, "pods", pod("b", {"cpu": "500m"}, {"memory": "1Gi"})) == (
        'pods "b" is forbidden: exceeded quota: q, requested: limits.memory=1Gi,requests.cpu=500m,'
        " used: limits.memory=256Mi,requests.cpu=600m, limited: limits.memory=1Gi,requests.cpu=1"
    )
    assert refused(cluster, "pods", pod("b", {"cpu": "100m"})) == (
        'pods "b" is forbidden: failed quota: q: must specify limits.memory for: c'
    )
    cluster.create("pods", pod("b", {"cpu": "400m"}, {"memory": "256Mi"}))
    assert used(cluster)["requests.cpu"] == "1"


def test_usage_shrinks_when_pods_finish_and_go() -> None:
    cluster = SmallCluster(2)
    cluster.create(QUOTAS, quota({"pods": "2", "count/pods": "5"}))
    cluster.settle()
    cluster.create(JOBS, job("j"))
    cluster.run(1.5)
    assert used(cluster) == {"pods": "1", "count/pods": "1"}
    cluster.run(10)
    assert used(cluster) == {"pods": "0", "count/pods": "1"}
    cluster.delete(JOBS, "j", propagation="Background")
    cluster.run(10)
    assert used(cluster) == {"pods": "0", "count/pods": "0"}


def test_controllers_report_the_quota_and_fill_it() -> None:
    cluster = SmallCluster(2)
    cluster.create(QUOTAS, quota({"pods": "2"}))
    cluster.create(DEPLOYMENTS, deployment("d", 3))
    cluster.run(10)
    assert len(cluster.pods()) == 2
    reasons = {each["reason"] for each in cluster.list("events")}
    assert "FailedCreate" in reasons
    cluster.change(QUOTAS, "q", hard={"pods": "3"})
    cluster.run(30)
    assert len(cluster.pods()) == 3
    assert used(cluster) == {"pods": "3"}


def test_a_quota_that_is_not_counted_yet_is_counted_at_once() -> None:
    cluster = SmallCluster(2)
    cluster.create("pods", pod("a"))
    cluster.create(QUOTAS, quota({"pods": "1"}))
    assert "used: pods=1, limited: pods=1" in refused(cluster, "pods", pod("b"))


@pytest.mark.parametrize(
    ("scope", "fits"),
    [
        ("BestEffort", pod("x", {"cpu": "1"})),
        ("NotBestEffort", pod("x")),
        ("Terminating", pod("x")),
        ("NotTerminating", pod("x", activeDeadlineSeconds=5)),
    ],
)
def test_a_quota_covers_pods_of_its_scope(scope: str, fits: Tree) -> None:
    cluster = SmallCluster(1)
    cluster.create(QUOTAS, quota({"pods": "0"}, scopes=[scope]))
    cluster.settle()
    cluster.create("pods", fits)
    other: dict[str, Tree] = {
        "BestEffort": pod("y"),
        "NotBestEffort": pod("y", {"cpu": "1"}),
        "Terminating": pod("y", activeDeadlineSeconds=5),
        "NotTerminating": pod("y"),
    }
    assert "exceeded quota" in refused(cluster, "pods", other[scope])


def test_numbers_of_objects_services_and_claims() -> None:
    cluster = SmallCluster(1)
    hard = {
        "count/deployments.apps": "1",
        "configmaps": "1",
        "services.nodeports": "2",
        "requests.storage": "3Gi",
        "fast.storageclass.storage.k8s.io/persistentvolumeclaims": "1",
    }
    cluster.create(QUOTAS, quota(hard))
    cluster.settle()
    cluster.create(DEPLOYMENTS, deployment("d", 0))
    assert "requested: count/deployments.apps=1" in refused(
        cluster, DEPLOYMENTS, deployment("e", 0)
    )
    cluster.create("configmaps", {"metadata": {"name": "a"}})
    assert "requested: configmaps=1" in refused(cluster, "configmaps", {"metadata": {"name": "b"}})
    ports = [{"name": name, "port": at} for at, name in enumerate("abc", 80)]
    node_ports = {"type": "NodePort", "ports": ports}
    text = refused(cluster, "services", {"metadata": {"name": "s"}, "spec": node_ports})
    assert "requested: services.nodeports=3, used: services.nodeports=0" in text

    def claim(name: str, storage: str) -> Tree:
        resources = {"requests": {"storage": storage}}
        spec = {"accessModes": ["ReadWriteOnce"], "resources": resources}
        return {"metadata": {"name": name}, "spec": {"storageClassName": "fast", **spec}}

    cluster.create("persistentvolumeclaims", claim("a", "1Gi"))
    text = refused(cluster, "persistentvolumeclaims", claim("b", "1Gi"))
    assert "requested: fast.storageclass.storage.k8s.io/persistentvolumeclaims=1" in text
    assert used(cluster)["requests.storage"] == "1Gi"


def test_devices_of_claims_by_class() -> None:
    cluster = SmallCluster(0)
    devices = "gpu.deviceclass.resource.k8s.io/devices"
    claims = "resource.k8s.io/resourceclaims"
    cluster.create(
        "resourcequotas", quota({devices: "36", "count/resourceclaims.resource.k8s.io": "9"})
    )

    def claim(name: str, *requests: Tree) -> Tree:
        return {"metadata": {"name": name}, "spec": {"devices": {"requests": list(requests)}}}

    def one(**more: object) -> Tree:
        return {"deviceClassName": "gpu", **more}

    exact = {"name": "a", "exactly": one(count=2)}
    alternatives = [one(count=1) | {"name": "x"}, {"name": "y", "deviceClassName": "nic"}]
    cluster.create(claims, claim("first", exact, {"name": "b", "firstAvailable": alternatives}))
    cluster.run(10)
    assert used(cluster)[devices] == "3"
    cluster.create(claims, claim("all", {"name": "a", "exactly": one(allocationMode="All")}))
    cluster.run(10)
    assert used(cluster) == {devices: "35", "count/resourceclaims.resource.k8s.io": "2"}
    text = refused(cluster, claims, claim("more", exact))
    assert f"requested: {devices}=2, used: {devices}=35, limited: {devices}=36" in text
    cluster.delete(claims, "all")
    cluster.run(10)
    assert used(cluster)[devices] == "3"


def test_a_create_of_an_existing_name_is_not_charged() -> None:
    cluster = SmallCluster(1)
    cluster.create(QUOTAS, quota({"pods": "5"}))
    cluster.settle()
    cluster.create("pods", pod("a"))
    with pytest.raises(ApiError) as error:
        cluster.create("pods", pod("a"))
    assert error.value.reason == "AlreadyExists"
    assert used(cluster) == {"pods": "1"}


def test_a_dry_run_is_not_charged() -> None:
    cluster = SmallCluster(1)
    cluster.create(QUOTAS, quota({"pods": "1"}))
    cluster.settle()
    headers = {"content-type": "application/json"}
    body = json.dumps({"apiVersion": "v1", "kind": "Pod", **pod("a")}).encode()
    path = "/api/v1/namespaces/default/pods"
    request = HttpRequest("POST", path, query=(("dryRun", "All"),), headers=headers, body=body)
    answer = cluster.server.handle(request, cluster.now)
    assert isinstance(answer, HttpResponse)
    assert answer.status == 201, answer.body
    assert used(cluster) == {"pods": "0"}


def limit_range(type_: str, **item: object) -> Tree:
    return {"metadata": {"name": "r"}, "spec": {"limits": [{"type": type_, **item}]}}


def test_defaults_of_a_limit_range() -> None:
    cluster = SmallCluster(1, schedules=False)
    default = {"cpu": "1", "memory": "1Gi"}
    item = {"default": default, "defaultRequest": {"cpu": "250m"}}
    cluster.create(RANGES, limit_range("Container", **item))
    made = cluster.create("pods", pod("a", {"memory": "10Mi"}))
    resources = made["spec"]["containers"][0]["resources"]
    assert resources["requests"] == {"cpu": "250m", "memory": "10Mi"}
    assert resources["limits"] == default
    text = "LimitRanger plugin set: cpu request for container c; cpu, memory limit for container c"
    assert made["metadata"]["annotations"]["kubernetes.io/limit-ranger"] == text


@pytest.mark.parametrize(
    ("type_", "item", "requests", "limits", "text"),
    [
        (
            "Container",
            {"min": {"cpu": "200m"}},
            {"cpu": "100m"},
            {},
            "minimum cpu usage per Container is 200m, but request is 100m",
        ),
        (
            "Pod",
            {"min": {"cpu": "200m"}},
            {},
            {},
            "minimum cpu usage per Pod is 200m.  No request is specified",
        ),
        (
            "Pod",
            {"max": {"memory": "1Gi"}},
            {"memory": "1Gi"},
            {"memory": "2Gi"},
            "maximum memory usage per Pod is 1Gi, but limit is 2Gi",
        ),
        (
            "Container",
            {"maxLimitRequestRatio": {"cpu": "2"}},
            {"cpu": "1"},
            {"cpu": "3"},
            "cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000",
        ),
    ],
)
def test_limits_of_a_limit_range(
    type_: str, item: Tree, requests: Tree, limits: Tree, text: str
) -> None:
    cluster = SmallCluster(1, schedules=False)
    cluster.create(RANGES, limit_range(type_, **item))
    assert refused(cluster, "pods", pod("a", requests, limits)) == f'pods "a" is forbidden: {text}'


def test_limits_of_claims() -> None:
    cluster = SmallCluster(1)
    item = {"min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}}
    cluster.create(RANGES, limit_range("PersistentVolumeClaim", **item))
    for storage, text in (
        ("3Gi", "maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi"),
        ("1Mi", "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi"),
    ):
        resources = {"requests": {"storage": storage}}
        spec = {"accessModes": ["ReadWriteOnce"], "resources": resources}
        claim = {"metadata": {"name": "c"}, "spec": spec}
        assert text in refused(cluster, "persistentvolumeclaims", claim)


def test_another_namespace_is_free() -> None:
    cluster = SmallCluster(1)
    cluster.create("namespaces", {"metadata": {"name": "other"}})
    cluster.create(QUOTAS, quota({"pods": "0"}))
    cluster.create(RANGES, limit_range("Container", min={"cpu": "1"}))
    free = pod("a")
    free["metadata"]["namespace"] = "other"
    cluster.create("pods", free)


@pytest.mark.parametrize("seed", range(3))
def test_a_quota_holds_with_two_hundred_writers_at_once(seed: int) -> None:
    """Long bodies are read aside: the requests go on in another order than they came."""
    rng = random.Random(seed)
    cluster = SmallCluster(0)
    cluster.create(QUOTAS, quota({"pods": "50", "requests.cpu": "20"}))
    cluster.settle()
    padding = {"text": "x" * (LONG_BYTES + 1)}
    waiting = []
    for number in range(200):
        tree = pod(f"p{number}", {"cpu": f"{rng.choice((100, 300, 700))}m"})
        tree["metadata"]["annotations"] = padding
        path = "/api/v1/namespaces/default/pods"
        raw = json.dumps(tree).encode()
        request = HttpRequest("POST", path, (), {"content-type": "application/json"}, raw)
        begun = cluster.server.begin(request, cluster.now)
        assert isinstance(begun, PendingRequest)
        waiting.append(begun)
    rng.shuffle(waiting)
    statuses = []
    while waiting:
        begun = waiting.pop(rng.randrange(len(waiting)))
        begun.work.run()
        following = begun.resume(cluster.now)
        if isinstance(following, PendingRequest):
            waiting.append(following)
        else:
            assert isinstance(following, HttpResponse)
            statuses.append(following.status)
    stored = cluster.pods()
    milli = sum(
        int(one["spec"]["containers"][0]["resources"]["requests"]["cpu"][:-1]) for one in stored
    )
    assert sorted(set(statuses)) == [201, 403]
    assert statuses.count(201) == len(stored) <= 50
    assert milli <= 20_000
    assert len(stored) == 50 or milli > 19_300
    assert used(cluster)["pods"] == str(len(stored))
    assert quantity_millis(used(cluster)["requests.cpu"]) == milli


def quantity_millis(text: str) -> int:
    return int(text[:-1]) if text.endswith("m") else 1000 * int(text)
