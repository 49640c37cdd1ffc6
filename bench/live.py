"""Benchmarks of the embedded API server over HTTP: `make bench-live`.

The server runs in its own process, the clients in this one, so that they share the machine. Each
line prints the target and the result.
"""

import argparse
import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple, cast

CONNECTIONS = 16
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
CONTENT_LENGTH = re.compile(rb"(?i)content-length: (\d+)")
Call = tuple[bytes, str, bytes]
"""Method, path and body of a request."""
PODS = "/api/v1/namespaces/default/pods"


class Figure(NamedTuple):
    what: str
    aim: str
    got: str
    reached: bool


class Server:
    """A running `stowplan up`."""

    def __init__(self, process: subprocess.Popen[str], port: int, token: str) -> None:
        self.process, self.port, self.token = process, port, token

    def cpu_s(self) -> float:
        """CPU time used so far, in seconds."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S

    def memory_mb(self, line: str = "VmRSS") -> float:
        """Memory in MB (10^6 bytes)."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(rf"{line}:\s+(\d+) kB", status)[1]) * 1024 / 1e6  # type: ignore[index]


@asynccontextmanager
async def up(directory: Path, *arguments: str) -> AsyncIterator[Server]:
    """A new cluster, stopped at the end."""
    config = directory / "kubeconfig"
    command = [sys.executable, "-m", "stowplan", "up", "--no-scheduler", "--port", "0"]
    command += ["--kubeconfig", str(config), *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("kubectl "):
                break
        content = json.loads(config.read_text())
        port = int(content["clusters"][0]["cluster"]["server"].rsplit(":", 1)[1])
        yield Server(process, port, content["users"][0]["user"]["token"])
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)
        assert process.stdout is not None
        process.stdout.close()


def head_of(server: Server, media: str = "application/json") -> bytes:
    """Headers of every request. media: of bodies."""
    text = (
        f"Host: x\r\nAuthorization: Bearer {server.token}\r\nAccept: application/json\r\n"
        f"Content-Type: {media}\r\n"
    )
    return text.encode()


class Connection(asyncio.Protocol):
    """A kept-alive connection with sequential requests; every status must be 2xx.

    Minimal, since the client shares the machine with the server.
    """

    def __init__(self, head: bytes, calls: Iterator[Call]) -> None:
        self.head, self.calls = head, calls
        self.done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.count = 0
        self.got = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(exc or ConnectionResetError("closed before the answer"))

    def data_received(self, data: bytes) -> None:
        self.got = self.got + data if self.got else data
        end = self.got.find(b"\r\n\r\n")
        if end < 0:
            return
        length = CONTENT_LENGTH.search(self.got, 0, end)
        if len(self.got) < end + 4 + (int(length[1]) if length else 0):
            return
        if self.got[9:10] != b"2":
            self.done.set_exception(AssertionError(self.got.decode()))
            self.transport.close()
            return
        self.got = b""
        self.count += 1
        self._next()

    def _next(self) -> None:
        call = next(self.calls, None)
        if call is None:
            self.done.set_result(self.count)
            self.transport.close()
            return
        method, path, body = call
        self.transport.write(
            b"%b %b HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n%b"
            % (method, path.encode(), self.head, len(body), body)
        )


def _pod() -> bytes:
    labels = {"app": "web", "pod-template-hash": "5d8f"}
    container = {
        "name": "main",
        "image": "registry.example/app:1.0",
        "resources": {"requests": {"cpu": "100m", "memory": "200Mi"}},
        "ports": [{"containerPort": 8080}],
        "env": [{"name": "MODE", "value": "fast"}],
    }
    tree = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "NAME", "labels": labels},
        "spec": {"containers": [container]},
    }
    return json.dumps(tree).encode()


_POD_BEFORE, _POD_AFTER = _pod().split(b"NAME")


def pod(name: str) -> bytes:
    """A pod that differs from others in its name only."""
    return _POD_BEFORE + name.encode() + _POD_AFTER


def node(name: str) -> bytes:
    """A node without a kubelet: pods bound to it do not start."""
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "1000"}
    meta = {"name": name, "annotations": {"stowplan.dev/kubelet": "off"}}
    tree = {"apiVersion": "v1", "kind": "Node", "metadata": meta}
    return json.dumps(tree | {"status": {"capacity": amounts, "allocatable": amounts}}).encode()


def binding(name: str, to: str) -> bytes:
    target = {"apiVersion": "v1", "kind": "Node", "name": to}
    tree = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    return json.dumps(tree).encode()


class Rate(NamedTuple):
    """per_s: by wall clock. cpu_us: the server's CPU time per request."""

    per_s: float
    cpu_us: float

    def __str__(self) -> str:
        return f"{self.per_s:,.0f}/s ({self.cpu_us:,.0f} us of the server's processor time each)"


async def all_of(server: Server, calls: Iterable[Call], media: str = "application/json") -> Rate:
    """Send requests over many connections; every status must be 2xx."""
    head, waiting = head_of(server, media), iter(calls)
    loop = asyncio.get_running_loop()
    start, cpu_s = time.perf_counter(), server.cpu_s()
    made = [
        await loop.create_connection(lambda: Connection(head, waiting), "127.0.0.1", server.port)
        for _ in range(CONNECTIONS)
    ]
    count = sum(await asyncio.gather(*(connection.done for _, connection in made)))
    elapsed_s, cpu_s = time.perf_counter() - start, server.cpu_s() - cpu_s
    return Rate(count / elapsed_s, cpu_s / count * 1e6)


async def writes(count: int, *, durable: bool) -> list[Figure]:
    """Pods created, then bound."""
    with tempfile.TemporaryDirectory() as directory:
        where = ["--data", f"{directory}/data"] if durable else []
        async with up(Path(directory), *where) as server:
            nodes = [(b"POST", "/api/v1/nodes", node(f"n{i}")) for i in range(100)]
            await all_of(server, nodes)
            created = await all_of(server, ((b"POST", PODS, pod(f"p{i}")) for i in range(count)))
            bound = await all_of(
                server,
                (
                    (b"POST", f"{PODS}/p{i}/binding", binding(f"p{i}", f"n{i % 100}"))
                    for i in range(count)
                ),
            )
    kept, aims = ("on disk", (3000, 3000)) if durable else ("in memory", (5000, 6000))
    return [
        Figure(f"{what}, {kept}", f"{aim:,}/s", str(got), got.per_s >= aim)
        for what, got, aim in zip(
            ("pod creations", "bindings"), (created, bound), aims, strict=True
        )
    ]


async def applies(count: int) -> list[Figure]:
    """Server-side apply of pods that changes nothing."""
    with tempfile.TemporaryDirectory() as directory:
        async with up(Path(directory)) as server:
            for _ in range(2):
                # The first time they are created.
                calls = (
                    (b"PATCH", f"{PODS}/p{i}?fieldManager=bench", pod(f"p{i}"))
                    for i in range(count)
                )
                applied = await all_of(server, calls, "application/apply-patch+yaml")
    return [Figure("applies without a change", "1,500/s", str(applied), applied.per_s >= 1500)]


async def events(count: int, watchers: int = 20) -> list[Figure]:
    """Delivery of events to all watchers, from the first creation to the last delivery."""
    with tempfile.TemporaryDirectory() as directory:
        async with up(Path(directory)) as server:
            got = [0] * watchers

            async def watch(number: int) -> None:
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", server.port, limit=1 << 22
                )
                writer.write(b"GET %b?watch=true HTTP/1.1\r\n" % PODS.encode())
                writer.write(head_of(server) + b"\r\n")
                await reader.readuntil(b"\r\n\r\n")
                while got[number] < count:
                    data = await reader.read(1 << 20)
                    assert data, "the watch ended"
                    got[number] += data.count(b'{"type":"ADDED"')
                writer.close()

            watching = [asyncio.ensure_future(watch(i)) for i in range(watchers)]
            await asyncio.sleep(1.0)
            start = time.perf_counter()
            created = await all_of(server, ((b"POST", PODS, pod(f"p{i}")) for i in range(count)))
            await asyncio.gather(*watching)
            rate = count * watchers / (time.perf_counter() - start)
    text = f"{rate:,.0f}/s, creations {created}"
    return [Figure(f"watch events to {watchers} watchers", "20,000/s", text, rate >= 20_000)]


async def heartbeats(nodes: int = 1000, seconds: float = 20.0) -> list[Figure]:
    """CPU time of a thousand idle hollow nodes."""
    with tempfile.TemporaryDirectory() as directory:
        async with up(Path(directory), "--node-count", str(nodes)) as server:
            # The initial reports of kubelets are not heartbeats.
            await asyncio.sleep(15.0)
            before = server.cpu_s()
            await asyncio.sleep(seconds)
            share = (server.cpu_s() - before) / seconds * 100
    what = f"{nodes:,} hollow nodes' heartbeats"
    return [Figure(what, "< 10 % of a core", f"{share:.1f} %", share < 10)]


async def memory(count: int = 150_000) -> list[Figure]:
    """Resident set with stored pods, and the peak before."""
    with tempfile.TemporaryDirectory() as directory:
        async with up(Path(directory)) as server:
            rate = await all_of(server, ((b"POST", PODS, pod(f"p{i}")) for i in range(count)))
            await asyncio.sleep(1.0)
            now_mb, peak_mb = server.memory_mb(), server.memory_mb("VmHWM")
    got = f"{now_mb:,.0f} MB (peak {peak_mb:,.0f}; creations {rate})"
    return [Figure(f"{count:,} pods stored", "600 MB", got, peak_mb <= 600)]


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="pods created and bound")
    parser.add_argument(
        "only", nargs="*", help="writes disk applies events watchers heartbeats memory"
    )
    options = parser.parse_args()
    parts: dict[str, Callable[[], Awaitable[list[Figure]]]] = {
        "writes": lambda: writes(options.count, durable=False),
        "disk": lambda: writes(options.count, durable=True),
        "applies": lambda: applies(options.count // 2),
        "events": lambda: events(min(options.count, 10_000)),
        "watchers": lambda: events(min(options.count // 20, 1000), 1000),
        "heartbeats": heartbeats,
        "memory": memory,
    }
    print(f"load before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    for name, part in parts.items():
        if options.only and name not in options.only:
            continue
        for figure in await part():
            mark = "reached" if figure.reached else "missed"
            print(f"{figure.what}: {figure.got}, aim {figure.aim}: {mark}", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
