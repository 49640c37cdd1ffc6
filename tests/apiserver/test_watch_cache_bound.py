"""The memory of past changes is bounded in bytes, however large the objects are."""

from __future__ import annotations

import json
from typing import Any

from stowplan.apis.machinery.http_messages import WatchResponse
from stowplan.apiserver.server import ApiServer
from tests.apiserver.plain import NOW, asked, plain_server

BOUND = 1 << 20
PATH = "/api/v1/namespaces/n/things"


def large(number: int, size: int) -> dict[str, Any]:
    text = chr(ord("a") + number % 26) * size
    meta = {"name": f"t{number % 7}", "namespace": "n"}
    return {"kind": "Thing", "apiVersion": "v1", "metadata": meta, "spec": {"text": text}}


def write(server: ApiServer, number: int, size: int) -> None:
    tree = large(number, size)
    meta, body = tree["metadata"], json.dumps(tree).encode()
    if number < 7:
        assert asked(server, "POST", PATH, body).status == 201
    else:
        assert asked(server, "PUT", f"{PATH}/{meta['name']}", body).status == 200


def held_bytes(server: ApiServer) -> int:
    """What past changes and their encodings hold, each text once."""
    texts: dict[int, int] = {}
    for change in server.store.changes(server.store.compacted):
        for value in (change.value, change.previous or b""):
            texts[id(value)] = len(value)
    for lines, _ in server.watch_cache._encoded:
        for line in lines.values():
            texts[id(line)] = len(line)
    return sum(texts.values())


def test_large_objects_do_not_grow_the_watch_cache() -> None:
    server = plain_server(history_bytes_max=BOUND)
    watches = [asked(server, "GET", f"{PATH}?watch=true") for _ in range(3)]
    for number in range(200):
        write(server, number, 40_000 if number % 3 else 90_000)
        for watch in watches:
            assert isinstance(watch, WatchResponse)
            server.read(watch.number, NOW)
        assert held_bytes(server) <= BOUND * 9 // 8
        assert server.watch_cache.lines_bytes <= BOUND // 8
    # A version that is gone is said to be so, as kube-apiserver says it.
    assert server.store.compacted > 100
    late = asked(server, "GET", f"{PATH}?watch=true&resourceVersion=5")
    assert isinstance(late, WatchResponse)
    event = json.loads(server.read(late.number, NOW).body)
    assert event["type"] == "ERROR"
    reported = event["object"]
    assert (reported["code"], reported["reason"]) == (410, "Expired")
    assert reported["message"] == f"too old resource version: 5 ({server.store.compacted})"


def test_encodings_that_were_dropped_are_made_again() -> None:
    server = plain_server(history_bytes_max=BOUND)
    start = server.version
    for number in range(12):
        write(server, number, 30_000)
    seen = []
    for _ in range(2):
        watch = asked(server, "GET", f"{PATH}?watch=true&resourceVersion={start}")
        assert isinstance(watch, WatchResponse)
        read = b""
        while data := server.read(watch.number, NOW).body:
            read += data
        seen.append(read)
    assert seen[0] == seen[1]
    assert seen[0].count(b"\n") == 12
