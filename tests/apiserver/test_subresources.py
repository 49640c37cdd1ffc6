"""Binding, eviction, scale and finalize: what the recordings do not show."""

from __future__ import annotations

from typing import Any

import pytest

from stowplan.apis.machinery.access import AlwaysAllow
from stowplan.apis.machinery.errors import ApiError
from stowplan.apis.machinery.http_messages import User
from stowplan.apis.machinery.resource import ApiCall
from stowplan.apis.subresources.scale import CustomScaleView, ScaleView, selector_text
from tests.apiserver.small_cluster import SmallCluster, Tree, pod

CUSTOM = CustomScaleView(".spec.size.count", ".status.count", ".status.selector")


def call(cluster: SmallCluster, path: str, verb: str = "update") -> ApiCall:
    resource = cluster.server.registry.by_path(path)
    assert resource is not None
    return ApiCall(
        cluster.server,
        User("u"),
        verb,
        resource,
        "default",
        "x",
        "scale",
        rng=cluster.server.rng,
        access=AlwaysAllow(),
    )


def quiet() -> SmallCluster:
    return SmallCluster(0, simulates_nodes=False, schedules=False)


def act(cluster: SmallCluster, subresource: str, name: str, **body: Any) -> int:
    pods = cluster.server.registry.by_path("pods")
    assert pods is not None
    body.setdefault("metadata", {"name": name})
    return cluster.server.act(pods, "default", name, subresource, body, cluster.now).code


def refused(cluster: SmallCluster, subresource: str, name: str, **body: Any) -> tuple[int, str]:
    with pytest.raises(ApiError) as raised:
        act(cluster, subresource, name, **body)
    return raised.value.code, raised.value.message


def workload(**spec: Any) -> Tree:
    meta = {"name": "x", "namespace": "default", "uid": "u", "resourceVersion": "5"}
    return {"metadata": meta, "spec": spec, "status": {"replicas": 2}}


def test_a_binding_clears_the_nomination_and_keeps_the_generation() -> None:
    cluster = quiet()
    made = cluster.create("pods", pod("a"))
    made["status"]["nominatedNodeName"] = "n2"
    made = cluster.api.update_status("pods", made)
    assert act(cluster, "binding", "a", target={"name": "n1"}) == 201
    bound = cluster.the("pods", "a")
    assert bound["spec"]["nodeName"] == "n1"
    assert "nominatedNodeName" not in bound["status"]
    assert bound["metadata"]["generation"] == made["metadata"]["generation"]


def test_all_errors_of_a_target_are_reported() -> None:
    cluster = quiet()
    cluster.create("pods", pod("a"))
    code, text = refused(cluster, "binding", "a", target={"kind": "Pod"})
    assert code == 500
    assert text == (
        '[target.kind: Unsupported value: "Pod": supported values: "Node", "<empty>", '
        "target.name: Required value]"
    )


def test_the_topology_of_the_node_comes_with_the_binding() -> None:
    cluster = SmallCluster(1, simulates_nodes=False, schedules=False)
    cluster.create("pods", pod("a"))
    act(cluster, "binding", "a", target={"kind": "Node", "name": "node-1"})
    labels = cluster.the("pods", "a")["metadata"]["labels"]
    assert labels == {"app": "a", "topology.kubernetes.io/zone": "zone-1"}


def test_an_eviction_needs_sound_options() -> None:
    cluster = quiet()
    cluster.create("pods", pod("a"))
    code, text = refused(cluster, "eviction", "a", deleteOptions={"propagationPolicy": "Never"})
    assert (code, "propagationPolicy: Unsupported value" in text) == (422, True)
    breaking = {"ignoreStoreReadErrorWithClusterBreakingPotential": True}
    assert refused(cluster, "eviction", "a", deleteOptions=breaking)[0] == 422
    stale = {"preconditions": {"resourceVersion": "1"}}
    code, text = refused(cluster, "eviction", "a", deleteOptions=stale)
    assert (code, "the ResourceVersion in the precondition (1)" in text) == (409, True)
    assert cluster.get("pods", "a") is not None


def test_an_eviction_under_its_precondition_goes_through() -> None:
    cluster = quiet()
    made = cluster.create("pods", pod("a"))
    right = {"resourceVersion": made["metadata"]["resourceVersion"], "uid": made["metadata"]["uid"]}
    assert act(cluster, "eviction", "a", deleteOptions={"preconditions": right}) == 201
    assert cluster.get("pods", "a") is None


def test_a_dry_run_evicts_nothing() -> None:
    cluster = quiet()
    cluster.create("pods", pod("a"))
    assert act(cluster, "eviction", "a", deleteOptions={"dryRun": ["All"]}) == 201
    conditions = cluster.the("pods", "a")["status"].get("conditions", ())
    assert [c for c in conditions if c["type"] == "DisruptionTarget"] == []


def test_a_scale_shows_and_sets_the_replicas() -> None:
    cluster = quiet()
    found = ScaleView().read(
        workload(replicas=3, selector={"matchLabels": {"a": "b"}}), call(cluster, "pods")
    )
    assert (found["spec"], found["status"]) == ({"replicas": 3}, {"replicas": 2, "selector": "a=b"})
    body = {"metadata": {"resourceVersion": "4"}, "spec": {"replicas": 7}}
    changed = ScaleView().write(workload(replicas=3), body, call(cluster, "apps/deployments"))
    assert changed["spec"]["replicas"] == 7
    assert changed["metadata"]["resourceVersion"] == "4"
    body = {"metadata": {"uid": "other"}, "spec": {"replicas": 7}}
    with pytest.raises(ApiError) as raised:
        ScaleView().write(workload(replicas=3), body, call(cluster, "apps/deployments"))
    assert raised.value.message == (
        'Operation cannot be fulfilled on deployments/scale.apps "x": '
        "Precondition failed: UID in precondition: other, UID in object meta: u"
    )


def test_the_selector_of_a_scale_is_one_line() -> None:
    text = selector_text(
        {
            "matchLabels": {"b": "1"},
            "matchExpressions": [
                {"key": "c", "operator": "NotIn", "values": ["y", "x"]},
                {"key": "a", "operator": "In", "values": ["q", "p"]},
                {"key": "e", "operator": "Exists"},
                {"key": "d", "operator": "DoesNotExist"},
            ],
        }
    )
    assert text == "a in (p,q),b=1,c notin (x,y),!d,e"
    plain = ScaleView(plain_selector=True)
    found = plain.read(workload(selector={"a": "b"}), call(quiet(), "pods"))
    assert found["status"]["selector"] == "a=b"


def test_a_custom_scale_is_at_the_paths_of_its_definition() -> None:
    cluster = quiet()
    obj = workload(size={"count": 4})
    obj["status"] = {"count": 3, "selector": "x=y"}
    found = CUSTOM.read(obj, call(cluster, "pods", "get"))
    assert (found["spec"], found["status"]) == ({"replicas": 4}, {"replicas": 3, "selector": "x=y"})
    changed = CUSTOM.write(workload(), {"spec": {"replicas": 9}}, call(cluster, "pods"))
    assert changed["spec"] == {"size": {"count": 9}}


def test_a_custom_scale_without_its_field() -> None:
    cluster = quiet()
    with pytest.raises(ApiError) as raised:
        CUSTOM.read(workload(), call(cluster, "pods", "get"))
    text = 'the spec replicas field ".spec.size.count" does not exist'
    assert (raised.value.code, raised.value.message) == (400, text)
    decoded = CUSTOM.read(workload(), call(cluster, "pods", "patch"))
    with pytest.raises(ApiError) as raised:
        CUSTOM.write(workload(), decoded, call(cluster, "pods", "patch"))
    assert raised.value.code == 400
    with pytest.raises(ApiError) as raised:
        CUSTOM.write(workload(), {"spec": {"replicas": -1}}, call(cluster, "pods"))
    assert raised.value.code == 422


def test_finalizers_of_a_namespace_change_only_where_they_may() -> None:
    cluster = quiet()
    made = cluster.create("namespaces", {"metadata": {"name": "a"}})
    made["spec"]["finalizers"] = ["kubernetes", "example.com/own"]
    made["status"] = {"phase": "Terminating"}
    stored = cluster.api.finalize(made)
    assert stored["spec"]["finalizers"] == ["kubernetes", "example.com/own"]
    assert stored["status"]["phase"] == "Active"
    stored["spec"]["finalizers"] = []
    cluster.api.update("namespaces", stored)
    assert cluster.the("namespaces", "a", "")["spec"]["finalizers"] == [
        "kubernetes",
        "example.com/own",
    ]
    stored = cluster.the("namespaces", "a", "")
    stored["spec"]["finalizers"] = ["nodomain"]
    with pytest.raises(ApiError) as raised:
        cluster.api.finalize(stored)
    assert raised.value.code == 422
