"""The API server of two plain kinds: writes, deletions, lists, watches, restarts, refusals."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stowplan.apis.machinery.errors import ApiError
from stowplan.apis.machinery.http_messages import HttpResponse, WatchResponse
from stowplan.apis.machinery.resource import Resource, StoreChange
from stowplan.apiserver.server import ApiServer
from stowplan.objects.store import DeleteOptions
from tests.apiserver.plain import NOW, Plain, asked, place, plain_server, thing, tree

THINGS = "/api/v1/namespaces/n/things"


def body(answer: Any, status: int = 200) -> Any:
    """The tree of an answer, whose status is checked."""
    assert isinstance(answer, HttpResponse)
    assert answer.status == status, answer.body
    return json.loads(answer.body)


def resource(server: ApiServer, plural: str = "things") -> Resource:
    found = server.registry.find("", "v1", plural)
    assert found is not None
    return found


def made(server: ApiServer, name: str, **spec: Any) -> dict[str, Any]:
    """A thing in namespace n."""
    return server.create(resource(server), tree(name, **spec), NOW, "n")


def events(server: ApiServer, stream: int, now: float = NOW) -> list[Any]:
    """What a stream has."""
    return [json.loads(line) for line in server.read(stream, now).body.splitlines()]


def watch(server: ApiServer, query: str, path: str = THINGS, **headers: str) -> int:
    """A stream."""
    answer = asked(server, "GET", f"{path}?watch=1&{query}", **headers)
    assert isinstance(answer, WatchResponse)
    return answer.number


def test_what_a_client_may_not_choose_is_overwritten() -> None:
    server = plain_server()
    sent = {
        "metadata": {
            "generateName": "t-",
            "uid": "mine",
            "creationTimestamp": "2001-01-01T00:00:00Z",
            "deletionTimestamp": "2001-01-01T00:00:00Z",
            "managedFields": [],
        }
    }
    got = body(asked(server, "POST", THINGS, json.dumps(sent).encode()), 201)["metadata"]
    assert got["name"].startswith("t-")
    assert len(got["name"]) == 7
    assert len(got["uid"]) == 36
    assert got["creationTimestamp"] == "2026-09-21T14:13:20Z"
    assert got["namespace"] == "n"
    assert "deletionTimestamp" not in got
    # An empty list asks for a new record; a creation has one in any case.
    assert [entry["operation"] for entry in got["managedFields"]] == ["Update"]


def test_an_update_that_changes_nothing_is_not_a_write() -> None:
    server = plain_server()
    before = made(server, "a", color="red")
    version = server.version
    again = server.update(resource(server), before, NOW)
    assert (server.version, again["metadata"]["resourceVersion"]) == (
        version,
        before["metadata"]["resourceVersion"],
    )


def test_an_update_from_an_old_version_is_a_conflict() -> None:
    server = plain_server()
    old = made(server, "a")
    server.modify(resource(server), "n", "a", lambda obj: obj["spec"].update(x=1), NOW)
    with pytest.raises(ApiError) as raised:
        server.update(resource(server), old, NOW)
    assert (raised.value.code, raised.value.reason) == (409, "Conflict")


def test_a_dry_run_stores_nothing() -> None:
    server = plain_server()
    sent = json.dumps(tree("a")).encode()
    got = body(asked(server, "POST", f"{THINGS}?dryRun=All", sent), 201)
    assert "resourceVersion" not in got["metadata"]
    assert server.get(resource(server), "n", "a") is None
    made(server, "b", grace=30)
    got = body(asked(server, "DELETE", f"{THINGS}/b?dryRun=All"))
    assert got["metadata"]["deletionGracePeriodSeconds"] == 30
    kept = server.get(resource(server), "n", "b")
    assert kept is not None
    assert "deletionTimestamp" not in kept["metadata"]


def test_grace_marks_first_and_can_only_be_shortened() -> None:
    server = plain_server()
    made(server, "a", grace=30)
    meta = server.delete(resource(server), "n", "a", NOW)["metadata"]
    assert (meta["deletionTimestamp"], meta["generation"]) == ("2026-09-21T14:13:50Z", 2)
    meta = server.delete(resource(server), "n", "a", NOW, DeleteOptions(60))["metadata"]
    assert meta["deletionGracePeriodSeconds"] == 30
    meta = server.delete(resource(server), "n", "a", NOW, DeleteOptions(5))["metadata"]
    assert (meta["deletionTimestamp"], meta["deletionGracePeriodSeconds"]) == (
        "2026-09-21T14:13:25Z",
        5,
    )
    server.delete(resource(server), "n", "a", NOW, DeleteOptions(0))
    assert server.get(resource(server), "n", "a") is None


def test_finalizers_hold_what_is_deleted() -> None:
    server = plain_server()
    obj = tree("p")
    obj["metadata"]["finalizers"] = ["example.com/a"]
    places = resource(server, "places")
    server.create(places, obj, NOW)
    first = server.delete(places, "", "p", NOW)["metadata"]
    assert first["deletionGracePeriodSeconds"] == 0
    with pytest.raises(ApiError, match="no new finalizers can be added"):
        server.modify(places, "", "p", lambda o: o["metadata"]["finalizers"].append("b.c/d"), NOW)
    server.modify(places, "", "p", lambda o: o["metadata"].pop("finalizers"), NOW)
    assert server.get(places, "", "p") is None


@pytest.mark.parametrize(
    ("policy", "finalizer"), [("Foreground", "foregroundDeletion"), ("Orphan", "orphan")]
)
def test_a_policy_of_propagation_is_a_finalizer(policy: str, finalizer: str) -> None:
    server = plain_server()
    places = resource(server, "places")
    server.create(places, tree("p"), NOW)
    got = server.delete(places, "", "p", NOW, DeleteOptions(propagation=policy))
    assert got["metadata"]["finalizers"] == [finalizer]


def test_a_deletion_of_another_object_is_a_conflict() -> None:
    server = plain_server()
    made(server, "a")
    for asked_for in (DeleteOptions(uid="other"), DeleteOptions(version="1")):
        with pytest.raises(ApiError) as raised:
            server.delete(resource(server), "n", "a", NOW, asked_for)
        assert raised.value.code == 409


def test_a_collection_is_deleted_by_selector() -> None:
    server = plain_server()
    for name, color in (("a", "red"), ("b", "blue"), ("c", "red")):
        made(server, name, color=color)
    gone = body(asked(server, "DELETE", f"{THINGS}?fieldSelector=spec.color%3Dred"))
    assert [item["metadata"]["name"] for item in gone["items"]] == ["a", "c"]
    assert [obj["metadata"]["name"] for obj in server.list(resource(server))] == ["b"]


def test_pages_show_one_state_whatever_is_written_meanwhile() -> None:
    server = plain_server()
    for name in "abcde":
        made(server, name)
    page = body(asked(server, "GET", f"{THINGS}?limit=2"))
    assert page["metadata"]["remainingItemCount"] == 3
    server.delete(resource(server), "n", "c", NOW)
    made(server, "bb")
    seen = [item["metadata"]["name"] for item in page["items"]]
    while token := page["metadata"].get("continue"):
        page = body(asked(server, "GET", f"{THINGS}?limit=2&continue={token}"))
        seen += [item["metadata"]["name"] for item in page["items"]]
    assert seen == list("abcde")


def test_a_token_of_a_forgotten_version_goes_on_with_the_present() -> None:
    server = plain_server()
    for name in "abc":
        made(server, name)
    token = body(asked(server, "GET", f"{THINGS}?limit=1"))["metadata"]["continue"]
    made(server, "bb")
    server.lists.horizon = server.version
    refusal = body(asked(server, "GET", f"{THINGS}?limit=1&continue={token}"), 410)
    fresh = refusal["metadata"]["continue"]
    rest = body(asked(server, "GET", f"{THINGS}?continue={fresh}"))
    assert [item["metadata"]["name"] for item in rest["items"]] == ["b", "bb", "c"]


def test_bookmarks_come_by_the_minute_and_before_the_end() -> None:
    server = plain_server()
    made(server, "a")
    stream = watch(
        server, f"resourceVersion={server.version}&allowWatchBookmarks=1&timeoutSeconds=90"
    )
    assert server.tick(NOW) == NOW + 60
    assert events(server, stream) == []
    server.tick(NOW + 60)
    (mark,) = events(server, stream, NOW + 60)
    assert (mark["type"], mark["object"]["metadata"]) == (
        "BOOKMARK",
        {"resourceVersion": str(server.version)},
    )
    assert server.tick(NOW + 60) == NOW + 88
    server.tick(NOW + 88)
    assert len(events(server, stream, NOW + 88)) == 1
    server.tick(NOW + 90)
    assert server.read(stream, NOW + 90).end
    assert server.read(stream, NOW + 90).end


def test_a_watch_by_the_old_path_begins_with_what_is_there() -> None:
    server = plain_server()
    made(server, "a")
    made(server, "ab")
    for path, names in (("things", ["a", "ab"]), ("namespaces/n/things/a", ["a"])):
        answer = asked(server, "GET", f"/api/v1/watch/{path}?allowWatchBookmarks=1")
        assert isinstance(answer, WatchResponse)
        seen = events(server, answer.number)
        assert [event["object"]["metadata"].get("name") for event in seen] == names


def test_a_slow_watch_is_closed_with_410() -> None:
    server = plain_server(history_max=10)
    made(server, "a")
    start = server.version
    stream = watch(server, f"resourceVersion={start}")
    for turn in range(40):
        server.modify(resource(server), "n", "a", lambda o, t=turn: o["spec"].update(t=t), NOW)
    chunk = server.read(stream, NOW)
    assert (chunk.body, chunk.end) == (b"", True)
    (error,) = events(server, watch(server, f"resourceVersion={start}"))
    assert (error["type"], error["object"]["code"], error["object"]["reason"]) == (
        "ERROR",
        410,
        "Expired",
    )


def test_watchers_share_one_encoding_of_an_event() -> None:
    server = plain_server()
    streams = [watch(server, f"resourceVersion={server.version}") for _ in range(3)]
    made(server, "a")
    assert sorted(server.woken()) == streams
    (event,) = server.watch_cache.channel("things").events
    for stream in streams:
        server.read(stream, NOW)
    assert event.lines is not None
    assert len(event.lines) == 1


def test_unsaved_writes_are_not_visible() -> None:
    server = plain_server(durable=True)
    stream = watch(server, f"resourceVersion={server.version}")
    answer = asked(server, "POST", THINGS, json.dumps(tree("a")).encode())
    assert isinstance(answer, HttpResponse)
    assert (answer.commit, server.read(stream, NOW).body) == (1, b"")
    got = asked(server, "GET", f"{THINGS}/a")
    assert isinstance(got, HttpResponse)
    assert got.commit == 1, "a reader must not see what may yet be lost"
    batch = server.unsaved()
    assert batch is not None
    assert [(key, version) for key, version, _ in batch.records] == [("things/n/a", server.version)]
    assert server.unsaved() is None
    server.saved(batch.number)
    assert [event["type"] for event in events(server, stream)] == ["ADDED"]
    assert server.unsaved_number == 0


def test_a_server_starts_again_from_what_was_saved() -> None:
    server = plain_server(durable=True)
    made(server, "a")
    made(server, "b")
    server.delete(resource(server), "n", "b", NOW)
    batch = server.unsaved()
    assert batch is not None
    again = plain_server(batch.records)
    assert again.version == server.version
    assert [obj["metadata"]["name"] for obj in again.list(resource(again))] == ["a"]
    assert int(made(again, "c")["metadata"]["resourceVersion"]) == server.version + 1


class Scribe:
    """An observer that writes down what it is told, and answers each thing with a place."""

    def __init__(self) -> None:
        self.notified: list[tuple[str, str]] = []

    def changed(self, server: ApiServer, change: StoreChange, now: float) -> None:
        self.notified.append((change.type, change.key))
        if change.key.startswith("things/") and change.type == "ADDED":
            server.create(resource(server, "places"), tree(change.key.rpartition("/")[2]), now)


def test_observers_get_each_change_once_in_order_their_own_writes_included() -> None:
    scribe = Scribe()
    server = plain_server(observers=(scribe,))
    asked(server, "POST", THINGS, json.dumps(tree("a")).encode())
    server.modify(resource(server), "n", "a", lambda o: o["spec"].update(x=1), NOW)
    assert scribe.notified == [
        ("ADDED", "things/n/a"),
        ("ADDED", "places//a"),
        ("MODIFIED", "things/n/a"),
    ]


def test_observers_get_saved_objects_when_a_server_starts() -> None:
    server = plain_server(durable=True)
    made(server, "a")
    batch = server.unsaved()
    assert batch is not None
    scribe = Scribe()
    again = plain_server(batch.records, observers=(scribe,))
    again.tick(NOW)
    assert scribe.notified == [("ADDED", "things/n/a"), ("ADDED", "places//a")]


def test_what_has_a_lifetime_ends_so_long_after_its_last_write() -> None:
    mortal = Resource(
        "", "v1", "things", "Thing", True, thing().schema, thing().strategy, ttl_s=100.0
    )
    server = plain_server(registry=Plain([mortal, place()]))
    made(server, "a")
    assert server.tick(NOW) == NOW + 100
    server.modify(mortal, "n", "a", lambda o: o["spec"].update(x=1), NOW + 50)
    server.tick(NOW + 50)
    server.tick(NOW + 100)
    assert server.get(mortal, "n", "a") is not None
    server.tick(NOW + 150)
    assert server.get(mortal, "n", "a") is None


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("GET", "/api/v1/things", 200),
        ("GET", "/api/v1/things/a", 404),
        ("GET", "/api/v1/namespaces/n/places", 404),
        ("GET", "/api/v1/namespaces/n//things", 404),
        ("GET", "/api/v1/namespaces/n/things/a/b/c", 404),
        ("GET", "/api/v2/things", 404),
        ("GET", "/nothing", 404),
        ("GET", "/", 404),
        ("POST", "/api/v1/things", 405),
        ("PUT", "/api/v1/places", 405),
        ("FOO", "/api/v1/places", 405),
        ("GET", "/api/v1/places?limit=x", 400),
        ("GET", "/api/v1/places?resourceVersion=x", 400),
        ("GET", "/api/v1/places?continue=x", 400),
        ("GET", "/api/v1/places?labelSelector=)", 400),
        ("GET", "/api/v1/places?fieldSelector=spec.x%3D1", 400),
        ("GET", "/api/v1/places?resourceVersion=99", 504),
        ("GET", "/api/v1/places?resourceVersionMatch=Exact", 422),
        ("POST", "/api/v1/places?dryRun=Some", 422),
    ],
)
def test_refusals(method: str, target: str, status: int) -> None:
    body(asked(plain_server(), method, target, b"{}" if method == "POST" else b""), status)


@pytest.mark.parametrize(
    ("accept", "status", "media"),
    [
        ("", 200, "application/json"),
        ("application/yaml", 200, "application/yaml"),
        ("application/vnd.kubernetes.protobuf, application/json", 200, "application/json"),
        ("text/html, application/json;q=0.1, application/yaml;q=0.9", 200, "application/yaml"),
        ("text/plain", 406, "application/json"),
        ("application/vnd.kubernetes.protobuf", 406, "application/vnd.kubernetes.protobuf"),
        ("application/json;as=Table;v=v1;g=meta.k8s.io", 200, "application/json"),
        ("application/json;as=Odd;v=v1;g=meta.k8s.io", 406, "application/json"),
    ],
)
def test_forms_of_answers(accept: str, status: int, media: str) -> None:
    answer = asked(plain_server(), "GET", "/api/v1/places", accept=accept)
    assert isinstance(answer, HttpResponse)
    assert (answer.status, dict(answer.headers)["Content-Type"]) == (status, media)


def test_a_body_over_the_limit_is_refused() -> None:
    server = plain_server(body_bytes_max=10)
    body(asked(server, "POST", "/api/v1/places", b" " * 11), 413)


def test_yaml_reads_and_writes() -> None:
    server = plain_server()
    sent = b"metadata: {name: p}\nspec:\n  at: 2001-01-01\n  yes: 'true'\n  5: x\n"
    asked(server, "POST", "/api/v1/places", sent, content_type="application/yaml")
    obj = server.get(resource(server, "places"), "", "p")
    assert obj is not None
    assert obj["spec"] == {"at": "2001-01-01", "true": "true", "5": "x"}
    answer = asked(server, "GET", "/api/v1/places/p", accept="application/yaml")
    assert isinstance(answer, HttpResponse)
    assert 'resourceVersion: "2"\n' in answer.body.decode()


def test_pretty_answers_are_indented() -> None:
    server = plain_server()
    for headers in ({"user_agent": "curl/8"}, {"accept": "application/json;pretty=1"}):
        answer = asked(server, "GET", "/api/v1/places", **headers)
        assert isinstance(answer, HttpResponse)
        assert answer.body.startswith(b'{\n  "kind": "PlaceList"')
