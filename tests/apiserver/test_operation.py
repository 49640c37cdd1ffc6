"""What operators look at: APIServices, metrics, audit events, discovery in protobuf."""

from __future__ import annotations

import json

import pytest

from stowplan.apis.machinery.http_messages import HttpRequest, User, WatchResponse
from stowplan.apis.protobuf.object_codec import object_codec
from stowplan.apis.protobuf.wire_format import read_fields
from stowplan.apiserver.auth.static_tokens import StaticTokens
from stowplan.apiserver.auth.token_rbac import TokenRbacAccess
from stowplan.apiserver.bootstrap_objects import create_bootstrap_objects
from stowplan.driver.storage.credentials_files import ADMIN
from stowplan.objects.encoding.tree import Tree
from tests.apiserver.whole_server import NOW, WholeServer

SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"


def _definition(group: str, *versions: str) -> Tree:
    schema = {"openAPIV3Schema": {"type": "object"}}
    names = {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"}
    made = [
        {"name": one, "served": True, "storage": one == versions[0], "schema": schema}
        for one in versions
    ]
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": made}
    return {"metadata": {"name": f"things.{group}"}, "spec": spec}


def test_every_version_that_is_served_has_an_api_service() -> None:
    server = WholeServer()
    create_bootstrap_objects(server.server, NOW)
    _, listed = server.send("GET", SERVICES)
    found = {one["metadata"]["name"]: one for one in listed["items"]}
    assert {"v1.", "v1.apps", "v2.autoscaling"} <= found.keys()
    assert found["v1.apps"]["status"]["conditions"][0]["reason"] == "Local"
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    server.send("POST", definitions, _definition("a.example", "v1", "v2"))
    assert server.send("GET", f"{SERVICES}/v2.a.example")[0] == 200
    server.send("DELETE", f"{definitions}/things.a.example")
    for _ in range(5):
        server.server.tick(NOW + 5)
    assert server.send("GET", f"{SERVICES}/v2.a.example")[0] == 404
    assert server.send("GET", f"{SERVICES}/v1.apps")[0] == 200


def test_an_api_service_of_another_server_is_stored_and_unavailable() -> None:
    server = WholeServer()
    spec = {
        "group": "x.io", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10,
        "service": {"namespace": "default", "name": "s"},
    }  # fmt: skip
    bad = {**spec, "insecureSkipTLSVerify": True, "caBundle": "eA==", "versionPriority": 0}
    status, reported = server.send("POST", SERVICES, {"metadata": {"name": "v1.y"}, "spec": bad})
    assert status == 422
    assert [one["field"] for one in reported["details"]["causes"]] == [
        "metadata.name",
        "spec.versionPriority",
        "spec.insecureSkipTLSVerify",
    ]
    server.send("POST", SERVICES, {"metadata": {"name": "v1.x.io"}, "spec": spec})
    _, made = server.send("GET", f"{SERVICES}/v1.x.io")
    assert made["spec"]["service"]["port"] == 443
    assert made["status"]["conditions"][0]["reason"] == "ServiceNotFound"


def test_requests_and_objects_are_counted() -> None:
    server = WholeServer()
    server.send("POST", "/api/v1/namespaces", {"metadata": {"name": "a"}})
    server.send("POST", "/api/v1/namespaces", {"metadata": {"name": "a"}})
    server.send("GET", "/api/v1/namespaces/a")
    lines = server.answer("GET", "/metrics").decode().splitlines()
    start = 'apiserver_request_total{code="%s",component="apiserver",dry_run="",group="",'
    rest = 'resource="namespaces",scope="%s",subresource="",verb="%s",version="v1"} 1'
    assert start % 201 + rest % ("cluster", "POST") in lines
    assert start % 409 + rest % ("cluster", "POST") in lines
    assert start % 200 + rest % ("resource", "GET") in lines
    assert 'apiserver_resource_objects{group="",resource="namespaces"} 1' in lines
    assert 'apiserver_storage_objects{resource="namespaces"} 1' in lines
    assert "apiserver_audit_event_total 0" in lines


def test_requests_are_timed() -> None:
    times = iter([0.0, 0.005, 1.0, 1.5, 2.0, 82.0, 90.0, 99.0, 100.0, 100.25, 200.0])
    server = WholeServer(clock=lambda: next(times))
    for name in "aab":
        server.send("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    query = (("watch", "true"), ("resourceVersion", "1"))
    server.server.handle(HttpRequest("GET", "/api/v1/namespaces", query), NOW)
    server.send("GET", "/api/v1/namespaces")
    lines = server.answer("GET", "/metrics").decode().splitlines()
    name = "apiserver_request_duration_seconds"
    found = [line for line in lines if line.startswith(name)]
    labels = (
        'component="apiserver",dry_run="",group="",resource="namespaces",scope="cluster",'
        'subresource="",verb="%s",version="v1"'
    )
    counts = {
        line.split('le="')[1].split('"')[0]: int(line.split()[-1])
        for line in found
        if "_bucket" in line and 'verb="POST"' in line
    }
    assert len(counts) == 24
    assert [counts[bound] for bound in ("0.005", "0.4", "0.6", "1", "60", "+Inf")] == [
        1, 1, 2, 2, 2, 3,
    ]  # fmt: skip
    assert f"{name}_sum{{{labels % 'POST'}}} 80.505" in found
    assert f"{name}_count{{{labels % 'POST'}}} 3" in found
    assert f"{name}_sum{{{labels % 'LIST'}}} 0.25" in found
    assert not any("WATCH" in line for line in found)


def test_events_of_watches_are_counted() -> None:
    server = WholeServer()
    query = (("watch", "true"), ("resourceVersion", "1"))
    watch = server.server.handle(HttpRequest("GET", "/api/v1/namespaces", query), NOW)
    assert isinstance(watch, WatchResponse)
    for name in "ab":
        server.send("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    server.server.read(watch.number, NOW)
    lines = server.answer("GET", "/metrics").decode().splitlines()
    labels = 'group="",resource="namespaces",version="v1"'
    assert f"apiserver_watch_events_total{{{labels}}} 2" in lines


def test_each_request_makes_an_audit_event() -> None:
    events: list[Tree] = []
    server = WholeServer(events.append, "RequestResponse")
    body = {"metadata": {"name": "a"}}
    server.send("POST", "/api/v1/namespaces?dryRun=All", body)
    server.send("GET", "/api/v1/namespaces/nosuch")
    first, second = events
    assert (first["verb"], first["requestURI"]) == ("create", "/api/v1/namespaces?dryRun=All")
    assert first["objectRef"] == {"resource": "namespaces", "name": "a", "apiVersion": "v1"}
    assert first["requestObject"] == {"kind": "Namespace", "apiVersion": "v1", **body}
    assert first["responseObject"]["metadata"]["name"] == "a"
    assert (second["verb"], second["responseStatus"]["code"]) == ("get", 404)
    assert second["objectRef"]["name"] == "nosuch"
    assert first["auditID"] != second["auditID"]
    json.dumps(events)


def test_an_audit_event_has_the_text_of_a_refusal() -> None:
    events: list[Tree] = []
    server = WholeServer(events.append, "Metadata")
    server.send("GET", "/api/v1/namespaces/nosuch")
    (event,) = events
    assert event["responseStatus"] == {
        "metadata": {},
        "status": "Failure",
        "message": 'namespaces "nosuch" not found',
        "reason": "NotFound",
        "details": {"name": "nosuch", "kind": "namespaces"},
        "code": 404,
    }
    assert "requestObject" not in event
    assert "responseObject" not in event


@pytest.mark.parametrize(
    ("query", "credentials", "text"),
    [
        ("", "Bearer wrong", "Authentication failed, attempted: bearer"),
        (
            "?access_token=x",
            "bearer wrong",
            "Authentication failed, attempted: bearer, access_token",
        ),
    ],
)
def test_what_a_request_without_a_user_tried_is_audited(
    query: str, credentials: str, text: str
) -> None:
    events: list[Tree] = []
    access = TokenRbacAccess(StaticTokens((("t", ADMIN),)))
    server = WholeServer(events.append, "RequestResponse", access=access)
    body: Tree = {"metadata": {"name": "a"}}
    server.answer("POST", f"/api/v1/namespaces{query}", body, authorization=credentials)
    assert server.status == 401
    event = events[-1]
    assert (event["stage"], event["user"]) == ("ResponseStarted", {})
    assert event["responseStatus"] == {"metadata": {}, "message": text, "code": 401}
    assert event["objectRef"] == {"resource": "namespaces", "apiVersion": "v1"}
    assert not {"requestObject", "responseObject", "annotations"} & event.keys()


def test_a_body_in_protobuf_is_audited_as_the_object_that_it_is() -> None:
    events: list[Tree] = []
    server = WholeServer(events.append, "Request")
    body = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "a"}}
    media = "application/vnd.kubernetes.protobuf"
    headers = {"content-type": media, "accept": media}
    raw = object_codec().encode(body)
    server.server.handle(HttpRequest("POST", "/api/v1/namespaces", (), headers, raw), NOW)
    assert events[0]["requestObject"]["metadata"]["name"] == "a"
    assert events[0]["objectRef"]["name"] == "a"


def test_who_is_impersonated_is_audited_beside_who_asked() -> None:
    events: list[Tree] = []
    tokens = StaticTokens([("t", User("root", groups=("system:masters",)))])
    server = WholeServer(events.append, "Metadata", access=TokenRbacAccess(tokens))
    headers = {"authorization": "Bearer t", "impersonate-user": "bob"}
    server.server.handle(HttpRequest("GET", "/api/v1/pods", (), headers), NOW)
    (event,) = events
    assert event["user"]["username"] == "root"
    assert event["impersonatedUser"]["username"] == "bob"
    assert event["responseStatus"]["code"] == 403
    assert event["annotations"] == {
        "authorization.k8s.io/decision": "forbid",
        "authorization.k8s.io/reason": "",
    }
    server.server.handle(HttpRequest("GET", "/api/v1/pods", (), {"authorization": "Bearer x"}), NOW)
    assert (events[1]["user"], events[1].get("annotations")) == ({}, None)


def test_both_ends_of_a_watch_are_audited() -> None:
    events: list[Tree] = []
    server = WholeServer(events.append, "Metadata").server
    for ends_itself in (True, False):
        query = (("watch", "true"), ("timeoutSeconds", "5"))
        watch = server.handle(HttpRequest("GET", "/api/v1/pods", query), NOW)
        assert isinstance(watch, WatchResponse)
        assert server.read(watch.number, NOW).end is False
        server.tick(NOW + 6.0)
        if ends_itself:
            assert server.read(watch.number, NOW + 6.0).end
        server.close(watch.number)
    assert [event["stage"] for event in events] == ["ResponseStarted", "ResponseComplete"] * 2
    assert [event["verb"] for event in events] == ["watch"] * 4
    assert events[0]["auditID"] == events[1]["auditID"] != events[2]["auditID"]
    assert events[1]["stageTimestamp"] > events[0]["stageTimestamp"]


def test_verbs_of_discovery_are_a_message_in_protobuf() -> None:
    """A list with a type of its own is nested, or Go's clients cannot read it."""
    server = WholeServer()
    accept = "application/vnd.kubernetes.protobuf"
    raw = server.answer("GET", "/apis/autoscaling/v2", accept=accept)
    resource = object_codec().decode(raw)["resources"][0]
    assert resource["verbs"][0] == "create"
    message = object_codec().encode(
        {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "", "resources": [resource]}
    )
    assert b"\x0a\x06create\x0a\x06delete" in message
    assert list(read_fields(b"\x0a\x02ab")) == [(1, b"ab")]


def test_reviews_have_managed_fields_as_everything_that_is_created() -> None:
    server = WholeServer()
    body = {"spec": {"user": "x", "resourceAttributes": {"verb": "get", "resource": "pods"}}}
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    status, made = server.send("POST", path, body)
    assert status == 201
    (entry,) = made["metadata"]["managedFields"]
    assert entry["fieldsV1"]["f:spec"]["f:user"] == {}
