"""Admission that asks for other objects: accounts of pods, webhooks, addresses of services."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from stowplan.apis.machinery.errors import ApiError
from stowplan.controllers.root_ca_publisher import RootCertificatePublisher
from tests.apiserver.small_cluster import SmallCluster
from tests.contract.apiserver.kinds_replay import KindsCluster
from tests.contract.apiserver.replay import START

Tree = dict[str, Any]
HOOKS = "admissionregistration.k8s.io/validatingwebhookconfigurations"
ADDRESSES = "networking.k8s.io/ipaddresses"
KEY = {"name": "s", "key": "k"}
ENFORCED = {"kubernetes.io/enforce-mountable-secrets": "true"}


class Server:
    """A server with the admission of accounts on."""

    def __init__(self, settings: str = "default-admission") -> None:
        self.server = KindsCluster(settings, START).server

    def create(self, path: str, obj: Tree) -> Tree:
        resource = self.server.registry.by_path(path)
        assert resource is not None
        place = "default" if resource.namespaced else ""
        return self.server.create(resource, copy.deepcopy(obj), START, place)

    def names(self, path: str) -> list[str]:
        resource = self.server.registry.by_path(path)
        assert resource is not None
        return [one["metadata"]["name"] for one in self.server.list(resource)]


def pod(**spec: Any) -> Tree:
    container = {"name": "c", "image": "i", **spec.pop("container", {})}
    return {"metadata": {"name": "p"}, "spec": {"containers": [container], **spec}}


def account(**fields: Any) -> Tree:
    return {"metadata": {"name": "default", "annotations": ENFORCED}, **fields}


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (
            pod(volumes=[{"name": "v", "secret": {"secretName": "s"}}]),
            'volume with secret.secretName="s"',
        ),
        (
            pod(container={"env": [{"name": "E", "valueFrom": {"secretKeyRef": KEY}}]}),
            'container c with envVar E referencing secret.secretName="s"',
        ),
        (
            pod(container={"envFrom": [{"secretRef": {"name": "s"}}]}),
            'container c with envFrom referencing secret.secretName="s"',
        ),
        (pod(imagePullSecrets=[{"name": "s"}]), 'imagePullSecrets[0].name="s"'),
    ],
)  # fmt: skip
def test_an_account_that_enforces_its_secrets(made: Tree, text: str) -> None:
    strict = Server()
    strict.create("serviceaccounts", account())
    with pytest.raises(ApiError) as error:
        strict.create("pods", made)
    assert text in error.value.message
    generous = Server()
    named = [{"name": "s"}]
    generous.create("serviceaccounts", account(secrets=named, imagePullSecrets=named))
    assert generous.create("pods", made)["spec"]["imagePullSecrets"] == named


def test_a_container_with_its_own_mount_gets_no_token() -> None:
    server = Server()
    server.create("serviceaccounts", {"metadata": {"name": "default"}})
    path = "/var/run/secrets/kubernetes.io/serviceaccount"
    mounts = [{"name": "v", "mountPath": path}]
    made = pod(volumes=[{"name": "v", "emptyDir": {}}], container={"volumeMounts": mounts})
    assert len(server.create("pods", made)["spec"]["volumes"]) == 1


def test_secrets_of_ephemeral_containers_are_those_of_the_account() -> None:
    server = Server().server
    pods, accounts = (server.registry.by_path(path) for path in ("pods", "serviceaccounts"))
    assert pods is not None
    assert accounts is not None
    server.create(accounts, account(), START, "default")
    made = server.create(pods, pod(), START, "default")
    from_secret = {"env": [{"name": "E", "valueFrom": {"secretKeyRef": KEY}}]}
    for more, refused in (({}, False), (from_secret, True)):
        one = {"name": f"d{len(more)}", "image": "i", **more}
        changed = {**made, "spec": {**made["spec"], "ephemeralContainers": [one]}}
        if not refused:
            made = server.update(pods, changed, START, "ephemeralcontainers")
            continue
        changed["spec"]["ephemeralContainers"].insert(0, made["spec"]["ephemeralContainers"][0])
        with pytest.raises(ApiError) as error:
            server.update(pods, changed, START, "ephemeralcontainers")
        assert "ephemeral container d1 with envVar E referencing" in error.value.message


def test_a_pod_may_follow_its_namespace_at_once() -> None:
    cluster = SmallCluster(1)
    certificate = [
        one
        for one in cluster.cluster.controller_manager.parts
        if isinstance(one, RootCertificatePublisher)
    ]
    certificate[0].certificate = "PEM"
    cluster.create("namespaces", {"metadata": {"name": "new"}})
    assert cluster.get("serviceaccounts", "default", "new") is not None
    cluster.settle()
    published = cluster.the("configmaps", "kube-root-ca.crt", "new")
    assert published["data"] == {"ca.crt": "PEM"}
    cluster.api.update("configmaps", {**published, "data": {}})
    cluster.settle()
    assert cluster.the("configmaps", "kube-root-ca.crt", "new")["data"] == {"ca.crt": "PEM"}
    cluster.delete("configmaps", "kube-root-ca.crt", "new")
    cluster.settle()
    assert cluster.get("configmaps", "kube-root-ca.crt", "new") is not None


def hook(policy: str = "Fail", **rule: Any) -> Tree:
    whole = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}
    one = {
        "name": "a.b.c",
        "clientConfig": {"url": "https://x/y"},
        "rules": [{**whole, **rule}],
        "failurePolicy": policy,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "objectSelector": {"matchLabels": {"a": "b"}},
    }
    return {"metadata": {"name": "h"}, "webhooks": [one]}


@pytest.mark.parametrize(
    ("configuration", "labels", "refused"),
    [
        (hook(), {"a": "b"}, True),
        (hook("Ignore"), {"a": "b"}, False),
        (hook(), {"a": "c"}, False),
        (hook(operations=["UPDATE"]), {"a": "b"}, False),
        (hook(resources=["secrets"]), {"a": "b"}, False),
        (hook(apiGroups=["apps"]), {"a": "b"}, False),
        (hook(scope="Cluster"), {"a": "b"}, False),
    ],
)
def test_a_webhook_counts_as_one_that_does_not_answer(
    configuration: Tree, labels: Tree, refused: bool
) -> None:
    server = Server("plain")
    server.create(HOOKS, configuration)
    made = {"metadata": {"name": "m", "labels": labels}}
    if not refused:
        server.create("configmaps", made)
        return
    with pytest.raises(ApiError) as error:
        server.create("configmaps", made)
    assert error.value.code == 500
    assert 'failed calling webhook "a.b.c"' in error.value.message


def test_addresses_come_and_go_with_their_services() -> None:
    cluster = SmallCluster(1)
    port = {"ports": [{"port": 80}]}
    first = cluster.create("services", {"metadata": {"name": "s"}, "spec": port})
    cluster.create("services", {"metadata": {"name": "t"}, "spec": {**port, "clusterIP": "None"}})
    addresses = [one["metadata"]["name"] for one in cluster.list(ADDRESSES)]
    assert addresses == first["spec"]["clusterIPs"]
    with pytest.raises(ApiError):
        cluster.create("services", {"metadata": {"name": "s"}, "spec": port})
    assert len(cluster.list(ADDRESSES)) == 1
    cluster.delete("services", "s")
    cluster.settle()
    assert cluster.list(ADDRESSES) == []
