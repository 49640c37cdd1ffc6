"""Pods are refused or warned of by the level of their namespace, in the words of the original.

The texts are those that a kube-apiserver 1.36.2 gave to the same requests.
"""

from __future__ import annotations

import pytest

from stowplan.apiserver.admission.pod_security.security_checks import detail_text, violations
from stowplan.apiserver.admission.pod_security.security_policy import (
    LATEST,
    LeveledVersion,
    policy_of,
)
from stowplan.objects.encoding.tree import Tree
from tests.apiserver.whole_server import WholeServer

P = "pod-security.kubernetes.io/"


def _pod(name: str = "p", **spec: object) -> Tree:
    return {"metadata": {"name": name}, "spec": {"containers": [_container()], **spec}}


def _container(**fields: object) -> Tree:
    return {"name": "c", "image": "i", **fields}


@pytest.fixture
def server() -> WholeServer:
    made = WholeServer()
    for name, labels in (
        ("strict", {f"{P}enforce": "restricted"}),
        ("warned", {f"{P}warn": "baseline"}),
    ):
        made.send("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
    return made


def test_a_restricted_namespace_refuses_what_does_not_give_up_rights(server: WholeServer) -> None:
    status, body = server.send("POST", "/api/v1/namespaces/strict/pods", _pod())
    assert status == 403
    assert body["message"] == (
        'pods "p" is forbidden: violates PodSecurity "restricted:latest":'
        ' allowPrivilegeEscalation != false (container "c" must set'
        " securityContext.allowPrivilegeEscalation=false), unrestricted capabilities"
        ' (container "c" must set securityContext.capabilities.drop=["ALL"]), runAsNonRoot !='
        ' true (pod or container "c" must set securityContext.runAsNonRoot=true), seccompProfile'
        ' (pod or container "c" must set securityContext.seccompProfile.type to "RuntimeDefault"'
        ' or "Localhost")'
    )
    context = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    profile = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    good = _pod(containers=[_container(securityContext=context)], securityContext=profile)
    assert server.send("POST", "/api/v1/namespaces/strict/pods", good)[0] == 201


def test_a_deployment_is_only_warned_of(server: WholeServer) -> None:
    spec = {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": _pod(hostNetwork=True)["spec"]},
    }
    path = "/apis/apps/v1/namespaces/warned/deployments"
    status, _ = server.send("POST", path, {"metadata": {"name": "d"}, "spec": spec})
    assert status == 201
    text = 'would violate PodSecurity "baseline:latest": host namespaces (hostNetwork=true)'
    escaped = text.replace('"', '\\"')
    assert server.warnings() == [f'299 - "{escaped}"']


def test_labels_that_cannot_be_read_are_refused(server: WholeServer) -> None:
    labels = {f"{P}enforce": "nope", f"{P}warn-version": "1.5"}
    body = {"metadata": {"name": "x", "labels": labels}}
    status, reported = server.send("POST", "/api/v1/namespaces", body)
    assert status == 422
    assert [one["field"] for one in reported["details"]["causes"]] == [
        f"metadata.labels[{P}enforce]",
        f"metadata.labels[{P}warn-version]",
    ]


def test_a_stricter_level_warns_of_the_pods_that_are_there(server: WholeServer) -> None:
    for name in ("a", "b"):
        server.send("POST", "/api/v1/namespaces/warned/pods", _pod(name, hostPID=True))
    body = {"metadata": {"name": "warned", "labels": {f"{P}enforce": "baseline"}}}
    assert server.send("PUT", "/api/v1/namespaces/warned", body)[0] == 200
    assert server.warnings()[1] == '299 - "a (and 1 other pod): host namespaces"'


PROBED = {"containers": [_container(livenessProbe={"tcpSocket": {"host": "h"}})]}
TUNED = {"containers": [], "securityContext": {"sysctls": [{"name": "net.ipv4.tcp_rmem"}]}}


@pytest.mark.parametrize(
    ("level", "minor", "spec", "text"),
    [
        ("baseline", 30, {"containers": [_container(ports=[{"hostPort": 80}])]}, "hostPort"),
        ("baseline", 33, PROBED, ""),
        (
            "baseline", LATEST,
            PROBED,
            "probe or lifecycle host",
        ),
        ("restricted", 7, {"containers": [_container()]}, "runAsNonRoot"),
        ("baseline", 28, TUNED, "sysctls"),
        ("baseline", 32, TUNED, ""),
    ],
)  # fmt: skip
def test_rules_are_those_of_their_version(level: str, minor: int, spec: Tree, text: str) -> None:
    found = detail_text(violations(LeveledVersion(level, minor), {}, spec))
    assert (text in found) if text else not found


def test_warnings_follow_the_enforced_level_unless_they_are_set() -> None:
    policy = policy_of({f"{P}enforce": "baseline", f"{P}enforce-version": "v1.30"})
    assert str(policy.warn) == "baseline:v1.30"
    assert str(policy_of({f"{P}enforce": "baseline", f"{P}warn": "privileged"}).warn) == (
        "privileged:latest"
    )
