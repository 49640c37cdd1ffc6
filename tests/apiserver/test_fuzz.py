"""Whatever a client sends is answered: never an exception, never a 500 that the original lacks."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.apis.machinery.http_messages import HttpRequest, HttpResponse, WatchResponse
from stowplan.apis.schema.scalar_decoders import TypeMismatch
from tests.contract.apiserver.recorded_server import RestartableCluster
from tests.soak import examples

NOW = 1_790_000_000.0
POD = {
    "metadata": {"name": "p", "labels": {"a": "b"}, "finalizers": []},
    "spec": {
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
    },
    "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
}
NODE = {
    "metadata": {"name": "n", "annotations": {"x/y": "z"}},
    "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}], "unschedulable": True},
    "status": {"capacity": {"cpu": "4", "memory": "1Gi"}, "conditions": []},
}
LEASE = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "x", "renewTime": None}}
KNOWN_500 = re.compile(
    # Recorded: versions that are no numbers, a name given with a version, bindings to nothing.
    r"(resourceVersion: Invalid value: .*: )?strconv\.ParseUint: .*"
    r"|resourceVersion should not be set on objects to be created"
    r"|\[?target\.(name|kind): .*",
    re.DOTALL,
)

PLAIN = [None, True, 0, -1, 2**63, 1.5, "", "x", "a/b", "\x00", "é", "1Gi", "9" * 40, "\ud800"]
NESTED = [[], {}, [None], [[]], {"$patch": "delete"}, {"$patch": 1}, {"": None}]
LEAVES = st.sampled_from([*PLAIN, "2001-01-01T00:00:00Z", *NESTED])
DIRECTIVES = st.sampled_from(["$patch", "$retainKeys", "$setElementOrder/containers", "x", "op"])


def mutated(draw: Callable[[Any], Any], tree: Any, depth: int = 0) -> Any:
    """The tree with a few of its parts replaced, dropped or doubled."""
    if depth and not draw(st.integers(0, 5)):
        return draw(LEAVES)
    if isinstance(tree, dict):
        kept = {key: mutated(draw, value, depth + 1) for key, value in tree.items()}
        if not draw(st.integers(0, 7)):
            kept[draw(DIRECTIVES)] = draw(LEAVES)
        return kept
    if isinstance(tree, list):
        kept_items = [mutated(draw, value, depth + 1) for value in tree]
        return kept_items * draw(st.sampled_from([1, 1, 1, 2]))
    return tree


@st.composite
def requests(draw: Callable[[Any], Any]) -> HttpRequest:
    """A request that is nearly right."""
    pattern, kept = draw(
        st.sampled_from(
            [
                ("/api/v1/namespaces/default/pods", POD),
                ("/api/v1/nodes", NODE),
                ("/apis/coordination.k8s.io/v1/namespaces/default/leases", LEASE),
            ]
        )
    )
    tail = draw(
        st.sampled_from(["", "", f"/{kept['metadata']['name']}", "/p/status", "/p/binding"])
    )
    method = draw(st.sampled_from(["POST", "PUT", "PATCH", "DELETE", "GET"]))
    media = draw(
        st.sampled_from(
            [
                "application/json",
                "application/yaml",
                "application/json-patch+json",
                "application/merge-patch+json",
                "application/strategic-merge-patch+json",
                "application/vnd.kubernetes.protobuf",
                "x",
            ]
        )
    )
    tree = mutated(draw, kept)
    if media == "application/json-patch+json":
        tree = [{"op": "add", "path": "/spec", "value": tree}, draw(LEAVES)][
            : draw(st.integers(1, 2))
        ]
    raw = draw(st.one_of(st.just(json.dumps(tree).encode()), st.binary(max_size=20)))
    names = ["limit", "watch", "continue", "resourceVersion", "labelSelector", "fieldSelector"]
    names += ["dryRun", "fieldValidation", "timeoutSeconds", "pretty", "propagationPolicy"]
    values = st.sampled_from(["", "1", "-1", "x", "a in (", "a=b", "\x00", "9" * 30, "true", "All"])
    query = draw(st.lists(st.tuples(st.sampled_from(names), values), max_size=2))
    accept = draw(
        st.sampled_from(
            [
                "",
                "*/*",
                ";",
                "application/yaml",
                "application/json;as=Table;v=v1;g=meta.k8s.io",
                "x;q=y",
            ]
        )
    )
    headers = {"authorization": "Bearer admin-token", "content-type": media, "accept": accept}
    return HttpRequest(method, pattern + tail, tuple(query), headers, raw)


def odd_answers(cluster: RestartableCluster, asked: list[HttpRequest]) -> list[str]:
    """Exceptions, and texts of answers that say the server is at fault."""
    failures = []
    for request in asked:
        try:
            answer = cluster.handle(request, NOW)
            if isinstance(answer, WatchResponse):
                cluster.read(answer.number, NOW)
                cluster.close(answer.number)
                continue
        except Exception as error:  # noqa: BLE001 - any exception is the finding
            failures.append(f"{type(error).__name__}: {error}")
            continue
        assert isinstance(answer, HttpResponse)
        if answer.status == 500 and answer.body.startswith(b"{"):
            text = json.loads(answer.body)["message"]
            if not KNOWN_500.fullmatch(text):
                failures.append(text)
    return failures


@given(asked=st.lists(requests(), min_size=5, max_size=12))
@settings(max_examples=examples(60))
def test_no_request_is_too_odd(cluster: RestartableCluster, asked: list[HttpRequest]) -> None:
    assert odd_answers(cluster, asked) == []


@pytest.fixture(scope="module")
def cluster() -> RestartableCluster:
    """One server for all: what earlier requests have left only makes for more variety."""
    return RestartableCluster("plain", NOW)


def test_a_server_that_breaks_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: Any) -> None:
        raise TypeMismatch("not meant for clients")

    monkeypatch.setattr("stowplan.apiserver.request_pipeline.write_options", breaks)
    request = HttpRequest(
        "POST", "/api/v1/nodes", (), {"authorization": "Bearer admin-token"}, b"{}"
    )
    assert odd_answers(RestartableCluster("plain", NOW), [request]) == [
        "TypeMismatch: not meant for clients"
    ]
