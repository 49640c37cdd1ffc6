"""Definitions of custom kinds at work in a server."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest

from stowplan.apis.machinery.errors import ApiError
from stowplan.apis.machinery.http_messages import HttpResponse, WatchResponse
from stowplan.apis.machinery.resource import ChangeObserver, StoreChange
from stowplan.apiserver.admission import default_admission
from stowplan.apiserver.crd.definition_controller import DefinitionController
from stowplan.apiserver.discovery.default_pages import default_pages
from stowplan.apiserver.options import ApiServerOptions
from stowplan.apiserver.resource_registry import built_in_registry
from stowplan.apiserver.server import ApiServer
from stowplan.apiserver.storage.versioned_store import Record
from tests.apiserver.plain import NOW, asked

Tree = dict[str, Any]

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/ex.com/v1/namespaces/default/widgets"


class Noting:
    """Notes of which objects it is told."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    def changed(self, server: ApiServer, change: StoreChange, now: float) -> None:
        self.keys.append(change.key)


def server(records: tuple[Record, ...] = (), *observers: ChangeObserver) -> ApiServer:
    options = ApiServerOptions(
        registry=built_in_registry(),
        admission=default_admission(),
        observers=(*observers, DefinitionController()),
        pages=default_pages(),
    )
    made = ApiServer(options, np.random.default_rng(1), records)
    if not records:
        post(made, "/api/v1/namespaces", {"metadata": {"name": "default"}})
    return made


def definition(plural: str = "widgets", kind: str = "Widget", **version: Any) -> Tree:
    spec = {"type": "object", "properties": {"n": {"type": "integer"}, "c": {"type": "string"}}}
    status = {"type": "object", "properties": {"n": {"type": "integer"}}}
    schema = {"type": "object", "properties": {"spec": spec, "status": status}}
    one = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        **version,
    }
    return {
        "metadata": {"name": f"{plural}.ex.com"},
        "spec": {
            "group": "ex.com",
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "shortNames": ["w"]},
            "versions": [one],
        },
    }


def exchange(made: ApiServer, method: str, path: str, body: Tree | None = None) -> tuple[int, Any]:
    packed = b"" if body is None else json.dumps(body).encode()
    media = "application/merge-patch+json" if method == "PATCH" else "application/json"
    answer = asked(made, method, path, packed, content_type=media)
    assert isinstance(answer, HttpResponse)
    text = answer.body
    return answer.status, json.loads(text) if text.startswith(b"{") else text.decode()


def post(made: ApiServer, path: str, body: Tree) -> Tree:
    status, tree = exchange(made, "POST", path, body)
    assert status == 201, tree
    assert isinstance(tree, dict)
    return tree


def widget(name: str, version: str = "v1", **spec: Any) -> Tree:
    meta = {"name": name}
    return {"apiVersion": f"ex.com/{version}", "kind": "Widget", "metadata": meta, "spec": spec}


def conditions(made: ApiServer, name: str) -> dict[str, tuple[str, str]]:
    _, tree = exchange(made, "GET", f"{DEFINITIONS}/{name}")
    return {one["type"]: (one["status"], one["reason"]) for one in tree["status"]["conditions"]}


def test_a_kind_is_served_once_it_is_defined() -> None:
    made = server()
    assert exchange(made, "GET", WIDGETS) == (404, "404 page not found\n")
    post(made, DEFINITIONS, definition())
    assert conditions(made, "widgets.ex.com") == {
        "NamesAccepted": ("True", "NoConflicts"),
        "Established": ("True", "InitialNamesAccepted"),
    }
    assert post(made, WIDGETS, widget("a", n=1, x=2))["spec"] == {"n": 1}
    _, listed = exchange(made, "GET", "/apis/ex.com/v1")
    assert [one["name"] for one in listed["resources"]] == ["widgets"]
    _, groups = exchange(made, "GET", "/apis")
    assert groups["groups"][-1]["name"] == "ex.com"
    assert exchange(made, "GET", "/openapi/v3/apis/ex.com/v1")[0] == 200


def test_the_second_of_two_kinds_with_one_name_waits_for_the_first_to_go() -> None:
    made = server()
    post(made, DEFINITIONS, definition())
    post(made, DEFINITIONS, definition("gadgets", "Widget"))
    reported = conditions(made, "gadgets.ex.com")
    assert reported["NamesAccepted"] == ("False", "ListKindConflict")
    assert reported["Established"] == ("False", "NotAccepted")
    exchange(made, "DELETE", f"{DEFINITIONS}/widgets.ex.com")
    made.tick(NOW + 10)
    assert conditions(made, "gadgets.ex.com")["Established"][0] == "True"


def two_versions(first: str) -> Tree:
    """v1 and v1beta1; first: the one that is stored."""
    tree = definition()
    (one,) = tree["spec"]["versions"]
    beta = {**copy.deepcopy(one), "name": "v1beta1", "deprecated": True}
    for each in (one, beta):
        each["storage"] = each["name"] == first
    tree["spec"]["versions"] = [one, beta]
    return tree


def test_each_version_shows_what_the_other_has_stored() -> None:
    made = server()
    post(made, DEFINITIONS, two_versions("v1beta1"))
    post(made, WIDGETS, widget("a", n=1))
    body = b""
    answer = asked(made, "GET", WIDGETS.replace("v1", "v1beta1") + "/a", body)
    assert isinstance(answer, HttpResponse)
    decoded = json.loads(answer.body)
    assert (decoded["apiVersion"], decoded["spec"]) == ("ex.com/v1beta1", {"n": 1})
    assert ("Warning", '299 - "ex.com/v1beta1 Widget is deprecated"') in answer.headers
    _, other = exchange(made, "GET", f"{WIDGETS}/a")
    assert other["apiVersion"] == "ex.com/v1"
    status, _ = exchange(
        made, "PUT", WIDGETS.replace("v1", "v1beta1") + "/a", {**decoded, "spec": {}}
    )
    assert status == 200
    _, listed = exchange(made, "GET", "/apis/ex.com")
    assert [one["version"] for one in listed["versions"]] == ["v1", "v1beta1"]


def test_objects_of_an_earlier_schema_read_as_under_the_present_one() -> None:
    """What the schema no longer knows is not shown, and defaults that are new are."""
    made = server()
    post(made, DEFINITIONS, definition())
    post(made, WIDGETS, widget("a", n=1, c="old"))
    found = made.registry.by_path("apiextensions.k8s.io/customresourcedefinitions")
    assert found is not None
    changed = made.get(found, "", "widgets.ex.com")
    assert changed is not None
    shape = changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    shape["properties"] = {"n": {"type": "integer"}, "d": {"type": "integer", "default": 7}}
    made.update(found, changed, NOW)
    made.tick(NOW)
    _, one = exchange(made, "GET", f"{WIDGETS}/a")
    assert one["spec"] == {"n": 1, "d": 7}
    _, listed = exchange(made, "GET", WIDGETS)
    assert [item["spec"] for item in listed["items"]] == [{"n": 1, "d": 7}]
    stream = asked(made, "GET", f"{WIDGETS}?watch=true")
    assert isinstance(stream, WatchResponse)
    assert json.loads(made.read(stream.number, NOW).body)["object"]["spec"] == {"n": 1, "d": 7}
    # A write that changes nothing of what is read keeps the generation, and stores the new form.
    _, again = exchange(made, "PUT", f"{WIDGETS}/a", one)
    assert again["metadata"]["generation"] == 1
    assert int(again["metadata"]["resourceVersion"]) > int(one["metadata"]["resourceVersion"])
    _, same = exchange(made, "PUT", f"{WIDGETS}/a", again)
    assert same["metadata"]["resourceVersion"] == again["metadata"]["resourceVersion"]
    # So it is after a restart, and of what is deleted.
    post(made, WIDGETS, widget("b", n=2))
    restarted = server(tuple(made.store.records()))
    _, one = exchange(restarted, "GET", f"{WIDGETS}/a")
    assert one["spec"] == {"n": 1, "d": 7}


def test_a_deleted_object_is_pruned_by_the_present_schema() -> None:
    made = server()
    post(made, DEFINITIONS, definition())
    post(made, WIDGETS, widget("a", n=1, c="old"))
    found = made.registry.by_path("apiextensions.k8s.io/customresourcedefinitions")
    assert found is not None
    changed = made.get(found, "", "widgets.ex.com")
    assert changed is not None
    shape = changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    del shape["properties"]["c"]
    made.update(found, changed, NOW)
    made.tick(NOW)
    stream = asked(made, "GET", f"{WIDGETS}?watch=true&resourceVersion={made.version}")
    assert isinstance(stream, WatchResponse)
    exchange(made, "DELETE", f"{WIDGETS}/a")
    event = json.loads(made.read(stream.number, NOW).body)
    assert (event["type"], event["object"]["spec"]) == ("DELETED", {"n": 1})


def test_a_version_that_is_stored_may_not_be_forgotten() -> None:
    made = server()
    post(made, DEFINITIONS, two_versions("v1beta1"))
    _, now = exchange(made, "GET", f"{DEFINITIONS}/widgets.ex.com")
    now["spec"]["versions"][0]["storage"] = True
    now["spec"]["versions"][1]["storage"] = False
    status, now = exchange(made, "PUT", f"{DEFINITIONS}/widgets.ex.com", now)
    assert (status, now["status"]["storedVersions"]) == (200, ["v1beta1", "v1"])
    del now["spec"]["versions"][1]
    status, refusal = exchange(made, "PUT", f"{DEFINITIONS}/widgets.ex.com", now)
    assert status == 422
    assert "missing from spec.versions; v1beta1 was previously a storage" in refusal["message"]


def test_objects_hold_their_definition_until_their_finalizers_are_gone() -> None:
    made = server()
    post(made, DEFINITIONS, definition())
    held = widget("a", n=1)
    held["metadata"]["finalizers"] = ["ex.com/hold"]
    post(made, WIDGETS, held)
    stream = asked(made, "GET", f"{WIDGETS}?watch=true&resourceVersion={made.version}")
    assert isinstance(stream, WatchResponse)
    exchange(made, "DELETE", f"{DEFINITIONS}/widgets.ex.com")
    made.tick(NOW + 1)
    assert conditions(made, "widgets.ex.com")["Terminating"][1] == "InstanceDeletionInProgress"
    status, refusal = exchange(made, "POST", WIDGETS, widget("b"))
    assert (status, refusal["reason"]) == (403, "Forbidden")
    exchange(made, "PATCH", f"{WIDGETS}/a", {"metadata": {"finalizers": None}})
    made.tick(NOW + 2)
    assert exchange(made, "GET", f"{DEFINITIONS}/widgets.ex.com")[0] == 404
    assert exchange(made, "GET", WIDGETS) == (404, "404 page not found\n")
    chunk = made.read(stream.number, NOW + 2)
    assert [json.loads(line)["type"] for line in chunk.body.splitlines()] == ["MODIFIED", "DELETED"]
    assert chunk.end


def test_what_was_defined_is_served_again_after_a_restart() -> None:
    made = server()
    post(made, DEFINITIONS, definition())
    post(made, WIDGETS, widget("a", n=1))
    reported = Noting()
    again = server(tuple(made.store.records()), reported)
    assert exchange(again, "GET", f"{WIDGETS}/a")[1]["spec"] == {"n": 1}
    assert "ex.com/widgets/default/a" in reported.keys


def test_a_deletion_goes_on_after_a_restart() -> None:
    made = server()
    post(made, DEFINITIONS, definition())
    post(made, WIDGETS, widget("a", n=1))
    exchange(made, "DELETE", f"{DEFINITIONS}/widgets.ex.com")
    again = server(tuple(made.store.records()))
    for moment in (1, 2, 3):
        again.tick(NOW + moment)
    assert exchange(again, "GET", f"{DEFINITIONS}/widgets.ex.com")[0] == 404


def test_status_and_scale_are_apart() -> None:
    made = server()
    paths = {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}
    post(made, DEFINITIONS, definition(subresources={"status": {}, "scale": paths}))
    assert "status" not in post(made, WIDGETS, {**widget("a", n=1), "status": {"n": 4}})
    _, decoded = exchange(
        made, "PATCH", f"{WIDGETS}/a/status", {"status": {"n": 4}, "spec": {"n": 9}}
    )
    assert (decoded["spec"]["n"], decoded["status"]["n"], decoded["metadata"]["generation"]) == (
        1,
        4,
        1,
    )
    _, scale = exchange(made, "GET", f"{WIDGETS}/a/scale")
    assert (scale["spec"], scale["status"]) == ({"replicas": 1}, {"replicas": 4})
    scale["spec"]["replicas"] = 7
    assert exchange(made, "PUT", f"{WIDGETS}/a/scale", scale)[0] == 200
    _, after = exchange(made, "GET", f"{WIDGETS}/a")
    assert (after["spec"]["n"], after["metadata"]["generation"]) == (7, 2)


def test_lists_are_selected_by_fields_that_the_definition_names() -> None:
    made = server()
    post(made, DEFINITIONS, definition(selectableFields=[{"jsonPath": ".spec.c"}]))
    for name, color in (("a", "red"), ("b", "blue")):
        post(made, WIDGETS, widget(name, c=color))
    _, found = exchange(made, "GET", f"{WIDGETS}?fieldSelector=spec.c%3Dblue")
    assert [one["metadata"]["name"] for one in found["items"]] == ["b"]
    assert exchange(made, "GET", f"{WIDGETS}?fieldSelector=spec.n%3D1")[0] == 400


def test_a_watch_ends_when_the_definition_changes() -> None:
    made = server()
    post(made, DEFINITIONS, definition())
    stream = asked(made, "GET", f"{WIDGETS}?watch=true&resourceVersion={made.version}")
    assert isinstance(stream, WatchResponse)
    assert not made.read(stream.number, NOW).end
    change = {"spec": {"names": {"shortNames": ["wd"]}}}
    exchange(made, "PATCH", f"{DEFINITIONS}/widgets.ex.com", change)
    assert made.read(stream.number, NOW).end


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scope": "Both"}, 'spec.scope: Unsupported value: "Both": supported values: "Cluster",'),
        ({"group": "ex"}, 'spec.group: Invalid value: "ex": should be a domain with at least one'),
        ({"versions": []}, "must have exactly one version marked as storage version"),
        (
            {"preserveUnknownFields": True},
            "spec.preserveUnknownFields: Invalid value: true: cannot",
        ),
        ({"conversion": {"strategy": "Webhook"}}, "required when strategy is set to Webhook"),
        ({"conversion": {"strategy": "X"}}, 'spec.conversion.strategy: Unsupported value: "X"'),
        ({"names": {"plural": "widgets", "kind": "W", "listKind": "W"}}, "may not be the same"),
        ({"names": {"plural": "widgets"}}, "spec.names.kind: Required value"),
    ],
)
def test_what_defines_no_kind_is_refused(change: Tree, message: str) -> None:
    wrong = definition()
    wrong["spec"].update(change)
    status, refusal = exchange(server(), "POST", DEFINITIONS, wrong)
    assert status == 422
    assert message in refusal["message"]


def test_a_schema_with_references_reports_only_the_references() -> None:
    wrong = definition()
    spec = {"type": "object", "properties": {"a": {"$ref": "x"}, "b": {}}}
    schema = {"type": "object", "properties": {"spec": spec}}
    wrong["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema
    status, refused = exchange(server(), "POST", DEFINITIONS, wrong)
    assert status == 422
    where = "spec.validation.openAPIV3Schema.properties[spec].properties[a].$ref"
    assert [one["field"] for one in refused["details"]["causes"]] == [where]


def test_a_server_without_the_observer_serves_nothing_new() -> None:
    options = ApiServerOptions(registry=built_in_registry(), pages=default_pages())
    made = ApiServer(options, np.random.default_rng(1), ())
    post(made, DEFINITIONS, definition())
    assert exchange(made, "GET", WIDGETS)[0] == 404
    resource = made.registry.by_path("apiextensions.k8s.io/customresourcedefinitions")
    assert resource is not None
    with pytest.raises(ApiError):
        made.create(resource, definition(), NOW)


def test_columns_end_with_one_that_cannot_be_read() -> None:
    """Such a definition is taken, as the original takes it."""
    made = server()
    paths = (".spec.n", "..c", ".spec[", ".spec.c")
    columns = [
        {"name": f"C{at}", "type": "string", "jsonPath": path} for at, path in enumerate(paths)
    ]
    post(made, DEFINITIONS, definition(additionalPrinterColumns=columns))
    post(made, WIDGETS, widget("a", n=1, c="x"))
    resource = made.registry.find("ex.com", "v1", "widgets")
    assert resource is not None
    assert resource.table is not None
    assert [column.name for column in resource.table.columns] == ["Name", "C0", "C1"]
    (one,) = made.list(resource)
    assert resource.table.cells(one, NOW)[1:] == ["1", "x"]
