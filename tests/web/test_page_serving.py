"""The page's server: security, files, a live scheduler, a finished simulation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from stowplan.client.kubeconfig import ClientConfig
from stowplan.driver.http.listen_address import AddressError, ListenAddress
from stowplan.driver.live.scheduler_server import SchedulerServer
from stowplan.inputs.generated_workload import generate_workload
from stowplan.simulation.replay import ReplayOptions
from stowplan.simulation.scheduler_configuration import read_deciders
from stowplan.simulation.simulate import simulate
from stowplan.web.model.page_frames import Topic
from stowplan.web.serving.live_source import LiveSource
from stowplan.web.serving.page_access import HEADERS, PageAccess
from stowplan.web.serving.page_server import PageServer, parse_web_address
from stowplan.web.serving.simulation_source import SimulationSource
from tests.driver.small_api import SmallApi
from tests.driver.test_live import scheduler
from tests.web.frame_client import FrameClient, decode_frame

API = "/api/page/v1"
LOOPBACK = ListenAddress("127.0.0.1", 0)


def run(steps: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(steps, 300))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "page.html").write_text("<!DOCTYPE html><title>Page</title>" + " " * 3000)
    (tmp_path / "page").mkdir()
    (tmp_path / "page" / "main.js").write_text("export const one = 1;\n")
    (tmp_path / "notes.txt").write_text("not served")
    return tmp_path


@asynccontextmanager
async def page(
    folder: Path, address: ListenAddress = LOOPBACK
) -> AsyncIterator[tuple[PageServer, aiohttp.ClientSession]]:
    server = PageServer(address, folder)
    server.start()
    jar = aiohttp.CookieJar(unsafe=True)
    connector = aiohttp.TCPConnector(ssl=False)
    try:
        async with aiohttp.ClientSession(cookie_jar=jar, connector=connector) as session:
            yield server, session
    finally:
        await asyncio.to_thread(server.stop)


async def got(session: aiohttp.ClientSession, url: str, **headers: str) -> tuple[int, Any]:
    async with session.get(url, headers=headers) as response:
        assert HEADERS.items() <= dict(response.headers).items()
        is_json = response.content_type == "application/json"
        return response.status, await (response.json() if is_json else response.read())


def test_another_host_or_origin_is_refused_everywhere(folder: Path) -> None:
    async def steps() -> None:
        async with page(folder) as (server, session):
            url, port = server.url, server.port
            assert url == f"http://127.0.0.1:{port}"
            for path in ("/", "/static/page/main.js", f"{API}/cluster", f"{API}/live", "/nope"):
                for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", ""):
                    assert (await got(session, url + path, Host=host))[0] == 403
                for origin in ("http://evil.example", "null", f"http://127.0.0.1:{port + 1}",
                               f"https://127.0.0.1:{port}"):  # fmt: skip
                    assert (await got(session, url + path, Origin=origin))[0] == 403
            assert (await got(session, url, Host=f"localhost:{port}"))[0] == 200
            assert (await got(session, url, Origin=url))[0] == 200
            for path in (f"{API}/what-if", f"{API}/login"):
                async with session.post(url + path, json={}) as response:
                    assert response.status == 403
            with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
                await session.ws_connect(f"{url}{API}/live", origin="http://evil.example")

    run(steps())


def test_without_the_check_a_foreign_page_would_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: a server that looks neither at Host nor at Origin."""
    monkeypatch.setattr(PageAccess, "foreign", lambda *_: "")

    async def steps() -> None:
        async with page(folder) as (server, session):
            assert (await got(session, server.url, Host="evil.example"))[0] == 200
            assert (await got(session, server.url, Origin="http://evil.example"))[0] == 200

    run(steps())


def test_without_the_review_any_client_would_read_elsewhere_than_on_loopback(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: a token that is missing counts as one that was reviewed."""

    async def review(access: PageAccess, token: str, path: str, verb: str = "get") -> int:
        return 0 if not token else 401

    monkeypatch.setattr(PageAccess, "review", review)

    async def steps() -> None:
        async with page(folder, ListenAddress("0.0.0.0", 0)) as (server, session):
            path = f"{server.url}{API}/cluster"
            assert (await got(session, path))[0] == 503
            assert (await got(session, path, Authorization="Bearer stranger"))[0] == 401

    run(steps())


def test_files_are_compressed_known_and_only_those_of_the_folder(folder: Path) -> None:
    async def steps() -> None:
        async with page(folder) as (server, session):
            url = server.url
            async with session.get(url) as response:
                assert response.status == 200
                assert response.headers["Content-Encoding"] == "gzip"
                assert response.content_type == "text/html"
                etag = response.headers["ETag"]
                assert b"<title>Page</title>" in await response.read()
            assert (await got(session, url, **{"If-None-Match": etag}))[0] == 304
            status, body = await got(session, f"{url}/static/page/main.js")
            assert (status, body) == (200, b"export const one = 1;\n")
            for path in ("notes.txt", "page", "../page.html", "%2e%2e/page.html", "nope.js"):
                assert (await got(session, f"{url}/static/{path}"))[0] == 404

    run(steps())


def test_before_there_is_a_scheduler_requests_are_answered(folder: Path) -> None:
    async def steps() -> None:
        async with page(folder) as (server, session):
            status, tree = await got(session, f"{server.url}{API}/cluster")
            assert (status, tree["error"]) == (503, "the scheduler has not started yet")
            assert await got(session, f"{server.url}{API}/experiments") == (
                200,
                {"experiments": []},
            )
            for query in ("topics=nope", "topics=status,nope"):
                async with session.ws_connect(f"{server.url}{API}/live?{query}") as socket:
                    await socket.receive()
                    assert socket.close_code == 4400
            async with session.ws_connect(f"{server.url}{API}/live?topics=status") as socket:
                await socket.send_str('{"topcis": []}')
                await socket.receive()
                assert socket.close_code == 4400

    run(steps())


def test_elsewhere_than_on_loopback_readers_must_be_known_and_allowed(folder: Path) -> None:
    verbs: set[tuple[str, str]] = set()

    async def reviews(request: web.Request) -> web.Response | None:
        spec = (await request.json())["spec"]
        if request.path.endswith("/tokenreviews"):
            user = {"username": spec["token"]}
            status = {"authenticated": spec["token"] != "stranger", "user": user}
        else:
            attributes = spec["nonResourceAttributes"]
            verbs.add((attributes["verb"], attributes["path"]))
            status = {"allowed": spec["user"] == "reader"}
        return web.json_response({"status": status}, status=201)

    async def steps() -> None:
        async with (
            SmallApi() as api,
            page(folder, ListenAddress("0.0.0.0", 0)) as (server, session),
        ):
            api.fault = reviews
            url = server.url
            assert url.startswith("https://127.0.0.1:")
            # Without an API server nobody is known.
            assert (await got(session, f"{url}{API}/cluster", Authorization="Bearer reader"))[
                0
            ] == 401
            result = simulate(generate_workload(3, 10, 0), replay=ReplayOptions())
            source = SimulationSource(result, read_deciders(None), 1)
            server.use(source, ClientConfig(api.url, "test"))
            for path in ("cluster", "pending", "replay", "live", "nodes/x"):
                assert (await got(session, f"{url}{API}/{path}"))[0] == 401
            for token, code in (("stranger", 401), ("other", 403), ("reader", 200)):
                found = await got(session, f"{url}{API}/cluster", Authorization=f"Bearer {token}")
                assert found[0] == code
            for path in ("/", "/static/page/main.js", "/favicon.ico"):
                assert (await got(session, url + path))[0] in (200, 204)
            assert await login(session, url, "stranger") == (401, "")
            assert await login(session, url, "other") == (403, "")
            code, cookie = await login(session, url, "reader")
            assert code == 204
            for part in ("HttpOnly", "SameSite=Strict", "Secure", "Path=/"):
                assert part in cookie
            assert (await got(session, f"{url}{API}/cluster"))[0] == 200
            async with session.ws_connect(f"{url}{API}/live?topics=status", origin=url) as socket:
                assert decode_frame((await socket.receive()).data)[0].topic is Topic.STATUS
            assert (await got(session, f"{url}{API}/cluster", Origin="https://evil.example"))[
                0
            ] == 403
            async with session.post(f"{url}{API}/what-if", json={}, headers={"Origin": url}) as one:
                assert one.status == 400
            async with session.post(f"{url}{API}/logout", headers={"Origin": url}) as one:
                assert one.status == 204
            assert (await got(session, f"{url}{API}/cluster"))[0] == 401

    run(steps())
    assert ("create", f"{API}/what-if") in verbs
    assert ("get", f"{API}/live") in verbs


async def login(session: aiohttp.ClientSession, url: str, token: str) -> tuple[int, str]:
    headers = {"Origin": url}
    async with session.post(f"{url}{API}/login", json={"token": token}, headers=headers) as one:
        return one.status, one.headers.get("Set-Cookie", "")


@asynccontextmanager
async def looked_at(
    folder: Path, api: SmallApi
) -> AsyncIterator[tuple[PageServer, LiveSource, aiohttp.ClientSession, SchedulerServer]]:
    """A live scheduler with its page."""
    async with page(folder) as (server, session), scheduler(api) as live:
        server.attach(live)
        await api.until(lambda: live.is_synced and server.viewers.source is not None)
        source = server.viewers.source
        assert isinstance(source, LiveSource)
        yield server, source, session, live


def test_what_a_viewer_has_is_what_the_cluster_has(folder: Path) -> None:
    async def steps() -> None:
        async with SmallApi() as api:
            for number in range(4):
                api.node(f"n{number}")
            api.pod("big", cpu="100")
            async with (
                looked_at(folder, api) as (server, _, session, _),
                session.ws_connect(
                    f"{server.url}{API}/live?topics=status,nodes,pending,decisions,queues"
                ) as socket,
            ):
                client = FrameClient()
                for number in range(20):
                    api.pod(f"p{number}")

                def is_there() -> bool:
                    nodes, pending = client.state.get(Topic.NODES), client.state.get(Topic.PENDING)
                    return (
                        nodes is not None
                        and sum(nodes.get("requested:pods", ())) == 20
                        and pending is not None
                        and pending["total"] == 1
                        and bool(pending["rows"])
                        and next(iter(pending["rows"].values()))[8] is not None
                        and pending["reasons"] != []
                        and Topic.QUEUES in client.state
                        and len(client.state[Topic.DECISIONS]["decisions"]) >= 21
                        and client.state[Topic.STATUS]["bound"] == 20
                    )

                while not is_there():
                    client.take((await socket.receive()).data)
                assert client.gaps == set()
                nodes = client.state[Topic.NODES]
                placed = list(api.placed().values())
                for row, name in enumerate(nodes["names"]):
                    assert nodes["requested:pods"][row] == placed.count(name)
                    assert nodes["requested:cpu"][row] == 100 * placed.count(name)
                    tree = (await got(session, f"{server.url}{API}/nodes/{name}"))[1]
                    amounts = {one["name"]: one for one in tree["resources"]}
                    assert amounts["cpu"]["requested"] == 100 * placed.count(name)
                    assert len(tree["pods"]) == placed.count(name)
                outcomes = {
                    one["pod"]: one["outcome"] for one in client.state[Topic.DECISIONS]["decisions"]
                }
                assert outcomes["default/p3"] == "bound"
                assert outcomes["default/big"] == "unschedulable"

    run(steps())


def test_why_names_need_have_and_a_change(folder: Path) -> None:
    async def steps() -> None:
        async with SmallApi() as api:
            for number in range(3):
                api.node(f"n{number}")
            api.pod("big", cpu="100")
            api.pod("small")
            async with looked_at(folder, api) as (server, _, session, live):
                await api.until(lambda: bool(api.placed()["small"]))
                await api.until(lambda: live.metrics_recorder.n_refused > 0)
                base = f"{server.url}{API}"
                status, why = await got(session, f"{base}/pods/default/big/why")
                assert status == 200
                (rule,) = why["rules"]
                assert (rule["rule"], rule["reason"]) == ("NodeResourcesFit", "Insufficient cpu")
                assert (rule["nodes"], rule["need"]) == (3, "100")
                assert rule["have"] == {"least": "3900m", "most": "4"}
                assert why["changes"][0]["text"]
                assert why["attempts"][-1]["outcome"] == "unschedulable"
                # A bound pod is explained as if it were not there, and stays there.
                for _ in range(2):
                    small = (await got(session, f"{base}/pods/default/small/why"))[1]
                    assert (small["state"], small["fitting"]) == ("placed", 3)
                    assert len(small["scores"]) == 3
                node = (await got(session, f"{base}/nodes/n0?pod=default/big"))[1]
                assert node["selected"]["refusals"][0]["rule"] == "NodeResourcesFit"
                for path, code in (
                    ("pods/default/nope/why", 404),
                    ("nodes/nope", 404),
                    ("decisions/99999", 404),
                    ("decisions?outcome=x", 400),
                    ("pending?limit=x", 400),
                    ("labels", 400),
                    ("queues?since=x", 400),
                    ("replay", 404),
                ):
                    found = await got(session, f"{base}/{path}")
                    assert (found[0], bool(found[1]["error"])) == (code, True), path

    run(steps())


def test_what_if_is_answered_and_nothing_is_written(folder: Path) -> None:
    async def steps() -> None:
        async with SmallApi() as api:
            for number in range(2):
                api.node(f"n{number}", pods="5")
            for number in range(8):
                api.pod(f"p{number}")
            async with looked_at(folder, api) as (server, _, session, _):
                await api.until(lambda: all(api.placed().values()))
                await api.until(
                    lambda: sum("/events" in path for _, path, _ in api.writes) >= len(api.placed())
                )
                n_writes, objects = len(api.writes), dict(api.objects)
                url, headers = f"{server.url}{API}/what-if", {"Origin": server.url}
                manifest = (
                    '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "new"}, "spec": '
                    '{"schedulerName": "stowplan", "containers": [{"name": "c", "image": "i"}]}}'
                )
                for asked in (
                    {"changes": [{"remove-node": "n0"}]},
                    {"changes": [{"cordon": "n0"}], "pod": manifest},
                ):
                    async with session.post(url, json=asked, headers=headers) as one:
                        tree = await one.json()
                        assert one.status == 200, tree
                        assert tree["pods"]
                for asked, text in (
                    ({}, "Required"),
                    ({"changes": [{"cordon": "nope"}]}, "not found"),
                    ({"changes": [{"plugin": "/etc/passwd"}]}, "not possible"),
                    ({"changes": [{"submit": "/etc/passwd"}]}, "not possible"),
                    ({"changes": "x"}, "expected a list"),
                    ({"chnages": []}, "unknown field"),
                    ({"pod": "kind: Node"}, ""),
                ):
                    async with session.post(url, json=asked, headers=headers) as one:
                        assert one.status == 400
                        assert text in (await one.json())["error"]
                assert (len(api.writes), api.objects) == (n_writes, objects)

    run(steps())


def test_a_what_if_that_writes_would_be_seen(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the node that a question removes is cordoned on the server."""

    async def steps() -> None:
        async with SmallApi() as api:
            api.node("n0")
            async with looked_at(folder, api) as (server, source, session, _):
                answered = source.what_if

                async def written(asked: dict[str, Any]) -> dict[str, Any]:
                    # The source has a loop of its own.
                    change = {"spec": {"unschedulable": True}}
                    path = f"{api.url}/api/v1/nodes/n0"
                    async with (
                        aiohttp.ClientSession() as own,
                        own.patch(path, json=change) as one,
                    ):
                        await one.read()
                    return await answered(asked)

                monkeypatch.setattr(source, "what_if", written)
                n_writes = len(api.writes)
                url, headers = f"{server.url}{API}/what-if", {"Origin": server.url}
                asked = {"changes": [{"remove-node": "n0"}]}
                async with session.post(url, json=asked, headers=headers) as one:
                    assert one.status == 200
                assert len(api.writes) > n_writes

    run(steps())


def test_without_viewers_the_scheduler_makes_no_copies(folder: Path) -> None:
    async def steps() -> None:
        async with SmallApi() as api:
            api.node("n0")
            async with looked_at(folder, api) as (server, source, session, _):
                for number in range(20):
                    api.pod(f"p{number}")
                await api.until(lambda: all(api.placed().values()))
                await asyncio.sleep(0.3)
                assert source.n_copies == 0
                assert source.samples.n_taken == 0
                url = f"{server.url}{API}/live?topics=status,nodes,decisions"
                async with session.ws_connect(url) as socket:
                    await socket.receive()
                    for number in range(20, 40):
                        api.pod(f"p{number}")
                    await api.until(lambda: all(api.placed().values()))
                assert source.n_copies > 0
                await api.until(lambda: len(server.viewers) == 0)
                # One may be under way yet.
                for _ in range(20):
                    n_copies = source.n_copies
                    await asyncio.sleep(0.4)
                    if source.n_copies == n_copies:
                        break
                assert source.n_copies == n_copies

    run(steps())


def test_scores_are_those_of_the_moment_of_the_decision(folder: Path) -> None:
    async def steps() -> None:
        async with SmallApi() as api:
            for number in range(5):
                api.node(f"n{number}")
            async with looked_at(folder, api) as (server, source, session, _):
                url = f"{server.url}{API}/live?topics=decisions"
                async with session.ws_connect(url) as socket:
                    await socket.receive()
                    number = 0
                    while source.samples.n_taken < 2:
                        api.pod(f"p{number}")
                        number += 1
                        await api.until(lambda: all(api.placed().values()))
                        await asyncio.sleep(0.05)
                path = f"{server.url}{API}/decisions?outcome=bound"
                found = (await got(session, path))[1]["decisions"]
                sampled = [one for one in found if one["scores"]]
                assert len(sampled) >= 2
                for one in sampled:
                    assert one["scores"][0]["name"] == one["node"]
                    assert len(one["scores"]) == 3
                    assert (one["feasible"], one["evaluated"]) == (5, 5)
                without = next(one for one in found if not one["scores"])
                later = (await got(session, f"{server.url}{API}/decisions/{without['id']}"))[1]
                assert (later["asOf"], len(later["scores"])) == ("now", 5)

    run(steps())


def test_another_scheduler_begins_another_epoch(folder: Path) -> None:
    async def steps() -> None:
        async with SmallApi() as api:
            api.node("n0")
            async with looked_at(folder, api) as (server, _, session, _):
                client = FrameClient()
                url = f"{server.url}{API}/live?topics=nodes"
                async with session.ws_connect(url) as socket:
                    client.take((await socket.receive()).data)
                    before = client.sequence[Topic.NODES][0]
                    api.node("n1")
                    async with scheduler(api) as other:
                        await api.until(lambda: other.is_synced)
                        server.attach(other)
                        while (
                            client.sequence[Topic.NODES][0] == before
                            or len(client.state[Topic.NODES]["names"]) < 2
                        ):
                            client.take((await socket.receive()).data)
                        assert client.gaps == set()

    run(steps())


def test_a_simulation_as_it_ended_with_its_intervals(folder: Path) -> None:
    result = simulate(generate_workload(10, 80, 3), replay=ReplayOptions(until_s=40_000))

    async def steps() -> None:
        async with page(folder) as (server, session):
            server.use(SimulationSource(result, read_deciders(None), 5))
            async with session.get(f"{server.url}{API}/replay") as response:
                assert response.headers["Content-Encoding"] in ("gzip", "deflate")
                _, body = decode_frame(await response.read())
            arrays = {name: values.tolist() for name, values in body.arrays.items()}
            names = body.tree["names"]
            assert len(body.tree["pods"]) == len(result.placements)
            ends = body.tree["end"] / 1000
            # At any time, as a recount of the placements.
            for part in (0.1, 0.35, 0.5, 0.9, 1.0):
                at = ends * part
                observed: dict[str, int] = {}
                for pod, row in enumerate(arrays["node"]):
                    if row >= 0 and arrays["bound"][pod] <= at < arrays["ended"][pod]:
                        observed[names[row]] = observed.get(names[row], 0) + 1
                counted: dict[str, int] = {}
                for one in result.placements:
                    bound, ended = one.bound_s, one.ended_s  # type: ignore[attr-defined]
                    if one.node and bound <= at and (ended is None or at < ended):
                        counted[one.node] = counted.get(one.node, 0) + 1
                assert observed == counted
                assert part < 0.3 or observed
            url = f"{server.url}{API}/live?topics=status,nodes,pending,decisions,queues"
            client = FrameClient()
            async with session.ws_connect(url) as socket:
                while len(client.state) < 5:
                    client.take((await socket.receive()).data)
            nodes = client.state[Topic.NODES]
            on_nodes = dict(zip(nodes["names"], nodes["requested:pods"], strict=True))
            assert {name: n for name, n in on_nodes.items() if n} == observed
            status, cluster = await got(session, f"{server.url}{API}/cluster")
            assert (status, cluster["source"], cluster["can"]["replay"]) == (
                200,
                "simulation",
                True,
            )
            placed = next(one for one in result.placements if one.node)
            assert (await got(session, f"{server.url}{API}/pods/{placed.pod}/why"))[0] == 200

    run(steps())


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("", "127.0.0.1", 0), ("0.0.0.0:80", "0.0.0.0", 80), ("[::1]:0", "::1", 0)],
)
def test_addresses(text: str, host: str, port: int) -> None:
    assert parse_web_address(text) == ListenAddress(host, port)


@pytest.mark.parametrize("text", ["80", "cluster.yaml", "localhost", "a:b", ":80", "h:70000"])
def test_invalid_addresses(text: str) -> None:
    with pytest.raises(AddressError, match="--web: Invalid value"):
        parse_web_address(text)


def test_an_address_in_use_is_an_error(folder: Path) -> None:
    first = PageServer(LOOPBACK, folder)
    first.start()
    try:
        with pytest.raises(AddressError, match="--web: unable to listen on"):
            PageServer(ListenAddress("127.0.0.1", first.port), folder).start()
    finally:
        first.stop()
