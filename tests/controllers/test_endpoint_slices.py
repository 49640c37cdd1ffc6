"""EndpointSlices of Services, default ServiceAccounts, ReplicationControllers.

Empty lists are stored as null, as by kube-apiserver.

Expected values: kubernetes.io/docs/concepts/services-networking/endpoint-slices, and
kube-controller-manager v1.36, pkg/controller/{endpointslice,serviceaccount,replication}.
"""

from __future__ import annotations

from tests.apiserver.small_cluster import DEPLOYMENTS, Tree, World, container, deployment, template

SLICES = "discovery.k8s.io/endpointslices"


def service(name: str = "s", app: str = "web", **spec: object) -> Tree:
    ports = [{"name": "http", "port": 80, "targetPort": "http"}]
    return {"metadata": {"name": name}, "spec": {"selector": {"app": app}, "ports": ports, **spec}}


def web(replicas: int, notes: dict[str, str] | None = None) -> Tree:
    made = deployment("web", replicas, notes)
    ports = [{"name": "http", "containerPort": 8080}]
    made["spec"]["template"]["spec"]["containers"] = [container(ports=ports)]
    return made


def slices(world: World, of: str = "s") -> list[Tree]:
    wanted = {"kubernetes.io/service-name": of}.items()
    return [s for s in world.list(SLICES, "default") if wanted <= s["metadata"]["labels"].items()]


def conditions(world: World) -> list[tuple[bool, bool, bool]]:
    """Ready, serving, terminating of all endpoints."""
    return sorted(
        (
            each["conditions"]["ready"],
            each["conditions"]["serving"],
            each["conditions"]["terminating"],
        )
        for one in slices(world)
        for each in one["endpoints"] or ()
    )


def test_a_slice_has_the_pods_with_addresses_ports_and_nodes() -> None:
    world = World(2)
    world.create("services", service())
    world.settle()
    (empty,) = slices(world)
    assert (empty["endpoints"], empty["ports"], empty["addressType"]) == (None, None, "IPv4")
    world.create(DEPLOYMENTS, web(2))
    world.run(10)
    (found,) = slices(world)
    assert found["metadata"]["name"] == empty["metadata"]["name"]
    assert found["ports"] == [{"name": "http", "protocol": "TCP", "port": 8080}]
    pods = {pod["status"]["podIP"]: pod for pod in world.pods()}
    assert {each["addresses"][0] for each in found["endpoints"]} == set(pods)
    for each in found["endpoints"]:
        pod = pods[each["addresses"][0]]
        assert each["nodeName"] == pod["spec"]["nodeName"]
        assert each["targetRef"]["uid"] == pod["metadata"]["uid"]
    assert conditions(world) == [(True, True, False)] * 2
    managed = found["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"]
    assert managed == "endpointslice-controller.k8s.io"


def test_a_terminating_pod_serves_but_is_not_ready() -> None:
    world = World(2)
    world.create("services", service())
    world.create(DEPLOYMENTS, web(1, {"stowplan.dev/stop-seconds": "20"}))
    world.run(10)
    world.delete("pods", world.pods()[0]["metadata"]["name"])
    world.run(3)
    assert (False, True, True) in conditions(world)
    assert (True, True, False) in conditions(world)
    world.run(40)
    assert conditions(world) == [(True, True, False)]


def test_more_than_a_hundred_endpoints_take_two_slices() -> None:
    world = World(3, capacity={"cpu": "64", "memory": "64Gi", "pods": "110"})
    world.create("services", service())
    world.create(DEPLOYMENTS, web(101))
    world.run(20)
    assert sorted(len(each["endpoints"]) for each in slices(world)) == [1, 100]
    world.change(DEPLOYMENTS, "web", replicas=0)
    world.run(60)
    (left,) = slices(world)
    assert left["endpoints"] is None


def test_a_deleted_slice_comes_back_and_a_deleted_service_takes_its_slices() -> None:
    world = World(1)
    world.create("services", service(clusterIP="None"))
    world.create("services", {"metadata": {"name": "bare"}, "spec": {"ports": [{"port": 1}]}})
    world.settle()
    (found,) = slices(world)
    assert found["metadata"]["labels"]["service.kubernetes.io/headless"] == ""
    world.delete(SLICES, found["metadata"]["name"])
    world.run(2)
    assert len(slices(world)) == 1
    assert slices(world, "bare") == []
    world.delete("services", "s", propagation="Background")
    world.run(5)
    assert slices(world) == []


def test_each_namespace_has_a_default_account() -> None:
    world = World(1)
    world.create("namespaces", {"metadata": {"name": "new"}})
    world.settle()
    assert world.get("serviceaccounts", "default", "new") is not None
    world.delete("serviceaccounts", "default", "new")
    world.settle()
    assert world.get("serviceaccounts", "default", "new") is not None
    world.delete("namespaces", "new", "")
    world.run(5)
    assert world.get("namespaces", "new", "") is None
    assert world.get("serviceaccounts", "default", "new") is None


def test_a_replication_controller_keeps_its_replicas() -> None:
    world = World(2)
    spec = {"replicas": 3, "template": template("rc")}
    world.create("replicationcontrollers", {"metadata": {"name": "rc"}, "spec": spec})
    world.run(5)
    status = world.the("replicationcontrollers", "rc")["status"]
    assert (status["replicas"], status["readyReplicas"], status["observedGeneration"]) == (3, 3, 1)
    assert "terminatingReplicas" not in status
    owner = world.pods(app="rc")[0]["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["apiVersion"]) == ("ReplicationController", "v1")
    world.delete("pods", world.pods(app="rc")[0]["metadata"]["name"])
    world.run(5)
    assert len(world.pods(app="rc")) == 3
    world.change("replicationcontrollers", "rc", replicas=1)
    world.run(60)
    assert len(world.pods(app="rc")) == 1
    sources = {each["source"]["component"] for each in world.list("events")}
    assert "replication-controller" in sources
