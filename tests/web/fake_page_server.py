"""A server that speaks the page's data API (docs/page-api.md) for a generated cluster.

The page is tested with it: at any size, with any names, and with faults that a server of ours does
not have. Its state is random, and every test can read it.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from aiohttp import WSMsgType, web

import stowplan.web
from tests.web.fake_cluster import COLUMNS, FakeCluster, Tree

STATIC = Path(stowplan.web.__file__).parent / "static"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
TOPICS = {"status": 1, "nodes": 2, "pending": 3, "queues": 4, "decisions": 5, "replay": 6}
KINDS = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
TYPES = (("u8", np.uint8), ("u16", np.uint16), ("u32", np.uint32), ("i32", np.int32))


def encode(topic: str, data: Tree, arrays: dict[str, Any], *, update: bool, **head: Any) -> bytes:
    """A frame; head: epoch, sequence, time."""
    parts, listed = [], []
    for name, values in arrays.items():
        kind, array = _smallest(np.asarray(values))
        listed.append({"name": name, "type": kind, "length": len(array)})
        parts.append(_padded(array.tobytes()))
    tree = {**data, "arrays": listed} if listed else data
    text = json.dumps(tree).encode()
    start = struct.pack(
        "<BBBBIIIdII",
        1,
        TOPICS[topic],
        int(update),
        0,
        head["epoch"],
        head["sequence"],
        len(text),
        head["time"],
        len(listed),
        0,
    )
    return start + _padded(text) + b"".join(parts)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)


def _smallest(values: Any) -> tuple[str, Any]:
    if values.dtype.kind == "f":
        return "f64", values.astype("<f8")
    for name, kind in TYPES:
        limits = np.iinfo(kind)
        if not len(values) or (values.min() >= limits.min and values.max() <= limits.max):
            return name, values.astype(kind)
    return "f64", values.astype("<f8")


async def send(socket: web.WebSocketResponse, frame: bytes) -> None:
    """Send a frame unless the viewer is gone."""
    if not socket.closed:
        with suppress(ConnectionError):
            await socket.send_bytes(frame)


class FakePageServer:
    """The server. faults: names of what it does wrong on purpose."""

    def __init__(self, cluster: FakeCluster, hz: float = 10.0, source: str = "live") -> None:
        self.cluster, self.hz, self.source = cluster, hz, source
        self.replay: bytes = b""
        self.policy = POLICY
        self.head = ""
        self.faults: set[str] = set()
        self.epoch = 1
        self.sequences = dict.fromkeys(TOPICS, 0)
        self.viewers: dict[web.WebSocketResponse, set[str]] = {}
        self.sent_bytes: dict[str, int] = {}
        self.asked: list[str] = []
        self.complete = True
        self.is_paused = False

    def app(self) -> web.Application:
        """The aiohttp application."""
        app = web.Application()
        api = "/api/page/v1"
        cluster = self.cluster
        answers = {
            "/queues": lambda _: cluster.queues(),
            "/preemptions": lambda _: cluster.preemptions(),
            "/pending": lambda request: cluster.page(request.query),
            "/nodes/{name}": lambda request: cluster.node(request.match_info["name"]),
            "/pods/{ns}/{name}/why": lambda request: cluster.why(
                f"{request.match_info['ns']}/{request.match_info['name']}"
            ),
            "/decisions": lambda _: {"decisions": cluster.decisions[:40][::-1], "more": False},
            "/decisions/{id}": lambda request: cluster.decisions[int(request.match_info["id"])],
            "/experiments": lambda _: {
                "experiments": [
                    {
                        "folder": f"{cluster.hostile}fgd",
                        "runs": 40,
                        "done": 40,
                        "ended": True,
                        "verdicts": ["packing against default: waits of all kinds are longer " * 3],
                    }
                ]
            },
            "/cluster": lambda _: {
                "source": self.source,
                "epoch": self.epoch,
                "can": self.can(),
                "labels": ["pool"],
            },
            "/labels": lambda _: {
                "key": "pool",
                "values": cluster.pools,
                "index": cluster.pool.tolist(),
            },
        }
        for path, answer in answers.items():
            app.router.add_get(api + path, self._json(answer))
        app.router.add_post(api + "/what-if", self._what_if)
        app.router.add_get(api + "/live", self._live)
        app.router.add_get(api + "/replay", self._replay)
        app.router.add_get("/", self._page)
        app.router.add_get("/favicon.ico", self._icon)
        app.router.add_get("/static/{path:.+}", self._static)
        return app

    def can(self) -> dict[str, bool]:
        names = ("whatIf", "why", "queues", "decisions", "preemptions", "experiments")
        return dict.fromkeys(names, self.source == "live")

    def _answer(self, body: bytes, kind: str, **more: str) -> web.Response:
        headers = {"Content-Security-Policy": self.policy, "X-Content-Type-Options": "nosniff"}
        return web.Response(body=body, content_type=kind, headers={**headers, **more})

    def _json(self, answer: Any) -> Any:
        async def handle(request: web.Request) -> web.Response:
            self.asked.append(request.path)
            return self._answer(json.dumps(answer(request)).encode(), "application/json")

        return handle

    async def _what_if(self, request: web.Request) -> web.Response:
        self.asked.append(request.path)
        body = await request.json()
        answer = self.cluster.what_if()
        if body.get("workload"):
            answer = self.cluster.what_admits(body["workload"])
        elif any("queue" in change for change in body["changes"]):
            answer = self.cluster.other_quota()
        return self._answer(json.dumps(answer).encode(), "application/json")

    async def _page(self, _: web.Request) -> web.Response:
        text = (STATIC / "page.html").read_text().replace("</head>", f"{self.head}</head>")
        return self._compressed("/", text.encode(), "text/html")

    async def _static(self, request: web.Request) -> web.Response:
        file = STATIC / request.match_info["path"]
        if file.suffix not in KINDS or not file.is_file():
            raise web.HTTPNotFound
        return self._compressed(request.path, file.read_bytes(), KINDS[file.suffix])

    def _compressed(self, path: str, body: bytes, kind: str) -> web.Response:
        packed = gzip.compress(body)
        self.sent_bytes[path] = len(packed)
        return self._answer(packed, kind, **{"Content-Encoding": "gzip"})

    async def _icon(self, _: web.Request) -> web.Response:
        return web.Response(status=204)

    async def _replay(self, _: web.Request) -> web.Response:
        return self._answer(self.replay, "application/octet-stream")

    def frame(self, topic: str, *, update: bool, data: Tree, arrays: Any = None) -> bytes:
        head = {"epoch": self.epoch, "sequence": self.sequences[topic], "time": time.time() * 1000}
        return encode(topic, data, arrays or {}, update=update, **head)

    def snapshot(self, topic: str) -> bytes:
        """The state of a topic now."""
        cluster = self.cluster
        if topic == "nodes":
            data, arrays = cluster.node_snapshot()
            return self.frame(topic, update=False, data=data, arrays=arrays)
        if topic == "pending":
            rows = cluster.pending if self.complete else []
            data = {
                "columns": COLUMNS,
                "rows": rows,
                "reasons": cluster.reasons(),
                **self._pending(),
            }
        elif topic == "decisions":
            data = {"decisions": cluster.decisions[-200:]}
        else:
            data = cluster.status() if topic == "status" else cluster.queues()
        return self.frame(topic, update=False, data=data)

    def _pending(self) -> Tree:
        cluster = self.cluster
        gpus = sum(pod[11] for pod in cluster.pending)
        total = len(cluster.pending)
        groups = cluster.groups()
        return {"total": total, "complete": self.complete, "gpusWaiting": gpus, "groups": groups}

    async def _live(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        topics = set(request.query["topics"].split(","))
        for topic in topics:
            await send(socket, self.snapshot(topic))
        self.viewers[socket] = topics
        async for message in socket:
            if message.type != WSMsgType.TEXT:
                break
            asked = json.loads(message.data)
            self.asked.append(message.data)
            wanted = {asked["snapshot"]} if "snapshot" in asked else set(asked["topics"])
            new = wanted if "snapshot" in asked else wanted - self.viewers[socket]
            for topic in new:
                await send(socket, self.snapshot(topic))
            if "topics" in asked:
                self.viewers[socket] = wanted
        self.viewers.pop(socket, None)
        return socket

    def updates(self) -> dict[str, bytes]:
        """One tick: topic -> frame."""
        cluster = self.cluster
        rows, removed, added, new = cluster.tick()
        used = cluster.requested()
        arrays = {"rows": rows, **{f"requested:{name}": one[rows] for name, one in used.items()}}
        arrays["cardUsed"] = cluster.card_used
        for topic in TOPICS:
            self.sequences[topic] += 1
        if "gap" in self.faults:
            self.faults.remove("gap")
            return {}
        pods = {"rows": added, "removed": removed} if self.complete else {}
        return {
            "nodes": self.frame("nodes", update=True, data={}, arrays=arrays),
            "pending": self.frame("pending", update=True, data={**pods, **self._pending()}),
            "status": self.frame("status", update=False, data=cluster.status()),
            "queues": self.frame("queues", update=False, data=cluster.queues()),
            "decisions": self.frame("decisions", update=True, data={"decisions": new}),
        }

    async def serve(self, port: int, started: Any) -> None:
        """Until cancelled. started(port, loop) is called once."""
        runner = web.AppRunner(self.app(), shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        started(runner.addresses[0][1])
        try:
            while True:
                await asyncio.sleep(1 / self.hz)
                if self.is_paused or not self.viewers:
                    continue
                frames = self.updates()
                for socket, topics in list(self.viewers.items()):
                    for topic in topics & set(frames):
                        await send(socket, frames[topic])
        finally:
            await runner.cleanup()


@contextmanager
def served(server: FakePageServer, port: int = 0) -> Iterator[int]:
    """Runs the server in a thread; gives its port."""
    loop = asyncio.new_event_loop()
    ready = threading.Event()
    found: list[int] = []

    def started(number: int) -> None:
        found.append(number)
        ready.set()

    def run() -> None:
        task = loop.create_task(server.serve(port, started))
        stop.append(lambda: loop.call_soon_threadsafe(task.cancel))
        with suppress(asyncio.CancelledError):
            loop.run_until_complete(task)
        loop.close()

    stop: list[Any] = []
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(240), "the server did not start"
    try:
        yield found[0]
    finally:
        stop[0]()
        thread.join(10)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pending", type=int, default=2000)
    parser.add_argument("--hz", type=float, default=10.0)
    parser.add_argument("--port", type=int, default=8123)
    given = parser.parse_args()
    fake = FakePageServer(FakeCluster(given.nodes, given.pending), given.hz)
    asyncio.run(fake.serve(given.port, print))
