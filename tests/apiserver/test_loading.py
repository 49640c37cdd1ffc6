"""Objects of manifests put into a cluster, and what every cluster begins with."""

from typing import Any

import numpy as np
import pytest

from stowplan.apiserver.admission import default_admission
from stowplan.apiserver.auth.bootstrap_roles import default_bindings, default_roles
from stowplan.apiserver.bootstrap_objects import SYSTEM_NAMESPACES, create_bootstrap_objects
from stowplan.apiserver.manifest_loading import load_manifests
from stowplan.apiserver.options import ApiServerOptions
from stowplan.apiserver.resource_registry import built_in_registry
from stowplan.apiserver.server import ApiServer

NOW = 1_800_000_000.0
Tree = dict[str, Any]


@pytest.fixture
def server() -> ApiServer:
    options = ApiServerOptions(registry=built_in_registry(), admission=default_admission())
    made = ApiServer(options, np.random.default_rng(1))
    create_bootstrap_objects(made, NOW)
    return made


def get(server: ApiServer, kind: str, name: str, namespace: str = "") -> Tree | None:
    resource = server.registry.by_kind("", "v1", kind)
    assert resource is not None
    return server.get(resource, namespace, name)


def pod(name: str, **more: Any) -> Tree:
    spec = {"containers": [{"name": "c", "image": "i"}], "nodeName": "n"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec, **more}


def test_a_new_cluster_begins_with_the_same_as_any(server: ApiServer) -> None:
    for name in SYSTEM_NAMESPACES:
        assert get(server, "Namespace", name) is not None
    service = get(server, "Service", "kubernetes", "default")
    assert service is not None
    assert service["spec"]["clusterIP"] == "10.0.0.1"
    version = server.version
    create_bootstrap_objects(server, NOW + 5)
    assert server.version == version


def test_what_is_missing_comes_back(server: ApiServer) -> None:
    resource = server.registry.by_kind("rbac.authorization.k8s.io", "v1", "ClusterRole")
    assert resource is not None
    server.delete(resource, "", "view", NOW)
    create_bootstrap_objects(server, NOW)
    assert server.get(resource, "", "view") is not None


def test_every_binding_has_its_role() -> None:
    roles = {
        (role["kind"], role["metadata"].get("namespace", ""), role["metadata"]["name"])
        for role in default_roles()
    }
    for binding in default_bindings():
        ref, space = binding["roleRef"], binding["metadata"].get("namespace", "")
        assert (ref["kind"], space if ref["kind"] == "Role" else "", ref["name"]) in roles


def test_a_dump_comes_back_with_its_status(server: ApiServer) -> None:
    given = {"name": "n", "uid": "u", "resourceVersion": "7", "creationTimestamp": "x"}
    node = {
        "metadata": given | {"labels": {"a": "b"}},
        "status": {"capacity": {"cpu": "4", "pods": "9"}},
    }
    placed = pod("p", status={"phase": "Running"})
    placed["metadata"] |= {"namespace": "made", "uid": "v"}
    listed = {"apiVersion": "v1", "kind": "NodeList", "items": [node]}
    loading = load_manifests(server, [("a", placed), ("b", listed)], NOW)
    assert loading == (2, 0, ())
    stored = get(server, "Pod", "p", "made")
    assert stored is not None
    assert stored["status"]["phase"] == "Running"
    assert stored["metadata"]["uid"] != "v"
    made = get(server, "Node", "n")
    assert made is not None
    assert made["status"]["capacity"] == {"cpu": "4", "pods": "9"}
    # A second time everything is there.
    assert load_manifests(server, [("a", placed), ("b", listed)], NOW) == (0, 2, ())


def test_what_others_need_comes_first(server: ApiServer) -> None:
    urgent = pod("p")
    urgent["spec"] = {**urgent["spec"], "priorityClassName": "urgent"}
    kind = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "urgent"},
        "value": 5,
    }
    assert load_manifests(server, [("a", urgent), ("b", kind)], NOW).problems == ()
    stored = get(server, "Pod", "p", "default")
    assert stored is not None
    assert stored["spec"]["priority"] == 5


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ("text", "apiVersion and kind: Required value"),
        ({"apiVersion": "v1"}, "apiVersion and kind: Required value"),
        ({"apiVersion": "v9", "kind": "Pod"}, 'no matches for kind "Pod" in version "v9"'),
        ({"apiVersion": "a/v1", "kind": "B"}, 'no matches for kind "B" in version "a/v1"'),
        ({"apiVersion": "v1", "kind": "Pod"}, "metadata: Required value"),
        ({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "A_"}}, "A_"),
    ],
)
def test_objects_that_cannot_be_created_are_reported(
    server: ApiServer, tree: Any, message: str
) -> None:
    created, kept, problems = load_manifests(server, [("here", tree), ("there", pod("ok"))], NOW)
    assert (created, kept) == (1, 0)
    ((place, text),) = problems
    assert place == "here"
    assert message in text


def test_accounts_that_pods_name_are_made(server: ApiServer) -> None:
    template = {"spec": {"serviceAccountName": "bot", "containers": [{"name": "c", "image": "i"}]}}
    labels = {"matchLabels": {"a": "b"}}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "made"},
        "spec": {"selector": labels, "template": {**template, "metadata": {"labels": {"a": "b"}}}},
    }
    loaded = load_manifests(
        server,
        [("a", pod("p")), ("b", deployment), ("c", {"kind": "Pod"})],
        NOW,
        makes_accounts=True,
    )
    assert loaded.created == 2
    assert get(server, "ServiceAccount", "default", "default") is not None
    assert get(server, "ServiceAccount", "bot", "made") is not None


def test_unknown_fields_of_what_people_wrote_are_refused(server: ApiServer) -> None:
    """What another server has stored may be of a newer version."""
    written, stored = pod("a"), pod("b")
    for one in (written, stored):
        one["spec"]["nodeSelectr"] = {}
    stored["metadata"]["uid"] = "1"
    loaded = load_manifests(server, [("here", written), ("there", stored)], NOW)
    text = 'Pod "a": strict decoding error: unknown field "spec.nodeSelectr"'
    assert (loaded.created, loaded.problems) == (1, (("here", text),))
