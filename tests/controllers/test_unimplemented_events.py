"""Objects without effect are reported at once, by a warning and an event."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from stowplan.apis.machinery.http_messages import HttpRequest, HttpResponse
from stowplan.apis.validation.unimplemented_features import PATHS, UnimplementedFeatureWarnings
from stowplan.apiserver.admission import default_admission
from stowplan.apiserver.options import ApiServerOptions
from stowplan.apiserver.resource_registry import built_in_registry
from stowplan.assembly.controller_manager import ControllerManagerOptions
from stowplan.assembly.embedded_cluster import EmbeddedCluster
from tests.apiserver.small_cluster import START, Tree, deployment

DEVICES = [{"cel": {"expression": "true"}}]


def workload(**spec: Any) -> Tree:
    selector = {"matchLabels": {"app": "x"}}
    return {"metadata": {"name": "x"}, "spec": {"selector": selector, **spec}}


CASES: dict[str, tuple[Tree, str]] = {
    "resource.k8s.io/deviceclasses": (
        {"metadata": {"name": "x"}, "spec": {"selectors": DEVICES}},
        "CEL selectors of devices are stored, but not evaluated",
    ),
}


def cluster(records: Any = ()) -> EmbeddedCluster:
    options = ApiServerOptions(
        registry=built_in_registry(),
        admission=(*default_admission(), UnimplementedFeatureWarnings()),
    )
    made = EmbeddedCluster(
        options, np.random.default_rng(1), records, ControllerManagerOptions(hollow_nodes=False)
    )
    namespaces = made.server.registry.by_path("namespaces")
    assert namespaces is not None
    if made.server.get(namespaces, "", "default") is None:
        made.server.create(namespaces, {"metadata": {"name": "default"}}, START)
    return made


def post(one: EmbeddedCluster, path: str, obj: Tree) -> HttpResponse:
    resource = one.server.registry.by_path(path)
    assert resource is not None
    place = "/namespaces/default" if resource.namespaced else ""
    root = f"/apis/{resource.api_version}" if resource.group else f"/api/{resource.api_version}"
    head = {"kind": resource.kind, "apiVersion": resource.api_version}
    body = json.dumps(obj | head).encode()
    url = f"{root}{place}/{resource.plural}"
    headers = {"content-type": "application/json"}
    answer = one.handle(HttpRequest("POST", url, (), headers, body), START)
    assert isinstance(answer, HttpResponse)
    assert answer.status == 201, answer.body
    return answer


def warnings(answer: HttpResponse) -> list[str]:
    return [value for name, value in answer.headers if name == "Warning"]


def messages(one: EmbeddedCluster) -> list[str]:
    events = one.server.registry.by_path("events")
    assert events is not None
    return [
        each["message"]
        for each in one.server.list(events)
        if each["reason"] == "NotImplemented" and each["type"] == "Warning"
    ]


@pytest.mark.parametrize("path", CASES)
def test_the_creator_gets_a_warning_and_the_object_an_event(path: str) -> None:
    obj, text = CASES[path]
    one = cluster()
    assert warnings(post(one, path, obj)) == [f'299 - "{text}"']
    one.tick(START + 1)
    assert messages(one) == [text]
    # Not again at the next start.
    again = cluster(list(one.server.store.records()))
    again.tick(START + 1000)
    assert messages(again) == [text]


def test_every_listed_path_exists() -> None:
    registry = built_in_registry()
    assert all(registry.by_path(path) is not None for path in PATHS)


@pytest.mark.parametrize(
    ("path", "obj"),
    [
        ("apps/deployments", deployment("x", 0)),
        ("resource.k8s.io/deviceclasses", {"metadata": {"name": "x"}, "spec": {}}),
    ],
)
def test_what_works_is_not_warned_of(path: str, obj: Tree) -> None:
    one = cluster()
    assert warnings(post(one, path, obj)) == []
    one.tick(START + 1)
    assert messages(one) == []
