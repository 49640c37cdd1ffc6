"""Objects of all kinds that lack what they need are refused with what they lack, never with a 5xx.

The answers are those of kube-apiserver 1.36.2, asked by hand.
"""

from __future__ import annotations

from typing import Any

import pytest

from stowplan.apis.machinery.resource import Resource
from stowplan.apiserver.resource_registry import built_in_registry
from tests.apiserver.whole_server import WholeServer

SPECS: tuple[Any, ...] = (None, {}, "x", [], {"unknown": 1})
PDBS = "/apis/policy/v1/namespaces/n/poddisruptionbudgets"
SETS = "/apis/apps/v1/namespaces/n/statefulsets"
SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"


@pytest.fixture(scope="module")
def server() -> WholeServer:
    made = WholeServer()
    assert made.send("POST", "/api/v1/namespaces", {"metadata": {"name": "n"}})[0] == 201
    return made


def creatable() -> list[Resource]:
    # kube-apiserver answers 500 to a binding without a target.
    kinds = built_in_registry().all()
    return [one for one in kinds if "create" in one.verbs and one.plural != "bindings"]


@pytest.mark.parametrize("kind", creatable(), ids=lambda one: f"{one.group}-{one.plural}")
def test_no_bare_object_is_a_fault_of_the_server(server: WholeServer, kind: Resource) -> None:
    start = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.version}"
    path = f"{start}/namespaces/n/{kind.plural}" if kind.namespaced else f"{start}/{kind.plural}"
    bodies = [{"metadata": {"name": "bare"}, "spec": spec} for spec in SPECS]
    bodies += [{}, {"metadata": {"name": "bare"}}, {"metadata": {"name": "A_b"}}, {"metadata": 5}]
    for body in bodies:
        head = {"kind": kind.kind, "apiVersion": kind.api_version}
        status, answer = server.send("POST", f"{path}?dryRun=All", {**head, **body})
        assert status < 500, (body, answer)


def causes(answer: dict[str, Any]) -> list[str]:
    return [f"{one['field']}: {one['message']}" for one in answer["details"]["causes"]]


def test_an_api_service_that_lacks_everything(server: WholeServer) -> None:
    status, answer = server.send("POST", SERVICES, {"metadata": {"name": "a"}})
    assert status == 422
    assert [text.partition(":")[0] for text in causes(answer)] == [
        "metadata.name",
        "spec.group",
        "spec.version",
        "spec.groupPriorityMinimum",
        "spec.versionPriority",
    ]


def test_a_limit_range_without_a_name_gets_one(server: WholeServer) -> None:
    status, answer = server.send("POST", "/api/v1/namespaces/n/limitranges", {})
    assert status == 201
    assert len(answer["metadata"]["name"]) == 36


def test_names_of_stateful_sets_are_labels_and_those_of_budgets_free(server: WholeServer) -> None:
    _, answer = server.send("POST", SETS, {"metadata": {"name": "A_b"}})
    assert causes(answer)[0].startswith(
        'metadata.name: Invalid value: "A_b": a lowercase RFC 1123 label must consist of'
    )
    assert server.send("POST", f"{PDBS}?dryRun=All", {"metadata": {"name": "A_b"}})[0] == 201


def test_finalizers_of_some_groups_need_no_domain(server: WholeServer) -> None:
    meta = {"name": "a", "finalizers": ["x"]}
    assert server.send("POST", f"{PDBS}?dryRun=All", {"metadata": meta})[0] == 201
    _, answer = server.send("POST", "/api/v1/namespaces/n/configmaps", {"metadata": meta})
    (cause,) = causes(answer)
    assert cause.startswith('metadata.finalizers[0]: Invalid value: "x": name is neither')


def test_the_warning_of_a_deletion_is_given_before_the_job_is_looked_up(
    server: WholeServer,
) -> None:
    status, _ = server.send("DELETE", "/apis/batch/v1/namespaces/n/jobs/none")
    assert status == 404
    assert len(server.warnings()) == 1
