"""Recorded conversations with a real API server, repeated with the embedded one.

Time is virtual: it stands still but where a recording waited, or where something recorded has not
come yet. Every difference is a `Finding`; a test compares them with `not_modelled`.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from stowplan.apis.machinery.http_messages import HttpRequest, HttpResponse, WatchResponse
from stowplan.apis.protobuf.codec import MAGIC
from stowplan.apis.protobuf.object_codec import object_codec
from tests.contract.apiserver.kubectl_bodies import kubectl_body
from tests.contract.apiserver.not_modelled import STAND_INS
from tests.contract.apiserver.protobuf_forms import event_of, frames_of
from tests.contract.apiserver.recorded_server import RestartableCluster
from tests.contract.apiserver.symbols import AGE, Finding, Symbols

Tree = dict[str, Any]
DATA = Path(__file__).parent / "data"
HEADERS = ("Content-Type", "Cache-Control", "Warning", "Retry-After", "X-Content-Type-Options")
WAIT_S = 75.0
POLL_S = 0.5
WHOLE_SECONDS = ("apply", "cel", "kinds", "conversations")
"""Groups whose scenarios began with a second, and stayed in it up to the next wait."""
START = 1_790_000_000.0


def scenarios(group: str) -> list[Tree]:
    """The scenarios of a group, in the order in which they were recorded."""
    with gzip.open(DATA / f"{group}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


class Watch:
    """A stream that was opened, and how far it has come."""

    def __init__(self, exchange: Tree, number: int) -> None:
        self.exchange = exchange
        self.number = number
        self.wanted: list[Tree] = exchange.get("events", [])
        self.unstable = any(p.startswith("events") for p in exchange.get("unstable") or ())
        self.place = 0
        self.rest = b""
        self.got: list[Tree] = []
        self.ended = False
        self.closed = False

    @property
    def name(self) -> str:
        """Where findings about it are."""
        return str(self.exchange["n"])

    def due(self, n: int) -> int:
        """How many events must have come when request `n` has been answered."""
        return sum(1 for event in self.wanted if event["seen_by"] <= n)

    def owes_end(self, n: int) -> bool:
        """True when the server should have ended the stream by then."""
        end = self.exchange.get("end", "")
        return end.startswith("server") and (self.exchange.get("end_seen_by") or 0) <= n

    def take(self, body: bytes) -> None:
        """Cut what was read into events."""
        if (self.rest + body)[:1] == b"\x00":
            *frames, self.rest = frames_of(self.rest + body)
            self.got += [event_of(frame) for frame in frames]
            return
        *lines, self.rest = (self.rest + body).split(b"\n")
        self.got += [json.loads(line) for line in lines if line]


_NAMESPACE = re.compile(r"/namespaces/([^/]+)/")


def _decoded(body: bytes) -> Tree:
    """A tree of JSON or protobuf; an empty one of anything else."""
    if body.startswith(MAGIC):
        return object_codec().decode(body)
    try:
        tree = json.loads(body)
    except ValueError:
        return {}
    return tree if isinstance(tree, dict) else {}


class Replay:
    """One scenario against a world that earlier scenarios of its group have left."""

    def __init__(self, scenario: Tree, cluster: RestartableCluster, now: float) -> None:
        self.scenario = scenario
        self.cluster = cluster
        self.now = now
        self.symbols = Symbols(scenario.get("continue_tokens") or {})
        self.watches: dict[str, Watch] = {}
        self.tags: dict[str, str] = {}
        """Hashes of documents, as recorded and as they are here."""
        self.findings: list[tuple[int, Finding]] = []
        self.step_s = 0.001 if scenario["group"] in WHOLE_SECONDS else 0.02
        self.of_client = "client" in scenario
        """A line of the client set: it is not self-contained, and its order in time is unknown."""
        self.namespace = ""
        self.read_before: Tree = {}
        """The namespace of the command's paths, and the object that it has read."""
        self.exchanges = 0
        self.statuses = 0

    def run(self) -> None:
        """Repeat every exchange in order."""
        for exchange in self.scenario["exchanges"]:
            self.now += self.step_s
            self.symbols.now = self.now
            self.cluster.tick(self.now)
            if "action" in exchange and ("poll" in exchange or "seconds" in exchange):
                self._wait(exchange)
            elif "action" in exchange:
                self._act(exchange["action"])
            else:
                self._exchange(exchange)
            self._drain(exchange["n"])
        for watch in self.watches.values():
            self.cluster.close(watch.number)

    def _found(self, n: int, findings: Iterator[Finding]) -> None:
        self.findings += [(n, finding) for finding in findings]

    def _wait(self, exchange: Tree) -> None:
        """Wait until a request is answered as it should be, or for some seconds.

        Afterwards a second begins, as in the recording: entries of managedFields have seconds.
        """
        poll, deadline = exchange.get("poll"), self.now + WAIT_S
        if poll is None:
            self.now += exchange["seconds"]
        while poll is not None and self.now < deadline and not self._polled(poll):
            self.now += POLL_S
            self.cluster.tick(self.now)
        self.now = math.floor(self.now) + 1.0
        self.symbols.now = self.now
        self.cluster.tick(self.now)

    def _polled(self, poll: Tree) -> bool:
        answer = self.cluster.handle(self.request(poll["request"]), self.now)
        if answer.status != poll["status"] or not isinstance(answer, HttpResponse):
            return False
        return str(poll.get("contains") or "") in answer.body.decode(errors="replace")

    def _act(self, action: str) -> None:
        if "compacted" in action:
            version = self.cluster.server.version
            self._fill()
            self.cluster.compact(version)
        elif "is gone" in action:
            self.now += 1.0
            self.cluster.tick(self.now)
        elif "started again" in action:
            for watch in self.watches.values():
                watch.ended = True
            self.cluster.restart()

    def _fill(self) -> None:
        """What the recorder wrote while it waited for a compaction: pods that came and went."""
        posted = [e["request"] for e in self.scenario["exchanges"] if "request" in e]
        made = next(r for r in posted if r["method"] == "POST" and r["path"].endswith("/pods"))
        for number in range(3):
            body = {**made["body"], "metadata": {"name": f"filler{number}"}}
            body["metadata"]["labels"] = made["body"]["metadata"]["labels"]
            asked = {**made, "body": body}
            self.cluster.handle(self.request(asked), self.now)
            gone = {**made, "method": "DELETE", "path": f"{made['path']}/filler{number}"}
            gone["body"] = {"gracePeriodSeconds": 0}
            self.cluster.handle(self.request(gone), self.now)

    def _exchange(self, exchange: Tree) -> None:
        n = exchange["n"]
        self.exchanges += 1
        try:
            request = self.request(self._with_substitutes(n, exchange["request"]))
        except KeyError as error:
            self._found(n, iter([Finding("request", "a value", f"no value for {error}")]))
            return
        if self.of_client and exchange["response"]["status"] == 304:
            # What makes it conditional was not recorded, nor the hashes of our documents.
            return
        answer = self.cluster.handle(request, self.now)
        if self.of_client and request.method == "GET" and isinstance(answer, HttpResponse):
            self.read_before = _decoded(answer.body)
        if isinstance(answer, HttpResponse):
            self.now += answer.after
            self.symbols.now = self.now
        wanted = exchange["response"]
        if answer.status == wanted["status"]:
            self.statuses += 1
        else:
            got = (
                answer.body.decode(errors="replace")
                if isinstance(answer, HttpResponse)
                else "a stream"
            )
            self._found(n, iter([Finding("status", wanted["status"], f"{answer.status} {got}")]))
            return
        self._found(n, self._headers(wanted.get("headers") or {}, answer))
        self._note_tags(wanted, answer)
        if isinstance(answer, WatchResponse):
            self.watches[str(n)] = Watch(exchange, answer.number)
        else:
            skipped = [p.removeprefix("response.body.") for p in exchange.get("unstable") or ()]
            orders = [p.removeprefix("response.body.") for p in exchange.get("any_order") or ()]
            skipped = [path for path in skipped if path not in orders]
            self._found(n, _kept(self._body(wanted.get("body"), answer, orders), skipped))
            self._note_token(exchange["request"], answer)

    def _note_tags(self, wanted: Tree, answer: HttpResponse | WatchResponse) -> None:
        body, headers = wanted.get("body"), wanted.get("headers") or {}
        if not isinstance(answer, HttpResponse):
            return
        ours = dict(answer.headers).get("ETag", "").strip('"')
        if ours and "Etag" in headers:
            self.tags[headers["Etag"].strip('"')] = ours
        if wanted["status"] == 200 and isinstance(body, dict) and _is_index(body):
            own = json.loads(answer.body)["paths"]
            for path in set(own) & set(body["paths"]):
                theirs, ours = (_hash_in(tree[path]) for tree in (body["paths"], own))
                self.tags[theirs] = ours

    def _with_substitutes(self, n: int, recorded: Tree) -> Tree:
        """The request in the form in which it is repeated (`STAND_INS`)."""
        for theirs, ours in self.tags.items():
            recorded = json.loads(json.dumps(recorded).replace(theirs, ours))
        place = (self.scenario["group"], self.scenario["scenario"], n)
        for one in STAND_INS:
            if one[:3] == place:
                return {**recorded, "headers": {**recorded["headers"], "Content-Type": one.media}}
        return recorded

    def request(self, recorded: Tree) -> HttpRequest:
        """The request, with values in place of symbols."""
        symbols = self.symbols
        headers = {
            name.lower(): self.cluster.with_token(symbols, value)
            for name, value in (recorded.get("headers") or {}).items()
        }
        headers.setdefault("user-agent", "kubectl" if self.of_client else "recorder")
        if self.of_client:
            # The proxy between client and server added it.
            headers.setdefault("authorization", "Bearer admin-token")
        query = symbols.filled(recorded.get("query") or "", quote=True)
        if self.of_client:
            query = self._with_own_hash(recorded["path"], query)
        body = recorded.get("body")
        return HttpRequest(
            recorded["method"],
            symbols.filled(recorded["path"]),
            tuple(parse_qsl(query, keep_blank_values=True)),
            headers,
            b"" if body is None else self._raw(body, recorded["path"]),
        )

    def _with_own_hash(self, path: str, query: str) -> str:
        """The query with the hash that the document has here."""
        if "hash=" not in query:
            return query
        headers = {"authorization": "Bearer admin-token"}
        index = self.cluster.handle(HttpRequest("GET", "/openapi/v3", (), headers), self.now)
        assert isinstance(index, HttpResponse)
        own = json.loads(index.body)["paths"].get(path.removeprefix("/openapi/v3/"), {})
        found = own.get("serverRelativeURL", "").rpartition("hash=")[2]
        return re.sub(r"(^|&)hash=[0-9A-F]+", rf"\g<1>hash={found}" if found else "", query)

    def _raw(self, body: Any, path: str = "") -> bytes:
        if isinstance(body, dict) and "$raw" in body:
            return self.symbols.filled(body["$raw"]).encode()
        if isinstance(body, dict) and "$base64" in body:
            return base64.b64decode(body["$base64"])
        if isinstance(body, dict) and "$protobuf" in body:
            return object_codec().encode(self.symbols.tree(body["$protobuf"]))
        if isinstance(body, dict) and "$bytes" in body and self.of_client:
            found = _NAMESPACE.search(path)
            space = found[1] if found else self.namespace
            argv = self.scenario["argv"]
            return kubectl_body(argv, space, self.read_before, body["$bytes"])
        if isinstance(body, dict) and "$raw_repeat" in body:
            start, length = body["$raw_repeat"]
            return str(start).ljust(length, "x").encode()
        return json.dumps(self.symbols.tree(body)).encode()

    def _headers(self, wanted: Tree, answer: HttpResponse | WatchResponse) -> Iterator[Finding]:
        for name in HEADERS:
            one = wanted.get(name)
            given = [value for key, value in answer.headers if key.lower() == name.lower()]
            listed = one if isinstance(one, list) else [one] if one is not None else []
            if listed != given:
                yield Finding(f"header {name}", listed, given)

    def _note_token(self, request: Tree, answer: HttpResponse) -> None:
        """Keep a token that was asked for: later requests are made with it."""
        is_token = request["method"] == "POST" and request["path"].endswith("/token")
        if is_token and 200 <= answer.status < 300:
            status = _decoded(answer.body).get("status") or {}
            self.symbols.service_account_token = status.get("token", "")

    def _body(
        self, wanted: Any, answer: HttpResponse, any_order: Sequence[str] = ()
    ) -> Iterator[Finding]:
        body = answer.body
        if isinstance(wanted, dict) and ("$bytes" in wanted or "$omitted" in wanted):
            return
        if wanted is None:
            if body.strip():
                yield Finding("body", None, body.decode(errors="replace"))
            return
        if isinstance(wanted, dict) and "$text" in wanted:
            yield from self.symbols.text("body", wanted["$text"], body.decode(errors="replace"))
            return
        if isinstance(wanted, dict) and "$protobuf" in wanted:
            wanted = wanted["$protobuf"]
            body = json.dumps(object_codec().decode(body)).encode()
        try:
            got = json.loads(body)
        except ValueError:
            got = body.decode(errors="replace")
        if self.of_client:
            wanted, got = _timeless(wanted), _timeless(got)
        for path in any_order:
            wanted, got = _sorted_at(wanted, path.split(".")), _sorted_at(got, path.split("."))
        yield from self.symbols.compare("", wanted, got)

    def _drain(self, n: int) -> None:
        """Read what the watches have, letting time pass where something recorded is still due."""
        limit = self.now + WAIT_S
        while True:
            for watch in self.watches.values():
                self._read(watch)
            late = [watch for watch in self.watches.values() if self._late(watch, n)]
            following = self.cluster.tick(self.now)
            if not late or following is None or following > limit:
                break
            self.now = max(self.now + 0.001, following)
            self.symbols.now = self.now
            self.cluster.tick(self.now)
        for watch in self.watches.values():
            self._compare(watch, n)

    def _late(self, watch: Watch, n: int) -> bool:
        if watch.ended or watch.closed:
            return False
        return len(watch.got) < watch.due(n) or watch.owes_end(n)

    def _read(self, watch: Watch) -> None:
        while not watch.ended and not watch.closed:
            chunk = self.cluster.read(watch.number, self.now)
            watch.take(chunk.body)
            watch.ended = chunk.end
            if not chunk.body:
                return

    def _compare(self, watch: Watch, n: int) -> None:
        if watch.closed:
            return
        due = watch.due(n)
        number = int(watch.name)
        if watch.place == 0 and due:
            _settle_initial(watch)
        watch.got = list(_without_timed_bookmarks(watch))
        if self.of_client:
            # The client left when it had seen what it waited for.
            watch.got = watch.got[: len(watch.wanted)]
        while watch.place < len(watch.got):
            at = watch.place
            watch.place += 1
            if at >= len(watch.wanted):
                if not watch.unstable:
                    extra = watch.got[at]
                    self._found(number, iter([Finding(f"events[{at}]", "(absent)", extra)]))
                continue
            skipped = watch.exchange.get("unstable") or ()
            event = self._event(at, watch.wanted[at], watch.got[at])
            self._found(number, _kept(event, skipped))
        if watch.place < due and not watch.unstable:
            text = f"{due} events when request {n} is answered"
            self._found(number, iter([Finding("events", text, f"{watch.place} events")]))
            watch.place = due
        if watch.owes_end(n) and not watch.ended:
            self._found(number, iter([Finding("end", f"ended by {n}", "goes on")]))
        end_seen = watch.exchange.get("end_seen_by")
        if watch.ended or (end_seen is not None and end_seen <= n):
            watch.closed = True
            self.cluster.close(watch.number)

    def _event(self, at: int, wanted: Tree, got: Tree) -> Iterator[Finding]:
        where = f"events[{at}]"
        if wanted["type"] != got["type"]:
            yield Finding(f"{where}.type", wanted["type"], got["type"])
            return
        obj = wanted["object"]
        if wanted["type"] == "BOOKMARK":
            obj, its = dict(obj), dict(got["object"])
            yield from self.symbols.compare(
                f"{where}.object.metadata.resourceVersion",
                obj["metadata"]["resourceVersion"],
                its["metadata"].get("resourceVersion"),
                loose=True,
            )
            obj["metadata"] = _without_version(obj["metadata"])
            its["metadata"] = _without_version(its["metadata"])
            if its.get("kind") == "Table":
                obj["rows"], its["rows"] = _unversioned(obj["rows"]), _unversioned(its["rows"])
            yield from self.symbols.compare(f"{where}.object", obj, its)
            return
        yield from self.symbols.compare(f"{where}.object", obj, got["object"])


def _without_timed_bookmarks(watch: Watch) -> Iterator[Tree]:
    """The events that came, but for bookmarks that time alone has brought and the recording lacks.

    Waiting for another watch takes virtual time, so that there may be more of them than recorded.
    """
    at = 0
    for event in watch.got:
        marked = (event["object"].get("metadata") or {}).get("annotations")
        timed = event["type"] == "BOOKMARK" and not marked and at >= watch.place
        if timed and (at >= len(watch.wanted) or watch.wanted[at]["type"] != "BOOKMARK"):
            continue
        at += 1
        yield event


def _without_version(meta: Tree) -> Tree:
    return {key: value for key, value in meta.items() if key != "resourceVersion"}


def _unversioned(rows: list[Tree]) -> list[Tree]:
    """Rows of a bookmark: their objects carry its version once more."""
    return [
        {
            **row,
            "object": row.get("object")
            and {**row["object"], "metadata": _without_version(row["object"]["metadata"])},
        }
        for row in rows
    ]


def _settle_initial(watch: Watch) -> None:
    """Put initial ADDED events, which come in no promised order, into the same one."""
    query = watch.exchange["request"].get("query") or ""
    versions = [
        value for key, value in parse_qsl(query, keep_blank_values=True) if key == "resourceVersion"
    ]
    if versions and versions[0] not in ("", "0"):
        return
    opened = watch.exchange["n"]
    for events in (watch.wanted, watch.got):
        count = 0
        for event in events:
            if event["type"] != "ADDED" or event.get("seen_by", opened) > opened + 1:
                break
            count += 1
        count = min(count, len(watch.got), len(watch.wanted))
        events[:count] = sorted(events[:count], key=_name)


def _name(event: Tree) -> tuple[str, str]:
    obj = event["object"]
    if obj.get("kind") == "Table":
        return ("", str(obj["rows"][0]["cells"][0]))
    meta = obj.get("metadata") or {}
    return (meta.get("namespace", ""), meta.get("name", ""))


def _timeless(tree: Any) -> Any:
    """A tree without what depends on when commands ran: ages, and the order of entries."""
    if isinstance(tree, list):
        return [_timeless(one) for one in tree]
    if isinstance(tree, str):
        return "<age>" if AGE.fullmatch(tree) else tree
    if not isinstance(tree, dict):
        return tree
    made = {key: _timeless(one) for key, one in tree.items()}
    entries = made.get("managedFields")
    if isinstance(entries, list):
        made["managedFields"] = sorted(entries, key=_entry_name)
    return made


def _entry_name(entry: Tree) -> tuple[str, ...]:
    names = ("manager", "operation", "apiVersion", "subresource")
    return tuple(entry.get(name, "") for name in names)


def _sorted_at(tree: Any, steps: Sequence[str]) -> Any:
    """The tree with the list at a path sorted."""
    if not steps:
        return sorted(tree, key=json.dumps) if isinstance(tree, list) else tree
    if not isinstance(tree, dict) or steps[0] not in tree:
        return tree
    return {**tree, steps[0]: _sorted_at(tree[steps[0]], steps[1:])}


def _kept(findings: Iterator[Finding], unstable: list[str] | tuple[str, ...]) -> Iterator[Finding]:
    """The findings that are not at a place which differed between two recordings."""
    skipped = [path.removeprefix("response.body.") for path in unstable]
    for finding in findings:
        if not any(finding.where.startswith(path) for path in skipped):
            yield finding


def replayed(
    group: str, wanted: Callable[[Tree], bool] = lambda scenario: True
) -> Iterator[Replay]:
    """The scenarios of a group, repeated, each in a world of its own.

    The recorded ones shared a server, but cleared away what the next would meet, unrecorded.
    """
    for scenario in scenarios(group):
        if wanted(scenario):
            replay = Replay(scenario, prepared_cluster(scenario), START)
            replay.run()
            yield replay


def prepared_cluster(scenario: Tree) -> RestartableCluster:
    """A server with what the scenario found there."""
    cluster = RestartableCluster(scenario["server"], START)
    if scenario["group"] == "crd":
        _define(cluster, scenario["scenario"])
    return cluster


def _define(cluster: RestartableCluster, name: str) -> None:
    """The definitions that scenarios of custom objects found there, from the first one."""
    groups = {
        "custom-objects": ("scheduling.incubator.k8s.io", "scheduling.sigs.dev"),
        "crd-delete": ("scheduling.sigs.dev",),
    }.get(name, ())
    first = next(one for one in scenarios("crd") if one["scenario"] == "crd-lifecycle")
    for exchange in first["exchanges"]:
        made = exchange.get("response", {}).get("status") == 201
        body = exchange.get("request", {}).get("body")
        if made and body.get("spec", {}).get("group") in groups:
            resource = cluster.server.registry.by_kind("apiextensions.k8s.io", "v1", body["kind"])
            assert resource is not None
            cluster.server.create(resource, body, START)


def _is_index(body: Tree) -> bool:
    paths = body.get("paths")
    return isinstance(paths, dict) and "api/v1" in paths


def _hash_in(entry: Tree) -> str:
    return str(entry["serverRelativeURL"]).partition("hash=")[2]


@cache
def outcome(group: str) -> tuple[Replay, ...]:
    """All scenarios of a group, repeated once."""
    return tuple(replayed(group))
