"""Tokens of service accounts: what they let in, and when they no longer do.

Expected texts: kubernetes v1.36, pkg/serviceaccount/claims.go.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from stowplan.apis.machinery.http_messages import HttpRequest, HttpResponse
from tests.contract.apiserver.kinds_replay import AUDIENCE, KindsCluster
from tests.contract.apiserver.replay import START

Tree = dict[str, Any]
ADMIN = "admin-token"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"


class Accounts:
    """A server with the account `a` and a pod of it."""

    def __init__(self) -> None:
        self.now = START
        self.cluster = KindsCluster("plain", START)
        self.post(ACCOUNTS, {"metadata": {"name": "a"}})
        containers = [{"name": "c", "image": "i"}]
        spec = {"containers": containers, "serviceAccountName": "a"}
        self.post("/api/v1/namespaces/default/pods", {"metadata": {"name": "p"}, "spec": spec})

    def ask(self, method: str, path: str, body: Tree | None = None, token: str = ADMIN) -> Any:
        headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        raw = b"" if body is None else json.dumps(body).encode()
        answer = self.cluster.handle(HttpRequest(method, path, (), headers, raw), self.now)
        assert isinstance(answer, HttpResponse)
        return answer.status, json.loads(answer.body)

    def post(self, path: str, body: Tree) -> Tree:
        status, made = self.ask("POST", path, body)
        assert status == 201, made
        return dict(made)

    def token(self, **spec: Any) -> str:
        made = self.post(f"{ACCOUNTS}/a/token", {"spec": spec})
        return str(made["status"]["token"])

    def review(self, token: str, *audiences: str) -> Tree:
        spec: Tree = {"token": token, "audiences": list(audiences)}
        return dict(self.post(REVIEWS, {"spec": spec})["status"])


@pytest.fixture
def accounts() -> Accounts:
    return Accounts()


def test_a_token_is_the_account(accounts: Accounts) -> None:
    status = accounts.review(accounts.token())
    assert status["authenticated"]
    assert status["audiences"] == [AUDIENCE]
    assert status["user"]["groups"][:2] == [
        "system:serviceaccounts",
        "system:serviceaccounts:default",
    ]


def test_a_token_ends(accounts: Accounts) -> None:
    token = accounts.token(expirationSeconds=600)
    accounts.now += 661
    assert accounts.ask("GET", "/version", token=token)[0] == 401
    expired = "[invalid bearer token, service account token has expired]"
    assert accounts.review(token) == {"user": {}, "error": expired}


def test_a_token_dies_with_its_account(accounts: Accounts) -> None:
    token = accounts.token()
    accounts.ask("DELETE", f"{ACCOUNTS}/a")
    assert accounts.ask("GET", "/version", token=token)[0] == 401
    accounts.post(ACCOUNTS, {"metadata": {"name": "a"}})
    assert "does not match claim" in accounts.review(token)["error"]


def test_a_bound_token_dies_with_its_pod(accounts: Accounts) -> None:
    pod = {"kind": "Pod", "apiVersion": "v1", "name": "p"}
    token = accounts.token(boundObjectRef=pod)
    extra = accounts.review(token)["user"]["extra"]
    assert extra["authentication.kubernetes.io/pod-name"] == ["p"]
    accounts.ask("DELETE", "/api/v1/namespaces/default/pods/p")
    assert "service account token has been invalidated" in accounts.review(token)["error"]


def test_a_token_for_others_is_for_them_alone(accounts: Accounts) -> None:
    token = accounts.token(audiences=["other"])
    assert accounts.ask("GET", "/version", token=token)[0] == 401
    assert "error" in accounts.review(token)
    assert accounts.review(token, "other")["audiences"] == ["other"]


def test_a_changed_token_is_unknown(accounts: Accounts) -> None:
    head, body, signature = accounts.token().split(".")
    for wrong in (f"{head}.{body}.{signature[::-1]}", f"{head}.{body[:-2]}.{signature}", "a.b.c"):
        assert accounts.ask("GET", "/version", token=wrong)[0] == 401
        assert accounts.review(wrong)["error"] == "invalid bearer token"


@pytest.mark.parametrize(
    ("spec", "status", "text"),
    [
        ({"expirationSeconds": 599}, 422, "may not specify a duration less than 10 minutes"),
        ({"expirationSeconds": (1 << 32) + 1}, 422, "larger than 2^32 seconds"),
        (
            {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "x"}},
            404,
            '"x" not found',
        ),
        ({"boundObjectRef": {"kind": "Job", "apiVersion": "batch/v1", "name": "x"}}, 400, "batch"),
    ],
)
def test_a_request_that_is_refused(accounts: Accounts, spec: Tree, status: int, text: str) -> None:
    got, body = accounts.ask("POST", f"{ACCOUNTS}/a/token", {"spec": spec})
    assert got == status
    assert text in body["message"]
