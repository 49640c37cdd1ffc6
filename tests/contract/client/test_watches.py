"""Recorded watches, fed to informers in pieces of any size."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.client.informer import Informer
from stowplan.client.requests import ApiRequest
from stowplan.client.resources import NODES, PODS, RESOURCES, ApiResource
from stowplan.client.responses import ApiResponse
from stowplan.client.watch_decoding import LineSplitter
from stowplan.messages import events as happened
from stowplan.messages.events import Event
from stowplan.objects.encoding.duration import SECOND
from tests.contract.client.recorded import Tree, as_bytes, lines, scenarios, watches
from tests.soak import examples

NOW = 1_000 * SECOND


def resource_at(path: str) -> ApiResource | None:
    parts = [part for part in path.split("/") if part and part != "watch"]
    for resource in RESOURCES:
        root = [part for part in resource.root.split("/") if part]
        rest = parts[len(root) :]
        if rest[:1] == ["namespaces"] and len(rest) > 2:
            rest = rest[2:]
        if parts[: len(root)] == root and rest[:1] == [resource.plural]:
            return resource
    return None


def listed(resource: ApiResource, items: list[Tree], version: str = "1000") -> Informer:
    informer = Informer(resource, np.random.default_rng(1), streams=False)
    assert isinstance(informer.next(NOW), ApiRequest)
    body = {"metadata": {"resourceVersion": version}, "items": items}
    informer.answered(ApiResponse(200, json.dumps(body).encode()), NOW)
    return informer


def readable() -> list[tuple[str, Tree, ApiResource]]:
    found = ((where, one, resource_at(one["request"]["path"])) for where, one in watches())
    return [(where, one, r) for where, one, r in found if r is not None and json_body(one)]


def json_body(exchange: Tree) -> bool:
    headers = exchange["response"].get("headers", {})
    accepted = exchange["request"].get("headers", {}).get("Accept", "")
    return (
        headers.get("Content-Type", "").startswith("application/json") and "Table" not in accepted
    )


@pytest.mark.parametrize("pieces", [1, 7, 100_000])
def test_every_recorded_watch_is_read_whatever_it_is_cut_into(pieces: int) -> None:
    n_watches = 0
    for where, exchange, resource in readable():
        if "PartialObjectMetadata" in str(exchange["request"].get("headers", {})):
            continue
        informer = listed(resource, [])
        informer.opened(NOW)
        text = b"".join(lines(exchange))
        received: list[Event] = []
        for start in range(0, len(text), pieces):
            received += informer.feed(text[start : start + pieces], NOW)
        assert list(informer.unreadable) == [], where
        kinds = [event["type"] for event in exchange["events"]]
        assert informer.is_closed == ("ERROR" in kinds), where
        assert len(informer) == len(left(exchange["events"])), where
        n_watches += 1
    assert n_watches >= 60


def left(events: Iterable[Tree]) -> dict[Any, Tree]:
    """What is there after a watch."""
    there: dict[Any, Tree] = {}
    for event in events:
        meta = event["object"].get("metadata", {})
        key = (meta.get("namespace"), meta.get("name"))
        if event["type"] in ("ADDED", "MODIFIED"):
            there[key] = event["object"]
        elif event["type"] == "DELETED":
            there.pop(key, None)
    return there


def recorded_pods() -> Tree:
    (first, *_) = [s for s in scenarios("scheduler") if s["scenario"] == "json"]
    return next(
        e for e in first["exchanges"] if "events" in e and e["request"]["path"] == "/api/v1/pods"
    )


cuts = st.lists(st.integers(0, 400_000), max_size=6)


class Forgetful(LineSplitter):
    """Wrong: takes the beginning of a line that has not come whole for one."""

    def feed(self, data: bytes) -> Any:
        return iter([line for line in data.split(b"\n") if line.strip()])


def events_after_cuts(places: list[int], kind: type[LineSplitter] = LineSplitter) -> list[Event]:
    """The recorded pods, the connection broken at some places and resumed where it was: whatever
    is behind the version that the client has seen comes again."""
    exchange = recorded_pods()
    whole = lines(exchange)
    versions = [json.loads(line)["object"]["metadata"]["resourceVersion"] for line in whole]
    informer = listed(PODS, [])
    received: list[Event] = []
    done = 0
    for place in [*sorted(places), sum(map(len, whole))]:
        informer.opened(NOW)
        informer._lines = kind()
        first = next((i for i, v in enumerate(versions) if int(v) > int(informer.version)), 10**9)
        rest = b"".join(whole[first:])
        n_bytes = max(0, place - done)
        received += informer.feed(rest[:n_bytes], NOW)
        assert not informer.is_closed, informer.fault
        informer.closed(NOW + 10 * SECOND, "connection reset")
        done = place if n_bytes < len(rest) else done
    informer.opened(NOW)
    first = next((i for i, v in enumerate(versions) if int(v) > int(informer.version)), 10**9)
    received += informer.feed(b"".join(whole[first:]), NOW)
    return received


@settings(max_examples=examples(60), deadline=None)
@given(cuts)
def test_a_watch_that_is_cut_anywhere_reports_each_change_once(places: list[int]) -> None:
    assert events_after_cuts(places) == events_after_cuts([])


def test_a_client_that_trusts_half_a_line_is_caught() -> None:
    with pytest.raises(AssertionError):
        events_after_cuts([100], Forgetful)


# 410 in every form.


def gone_meanwhile(informer: Informer, node: Tree) -> list[Event]:
    """The list that follows, with one node of two."""
    request = informer.next(NOW + 60 * SECOND)
    assert isinstance(request, ApiRequest)
    assert not request.is_watch
    assert "continue" not in dict(request.query)
    body = {"metadata": {"resourceVersion": "2000"}, "items": [node]}
    return informer.answered(ApiResponse(200, json.dumps(body).encode()), NOW + 60 * SECOND)


def two_nodes() -> list[Tree]:
    return [{"metadata": {"name": n, "uid": n, "resourceVersion": "5"}} for n in ("n1", "n2")]


def expired() -> dict[str, bytes]:
    error = {"kind": "Status", "reason": "Expired", "code": 410, "message": "too old"}
    return {
        "an ERROR event": error_line(error),
        "an ERROR event without a code": error_line({"kind": "Status", "reason": "Expired"}),
        "an ERROR event of reason Gone": error_line({"kind": "Status", "reason": "Gone"}),
        "an ERROR event with nulls": error_line(error | {"details": None, "message": None}),
        "a line that makes no sense": b'{"type":"ADDED","object":{"meta\n',
        "a type that nobody knows": b'{"type":"CHANGED","object":{}}\n',
    }


def error_line(status: Tree) -> bytes:
    return json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"


@pytest.mark.parametrize("form", list(expired()))
def test_a_version_that_is_too_old_leads_to_a_list_that_reports_deletions(form: str) -> None:
    informer = listed(NODES, two_nodes())
    informer.opened(NOW)
    assert informer.feed(expired()[form], NOW) == []
    assert informer.is_closed
    received = gone_meanwhile(informer, two_nodes()[0])
    assert [type(event) for event in received] == [happened.NodeDeleted]


@pytest.mark.parametrize(
    "answer",
    [
        ApiResponse(410, b'{"kind":"Status","reason":"Expired","code":410}'),
        ApiResponse(410, b"gone"),
        ApiResponse(400, b'{"kind":"Status","reason":"Expired","code":410}'),
    ],
)
def test_so_does_a_watch_that_is_refused_as_too_old(answer: ApiResponse) -> None:
    informer = listed(NODES, two_nodes())
    assert isinstance(informer.next(NOW), ApiRequest)
    informer.answered(answer, NOW)
    assert len(gone_meanwhile(informer, two_nodes()[0])) == 1


def test_recorded_errors_of_a_watch_lead_to_a_list() -> None:
    n_errors = 0
    for _, exchange, resource in readable():
        if any(event["type"] == "ERROR" for event in exchange["events"]):
            codes = [e["object"].get("code") for e in exchange["events"] if e["type"] == "ERROR"]
            informer = listed(resource, [])
            informer.opened(NOW)
            informer.feed(b"".join(lines(exchange)), NOW)
            request = informer.next(NOW + 60 * SECOND)
            assert isinstance(request, ApiRequest)
            assert request.is_watch == (410 not in codes)
            n_errors += 410 in codes
    assert n_errors >= 2


def test_a_version_that_the_server_does_not_reach_leads_to_a_list_in_the_end() -> None:
    informer, now = listed(NODES, two_nodes()), NOW
    error = {"kind": "Status", "reason": "Timeout", "code": 504, "message": "Too large"}
    for _ in range(4):
        informer.opened(now)
        informer.feed(error_line(error), now)
        now += 60 * SECOND
    request = informer.next(now)
    assert isinstance(request, ApiRequest)
    assert not request.is_watch


def test_a_page_whose_token_has_expired_begins_the_list_anew_and_asks_for_all_at_once() -> None:
    informer = Informer(PODS, np.random.default_rng(1), streams=False)
    request = informer.next(NOW)
    assert isinstance(request, ApiRequest)
    assert ("limit", "500") in request.query
    (scenario,) = [s for s in scenarios("expiry") if s["scenario"] == "expired-continue"]
    first, late = (e for e in scenario["exchanges"] if e.get("n") in (7, 10))
    assert informer.answered(ApiResponse(200, as_bytes(first["response"]["body"])), NOW)
    request = informer.next(NOW)
    assert isinstance(request, ApiRequest)
    assert "continue" in dict(request.query)
    informer.answered(ApiResponse(410, as_bytes(late["response"]["body"])), NOW)
    request = informer.next(NOW + 60 * SECOND)
    assert isinstance(request, ApiRequest)
    assert not {"continue", "limit"} & set(dict(request.query))


# Bookmarks.


def bookmark(version: str, **annotations: str) -> bytes:
    """As the server spells it: with nulls where a kind has to have something."""
    meta = {"resourceVersion": version, "creationTimestamp": None, "annotations": annotations}
    tree = {"kind": "Pod", "metadata": meta, "spec": {"containers": None}, "status": {}}
    return json.dumps({"type": "BOOKMARK", "object": tree}).encode() + b"\n"


def test_recorded_bookmarks_are_where_the_next_watch_begins() -> None:
    n_bookmarks = 0
    for where, exchange, resource in readable():
        types = [event["type"] for event in exchange["events"]]
        query = exchange["request"]["path"] + str(exchange["request"].get("query", ""))
        if "BOOKMARK" not in types or "ERROR" in types or "sendInitialEvents" in query:
            continue
        last = len(types) - types[::-1].index("BOOKMARK")
        informer = listed(resource, [])
        informer.opened(NOW)
        received = informer.feed(b"".join(lines(exchange)[:last]), NOW)
        assert len(received) == last - types[:last].count("BOOKMARK"), where
        informer.closed(NOW + 10 * SECOND)
        request = informer.next(NOW + 60 * SECOND)
        assert isinstance(request, ApiRequest)
        mark = json.loads(lines(exchange)[last - 1])["object"]["metadata"]["resourceVersion"]
        assert dict(request.query)["resourceVersion"] == mark, where
        n_bookmarks += 1
    assert n_bookmarks >= 1


def test_the_bookmark_that_ends_a_streaming_list_reports_deletions() -> None:
    informer = listed(NODES, two_nodes())
    informer._streams = True
    informer.opened(NOW)
    informer.feed(expired()["an ERROR event"], NOW)
    request = informer.next(NOW + 60 * SECOND)
    assert isinstance(request, ApiRequest)
    assert ("sendInitialEvents", "true") in request.query
    informer.opened(NOW + 60 * SECOND)
    one = json.dumps({"type": "ADDED", "object": two_nodes()[0]}).encode() + b"\n"
    # One that does not end it tells nothing yet.
    assert informer.feed(one + bookmark("7"), NOW) == []
    received = informer.feed(bookmark("9", **{"k8s.io/initial-events-end": "true"}), NOW)
    assert [type(event) for event in received] == [happened.NodeDeleted]
    informer.closed(NOW + 70 * SECOND)
    request = informer.next(NOW + 200 * SECOND)
    assert isinstance(request, ApiRequest)
    assert dict(request.query)["resourceVersion"] == "9"


# Absent resources, servers of other versions, servers in need.


def test_a_custom_resource_is_picked_up_when_it_appears_and_dropped_when_it_goes() -> None:
    groups = next(r for r in RESOURCES if r.plural == "podgroups")
    informer = Informer(groups, np.random.default_rng(1), streams=False)
    absent = ApiResponse(404, b"404 page not found\n", content_type="text/plain")
    informer.answered(absent, NOW)
    assert informer.is_synced
    assert not informer.is_served
    later = informer.next(NOW)
    assert isinstance(later, int)
    assert later <= NOW + 12 * SECOND
    group = {"apiVersion": groups.api_version, "metadata": {"name": "g", "namespace": "d"}}
    body = {"metadata": {"resourceVersion": "3"}, "items": [group]}
    assert isinstance(informer.next(later), ApiRequest)
    assert len(informer.answered(ApiResponse(200, json.dumps(body).encode()), later)) == 1
    assert informer.is_served
    informer.answered(absent, later)
    assert len(informer) == 0


def test_pods_and_nodes_are_never_taken_for_absent() -> None:
    informer = Informer(NODES, np.random.default_rng(1), streams=False)
    informer.answered(ApiResponse(404, b"404 page not found\n"), NOW)
    assert not informer.is_synced


def test_a_server_without_streaming_lists_is_listed() -> None:
    informer = Informer(PODS, np.random.default_rng(1))
    request = informer.next(NOW)
    assert isinstance(request, ApiRequest)
    assert ("sendInitialEvents", "true") in request.query
    text = b'{"kind":"Status","reason":"Invalid","message":"sendInitialEvents: Forbidden"}'
    informer.answered(ApiResponse(422, text), NOW)
    request = informer.next(NOW)
    assert isinstance(request, ApiRequest)
    assert not request.is_watch


@pytest.mark.parametrize(
    ("answer", "least_s"),
    [(ApiResponse(429, b"", 7.0), 7.0), (ApiResponse(429), 1.0), (ApiResponse(503, b"", 4.0), 4.0)],
)
def test_retry_after_of_an_overloaded_server_is_respected(
    answer: ApiResponse, least_s: float
) -> None:
    informer = Informer(PODS, np.random.default_rng(1), streams=False)
    informer.answered(answer, NOW)
    until = informer.next(NOW)
    assert isinstance(until, int)
    assert until >= NOW + round(least_s * SECOND)


def test_failures_in_a_row_are_spaced_out() -> None:
    informer = Informer(PODS, np.random.default_rng(1), streams=False)
    now, waits = NOW, []
    for _ in range(8):
        informer.answered(ApiResponse(0, fault="refused"), now)
        until = informer.next(now)
        assert isinstance(until, int)
        waits.append((until - now) / SECOND)
        now = until
    assert waits[0] < 1.7
    assert all(30 <= wait <= 60 for wait in waits[-2:])


def test_an_invalid_object_is_skipped_and_reported() -> None:
    informer = listed(PODS, [])
    informer.opened(NOW)
    bad = {"metadata": {"name": "bad", "namespace": "d"}, "spec": {"containers": "three"}}
    good = {"metadata": {"name": "good", "namespace": "d", "resourceVersion": "9"}}
    text = b"".join(
        json.dumps({"type": "ADDED", "object": one}).encode() + b"\n" for one in (bad, good)
    )
    assert len(informer.feed(text, NOW)) == 1
    assert not informer.is_closed
    (fault,) = informer.unreadable
    assert "d/bad" in fault
    assert "containers" in fault
