"""Measures the embedded API server over HTTP: `make bench-live`.

The server is a process of its own and the clients are this one, so that both share the machine as
they would. Each line says what was aimed at and what came out.
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
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

CONNECTIONS = 16
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
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
        """Processor time used so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S

    def memory_mb(self, line: str = "VmRSS") -> float:
        """Memory in MB (10^6 bytes)."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(rf"{line}:\s+(\d+) kB", status)[1]) * 1024 / 1e6  # type: ignore[index]


@asynccontextmanager
async def up(directory: Path, *arguments: str) -> AsyncIterator[Server]:
    """A cluster of its own, stopped at the end."""
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


class Connection:
    """A kept connection on which one request follows the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str):
        self.reader, self.writer = reader, writer
        self.head = (
            f"Host: x\r\nAuthorization: Bearer {token}\r\nAccept: application/json\r\n"
            "Content-Type: application/json\r\n"
        )

    @classmethod
    async def to(cls, server: Server) -> "Connection":
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1 << 22)
        return cls(reader, writer, server.token)

    async def ask(self, method: str, path: str, body: bytes = b"") -> int:
        """The status; the body is read and dropped."""
        first = f"{method} {path} HTTP/1.1\r\n{self.head}Content-Length: {len(body)}\r\n\r\n"
        self.writer.write(first.encode() + body)
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        await self.reader.readexactly(int(length[1]) if length else 0)
        return int(head[9:12])

    async def close(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()

    async def watch(self, path: str) -> None:
        """Begin a watch and read its head."""
        self.writer.write(f"GET {path} HTTP/1.1\r\n{self.head}\r\n".encode())
        await self.reader.readuntil(b"\r\n\r\n")


def pod(name: str) -> bytes:
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
        "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [container]},
    }
    return json.dumps(tree).encode()


def node(name: str) -> bytes:
    """A node whose kubelet is off: what is bound to it only stands there."""
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "1000"}
    meta = {"name": name, "annotations": {"stowplan.dev/kubelet": "off"}}
    tree = {"apiVersion": "v1", "kind": "Node", "metadata": meta}
    return json.dumps(tree | {"status": {"capacity": amounts, "allocatable": amounts}}).encode()


def binding(name: str, to: str) -> bytes:
    target = {"apiVersion": "v1", "kind": "Node", "name": to}
    tree = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    return json.dumps(tree).encode()


class Rate(NamedTuple):
    """per_s: by the clock. cpu_us: processor time that the server took for each."""

    per_s: float
    cpu_us: float

    def __str__(self) -> str:
        return f"{self.per_s:,.0f}/s ({self.cpu_us:,.0f} us of the server's processor time each)"


async def all_of(server: Server, calls: Iterable[tuple[str, str, bytes]]) -> Rate:
    """Make the calls over many connections; all must come to 2xx."""
    waiting = iter(calls)
    counts = {"done": 0}

    async def work() -> None:
        connection = await Connection.to(server)
        for method, path, body in waiting:
            status = await connection.ask(method, path, body)
            assert status // 100 == 2, (status, method, path)
            counts["done"] += 1
        await connection.close()

    start, cpu_s = time.perf_counter(), server.cpu_s()
    await asyncio.gather(*(work() for _ in range(CONNECTIONS)))
    elapsed_s, cpu_s = time.perf_counter() - start, server.cpu_s() - cpu_s
    return Rate(counts["done"] / elapsed_s, cpu_s / counts["done"] * 1e6)


async def writes(count: int, *, durable: bool) -> list[Figure]:
    """Pods created, then bound."""
    with tempfile.TemporaryDirectory() as directory:
        where = ["--data", f"{directory}/data"] if durable else []
        async with up(Path(directory), *where) as server:
            nodes = [("POST", "/api/v1/nodes", node(f"n{i}")) for i in range(100)]
            await all_of(server, nodes)
            created = await all_of(server, (("POST", PODS, pod(f"p{i}")) for i in range(count)))
            bound = await all_of(
                server,
                (
                    ("POST", f"{PODS}/p{i}/binding", binding(f"p{i}", f"n{i % 100}"))
                    for i in range(count)
                ),
            )
    kept = "on disk" if durable else "in memory"
    return [
        Figure(f"pod creations, {kept}", "3,000/s", str(created), created.per_s >= 3000),
        Figure(f"bindings, {kept}", "3,000/s", str(bound), bound.per_s >= 3000),
    ]


async def events(count: int, watchers: int = 20) -> list[Figure]:
    """Every watcher gets every event; timed from the first creation to the last delivery."""
    with tempfile.TemporaryDirectory() as directory:
        async with up(Path(directory)) as server:
            got = [0] * watchers

            async def watch(number: int) -> None:
                connection = await Connection.to(server)
                await connection.watch(f"{PODS}?watch=true")
                while got[number] < count:
                    data = await connection.reader.read(1 << 20)
                    assert data, "the watch ended"
                    got[number] += data.count(b'{"type":"ADDED"')
                await connection.close()

            watching = [asyncio.ensure_future(watch(i)) for i in range(watchers)]
            await asyncio.sleep(1.0)
            start = time.perf_counter()
            created = await all_of(server, (("POST", PODS, pod(f"p{i}")) for i in range(count)))
            await asyncio.gather(*watching)
            rate = count * watchers / (time.perf_counter() - start)
    text = f"{rate:,.0f}/s, creations {created}"
    return [Figure(f"watch events to {watchers} watchers", "20,000/s", text, rate >= 20_000)]


async def heartbeats(nodes: int = 1000, seconds: float = 20.0) -> list[Figure]:
    """What a thousand idle hollow nodes cost."""
    with tempfile.TemporaryDirectory() as directory:
        async with up(Path(directory), "--node-count", str(nodes)) as server:
            # The first reports of all kubelets are not heartbeats.
            await asyncio.sleep(15.0)
            before = server.cpu_s()
            await asyncio.sleep(seconds)
            share = (server.cpu_s() - before) / seconds * 100
    what = f"{nodes:,} hollow nodes' heartbeats"
    return [Figure(what, "< 10 % of a core", f"{share:.1f} %", share < 10)]


async def memory(count: int = 150_000) -> list[Figure]:
    """What is resident when so many pods are stored, and at the most on the way."""
    with tempfile.TemporaryDirectory() as directory:
        async with up(Path(directory)) as server:
            rate = await all_of(server, (("POST", PODS, pod(f"p{i}")) for i in range(count)))
            await asyncio.sleep(1.0)
            now_mb, peak_mb = server.memory_mb(), server.memory_mb("VmHWM")
    got = f"{now_mb:,.0f} MB (peak {peak_mb:,.0f}; creations {rate})"
    return [Figure(f"{count:,} pods stored", "1,500 MB", got, peak_mb <= 1500)]


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="pods created and bound")
    parser.add_argument("only", nargs="*", help="writes disk events heartbeats memory")
    options = parser.parse_args()
    parts: dict[str, Callable[[], Awaitable[list[Figure]]]] = {
        "writes": lambda: writes(options.count, durable=False),
        "disk": lambda: writes(options.count, durable=True),
        "events": lambda: events(min(options.count, 10_000)),
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
