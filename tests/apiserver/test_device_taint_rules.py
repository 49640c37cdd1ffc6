"""DeviceTaintRule of resource.k8s.io/v1beta2, as kube-apiserver 1.36 serves it with its gate."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.apiserver.whole_server import WholeServer

Tree = dict[str, Any]
PATH = "/apis/resource.k8s.io/v1beta2/devicetaintrules"
RULE: Tree = {
    "apiVersion": "resource.k8s.io/v1beta2",
    "kind": "DeviceTaintRule",
    "metadata": {"name": "broken"},
    "spec": {
        "deviceSelector": {"driver": "gpu.example.com", "pool": "n1"},
        "taint": {"key": "example.com/broken", "effect": "NoSchedule"},
    },
}
NOW = "2026-09-21T14:13:20Z"


@pytest.fixture
def server() -> WholeServer:
    return WholeServer(device_taint_rules=True)


def changed(rule: Tree, **taint: Any) -> Tree:
    made = copy.deepcopy(rule)
    made["spec"]["taint"].update(taint)
    return made


def test_it_is_not_served_without_its_gate() -> None:
    status, _ = WholeServer().send("POST", PATH, RULE)
    assert status == 404


def test_a_rule_gets_its_time_and_no_status(server: WholeServer) -> None:
    status, made = server.send("POST", PATH, RULE | {"status": {"conditions": []}})
    assert status == 201
    assert made["spec"]["taint"] == RULE["spec"]["taint"] | {"timeAdded": NOW}
    assert (made["metadata"]["generation"], made["status"]) == (1, {})


def test_the_time_follows_the_effect(server: WholeServer) -> None:
    old = "2020-01-01T00:00:00Z"
    _, made = server.send("POST", PATH, changed(RULE, timeAdded=old))
    _, same = server.send("PUT", f"{PATH}/broken", changed(made, value="yes"))
    assert same["spec"]["taint"]["timeAdded"] == old
    _, other = server.send("PUT", f"{PATH}/broken", changed(same, effect="NoExecute"))
    assert other["spec"]["taint"]["timeAdded"] == NOW
    assert other["metadata"]["generation"] == 3
    given = changed(other, effect="None", timeAdded=old)
    _, kept = server.send("PUT", f"{PATH}/broken", given)
    assert kept["spec"]["taint"]["timeAdded"] == old


@pytest.mark.parametrize(
    ("taint", "selector", "text"),
    [
        ({"effect": ""}, {}, "spec.taint.effect: Required value"),
        (
            {"effect": "Never"},
            {},
            'spec.taint.effect: Unsupported value: "Never": supported values: "NoExecute", '
            '"NoSchedule", "None"',
        ),
        ({"key": ""}, {}, 'spec.taint.key: Invalid value: "": name part must be non-empty'),
        ({}, {"device": "A b"}, 'spec.deviceSelector.device: Invalid value: "A b"'),
        ({}, {"driver": "-"}, 'spec.deviceSelector.driver: Invalid value: "-"'),
        ({}, {"pool": ""}, "spec.deviceSelector.pool: Required value"),
    ],
)
def test_what_is_not_valid_is_refused(
    server: WholeServer, taint: Tree, selector: Tree, text: str
) -> None:
    given = changed(RULE, **taint)
    given["spec"]["deviceSelector"] = selector
    status, answer = server.send("POST", PATH, given)
    assert status == 422
    assert text in answer["message"]


def test_the_table_is_that_of_kubectl_get(server: WholeServer) -> None:
    server.send("POST", PATH, RULE)
    table = "application/json;as=Table;g=meta.k8s.io;v=v1"
    raw = server.answer("GET", PATH, None, accept=table)
    assert b'"name":"TimeAdded"' in raw
    assert b'"cells":["broken","example.com/broken","","NoSchedule","0s","0s"]' in raw


def test_conditions_are_written_by_the_status_alone(server: WholeServer) -> None:
    _, made = server.send("POST", PATH, RULE)
    condition = {
        "type": "EvictionInProgress", "status": "False", "reason": "NoPods", "message": "",
        "lastTransitionTime": NOW,
    }  # fmt: skip
    given = changed(made, key="other") | {"status": {"conditions": [condition]}}
    _, found = server.send("PUT", f"{PATH}/broken/status", given)
    assert found["spec"] == made["spec"]
    assert found["status"]["conditions"] == [condition]
    many = [condition | {"type": f"C{i}"} for i in range(9)]
    status, answer = server.send(
        "PUT", f"{PATH}/broken/status", found | {"status": {"conditions": many}}
    )
    assert status == 422
    assert "must have at most 8 items" in answer["message"]
