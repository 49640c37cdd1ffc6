"""EndpointSlices of Services, default ServiceAccounts, ReplicationControllers.

Empty lists are stored as null, as by kube-apiserver.

Expected values: kubernetes.io/docs/concepts/services-networking/endpoint-slices, and
kube-controller-manager v1.36, pkg/controller/{endpointslice,serviceaccount,replication}.
"""

from __future__ import annotations

from stowplan.controllers.service_endpoints.endpoints import endpoints_of
from tests.apiserver.small_cluster import (
    DEPLOYMENTS,
    SmallCluster,
    Tree,
    container,
    deployment,
    template,
)

SLICES = "discovery.k8s.io/endpointslices"


def service(name: str = "s", app: str = "web", **spec: object) -> Tree:
    ports = [{"name": "http", "port": 80, "targetPort": "http"}]
    return {"metadata": {"name": name}, "spec": {"selector": {"app": app}, "ports": ports, **spec}}


def web(replicas: int, notes: dict[str, str] | None = None) -> Tree:
    made = deployment("web", replicas, notes)
    ports = [{"name": "http", "containerPort": 8080}]
    made["spec"]["template"]["spec"]["containers"] = [container(ports=ports)]
    return made


def slices(cluster: SmallCluster, of: str = "s") -> list[Tree]:
    wanted = {"kubernetes.io/service-name": of}.items()
    return [s for s in cluster.list(SLICES, "default") if wanted <= s["metadata"]["labels"].items()]


def conditions(cluster: SmallCluster) -> list[tuple[bool, bool, bool]]:
    """Ready, serving, terminating of all endpoints."""
    return sorted(
        (
            each["conditions"]["ready"],
            each["conditions"]["serving"],
            each["conditions"]["terminating"],
        )
        for one in slices(cluster)
        for each in one["endpoints"] or ()
    )


def test_a_slice_has_the_pods_with_addresses_ports_and_nodes() -> None:
    cluster = SmallCluster(2)
    cluster.create("services", service())
    cluster.settle()
    (empty,) = slices(cluster)
    assert (empty["endpoints"], empty["ports"], empty["addressType"]) == (None, None, "IPv4")
    cluster.create(DEPLOYMENTS, web(2))
    cluster.run(10)
    (found,) = slices(cluster)
    assert found["metadata"]["name"] == empty["metadata"]["name"]
    assert found["ports"] == [{"name": "http", "protocol": "TCP", "port": 8080}]
    pods = {pod["status"]["podIP"]: pod for pod in cluster.pods()}
    assert {each["addresses"][0] for each in found["endpoints"]} == set(pods)
    for each in found["endpoints"]:
        pod = pods[each["addresses"][0]]
        assert each["nodeName"] == pod["spec"]["nodeName"]
        assert each["targetRef"]["uid"] == pod["metadata"]["uid"]
    assert conditions(cluster) == [(True, True, False)] * 2
    managed = found["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"]
    assert managed == "endpointslice-controller.k8s.io"


def test_endpoints_have_the_addresses_of_the_slices() -> None:
    cluster = SmallCluster(2)
    cluster.create("services", service(publishNotReadyAddresses=False))
    cluster.settle()
    empty = cluster.get("endpoints", "s")
    assert empty is not None
    assert not empty.get("subsets")
    cluster.create(DEPLOYMENTS, web(2))
    cluster.run(10)
    found = cluster.get("endpoints", "s")
    assert found is not None
    (subset,) = found["subsets"]
    assert subset["ports"] == [{"name": "http", "protocol": "TCP", "port": 8080}]
    assert "notReadyAddresses" not in subset
    pods = {pod["status"]["podIP"]: pod for pod in cluster.pods()}
    assert [each["ip"] for each in subset["addresses"]] == sorted(pods)
    for each in subset["addresses"]:
        pod = pods[each["ip"]]
        assert each["nodeName"] == pod["spec"]["nodeName"]
        assert each["targetRef"]["name"] == pod["metadata"]["name"]
    labels = {"endpoints.kubernetes.io/managed-by": "endpoint-controller"}
    assert found["metadata"]["labels"] == labels
    # One that was deleted by hand is written again; it goes with its Service.
    cluster.delete("endpoints", "s")
    cluster.run(2)
    assert cluster.get("endpoints", "s") is not None
    cluster.delete("services", "s")
    cluster.settle()
    assert cluster.get("endpoints", "s") is None


def endpoint(ip: str, *, ready: bool = True, terminating: bool = False) -> Tree:
    conditions = {"ready": ready, "serving": ready, "terminating": terminating}
    return {"addresses": [ip], "conditions": conditions, "targetRef": {"uid": ip}}


def test_subsets_are_made_by_ports_and_readiness() -> None:
    ports = [{"name": "", "protocol": "TCP", "port": 80}]
    first = [endpoint("10.0.0.9"), endpoint("10.0.0.2", ready=False)]
    second = [endpoint("10.0.0.1"), endpoint("10.0.0.3", ready=False, terminating=True)]
    slices = [
        {"ports": ports, "endpoints": first},
        {"ports": ports, "endpoints": second},
        {"ports": [], "endpoints": []},
    ]
    of = {"metadata": {"name": "s", "namespace": "a", "labels": {"app": "web"}}}
    made = endpoints_of(of | {"spec": {"clusterIP": "None", "ports": [{}]}}, slices)
    (subset,) = made["subsets"]
    assert [one["ip"] for one in subset["addresses"]] == ["10.0.0.1", "10.0.0.9"]
    assert [one["ip"] for one in subset["notReadyAddresses"]] == ["10.0.0.2"]
    assert subset["ports"] == [{"protocol": "TCP", "port": 80}]
    assert made["metadata"]["labels"]["service.kubernetes.io/headless"] == ""
    assert made["metadata"]["labels"]["app"] == "web"


def test_endpoints_are_cut_at_a_thousand_addresses() -> None:
    many = [endpoint(f"10.0.{i // 250}.{i % 250}", ready=i % 2 == 0) for i in range(1200)]
    of = {"metadata": {"name": "s", "namespace": "a"}, "spec": {"clusterIP": "1", "ports": [{}]}}
    made = endpoints_of(of, [{"ports": [], "endpoints": many}])
    (subset,) = made["subsets"]
    assert (len(subset["addresses"]), len(subset["notReadyAddresses"])) == (600, 400)
    assert made["metadata"]["annotations"] == {"endpoints.kubernetes.io/over-capacity": "truncated"}


def test_a_terminating_pod_serves_but_is_not_ready() -> None:
    cluster = SmallCluster(2)
    cluster.create("services", service())
    cluster.create(DEPLOYMENTS, web(1, {"stowplan.dev/stop-seconds": "20"}))
    cluster.run(10)
    cluster.delete("pods", cluster.pods()[0]["metadata"]["name"])
    cluster.run(3)
    assert (False, True, True) in conditions(cluster)
    assert (True, True, False) in conditions(cluster)
    cluster.run(40)
    assert conditions(cluster) == [(True, True, False)]


def test_more_than_a_hundred_endpoints_take_two_slices() -> None:
    cluster = SmallCluster(3, capacity={"cpu": "64", "memory": "64Gi", "pods": "110"})
    cluster.create("services", service())
    cluster.create(DEPLOYMENTS, web(101))
    cluster.run(20)
    assert sorted(len(each["endpoints"]) for each in slices(cluster)) == [1, 100]
    cluster.change(DEPLOYMENTS, "web", replicas=0)
    cluster.run(60)
    (left,) = slices(cluster)
    assert left["endpoints"] is None


def test_a_deleted_slice_comes_back_and_a_deleted_service_takes_its_slices() -> None:
    cluster = SmallCluster(1)
    cluster.create("services", service(clusterIP="None"))
    cluster.create("services", {"metadata": {"name": "bare"}, "spec": {"ports": [{"port": 1}]}})
    cluster.settle()
    (found,) = slices(cluster)
    assert found["metadata"]["labels"]["service.kubernetes.io/headless"] == ""
    cluster.delete(SLICES, found["metadata"]["name"])
    cluster.run(2)
    assert len(slices(cluster)) == 1
    assert slices(cluster, "bare") == []
    cluster.delete("services", "s", propagation="Background")
    cluster.run(5)
    assert slices(cluster) == []


def test_each_namespace_has_a_default_account() -> None:
    cluster = SmallCluster(1)
    cluster.create("namespaces", {"metadata": {"name": "new"}})
    cluster.settle()
    assert cluster.get("serviceaccounts", "default", "new") is not None
    cluster.delete("serviceaccounts", "default", "new")
    cluster.settle()
    assert cluster.get("serviceaccounts", "default", "new") is not None
    cluster.delete("namespaces", "new", "")
    cluster.run(5)
    assert cluster.get("namespaces", "new", "") is None
    assert cluster.get("serviceaccounts", "default", "new") is None


def test_a_replication_controller_keeps_its_replicas() -> None:
    cluster = SmallCluster(2)
    spec = {"replicas": 3, "template": template("rc")}
    cluster.create("replicationcontrollers", {"metadata": {"name": "rc"}, "spec": spec})
    cluster.run(5)
    status = cluster.the("replicationcontrollers", "rc")["status"]
    assert (status["replicas"], status["readyReplicas"], status["observedGeneration"]) == (3, 3, 1)
    assert "terminatingReplicas" not in status
    owner = cluster.pods(app="rc")[0]["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["apiVersion"]) == ("ReplicationController", "v1")
    cluster.delete("pods", cluster.pods(app="rc")[0]["metadata"]["name"])
    cluster.run(5)
    assert len(cluster.pods(app="rc")) == 3
    cluster.change("replicationcontrollers", "rc", replicas=1)
    cluster.run(60)
    assert len(cluster.pods(app="rc")) == 1
    sources = {each["source"]["component"] for each in cluster.list("events")}
    assert "replication-controller" in sources
