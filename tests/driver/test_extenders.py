"""Extenders over real HTTP: our client against recorded answers, our server against recorded
questions, and the two against each other."""

from __future__ import annotations

import asyncio
import gzip
import json
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from cryptography.x509 import ExtendedKeyUsage
from cryptography.x509.oid import ExtendedKeyUsageOID

from stowplan.assembly.extenders import extenders_of
from stowplan.client.kubeconfig import ClientConfig
from stowplan.config.model import Configuration
from stowplan.config.model import Extender as Configured
from stowplan.driver import certificate
from stowplan.driver.background_tasks import background_tasks
from stowplan.driver.client.extender_client import ExtenderClient
from stowplan.driver.http.extender_service import ExtenderService
from stowplan.driver.http.listen_address import AddressError, ListenAddress
from stowplan.driver.live.configuration_files import read_configuration_files
from stowplan.messages.effects import CallExtender
from stowplan.messages.events import ExtenderFailed, ExtenderReplied
from stowplan.messages.extender_api import (
    ExtenderArgs,
    ExtenderRequest,
    ExtenderResponse,
    ExtenderVerb,
    HTTPExtender,
    read_filter_result,
    read_preemption_result,
    read_priorities,
)
from stowplan.objects.encoding.go_json import GoDecodeError
from stowplan.testing import pod
from tests.driver.processes import kubeconfig
from tests.driver.small_api import SmallApi
from tests.driver.test_live import scheduler

DATA = Path(__file__).parent.parent / "contract" / "data" / "extender.jsonl.gz"

LOOPBACK = ListenAddress("127.0.0.1", 0)
CLIENTS_ONLY = ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
"""What a certificate is for; those that the project makes are for servers."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Tree = dict[str, Any]


def run(steps: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(steps, 300))


@asynccontextmanager
async def listening(handler: Handler) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def configured(url: str, **settings: Any) -> tuple[Configured, HTTPExtender]:
    one = Configured(url, "filter", "preempt", "prioritize", 1, "bind", **settings)
    (known,) = extenders_of(Configuration("test", {}, extenders=(one,)))
    return one, known


def effect(extender: HTTPExtender, timeout_s: float = 240.0) -> CallExtender:
    body = ExtenderArgs(pod("web"), node_names=("n1", "n2"))
    return CallExtender(
        7, 1, "uid", ExtenderRequest(extender, ExtenderVerb.FILTER, body), timeout_s
    )


async def asked(handler: Handler, timeout_s: float = 240.0, times: int = 1, **settings: Any) -> Any:
    async with listening(handler) as url:
        one, known = configured(url, **settings)
        calling = ExtenderClient([one])
        try:
            for _ in range(times):
                outcome = await calling.ask(effect(known, timeout_s))
        finally:
            await calling.stop()
        return outcome, url


# The caller.


def test_a_call_is_what_the_original_sends_and_connections_are_kept() -> None:
    seen: list[Tree] = []

    async def handler(request: web.Request) -> web.Response:
        assert request.transport is not None
        peer = request.transport.get_extra_info("peername")
        seen.append({"path": request.path, "peer": peer, "body": await request.json()})
        seen[-1] |= dict(request.headers)
        return web.json_response({"NodeNames": ["n1"]})

    async def steps() -> None:
        outcome, _ = await asked(handler, times=3)
        assert outcome == ExtenderReplied(7, "uid", 200, b'{"NodeNames": ["n1"]}')

    run(steps())
    assert [one["path"] for one in seen] == ["/filter"] * 3
    assert len({one["peer"] for one in seen}) == 1
    first = seen[0]
    assert first["Content-Type"] == "application/json"
    assert first["Accept-Encoding"] == "gzip"
    assert first["body"]["NodeNames"] == ["n1", "n2"]
    assert first["body"]["Nodes"] is None
    assert "Authorization" not in first


def test_url_credentials_are_sent_to_the_extender_only() -> None:
    seen: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization", ""))
        return web.Response(status=500)

    async def steps() -> None:
        async with listening(handler) as url:
            one, known = configured(url.replace("//", "//me:secret@"))
            calling = ExtenderClient([one])
            outcome = await calling.ask(effect(known))
            await calling.stop()
            assert isinstance(outcome, ExtenderReplied)
            fault = read_filter_result(
                effect(known).question, ExtenderResponse(outcome.code, outcome.body)
            )
            assert isinstance(fault, GoDecodeError)
            assert "secret" not in fault.text

    run(steps())
    assert seen == ["Basic bWU6c2VjcmV0"]


def test_failures_are_worded_like_the_original() -> None:
    async def slow(request: web.Request) -> web.Response:
        await asyncio.sleep(5)
        return web.Response()

    async def stalls(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Length": "100"})
        await answer.prepare(request)
        await answer.write(b"{")
        await asyncio.sleep(5)
        return answer

    async def hangs_up(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    async def steps() -> None:
        outcome, url = await asked(slow, 0.2)
        late = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
        assert outcome == ExtenderFailed(7, "uid", f'Post "{url}/filter": {late}')
        outcome, url = await asked(stalls, 0.2)
        assert outcome.reason == (
            "context deadline exceeded (Client.Timeout or context cancellation while reading body)"
        )
        outcome, url = await asked(hangs_up)
        assert outcome.reason == f'Post "{url}/filter": EOF'
        one, known = configured("http://127.0.0.1:1")
        calling = ExtenderClient([one])
        outcome = await calling.ask(effect(known))
        await calling.stop()
        refused = "dial tcp 127.0.0.1:1: connect: connection refused"
        assert outcome.reason == f'Post "http://127.0.0.1:1/filter": {refused}'

    run(steps())


# The server.


@cache
def questions() -> tuple[tuple[str, Tree], ...]:
    """(verb, body) of every call that was recorded."""
    found = []
    with gzip.open(DATA, "rt", encoding="utf-8") as lines:
        for line in lines:
            for exchange in json.loads(line).get("exchanges", ()):
                if exchange["from"] == "scheduler" and exchange["to"] != "apiserver":
                    request = exchange.get("request")
                    body = request and request.get("body")
                    if isinstance(body, dict) and "$text" not in body:
                        verb = request["path"].rstrip("/").rpartition("/")[2]
                        found.append((verb, body))
    return tuple(found)


def kind_of(body: Tree) -> str:
    if "PodName" in body:
        return "bind"
    return "preempt" if "NodeNameToVictims" in body else "filter"


@asynccontextmanager
async def service(
    connection: ClientConfig | None = None, address: ListenAddress = LOOPBACK, *, binds: bool = True
) -> AsyncIterator[str]:
    deciders, _ = read_configuration_files()
    one = ExtenderService(deciders, address, connection, binds=binds)
    async with background_tasks() as tasks:
        await one.start(tasks)
        try:
            yield f"{'https' if address.is_secure else 'http'}://127.0.0.1:{one.port}"
        finally:
            await one.stop()


JSON = {"Content-Type": "application/json"}


async def post(session: aiohttp.ClientSession, url: str, body: Any) -> tuple[int, Any]:
    async with session.post(url, data=json.dumps(body), headers=JSON) as response:
        text = await response.read()
        is_json = response.content_type == "application/json"
        return response.status, json.loads(text) if is_json else text


def readable(body: Tree) -> Tree:
    """A recorded question with times in place of symbols."""
    text = json.dumps(body)
    for symbol in ("<time>", "<time-micro>", "<time+30s>"):
        text = text.replace(symbol, "2026-11-21T10:00:00Z")
    tree: Tree = json.loads(text)
    return tree


def test_every_recorded_question_with_whole_nodes_gets_an_answer_that_the_caller_reads() -> None:
    async def steps() -> None:
        n_asked = 0
        async with service() as url, aiohttp.ClientSession() as session:
            for _, recorded in questions():
                body = readable(recorded)
                if kind_of(body) != "filter" or body["Nodes"] is None:
                    continue
                names = {node["metadata"]["name"] for node in body["Nodes"]["items"]}
                _, known = configured(url)
                question = ExtenderRequest(known, ExtenderVerb.FILTER, ExtenderArgs(pod("x")))
                code, answer = await post(session, f"{url}/filter", body)
                result = read_filter_result(
                    question, ExtenderResponse(code, json.dumps(answer).encode())
                )
                assert not isinstance(result, GoDecodeError), result
                kept = {node["metadata"]["name"] for node in result.nodes or ()}
                assert kept | result.failed.keys() | result.unresolvable.keys() == names
                items = {n["metadata"]["name"]: n for n in body["Nodes"]["items"]}
                assert all(items[n["metadata"]["name"]] == n for n in result.nodes or ())
                code, answer = await post(session, f"{url}/prioritize", body)
                scores = read_priorities(
                    question, ExtenderResponse(code, json.dumps(answer).encode())
                )
                assert not isinstance(scores, GoDecodeError)
                assert {one.host for one in scores} == names
                assert all(0 <= one.score <= 10 for one in scores)
                n_asked += 1
        assert n_asked == 13

    run(steps())


def test_every_recorded_question_about_names_gets_an_answer_that_the_caller_reads() -> None:
    async def steps() -> None:
        counts = {"filter": 0, "preempt": 0}
        async with SmallApi() as api:
            for name in sorted({name for _, body in questions() for name in named(body)}):
                api.node(name)
            connection = ClientConfig(api.url, "test")
            async with service(connection) as url, aiohttp.ClientSession() as session:
                _, known = configured(url)
                question = ExtenderRequest(known, ExtenderVerb.FILTER, ExtenderArgs(pod("x")))
                for _, recorded in questions():
                    body, kind = readable(recorded), kind_of(recorded)
                    names = named(body)
                    if not names:
                        continue
                    counts[kind] += 1
                    code, answer = await post(session, f"{url}/{kind}", body)
                    reply = ExtenderResponse(code, json.dumps(answer).encode())
                    if kind == "preempt":
                        found = read_preemption_result(question, reply)
                        assert not isinstance(found, GoDecodeError)
                        assert found.keys() <= names
                        continue
                    result = read_filter_result(question, reply)
                    assert not isinstance(result, GoDecodeError), result
                    kept = set(result.node_names or ())
                    assert kept | result.failed.keys() | result.unresolvable.keys() == names
        assert counts == {"filter": 184, "preempt": 30}

    run(steps())


def named(body: Tree) -> set[str]:
    victims = body.get("NodeNameToVictims") or body.get("NodeNameToMetaVictims") or {}
    return set(body.get("NodeNames") or ()) | set(victims)


def test_names_are_compared_by_the_cluster_with_its_running_pods() -> None:
    async def steps() -> None:
        async with SmallApi() as api:
            api.node("empty", cpu="2")
            api.node("full", cpu="2")
            api.node("tainted", cpu="2")
            tainted = api.objects["nodes", "", "tainted"]
            api.put("nodes", tainted | {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}})
            api.pod("there", cpu="1500m", nodeName="full")
            api.pod("new", cpu="1")
            asked_pod = api.objects["pods", "default", "new"]
            connection = ClientConfig(api.url, "test")
            async with service(connection) as url, aiohttp.ClientSession() as session:
                names = ["empty", "full", "tainted", "elsewhere"]
                body = {"Pod": asked_pod, "Nodes": None, "NodeNames": names}
                _, answer = await post(session, f"{url}/filter", body)
                assert answer["NodeNames"] == ["empty"]
                assert answer["FailedNodes"] == {
                    "full": "Insufficient cpu",
                    "elsewhere": "node is not known to the extender",
                }
                assert "untolerated taint" in answer["FailedAndUnresolvableNodes"]["tainted"]
                # What goes makes room.
                uid = api.objects["pods", "default", "there"]["metadata"]["uid"]
                victims = {name: {"Pods": [{"UID": uid}]} for name in ("full", "tainted")}
                body = {"Pod": asked_pod, "NodeNameToVictims": None}
                body["NodeNameToMetaVictims"] = victims
                code, answer = await post(session, f"{url}/preempt", body)
                _, known = configured(url)
                question = ExtenderRequest(known, ExtenderVerb.PREEMPT, ExtenderArgs(pod("x")))
                result = read_preemption_result(
                    question, ExtenderResponse(code, json.dumps(answer).encode())
                )
                assert not isinstance(result, GoDecodeError)
                assert {node: one.uids for node, one in result.items()} == {"full": (uid,)}
                # It binds, and counts what it has bound.
                target = {"PodName": "new", "PodNamespace": "default", "Node": "empty"}
                uid = asked_pod["metadata"]["uid"]
                _, answer = await post(session, f"{url}/bind", target | {"PodUID": uid})
                assert answer == {"Error": ""}
                assert api.binds == [("new", "empty")]
                api.pod("next", cpu="1500m")
                later = api.objects["pods", "default", "next"]
                body = {"Pod": later, "Nodes": None, "NodeNames": ["empty"]}
                _, answer = await post(session, f"{url}/filter", body)
                assert answer["FailedNodes"] == {"empty": "Insufficient cpu"}
                _, answer = await post(session, f"{url}/bind", target | {"PodUID": "other"})
                assert "already assigned" in answer["Error"]

    run(steps())


@pytest.mark.parametrize(
    ("verb", "body", "text"),
    [
        ("filter", {}, "Pod: Required value"),
        ("filter", [], "Invalid value: list: expected Pod in an object"),
        ("filter", {"Pod": {}}, "Required value: NodeNames or Nodes"),
        ("filter", {"Pod": {"spec": 3}, "NodeNames": []}, "Pod: $.spec"),
        ("filter", {"Pod": {}, "NodeNames": [3]}, "NodeNames: Invalid value"),
        ("filter", {"Pod": {}, "NodeNames": ["n"]}, "NodeNames: needs whole nodes"),
        ("bind", {"PodName": "x"}, "needs a cluster to bind in"),
    ],
)
def test_invalid_extender_args_are_reported(verb: str, body: Any, text: str) -> None:
    async def steps() -> None:
        async with service() as url, aiohttp.ClientSession() as session:
            code, answer = await post(session, f"{url}/{verb}", body)
            assert code == 200
            assert text in answer["Error"]
            code, _ = await post(session, f"{url}/nonsense", body)
            assert code == 404

    run(steps())


@pytest.mark.parametrize("verb", ["filter", "prioritize"])
@pytest.mark.parametrize("amount", ["x", "9" * 5000, "NaN", "-1", "1" * 30, "1e99", "1e1000000"])
def test_invalid_quantities_are_the_callers_error(verb: str, amount: str) -> None:
    requests = {"containers": [{"name": "c", "resources": {"requests": {"cpu": amount}}}]}
    strange = {"metadata": {"name": "a", "uid": "u"}, "spec": requests}
    node = {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": amount, "pods": "9"}}}
    plain = {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "1", "pods": "9"}}}

    async def steps() -> None:
        async with service() as url, aiohttp.ClientSession() as session:
            for pod, item in ((strange, plain), ({"metadata": {"name": "a"}}, node)):
                body = {"Pod": pod, "Nodes": {"items": [item]}}
                code, answer = await post(session, f"{url}/{verb}", body)
                assert code in (200, 400)
                if amount in ("x", "9" * 5000, "NaN"):
                    assert code == 400
                    assert answer.startswith(f"{verb}: cannot be evaluated: ".encode())
                    assert len(answer) < 500

    run(steps())


@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff", b"[" * 100_000, b'{"Pod":' * 100_000 + b"1" + b"}" * 100_000]
)
def test_bodies_that_cannot_be_read(body: bytes) -> None:
    async def steps() -> None:
        async with service() as url, aiohttp.ClientSession() as session:
            for verb in ("filter", "bind"):
                async with session.post(f"{url}/{verb}", data=body, headers=JSON) as response:
                    assert response.status == 400
                    assert (await response.text()).startswith(f"{verb}: invalid JSON: ")

    run(steps())


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"Content-Type": "application/json"}, 200),
        ({"Content-Type": "application/json; charset=utf-8"}, 200),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({**JSON, "Host": "evil.example"}, 403),
        ({**JSON, "Host": "localhost:1"}, 200),
        ({**JSON, "Host": "[::1]"}, 200),
        ({**JSON, "Origin": "http://evil.example"}, 403),
        ({**JSON, "Origin": "null"}, 403),
        ({**JSON, "Origin": "http://127.0.0.1.evil.example"}, 403),
        ({**JSON, "Origin": "http://localhost:8080"}, 200),
    ],
)
def test_no_page_of_a_browser_has_pods_bound(headers: dict[str, str], code: int) -> None:
    async def steps() -> None:
        async with SmallApi() as api, aiohttp.ClientSession() as session:
            api.node("n")
            api.pod("p")
            uid = api.objects["pods", "default", "p"]["metadata"]["uid"]
            target = {"PodName": "p", "PodNamespace": "default", "Node": "n", "PodUID": uid}
            async with service(ClientConfig(api.url, "test")) as url:
                body = json.dumps(target)
                async with session.post(f"{url}/bind", data=body, headers=headers) as response:
                    assert response.status == code
            assert bool(api.binds) == (code == 200)

    run(steps())


def test_binding_is_refused_for_unauthenticated_callers() -> None:
    async def steps() -> None:
        async with SmallApi() as api, aiohttp.ClientSession() as session:
            api.node("n")
            api.pod("p")
            uid = api.objects["pods", "default", "p"]["metadata"]["uid"]
            target = {"PodName": "p", "PodNamespace": "default", "Node": "n", "PodUID": uid}
            connection = ClientConfig(api.url, "test")
            async with service(connection, binds=False) as url:
                _, answer = await post(session, f"{url}/bind", target)
                assert "refused for callers without a client certificate" in answer["Error"]
                assert api.binds == []
            async with service(connection) as url:
                _, answer = await post(session, f"{url}/bind", target)
                assert answer == {"Error": ""}
                assert api.binds == [("p", "n")]

    run(steps())


def test_elsewhere_than_on_loopback_callers_need_a_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deciders, _ = read_configuration_files()
    with pytest.raises(AddressError, match="--client-ca-file is required"):
        ExtenderService(deciders, ListenAddress("0.0.0.0", 0))
    monkeypatch.setattr(certificate, "_SERVER_ONLY", CLIENTS_ONLY)
    known, stranger = (client_of(tmp_path / name) for name in ("known", "stranger"))
    monkeypatch.undo()

    async def steps() -> None:
        address = ListenAddress("0.0.0.0", 0, client_ca=str(tmp_path / "known"))
        async with SmallApi() as api:
            api.node("n")
            api.pod("p")
            meta = api.objects["pods", "default", "p"]["metadata"]
            target = {"PodName": "p", "PodNamespace": "default", "Node": "n", "PodUID": meta["uid"]}
            async with service(ClientConfig(api.url, "test"), address, binds=False) as url:
                for context in (stranger, client_of(None)):
                    with pytest.raises(aiohttp.ClientError):
                        await post_as(context, f"{url}/bind", target)
                assert api.binds == []
                _, answer = await post_as(known, f"{url}/bind", target)
                assert answer == {"Error": ""}
                assert api.binds == [("p", "n")]

    run(steps())


async def post_as(context: ssl.SSLContext, url: str, body: Any) -> tuple[int, Any]:
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(connector=connector) as session:
        return await post(session, url, body)


def client_of(file: Path | None) -> ssl.SSLContext:
    """Trusts any server; shows a new certificate of its own, which is written into the file."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if file is not None:
        own = certificate.self_signed_certificate(["client"], time.time())
        file.write_text(own.certificate + own.key)
        context.load_cert_chain(file)
    return context


def test_it_can_be_ended_while_the_cluster_does_not_answer(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "stowplan", "extender", "--listen", "127.0.0.1:0"),
            *("--kubeconfig", kubeconfig(tmp_path / "k", "http://127.0.0.1:1")),
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        assert "Unable to connect to the API server" in process.stderr.readline()
        process.terminate()
        _, err = process.communicate(timeout=240)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0
    assert "Traceback" not in err


def test_timeouts_of_a_configuration_reach_the_caller() -> None:
    _, known = configured("http://x", http_timeout=timedelta(seconds=3))
    assert known.timeout_s == 3


def test_a_scheduler_shows_its_extender_all_that_the_server_knows_of_nodes_and_pods(
    tmp_path: Path,
) -> None:
    seen: list[Tree] = []

    async def handler(request: web.Request) -> web.Response:
        body = await request.json()
        seen.append(body)
        kept = [node for node in body["Nodes"]["items"] if node["metadata"]["name"] == "b"]
        return web.json_response({"Nodes": {"items": kept}, "FailedNodes": {"a": "no"}})

    async def steps() -> None:
        async with listening(handler) as url, SmallApi() as api:
            config = tmp_path / "c.json"
            head = {"apiVersion": "kubescheduler.config.k8s.io/v1"}
            head |= {"kind": "KubeSchedulerConfiguration"}
            profiles = [{"schedulerName": "stowplan"}]
            extender = {"urlPrefix": url, "filterVerb": "filter", "httpTimeout": "3s"}
            tree = head | {"profiles": profiles, "extenders": [extender]}
            config.write_text(json.dumps(tree))
            found, _ = read_configuration_files([str(config)])
            for name in ("a", "b"):
                api.node(name)
                node = api.objects["nodes", "", name]
                info = {"machineID": f"id-of-{name}"}
                api.put("nodes", node | {"status": node["status"] | {"nodeInfo": info}})
            api.pod("web", terminationGracePeriodSeconds=7)
            async with scheduler(api, decider=found):
                await api.until(lambda: api.placed() == {"web": "b"})

    run(steps())
    (body,) = seen
    assert body["Pod"]["spec"]["terminationGracePeriodSeconds"] == 7
    ids = {node["status"]["nodeInfo"]["machineID"] for node in body["Nodes"]["items"]}
    assert ids == {"id-of-a", "id-of-b"}
