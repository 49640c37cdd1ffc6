"""Creating a pod takes a bounded number of steps, and what is not configured costs none."""

from __future__ import annotations

import sys
from types import FrameType

import numpy as np
import pytest

from stowplan.apis.admissionregistration.webhook_calls import WebhookReply
from stowplan.apis.machinery.http_messages import HttpRequest, HttpResponse
from stowplan.apis.protobuf.object_codec import object_codec
from stowplan.apiserver.admission import default_admission
from stowplan.apiserver.discovery.default_pages import default_pages
from stowplan.apiserver.options import ApiServerOptions
from stowplan.apiserver.resource_registry import built_in_registry
from stowplan.apiserver.server import ApiServer
from stowplan.objects.encoding.json_codec import encode
from stowplan.objects.encoding.tree import Tree
from tests.apiserver.whole_server import NOW

PROTOBUF = "application/vnd.kubernetes.protobuf"
CALLS_MAX = 285
PROTOBUF_CALLS_MAX = 2400
REPEATED_CALLS_MAX = 110
REPEATED_PROTOBUF_CALLS_MAX = 1400
"""Calls of Python functions in one creation, by JSON and by protobuf: a little above those that it
takes. With webhooks and pod security levels that are not used it once took 291 and 2,623."""
HOOK: Tree = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingWebhookConfiguration",
    "metadata": {"name": "hook"},
    "webhooks": [
        {
            "name": "hook.example.com",
            "rules": [
                {
                    "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
                    "resources": ["pods"],
                }
            ],
            "clientConfig": {"url": "https://127.0.0.1:1/hook"},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
    ],
}  # fmt: skip
HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


class WebhookCalledError(Exception):
    """A webhook is called."""


def no_calls(questions: object) -> list[WebhookReply]:
    raise WebhookCalledError


def made_server() -> ApiServer:
    options = ApiServerOptions(
        registry=built_in_registry(), admission=default_admission(), pages=default_pages(),
        webhook_caller=no_calls,
    )  # fmt: skip
    server = ApiServer(options, np.random.default_rng(1))
    created(server, "/api/v1/namespaces", {"kind": "Namespace", "metadata": {"name": "default"}})
    return server


def pod(name: str) -> Tree:
    container = {
        "name": "c",
        "image": "nginx:1.27",
        "ports": [{"containerPort": 80}],
        "env": [{"name": "A", "value": "b"}],
        "resources": {"requests": {"cpu": "100m"}},
    }
    meta = {"name": name, "labels": {"app": "web"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {"containers": [container]},
    }


def created(
    server: ApiServer, path: str, tree: Tree, media: str = "application/json", agent: str = ""
) -> None:
    body = object_codec().encode(tree) if media == PROTOBUF else encode(tree)
    headers = {"content-type": media, "accept": media, "user-agent": agent}
    made = server.handle(HttpRequest("POST", path, (), headers, body), NOW)
    server.tick(NOW)
    assert isinstance(made, HttpResponse)
    assert made.status == 201, made.body


def calls_of_a_creation(server: ApiServer, media: str, *, repeats: bool = False) -> int:
    """repeats: of a pod that differs from earlier ones in its name only; else it comes from another
    client."""
    path = "/api/v1/namespaces/default/pods"
    for at in range(3):
        created(server, path, pod(f"p{at}"), media)
    agent = "" if repeats else "another"
    count = 0

    def called(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        created(server, path, pod("p3"), media, agent)
    finally:
        sys.setprofile(before)
    return count


def test_calls_of_a_creation() -> None:
    found = calls_of_a_creation(made_server(), "application/json")
    assert found <= CALLS_MAX


def test_calls_of_a_creation_by_protobuf() -> None:
    found = calls_of_a_creation(made_server(), PROTOBUF)
    assert found <= PROTOBUF_CALLS_MAX


def test_calls_of_a_repeated_creation() -> None:
    found = calls_of_a_creation(made_server(), "application/json", repeats=True)
    assert found <= REPEATED_CALLS_MAX


def test_calls_of_a_repeated_creation_by_protobuf() -> None:
    # Of its answer, which is not repeated.
    found = calls_of_a_creation(made_server(), PROTOBUF, repeats=True)
    assert found <= REPEATED_PROTOBUF_CALLS_MAX


def test_a_webhook_is_asked_from_its_creation_on() -> None:
    server = made_server()
    path = "/api/v1/namespaces/default/pods"
    for at in range(4):
        created(server, path, pod(f"before-{at}"))
    created(server, HOOKS, HOOK)
    with pytest.raises(WebhookCalledError):
        created(server, path, pod("after"))
