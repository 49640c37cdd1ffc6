"""Answers that no recording shows, as a kube-apiserver 1.36.2 gave them to the same requests."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from stowplan.apis.machinery.http_messages import HttpResponse
from stowplan.apis.protobuf.object_codec import object_codec
from stowplan.apiserver.admission import default_admission
from stowplan.apiserver.crd.definition_controller import DefinitionController
from stowplan.apiserver.discovery.default_pages import default_pages
from stowplan.apiserver.options import ApiServerOptions
from stowplan.apiserver.resource_registry import built_in_registry
from stowplan.apiserver.server import ApiServer
from tests.apiserver.plain import asked
from tests.apiserver.test_protobuf import envelope, message

Tree = dict[str, Any]

MERGE = "application/merge-patch+json"
SPACE = "/api/v1/namespaces/default"
PODS, CLAIMS = f"{SPACE}/pods", f"{SPACE}/persistentvolumeclaims"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
SETS = "/apis/apps/v1/namespaces/default/statefulsets"
VOLUMES = "/api/v1/persistentvolumes"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
CONTROLLERS = f"{SPACE}/replicationcontrollers"
DEFINED = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GIZMOS = "/apis/ex.org/v1/namespaces/default/gizmos"

CONTAINERS = [{"name": "c", "image": "x"}]
POD = {"metadata": {"name": "p"}, "spec": {"containers": CONTAINERS}}
JOB = {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": CONTAINERS}}}}
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": CONTAINERS}}
SELECTED = {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
VOLUME = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}


class Client:
    """Asks a server and reads what it says."""

    def __init__(self) -> None:
        options = ApiServerOptions(
            registry=built_in_registry(),
            admission=default_admission(),
            observers=(DefinitionController(),),
            pages=default_pages(),
        )
        self.server = ApiServer(options, np.random.default_rng(1))
        self.warnings: list[str] = []
        self.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "default"}})

    def ask(
        self, method: str, target: str, body: Tree | None = None, media: str = ""
    ) -> tuple[int, Tree]:
        sent = b"" if body is None else json.dumps(body).encode()
        media = media or "application/json"
        answer = asked(self.server, method, target, sent, content_type=media)
        assert isinstance(answer, HttpResponse)
        self.warnings = [value for name, value in answer.headers if name == "Warning"]
        tree: Tree = json.loads(answer.body)
        return answer.status, tree

    def make(self, target: str, obj: Tree, name: str = "x") -> Tree:
        code, tree = self.ask("POST", target, {**obj, "metadata": {"name": name}})
        assert code == 201, tree["message"]
        return tree


@pytest.fixture
def client() -> Client:
    return Client()


def causes(tree: Tree) -> list[tuple[str, str]]:
    return [(one["field"], one["message"]) for one in tree["details"]["causes"]]


@pytest.mark.parametrize(
    ("target", "status"),
    [
        (f"{PODS}?fieldSelector=status.podIPs=", 200),
        ("/api/v1/namespaces?fieldSelector=name=default", 400),
        ("/api/v1/persistentvolumes?fieldSelector=name=x", 400),
        ("/apis/apps/v1/replicasets?fieldSelector=status.replicas=0", 400),
        (f"{PODS}?limit=", 400),
        (f"{PODS}?timeoutSeconds=", 400),
        (f"{PODS}?export=true", 200),
        (f"{PODS}/none?export=true", 400),
        (f"{PODS}/none?export=false", 404),
    ],
)
def test_odd_queries(client: Client, target: str, status: int) -> None:
    assert client.ask("GET", target)[0] == status


def test_a_field_manager_can_be_printed(client: Client) -> None:
    code, tree = client.ask("POST", f"{PODS}?fieldManager=a\0b", POD)
    assert code == 422
    assert causes(tree)[0][1].endswith("invalid character U+0000 (at position 1)")
    assert client.ask("POST", f"{PODS}?fieldManager=a b", POD)[0] == 201


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        (None, "Job"),
        ({}, "Job"),
        ({"orphanDependents": False}, "Status"),
        ({"propagationPolicy": "Background"}, "Status"),
    ],
)
def test_pods_of_a_deleted_job_are_orphaned_by_default(
    client: Client, options: Tree | None, kind: str
) -> None:
    client.make(JOBS, JOB)
    code, tree = client.ask("DELETE", f"{JOBS}/x", options)
    assert (code, tree["kind"]) == (200, kind)
    if kind == "Job":
        assert tree["metadata"]["finalizers"] == ["orphan"]


def test_deleting_a_job_without_propagation_policy_warns(client: Client) -> None:
    client.make(JOBS, JOB)
    client.ask("DELETE", f"{JOBS}/x")
    assert [one for one in client.warnings if "child pods are preserved by default" in one]
    client.make(CONTROLLERS, {"spec": {"selector": {"a": "b"}, "template": TEMPLATE}})
    _, tree = client.ask("DELETE", f"{CONTROLLERS}/x")
    assert tree["metadata"]["finalizers"] == ["orphan"]
    assert client.warnings == []


def test_a_status_that_leaves_counts_out_is_refused_with_the_zero_it_means(client: Client) -> None:
    client.make(DEPLOYMENTS, {"spec": SELECTED})
    body = {"status": {"replicas": -1}}
    code, tree = client.ask("PATCH", f"{DEPLOYMENTS}/x/status", body, MERGE)
    assert code == 422
    wrong = ("status.updatedReplicas", "Invalid value: 0: cannot be greater than status.replicas")
    assert wrong in causes(tree)


def test_the_source_of_a_volume_is_immutable_and_the_difference_reported(client: Client) -> None:
    client.make(VOLUMES, {"spec": {**VOLUME, "hostPath": {"path": "/x"}}})
    body = {"spec": {"hostPath": {"path": "/y"}}}
    code, tree = client.ask("PATCH", f"{VOLUMES}/x", body, MERGE)
    assert code == 422
    assert '-  "Path": "/x",\n+  "Path": "/y",' in tree["message"]
    assert '"HostPath": {' in tree["message"]


def test_a_negative_grace_period_is_a_second(client: Client) -> None:
    spec = {"containers": CONTAINERS, "terminationGracePeriodSeconds": -5}
    made = client.make(PODS, {"spec": spec})
    assert made["spec"]["terminationGracePeriodSeconds"] == 1
    assert client.warnings == []


@pytest.mark.parametrize(
    ("target", "spec", "field", "text"),
    [
        (
            PODS,
            {"containers": CONTAINERS, "hostPID": True, "shareProcessNamespace": True},
            "spec.securityContext.shareProcessNamespace",
            "cannot both be enabled",
        ),
        (
            DEPLOYMENTS,
            {**SELECTED, "strategy": {"type": "Foo"}},
            "spec.strategy",
            'Unsupported value: {"Type":"Foo","RollingUpdate":null}',
        ),
        (
            SETS,
            {**SELECTED, "volumeClaimTemplates": [{"metadata": {"name": "v"}, "spec": {}}]},
            "spec.volumeClaimTemplates[0].spec.accessModes",
            "at least 1 access mode is required",
        ),
        (JOBS, {**JOB["spec"], "managedBy": "bad"}, "spec.managedBy", "domain-prefixed path"),
        (
            JOBS,
            {**JOB["spec"], "successPolicy": {"rules": [{"succeededCount": 1}]}},
            "spec.successPolicy",
            "requires indexed completion mode",
        ),
    ],
)
def test_specs_that_make_no_sense(
    client: Client, target: str, spec: Tree, field: str, text: str
) -> None:
    code, tree = client.ask("POST", target, {"metadata": {"name": "x"}, "spec": spec})
    assert code == 422, tree
    messages = [message for where, message in causes(tree) if where == field]
    assert any(text in one for one in messages), tree["message"]


def test_an_unknown_data_source_of_a_claim_is_dropped(client: Client) -> None:
    odd = {"kind": "Odd", "name": "y"}
    made = client.make(CLAIMS, {"spec": {**CLAIM, "dataSource": odd}})
    assert "dataSource" not in made["spec"]
    known = {"kind": "PersistentVolumeClaim", "name": "y"}
    made = client.make(CLAIMS, {"spec": {**CLAIM, "dataSource": known}}, "z")
    assert made["spec"]["dataSourceRef"]["kind"] == known["kind"]


@pytest.mark.parametrize(
    ("target", "obj", "times"),
    [(PODS, POD, 4), (DEPLOYMENTS, {"spec": SELECTED}, 3), (BUDGETS, {"spec": {}}, 2)],
)
def test_causes_come_as_often_as_the_original_asks(
    client: Client, target: str, obj: Tree, times: int
) -> None:
    client.make(target, obj)
    labels = {"metadata": {"labels": {"a b": "c"}}}
    _, tree = client.ask("PATCH", f"{target}/x", labels, MERGE)
    assert len(causes(tree)) == times
    code, _ = client.ask("PATCH", f"{target}/x", {"metadata": {"finalizers": ["bad"]}}, MERGE)
    assert code == (200 if target == BUDGETS else 422)


def test_names_of_namespaces_and_services(client: Client) -> None:
    code, tree = client.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "a.b"}})
    assert code == 422
    assert "must not contain dots" in tree["message"]
    client.make(f"{SPACE}/services", {"spec": {"ports": [{"port": 1}]}}, "1a")


@pytest.fixture
def gizmos(client: Client) -> Client:
    inner = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    spec = {"inner": {**inner, "x-kubernetes-embedded-resource": True}, "size": {"type": "integer"}}
    spec["replicas"] = {"type": "integer"}
    properties = {
        "spec": {"type": "object", "properties": spec},
        "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
        "subresources": {
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
            }
        },
    }
    names = {"plural": "gizmos", "kind": "Gizmo"}
    spec = {"group": "ex.org", "scope": "Namespaced", "names": names, "versions": [version]}
    client.make(DEFINED, {"spec": spec}, "gizmos.ex.org")
    gizmo = {"apiVersion": "ex.org/v1", "kind": "Gizmo", "spec": {"replicas": 1}}
    client.make(GIZMOS, gizmo)
    return client


def test_a_patch_makes_no_other_kind_of_a_custom_object(gizmos: Client) -> None:
    for name, value in (("kind", "Widget"), ("apiVersion", "ex.org/v9")):
        code, tree = gizmos.ask("PATCH", f"{GIZMOS}/x", {name: value}, MERGE)
        assert (code, [field for field, _ in causes(tree)]) == (422, [name])
    assert gizmos.ask("GET", f"{GIZMOS}/x")[1]["metadata"]["generation"] == 1


def test_the_scale_of_a_custom_object_needs_no_kind(gizmos: Client) -> None:
    body = {"metadata": {"name": "x"}, "spec": {"replicas": 3}}
    code, tree = gizmos.ask("PUT", f"{GIZMOS}/x/scale", body)
    assert (code, tree["spec"]["replicas"]) == (200, 3)
    wrong = {**body, "apiVersion": "apps/v1", "kind": "Deployment"}
    code, tree = gizmos.ask("PUT", f"{GIZMOS}/x/scale", wrong)
    assert code == 400
    assert "converting (v1.Deployment) to (autoscaling.Scale)" in tree["message"]


def test_an_embedded_object_has_api_version_and_kind(gizmos: Client) -> None:
    obj = {"apiVersion": "ex.org/v1", "kind": "Gizmo", "metadata": {"name": "y"}}
    code, tree = gizmos.ask("POST", GIZMOS, {**obj, "spec": {"inner": {"kind": "Pod"}}})
    assert (code, [field for field, _ in causes(tree)]) == (422, ["spec.inner.apiVersion"])
    inner = {"kind": "Pod", "apiVersion": "v1"}
    assert gizmos.ask("POST", GIZMOS, {**obj, "spec": {"inner": inner}})[0] == 201


def test_kubectl_makes_a_job_of_a_cron_job(client: Client) -> None:
    """It sends the defaulted template back, in binary, with the cron job as the owner."""
    owner = message((1, "CronJob"), (3, "c"), (4, "u"), (5, "batch/v1"), (6, 1))
    container = message((1, "c"), (2, "x"), (13, "/dev/log"), (14, "Always"), (20, "File"))
    pod = message((2, container), (3, "Never"), (4, 30), (6, "ClusterFirst"), (14, b""), (19, "s"))
    template = message((1, b""), (2, pod))
    content = message((1, message((1, "x"), (13, owner))), (2, message((6, template))))
    body = envelope("batch/v1", "Job", content)
    code, made = client.ask("POST", JOBS, object_codec().decode(body))
    assert code == 201, made
    (first,) = made["metadata"]["ownerReferences"]
    assert (first["kind"], first["controller"]) == ("CronJob", True)
    spec = made["spec"]["template"]["spec"]
    assert spec["schedulerName"] == "s"
    assert spec["containers"][0]["terminationMessagePath"] == "/dev/log"
