"""Kubelet requests: logs of hollow nodes are one line, all others are refused in one."""

from __future__ import annotations

import json
from urllib.parse import urlencode

import pytest

from stowplan.apis.machinery.http_messages import HttpResponse
from stowplan.apiserver.http.connect import CONNECT_SUBRESOURCES, PROXY_SUBRESOURCE
from tests.apiserver.plain import asked
from tests.apiserver.small_cluster import SmallCluster, Tree, pod

LINE = b"container c of a hollow node: it is simulated and writes no log\n"


def ready() -> SmallCluster:
    """A pod that runs, one that waits for a node, one of two containers."""
    cluster = SmallCluster(1, schedules=False)
    for name in ("runs", "two", "waits"):
        made: Tree = pod(name)
        made["spec"]["containers"][0]["name"] = "c"
        if name == "two":
            made["spec"]["containers"].append({"name": "d", "image": "i"})
        if name != "waits":
            made["spec"]["nodeName"] = "node-1"
        cluster.create("pods", made)
    return cluster


@pytest.fixture(scope="module")
def cluster() -> SmallCluster:
    cluster = ready()
    cluster.run(30)
    return cluster


def ask(cluster: SmallCluster, path: str, method: str = "GET", **query: str) -> HttpResponse:
    target = f"/api/v1/namespaces/default/pods/{path}?{urlencode(query)}"
    answer = asked(cluster.server, method, target, now=cluster.now)
    assert isinstance(answer, HttpResponse)
    return answer


def refusal(answer: HttpResponse) -> tuple[int, str]:
    return answer.status, json.loads(answer.body)["message"]


def test_a_log_is_a_line(cluster: SmallCluster) -> None:
    answer = ask(cluster, "runs/log")
    assert (answer.status, answer.body) == (200, LINE)
    assert ("Content-Type", "text/plain") in answer.headers
    assert ask(cluster, "two/log", container="c", follow="true").body == LINE
    assert ask(cluster, "runs/log", tailLines="0").body == b""
    assert ask(cluster, "runs/log", limitBytes="9").body == LINE[:9]
    assert (ask(cluster, "waits/log").status, ask(cluster, "waits/log").body) == (204, b"")


def test_a_container_that_has_not_started_has_no_log() -> None:
    cluster = ready()
    cluster.run(0)
    text = 'container "c" in pod "runs" is waiting to start: ContainerCreating'
    assert refusal(ask(cluster, "runs/log")) == (400, text)


@pytest.mark.parametrize(
    ("path", "query", "code", "text"),
    [
        ("nope/log", {}, 404, 'pods "nope" not found'),
        (
            "two/log",
            {},
            400,
            "a container name must be specified for pod two, choose one of: [c d]",
        ),
        ("two/log", {"container": "x"}, 400, "container x is not valid for pod two"),
        ("runs/log", {"tailLines": "-1"}, 422, "tailLines: Invalid value: -1"),
        ("runs/log", {"limitBytes": "0"}, 422, "limitBytes: Invalid value: 0"),
        ("runs/log", {"tailLines": "9" * 30}, 400, "value out of range"),
        ("runs/log", {"previous": "true"}, 400, 'previous terminated container "c" in pod "runs"'),
        ("nope/exec", {}, 404, 'pods "nope" not found'),
        ("two/exec", {}, 400, "a container name must be specified"),
        ("two/attach", {"container": "x"}, 400, "container x is not valid"),
        ("waits/exec", {}, 400, "pod waits does not have a host assigned"),
        ("waits/portforward", {}, 400, "pod waits does not have a host assigned"),
        ("runs/exec", {}, 501, 'pods "runs": exec is not supported: containers of hollow nodes'),
        ("runs/attach", {}, 501, 'pods "runs": attach is not supported'),
        ("runs/portforward", {}, 501, 'pods "runs": port-forward is not supported'),
    ],
)
def test_a_refusal_is_one_line(
    cluster: SmallCluster, path: str, query: dict[str, str], code: int, text: str
) -> None:
    for method in ("GET", "POST"):
        if method == "POST" and path.endswith("/log"):
            continue
        got, message = refusal(ask(cluster, path, method, **query))
        assert got == code
        assert text in message
        assert "\n" not in message


@pytest.mark.parametrize("name", sorted(CONNECT_SUBRESOURCES - {PROXY_SUBRESOURCE}))
def test_other_methods_and_kinds_are_refused(cluster: SmallCluster, name: str) -> None:
    assert ask(cluster, f"runs/{name}", "DELETE").status == 405
    answer = asked(cluster.server, "GET", f"/api/v1/nodes/node-1/{name}", now=cluster.now)
    assert isinstance(answer, HttpResponse)
    assert answer.status == 404
