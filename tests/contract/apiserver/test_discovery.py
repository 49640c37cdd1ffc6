"""The recorded group discovery is answered as recorded; of the documents whose words are our own,
what is served is compared with the recorded ones."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from stowplan.apis.machinery.http_messages import HttpRequest, HttpResponse
from tests.contract.apiserver import parity
from tests.contract.apiserver.recorded_server import RestartableCluster
from tests.contract.apiserver.replay import START, scenarios

Tree = dict[str, Any]

META = "io.k8s.apimachinery.pkg.apis.meta.v1"
APART = {f"{META}.ListMeta.shardInfo", f"{META}.ObjectMeta.managedFields"}
"""Lists are not cut into shards here, and recordings leave out every key managedFields."""
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@pytest.mark.parametrize("scenario", parity.names("discovery"))
def test_it_is_answered_as_recorded(scenario: str) -> None:
    assert parity.problems("discovery", scenario) == []


@cache
def recorded(scenario: str) -> dict[int, Tree]:
    (found,) = (one for one in scenarios("discovery") if one["scenario"] == scenario)
    return {each["n"]: each["response"].get("body") or {} for each in found["exchanges"]}


def asked(path: str, accept: str = "application/json") -> Tree:
    cluster = RestartableCluster("plain", START)
    headers = {"accept": accept, "authorization": "Bearer admin-token"}
    answer = cluster.handle(HttpRequest("GET", path, headers=headers), START)
    assert isinstance(answer, HttpResponse)
    assert answer.status == 200
    tree: Tree = json.loads(answer.body)
    return tree


def test_groups_that_are_served_are_listed_as_recorded() -> None:
    wanted = recorded("legacy-discovery")[2]["groups"]
    assert asked("/apis")["groups"] == wanted


def test_the_one_document_states_of_them_what_was_recorded() -> None:
    wanted = recorded("aggregated-discovery")[1]["items"]
    assert asked("/apis", AGGREGATED)["items"] == wanted


KINDS = {
    5: ("/openapi/v3/api/v1", 200),
    6: ("/openapi/v3/apis/apps/v1", 140),
    7: ("/openapi/v3/apis/batch/v1", 120),
    8: ("/openapi/v3/apis/scheduling.k8s.io/v1", 8),
    16: ("/openapi/v3/apis/coordination.k8s.io/v1", 8),
    17: ("/openapi/v3/apis/events.k8s.io/v1", 8),
    18: ("/openapi/v3/apis/policy/v1", 8),
    19: ("/openapi/v3/apis/storage.k8s.io/v1", 30),
    20: ("/openapi/v3/apis/resource.k8s.io/v1", 40),
}


def _strategic(schema: Tree) -> Tree:
    return {
        name: (one.get("x-kubernetes-patch-strategy"), one.get("x-kubernetes-patch-merge-key"))
        for name, one in schema.get("properties", {}).items()
        if "x-kubernetes-patch-strategy" in one
    }


def differences(ours: Tree, theirs: Tree) -> list[str]:
    """Where our types have other fields, required ones or keys of merge than the recorded ones."""
    lines = []
    for name, schema in ours.items():
        wanted = theirs.get(name)
        if wanted is None:
            lines.append(f"{name} was not recorded")
            continue
        if "properties" not in schema:
            continue
        fields = set(schema["properties"]) ^ set(wanted.get("properties", {}))
        lines += [f"{name}.{key}" for key in fields]
        if _strategic(schema) != _strategic(wanted):
            lines.append(f"{name} merges otherwise")
        if "x-kubernetes-group-version-kind" in schema:
            key = "x-kubernetes-group-version-kind"
            lines += [f"{name}: {one}" for one in schema[key] if one not in wanted.get(key, ())]
    return sorted(set(lines) - APART)


@pytest.mark.parametrize("number", KINDS)
def test_types_have_the_fields_that_were_recorded(number: int) -> None:
    path, least = KINDS[number]
    ours = asked(path)["components"]["schemas"]
    assert len(ours) >= least
    assert differences(ours, recorded("openapi")[number]["components"]["schemas"]) == []


def test_a_type_with_a_field_too_many_is_noticed() -> None:
    ours = asked("/openapi/v3/apis/policy/v1")["components"]["schemas"]
    theirs = recorded("openapi")[18]["components"]["schemas"]
    ours["io.k8s.api.policy.v1.PodDisruptionBudget"]["properties"]["nope"] = {"type": "string"}
    assert differences(ours, theirs) == ["io.k8s.api.policy.v1.PodDisruptionBudget.nope"]


def test_verbs_stand_where_they_were_recorded() -> None:
    """kubectl looks for the parameters of a verb by the path's verb and kind."""
    ours = asked("/openapi/v3/apis/apps/v1")["paths"]
    theirs = recorded("openapi")[6]["paths"]
    for path, methods in ours.items():
        assert set(methods) <= set(theirs[path]), path
        for method in set(methods) - {"parameters"}:
            key = "x-kubernetes-group-version-kind"
            if not path.endswith("/scale"):
                assert methods[method][key] == theirs[path][method][key]
