"""Webhooks are called for real: what they answer is done, and a request that waits stops no one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stowplan.apis.machinery.http_messages import HttpRequest, HttpResponse
from stowplan.apiserver.admission import default_admission
from stowplan.apiserver.options import ApiServerOptions
from stowplan.apiserver.resource_registry import built_in_registry
from stowplan.apiserver.server import ApiServer
from stowplan.assembly.embedded_cluster import EmbeddedCluster
from stowplan.driver.client.webhook_client import call_webhooks
from stowplan.driver.http.server_loop import ServerLoop
from tests.driver.webhook_server import WebhookServer, webhook_server

Tree = dict[str, Any]
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/{}webhookconfigurations"
MAPS = "/api/v1/namespaces/default/configmaps"
NOW = 1_790_000_000.0


def _options() -> ApiServerOptions:
    return ApiServerOptions(
        registry=built_in_registry(), admission=default_admission(), webhook_caller=call_webhooks
    )


def _request(method: str, path: str, body: Tree | None = None, query: str = "") -> HttpRequest:
    pairs = tuple((a, b) for a, _, b in (one.partition("=") for one in query.split("&") if one))
    headers = {"content-type": "application/json"}
    return HttpRequest(method, path, pairs, headers, json.dumps(body).encode() if body else b"")


class Scene:
    """A server and a webhook. create: stores a config map, unless a webhook is against it."""

    def __init__(self, hooks: WebhookServer) -> None:
        self.hooks = hooks
        self.server = ApiServer(_options(), np.random.default_rng(3))
        self.send("POST", "/api/v1/namespaces", {"metadata": {"name": "default"}})

    def send(
        self, method: str, path: str, body: Tree | None = None, query: str = ""
    ) -> tuple[int, Tree]:
        answer = self.server.handle(_request(method, path, body, query), NOW)
        assert isinstance(answer, HttpResponse)
        self.headers = answer.headers
        return answer.status, json.loads(answer.body)

    def configure(self, kind: str, *hooks: Tree) -> None:
        body = {"metadata": {"name": kind}, "webhooks": list(hooks)}
        status, made = self.send("POST", CONFIGURATIONS.format(kind), body)
        assert status == 201, made

    def create(self, name: str = "a", query: str = "") -> tuple[int, Tree]:
        return self.send("POST", MAPS, {"metadata": {"name": name}, "data": {"x": "y"}}, query)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with webhook_server(tmp_path) as hooks:
        yield Scene(hooks)


def test_a_webhook_refuses_a_write(scene: Scene) -> None:
    scene.configure("validating", scene.hooks.hook("/deny"))
    status, reported = scene.create()
    assert (status, reported["reason"]) == (418, "Teapot")
    assert reported["message"] == 'admission webhook "deny.example.com" denied the request: no'
    assert scene.send("GET", f"{MAPS}/a")[0] == 404


def test_a_webhook_changes_what_is_stored(scene: Scene) -> None:
    scene.configure("mutating", scene.hooks.hook("/label"))
    status, made = scene.create()
    assert status == 201
    assert made["metadata"]["labels"] == {"hooked": "yes"}
    assert scene.send("GET", f"{MAPS}/a")[1] == made


def test_it_is_asked_about_the_object_that_is_stored_once_and_by_the_uid_that_it_gets(
    scene: Scene,
) -> None:
    scene.configure("mutating", scene.hooks.hook("/label"))
    scene.configure("validating", scene.hooks.hook("/allow"), scene.hooks.hook("/warn"))
    _, made = scene.send("POST", MAPS, {"metadata": {"generateName": "g-"}})
    paths = sorted(path for path, _ in scene.hooks.asked)
    assert paths == ["/allow?timeout=10s", "/label?timeout=10s", "/warn?timeout=10s"]
    last = next(reported for path, reported in scene.hooks.asked if path.startswith("/allow"))
    assert last["object"]["metadata"]["uid"] == made["metadata"]["uid"]
    assert last["object"]["metadata"]["name"] == made["metadata"]["name"]
    assert last["object"]["metadata"]["labels"] == {"hooked": "yes"}
    assert ("Warning", '299 - "mind the gap"') in scene.headers


def test_a_webhook_is_asked_again_after_another_has_changed_the_object(scene: Scene) -> None:
    scene.configure(
        "mutating",
        scene.hooks.hook("/count", reinvocationPolicy="IfNeeded"),
        scene.hooks.hook("/label"),
    )
    _, made = scene.create()
    assert made["metadata"]["labels"] == {"n": "2", "hooked": "yes"}


@pytest.mark.parametrize(
    ("second", "labels", "paths"),
    [
        # The first is due as the second changed the object, the second as the first does it again.
        ("/tally", {"n": "2", "m": "2"}, ["/count", "/tally", "/count", "/tally"]),
        ("/label", {"n": "2", "hooked": "yes"}, ["/count", "/label", "/count", "/label"]),
        ("/allow", {"n": "1"}, ["/count", "/allow"]),
    ],
)
def test_two_webhooks_that_may_be_asked_again(
    scene: Scene, second: str, labels: Tree, paths: list[str]
) -> None:
    again = {"reinvocationPolicy": "IfNeeded"}
    scene.configure("mutating", *(scene.hooks.hook(one, **again) for one in ("/count", second)))
    _, made = scene.create()
    assert made["metadata"]["labels"] == labels
    assert [path.partition("?")[0] for path, _ in scene.hooks.asked] == paths


def counting_policy(scene: Scene, name: str, label: str, again: str) -> None:
    """A policy that counts in a label how often it is invoked."""
    held = f"object.metadata.labels.{label}"
    value = f"string((has({held}) ? int({held}) : 0) + 1)"
    patch = f'[JSONPatch{{op: "add", path: "/metadata/labels/{label}", value: {value}}}]'
    rule = {
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
        "resources": ["configmaps"],
    }  # fmt: skip
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "reinvocationPolicy": again,
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}],
    }
    policies = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
    assert scene.send("POST", policies, {"metadata": {"name": name}, "spec": spec})[0] == 201
    binding = {"metadata": {"name": name}, "spec": {"policyName": name}}
    assert scene.send("POST", policies.replace("policies", "policybindings"), binding)[0] == 201


@pytest.mark.parametrize(
    ("policies", "hooks", "labels"),
    [
        # As kube-apiserver 1.36.2 answers.
        ([("p", "IfNeeded")], [], {"p": "2"}),
        ([("p", "Never"), ("q", "IfNeeded")], [], {"p": "1", "q": "2"}),
        ([("p", "IfNeeded"), ("q", "IfNeeded")], [], {"p": "2", "q": "2"}),
        ([("p", "IfNeeded")], [("/count", "IfNeeded")], {"p": "2", "n": "2"}),
        ([("p", "IfNeeded")], [("/count", "Never")], {"p": "2", "n": "1"}),
        ([("p", "Never")], [("/count", "IfNeeded")], {"p": "1", "n": "1"}),
    ],
)
def test_policies_and_webhooks_run_once_more_after_a_change(
    scene: Scene, policies: list[tuple[str, str]], hooks: list[tuple[str, str]], labels: Tree
) -> None:
    for label, again in policies:
        counting_policy(scene, f"count-{label}", label, again)
    if hooks:
        made = (scene.hooks.hook(path, reinvocationPolicy=again) for path, again in hooks)
        scene.configure("mutating", *made)
    _, stored = scene.send("POST", MAPS, {"metadata": {"name": "a", "labels": {"x": "y"}}})
    assert stored["metadata"]["labels"] == {"x": "y", **labels}


@pytest.mark.parametrize(
    ("path", "fields", "why"),
    [
        ("/broken", {}, 'an error on the server ("unknown") has prevented the request'),
        ("/hang", {"timeoutSeconds": 1}, "context deadline exceeded"),
        ("/allow", {"clientConfig": {"url": "https://127.0.0.1:1/x"}}, "connection refused"),
    ],
)
def test_one_that_gives_no_answer_counts_by_its_failure_policy(
    scene: Scene, path: str, fields: Tree, why: str
) -> None:
    scene.configure("validating", scene.hooks.hook(path, **fields))
    status, reported = scene.create()
    assert status == 500
    assert why in reported["message"]
    patch = [{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]
    configuration = CONFIGURATIONS.format("validating") + "/validating"
    request = _request("PATCH", configuration)
    headers = {"content-type": "application/json-patch+json"}
    answer = scene.server.handle(
        HttpRequest("PATCH", request.path, (), headers, json.dumps(patch).encode()), NOW
    )
    assert isinstance(answer, HttpResponse)
    assert answer.status == 200
    assert scene.create()[0] == 201


@pytest.mark.parametrize(
    ("path", "why"),
    [
        (
            "/garbage",
            "failed to call webhook: couldn't get version/kind; json parse error: invalid character"
            " 'b' looking for beginning of object key string",
        ),
        (
            "/half-patch",
            "received undecodable patch in webhook response: unexpected end of JSON input",
        ),
    ],
)
def test_an_answer_that_cannot_be_read(scene: Scene, path: str, why: str) -> None:
    scene.configure("mutating", scene.hooks.hook(path))
    status, reported = scene.create()
    assert status == 500
    assert reported["message"].endswith(f'failed calling webhook "{path[1:]}.example.com": {why}')


def test_the_certificate_of_a_webhook_must_be_of_its_authority(scene: Scene) -> None:
    hook = scene.hooks.hook("/allow")
    del hook["clientConfig"]["caBundle"]
    scene.configure("validating", hook)
    status, reported = scene.create()
    assert status == 500
    assert "x509: certificate signed by unknown authority" in reported["message"]
    assert scene.hooks.asked == []


def test_match_conditions_and_dry_runs(scene: Scene) -> None:
    condition = {"name": "x", "expression": "object.metadata.name != 'spared'"}
    hook = scene.hooks.hook("/deny", sideEffects="NoneOnDryRun", matchConditions=[condition])
    scene.configure("validating", hook)
    assert scene.create("spared")[0] == 201
    assert scene.create("other", "dryRun=All")[0] == 418
    assert [reported["dryRun"] for _, reported in scene.hooks.asked] == [True]


def test_a_collection_is_deleted_with_one_question_for_each_object(scene: Scene) -> None:
    for name in "abc":
        scene.create(name)
    scene.configure("validating", scene.hooks.hook("/allow"))
    status, reported = scene.send("DELETE", MAPS)
    assert status == 200
    assert [one["metadata"]["name"] for one in reported["items"]] == ["a", "b", "c"]
    assert [reported["operation"] for _, reported in scene.hooks.asked] == ["DELETE"] * 3


def test_others_are_answered_while_a_webhook_is_waited_for(tmp_path: Path) -> None:
    async def life(hooks: WebhookServer) -> None:
        cluster = EmbeddedCluster(_options(), np.random.default_rng(3))
        loop = ServerLoop(cluster)
        loop.start()
        await loop.ask(_request("POST", "/api/v1/namespaces", {"metadata": {"name": "default"}}))
        body = {"metadata": {"name": "v"}, "webhooks": [hooks.hook("/hang", timeoutSeconds=30)]}
        await loop.ask(_request("POST", CONFIGURATIONS.format("validating"), body))
        waiting = [
            asyncio.ensure_future(
                loop.ask(_request("POST", MAPS, {"metadata": {"name": f"m{at}"}}))
            )
            for at in range(3)
        ]
        while len(hooks.asked) < 3:
            answer = await loop.ask(_request("GET", MAPS))
            assert isinstance(answer, HttpResponse)
            assert json.loads(answer.body)["items"] == []
            await asyncio.sleep(0.01)
        hooks.hold.set()
        answers = await asyncio.gather(*waiting)
        assert [one.status for one in answers] == [201] * 3
        await loop.stop()

    with webhook_server(tmp_path) as hooks:
        asyncio.run(asyncio.wait_for(life(hooks), 300))


def test_pods_of_controllers_pass_by_webhooks_too(tmp_path: Path) -> None:
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    spec = {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": template}

    async def life(hooks: WebhookServer) -> None:
        cluster = EmbeddedCluster(_options(), np.random.default_rng(3))
        loop = ServerLoop(cluster)
        loop.start()
        await loop.ask(_request("POST", "/api/v1/namespaces", {"metadata": {"name": "default"}}))
        body = {"metadata": {"name": "m"}, "webhooks": [hooks.hook("/label", "pods")]}
        await loop.ask(_request("POST", CONFIGURATIONS.format("mutating"), body))
        sets = "/apis/apps/v1/namespaces/default/replicasets"
        await loop.ask(_request("POST", sets, {"metadata": {"name": "r"}, "spec": spec}))
        pods: list[Tree] = []
        while len(pods) < 2:
            answer = await loop.ask(_request("GET", "/api/v1/namespaces/default/pods"))
            assert isinstance(answer, HttpResponse)
            pods = json.loads(answer.body)["items"]
            await asyncio.sleep(0.01)
        assert all(pod["metadata"]["labels"]["hooked"] == "yes" for pod in pods)
        await loop.stop()

    with webhook_server(tmp_path) as hooks:
        asyncio.run(asyncio.wait_for(life(hooks), 300))
