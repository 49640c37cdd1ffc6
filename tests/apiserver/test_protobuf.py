"""Protobuf bodies and answers of the server; what the recordings do not show."""

from __future__ import annotations

import base64
import cProfile
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stowplan.apis.machinery.http_messages import HttpRequest, HttpResponse
from stowplan.apis.machinery.stored_form import encode
from stowplan.apis.protobuf import codec
from stowplan.apis.protobuf.codec import MAGIC, envelope
from stowplan.apis.protobuf.object_codec import ObjectCodec, object_codec
from stowplan.apis.protobuf.wire_format import WireError, bytes_field, varint_field
from stowplan.apiserver.http.body_decoding import body_as_json
from stowplan.apiserver.http.negotiation import JSON, PROTOBUF
from tests.contract.apiserver.recorded_server import RestartableCluster
from tests.property.wrong import assert_caught

NOW = 1_790_000_000.0
MAPS = "/api/v1/namespaces/default/configmaps"
NAMED = bytes_field(1, bytes_field(1, b"x"))


def message(*fields: tuple[int, Any]) -> bytes:
    """A message of numbers, texts and bytes."""
    parts = []
    for number, value in fields:
        if isinstance(value, int):
            parts.append(varint_field(number, value))
        else:
            parts.append(bytes_field(number, value.encode() if isinstance(value, str) else value))
    return b"".join(parts)


@pytest.fixture(scope="module")
def cluster() -> RestartableCluster:
    return RestartableCluster("plain", NOW)


def asked(cluster: RestartableCluster, method: str, path: str, body: bytes = b"") -> HttpResponse:
    headers = {
        "authorization": "Bearer admin-token", "accept": PROTOBUF, "content-type": PROTOBUF,
    }  # fmt: skip
    answer = cluster.handle(HttpRequest(method, path, (), headers, body), NOW)
    assert isinstance(answer, HttpResponse)
    return answer


def test_objects_go_in_and_out(cluster: RestartableCluster) -> None:
    tree = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "ü"}}
    made = asked(cluster, "POST", MAPS, object_codec().encode(tree))
    assert made.status == 201
    assert object_codec().decode(made.body)["data"] == {"k": "ü"}
    listed = object_codec().decode(asked(cluster, "GET", MAPS).body)
    assert (listed["kind"], "a") in [
        (listed["kind"], one["metadata"]["name"]) for one in listed["items"]
    ]
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
    assert asked(cluster, "DELETE", f"{MAPS}/a", object_codec().encode(options)).status == 200
    missing = asked(cluster, "GET", f"{MAPS}/a")
    status = object_codec().decode(missing.body)
    assert (missing.status, status["reason"], status["code"]) == (404, "NotFound", 404)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "empty data"),
        (MAGIC + b"\xff", "unexpected EOF"),
        (b'{"kind":"Namespace"}', "expected prefix [107 56 115 0]"),
        (envelope("v1", "ConfigMap", bytes_field(1, bytes_field(1, b"\xff"))), "utf-8"),
        (envelope("v1", "ConfigMap", varint_field(1, 5)), "a number in place of bytes"),
        (envelope("v1", "ConfigMap", NAMED)[:-9] + b"\x08", "unexpected EOF"),
        (envelope("v1", "Namespace", NAMED), "cannot be handled as a ConfigMap"),
        (envelope("v1", "Odd", NAMED), 'no kind "Odd" is registered'),
        (envelope("v2", "ConfigMap", NAMED), 'no kind "ConfigMap" is registered'),
    ],
)
def test_bad_bodies_are_400(cluster: RestartableCluster, body: bytes, text: str) -> None:
    answer = asked(cluster, "POST", MAPS, body)
    assert answer.status == 400
    assert text in object_codec().decode(answer.body)["message"]


def test_unknown_fields_are_skipped() -> None:
    """As in Go, whose messages of an older version do not have them."""
    body = envelope("v1", "ConfigMap", NAMED + varint_field(99, 1))
    assert object_codec().decode(body)["metadata"] == {"name": "x"}


def test_only_bodies_of_this_type_are_looked_at() -> None:
    body = envelope("v1", "ConfigMap", NAMED)
    assert body_as_json(body, JSON) == (body, JSON)
    raw, media = body_as_json(body, PROTOBUF)
    assert media == JSON
    assert json.loads(raw)["metadata"] == {"name": "x"}


def test_the_number_of_fields_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "FIELDS_MAX", 10)
    entry = bytes_field(2, bytes_field(1, b"k") + bytes_field(2, b"v"))
    with pytest.raises(WireError, match="more than 10 fields"):
        object_codec().decode(envelope("v1", "ConfigMap", NAMED + entry * 9))


@pytest.mark.parametrize(
    "body",
    [
        MAGIC + bytes_field(2, b"") * 5,
        MAGIC + bytes_field(1, bytes_field(2, b"Pod") * 5),
        envelope("v1", "ConfigMap", bytes_field(2, bytes_field(1, b"k") * 5)),
    ],
)
def test_small_messages_have_few_fields(body: bytes) -> None:
    with pytest.raises(WireError, match="more than 4 fields in a small message"):
        object_codec().decode(body)


def test_an_empty_message_costs_the_fields_that_it_has() -> None:
    def calls(n_containers: int) -> int:
        body = envelope("v1", "Pod", bytes_field(2, bytes_field(2, b"") * n_containers))
        profile = cProfile.Profile()
        profile.runcall(object_codec().decode, body)
        return sum(one.callcount for one in profile.getstats())

    calls(1)  # makes the types
    # A container has 25 fields, of which JSON always has two.
    assert (calls(200) - calls(100)) / 100 < 40


@given(st.binary(max_size=60))
def test_garbage_raises_one_error(data: bytes) -> None:
    for kind in ("Pod", "ConfigMap", "Status"):
        for body in (data, MAGIC + data, envelope("v1", kind, data)):
            try:
                object_codec().decode(body)
            except WireError:
                continue


@pytest.mark.parametrize("path", ["/apis/apps/v1/deployments", "/api/v1/pods"])
def test_lists_without_objects(cluster: RestartableCluster, path: str) -> None:
    answer = asked(cluster, "GET", path)
    tree: dict[str, Any] = object_codec().decode(answer.body)
    assert tree["items"] is None or tree["items"] == []
    assert dict(answer.headers)["Content-Type"] == PROTOBUF


def test_bytes_and_text_of_any_kind_come_back() -> None:
    tree = {
        "kind": "Secret", "apiVersion": "v1", "metadata": {"name": "s"},
        "data": {"k": base64.b64encode(bytes(range(256))).decode()}, "type": "Opaque",
    }  # fmt: skip
    assert object_codec().decode(object_codec().encode(tree)) == tree


TIMES = st.sampled_from(["2026-01-31T12:00:00Z", "2026-01-31T12:00:01Z"])
ENTRIES = st.lists(
    st.fixed_dictionaries(
        {
            "manager": st.sampled_from(["a", "b"]),
            "operation": st.sampled_from(["Apply", "Update"]),
            "time": TIMES,
            "fieldsV1": st.sampled_from([{"f:data": {}}, {"f:spec": {"f:a": {}}}, {}]),
        }
    ),
    max_size=3,
)


def json_is_that_of_the_trees(bodies: list[list[dict[str, Any]]]) -> None:
    """Compares a codec that may keep entries with trees that are read anew."""
    made = ObjectCodec()
    for entries in bodies:
        metadata = {"name": "a", "managedFields": entries}
        body = made.encode({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
        assert made.as_json(body) == encode(made.decode(body))


@given(st.lists(ENTRIES, max_size=6))
def test_entries_that_come_again_are_the_same(bodies: list[list[dict[str, Any]]]) -> None:
    json_is_that_of_the_trees(bodies)


def test_entries_that_are_taken_for_others_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong variant: entries are kept by their length."""
    monkeypatch.setattr(codec.KeptMessages, "find", lambda self, data: self._known.get(len(data)))
    keep = codec.KeptMessages.keep

    def by_length(self: codec.KeptMessages, data: bytes, tree: Any, n_fields: int) -> Any:
        made = keep(self, data, tree, n_fields)
        self._known[len(data)] = made, n_fields  # type: ignore[index]
        return made

    monkeypatch.setattr(codec.KeptMessages, "keep", by_length)
    one, other = ({"manager": name, "time": "2026-01-31T12:00:00Z"} for name in "ab")
    assert_caught(json_is_that_of_the_trees, st.lists(ENTRIES), known=([[one], [other]],))


def test_fields_of_kept_entries_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "FIELDS_MAX", 20)
    made = ObjectCodec()
    entry = {"manager": "m", "fieldsV1": {"f:data": {}}}
    few, many = (
        made.encode(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "a", "managedFields": [entry] * n},
            }
        )
        for n in (1, 9)
    )
    made.as_json(few)
    for body in (many, many):
        with pytest.raises(WireError, match="more than 20 fields"):
            made.as_json(body)
