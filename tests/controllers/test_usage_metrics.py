"""`kubectl top`: what pods and nodes use, by the annotations that autoscaling reads."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stowplan.apis.machinery.errors import ApiError
from stowplan.apis.machinery.http_messages import HttpRequest
from stowplan.apiserver.resource_registry import built_in_registry
from stowplan.apiserver.server_state import SYSTEM_USER
from stowplan.assembly.usage_metrics import UsageMetricsPages, list_usage_metrics
from tests.apiserver.small_cluster import DEPLOYMENTS, SmallCluster

START = "/apis/metrics.k8s.io/v1beta1"


def _asked(cluster: SmallCluster, path: str, selector: str = "") -> Any:
    query = (("labelSelector", selector),) if selector else ()
    request = HttpRequest("GET", f"{START}/{path}", query)
    answer = UsageMetricsPages().answer(request, SYSTEM_USER, cluster.server, cluster.now)
    assert answer is not None
    return json.loads(answer.body)


def _cluster() -> SmallCluster:
    cluster = SmallCluster(1)
    labels = {"app": "web"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    notes = {"stowplan.dev/load-cpu": "1", "stowplan.dev/load-memory": "1Gi"}
    meta = {"name": "web", "annotations": notes}
    cluster.create(DEPLOYMENTS, {"metadata": meta, "spec": spec})
    cluster.run(10)
    return cluster


def test_a_load_is_shared_by_the_pods_and_their_node_has_all_of_it() -> None:
    cluster = _cluster()
    pods = _asked(cluster, "namespaces/default/pods")["items"]
    used = [one["containers"][0]["usage"] for one in pods]
    assert used == [{"cpu": "500000000n", "memory": "524288Ki"}] * 2
    (node,) = _asked(cluster, "nodes")["items"]
    assert node["usage"] == {"cpu": "1000000000n", "memory": "1048576Ki"}
    name = pods[0]["metadata"]["name"]
    assert _asked(cluster, f"namespaces/default/pods/{name}")["metadata"]["name"] == name
    assert _asked(cluster, "pods", "app=other")["items"] == []
    assert len(_asked(cluster, "pods", "app in (web)")["items"]) == 2


def test_an_unknown_pod_has_no_metrics() -> None:
    with pytest.raises(ApiError) as caught:
        _asked(_cluster(), "namespaces/default/pods/nosuch")
    assert caught.value.code == 404


def test_discovery_lists_them_and_nothing_stores_them() -> None:
    registry = built_in_registry()
    list_usage_metrics(registry)
    assert [one.plural for one in registry.all() if one.group == "metrics.k8s.io"] == [
        "pods",
        "nodes",
    ]
    assert registry.find("metrics.k8s.io", "v1beta1", "pods") is None
