"""Kubeconfig files, and exec credential plugins."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml

from stowplan.client.exec_credentials import (
    ExecCredential,
    ExecSpec,
    exec_info,
    parse_exec_credential,
)
from stowplan.client.kubeconfig import (
    ClientConfig,
    DataOrFile,
    KubeconfigFile,
    client_config,
    in_cluster_config,
)
from stowplan.framework.problems import ConfigError

V1, V1BETA1 = ExecSpec.VERSIONS


def tree(**user: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://api.example:6443/"}}],
        "users": [{"name": "u", "user": user}],
    }


def read(*trees: dict[str, Any], context: str = "") -> ClientConfig:
    files = [
        KubeconfigFile(yaml.safe_dump(one), f"f{i}", f"/etc/kube/f{i}")
        for i, one in enumerate(trees)
    ]
    return client_config(files, context)


def test_the_current_context_counts_and_certificates_are_checked_by_default() -> None:
    found = read(tree(token="secret"))
    assert found.server == "https://api.example:6443"
    assert found.token == "secret"
    assert not found.is_insecure
    assert found.namespace == "default"


def test_certificates_stand_in_the_file_or_beside_it() -> None:
    pem = b"-----BEGIN CERTIFICATE-----"
    whole = tree()
    whole["clusters"][0]["cluster"] |= {
        "certificate-authority-data": base64.b64encode(pem).decode(),
        "certificate-authority": "/not/read",
        "tls-server-name": "api",
        "proxy-url": "http://proxy:3128",
    }
    whole["users"][0]["user"] = {"client-certificate": "u.crt", "client-key": "/abs/u.key"}
    found = read(whole)
    assert (found.ca.data, found.ca.file) == (pem, "")
    assert found.certificate.file == "/etc/kube/f0/u.crt"
    assert found.key.file == "/abs/u.key"
    assert (found.server_name, found.proxy) == ("api", "http://proxy:3128")


def test_what_stands_in_the_file_may_be_of_many_lines() -> None:
    packed = base64.encodebytes(b"key" * 50).decode()
    assert packed.count("\n") > 1
    assert read(tree(**{"client-key-data": packed})).key == DataOrFile(data=b"key" * 50)


def test_the_first_definition_of_a_name_wins() -> None:
    second = tree(token="second")
    second["current-context"] = "there"
    second["contexts"].append({"name": "there", "context": {"cluster": "d", "namespace": "ns"}})
    second["clusters"].append({"name": "d", "cluster": {"server": "http://d"}})
    assert read(tree(token="first"), second).token == "first"
    there = read(tree(token="first"), second, context="there")
    assert (there.server, there.namespace, there.token) == ("http://d", "ns", "")


def test_impersonation_headers() -> None:
    extra = {"acme.com/team": ["c"], "scopes": ["a", "b"]}
    whole = {"as": "jane", "as-groups": ["g1", "g2"], "as-uid": "7", "as-user-extra": extra}
    assert read(tree(token="t", **whole)).headers == (
        ("Impersonate-User", "jane"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "g1"),
        ("Impersonate-Group", "g2"),
        ("Impersonate-Extra-acme.com%2Fteam", "c"),
        ("Impersonate-Extra-scopes", "a"),
        ("Impersonate-Extra-scopes", "b"),
    )


def test_a_program_is_found_beside_the_file_or_in_the_path() -> None:
    spec = {
        "apiVersion": V1BETA1,
        "command": "./bin/login",
        "args": ["-x"],
        "env": [{"name": "A", "value": "1"}],
        "interactiveMode": "Never",
        "provideClusterInfo": True,
    }
    run = read(tree(exec=spec)).run
    assert run == ExecSpec("/etc/kube/f0/./bin/login", ("-x",), (("A", "1"),), V1BETA1, "", True)
    named = read(tree(exec=spec | {"command": "login"})).run
    assert named is not None
    assert named.command == "login"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"current-context": "hre"}, "did you mean 'here'?"),
        ({"current-context": ""}, "current-context: Invalid value: nothing"),
        (
            {"clusters": []},
            "contexts[here].cluster: Invalid value: 'c': expected one of its clusters: none",
        ),
        ({"users": []}, "contexts[here].user"),
        ({"clusters": [{"name": "c", "cluster": {"server": "api:6443"}}]}, "begins with http"),
        ({"clusters": 3}, "$.clusters"),
        (
            {"users": [{"name": "u", "user": {"client-key-data": "%%%"}}]},
            "users[u].client-key-data: Invalid value: something else: expected base64",
        ),
        (
            {"users": [{"name": "u", "user": {"as-groups": ["g"]}}]},
            "users[u].as: Invalid value: nothing: expected a user for",
        ),
        (
            {"users": [{"name": "u", "user": {"exec": {"apiVersion": "v1alpha1"}}}]},
            "users[u].exec.apiVersion: Invalid value: 'v1alpha1'",
        ),
        (
            {"users": [{"name": "u", "user": {"exec": {"apiVersion": V1}}}]},
            "users[u].exec.command: Invalid value: nothing",
        ),
    ],
)
def test_errors_name_their_field(change: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as problem:
        read(tree() | change)
    assert text in str(problem.value)
    assert str(problem.value).startswith("f0: ")


def test_an_invalid_kubeconfig_is_reported() -> None:
    for text in ("- a\n", "a: [", "3"):
        with pytest.raises(ConfigError):
            client_config([KubeconfigFile(text, "f", "/")])


def test_a_pod_finds_its_own_cluster() -> None:
    found = in_cluster_config("fd00::1", "443", "ns")
    assert found.server == "https://[fd00::1]:443"
    assert found.token_file.endswith("/serviceaccount/token")
    assert found.ca.file.endswith("/serviceaccount/ca.crt")


# Programs.


def given(**status: Any) -> bytes:
    return json.dumps({"kind": "ExecCredential", "apiVersion": V1, "status": status}).encode()


def test_what_a_program_gives_is_read() -> None:
    found = parse_exec_credential(
        ExecSpec("x"), given(token="t", expirationTimestamp="2026-11-21T10:00:00Z")
    )
    assert found == ExecCredential("t", "", "", datetime(2026, 11, 21, 10, tzinfo=UTC))
    pair = given(clientCertificateData="C", clientKeyData="K")
    assert parse_exec_credential(ExecSpec("x"), pair) == ExecCredential("", "C", "K")


@pytest.mark.parametrize(
    ("output", "text"),
    [
        (b"", "expected an ExecCredential"),
        (b"{}", "no kind, no apiVersion: expected ExecCredential"),
        (given(), "Required value: token or clientCertificateData"),
        (given(clientCertificateData="C"), "must be set together"),
        (given(token="t", expirationTimestamp="2026-11-21T10:00:00"), "expected a time zone"),
        (given(token="t").replace(b"/v1", b"/v1beta1"), V1BETA1),
    ],
)
def test_an_invalid_exec_credential_is_refused(output: bytes, text: str) -> None:
    with pytest.raises(ValueError, match="invalid") as problem:
        parse_exec_credential(ExecSpec("x"), output)
    assert text in str(problem.value)


def test_the_exec_plugin_gets_the_cluster_if_provide_cluster_info_is_set() -> None:
    info = json.loads(
        exec_info(ExecSpec("x", provides_cluster_info=True), "https://a", b"CA", "name")
    )
    assert info["apiVersion"] == V1
    assert info["spec"]["cluster"] == {
        "server": "https://a",
        "tls-server-name": "name",
        "certificate-authority-data": base64.b64encode(b"CA").decode(),
    }
    silent = json.loads(exec_info(ExecSpec("x"), "https://a", b"CA"))
    assert silent["spec"] == {"interactive": False}
    asking = json.loads(exec_info(ExecSpec("x", is_interactive=True), "https://a", b"CA"))
    assert asking["spec"] == {"interactive": True}
