"""Writes over HTTP by two versions in turn: `bench/live_writes.py OLD NEW [--data] [--chunks N]`.

OLD and NEW are checkouts. A `stowplan up` of each runs all the time, and what the one is sent, the
other is sent next, so that other work on the machine weighs on both alike: pods created, bound,
their status patched, replaced with another label. Printed are medians of the processor time that a
server takes for a write, its kernel time included, in microseconds, and the ratio of NEW to OLD.
--data keeps the clusters on disk.
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import live

MERGE = "application/strategic-merge-patch+json"
JSON = "application/json"
READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-31T12:00:00Z"}
STATUS = json.dumps({"status": {"phase": "Running", "conditions": [READY]}}).encode()


def busy_s(server: live.Server) -> float:
    """Processor time of all threads of a server, in seconds; exact to the nanosecond."""
    tasks = Path(f"/proc/{server.process.pid}/task")
    return sum(int((one / "schedstat").read_text().split()[0]) for one in tasks.iterdir()) / 1e9


async def replacements(server: live.Server, names: list[str]) -> list[live.Call]:
    """PUTs of the pods as they are now, with another label."""
    made = []
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    for name in names:
        path = f"{live.PODS}/{name}"
        writer.write(b"GET %b HTTP/1.1\r\n%b\r\n" % (path.encode(), live.head_of(server)))
        head = await reader.readuntil(b"\r\n\r\n")
        length = live.CONTENT_LENGTH.search(head)
        assert length is not None
        pod = json.loads(await reader.readexactly(int(length[1])))
        pod["metadata"]["labels"]["more"] = "x"
        # The node sends no heartbeats: on a busy machine its pods may be written meanwhile.
        del pod["metadata"]["resourceVersion"]
        made.append((b"PUT", path, json.dumps(pod).encode()))
    writer.close()
    return made


async def calls_of(what: str, server: live.Server, names: list[str]) -> list[live.Call]:
    """The requests of a chunk."""
    if what == "replaced":
        return await replacements(server, names)
    make: dict[str, Callable[[str], live.Call]] = {
        "created": lambda name: (b"POST", live.PODS, live.pod(name)),
        "bound": lambda name: (b"POST", f"{live.PODS}/{name}/binding", live.binding(name, "n")),
        "status patched": lambda name: (b"PATCH", f"{live.PODS}/{name}/status", STATUS),
    }
    return [make[what](name) for name in names]


async def measured(
    versions: list[Path], count: int, chunks: int, *, durable: bool
) -> dict[str, list[list[float]]]:
    """Processor time of a write in us, by kind: of each version, chunk by chunk."""
    found: dict[str, list[list[float]]] = {}
    async with AsyncExitStack() as stack:
        servers = []
        for version in versions:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            # The child of `live.up` takes the package of this version.
            os.environ["PYTHONPATH"] = str(version.absolute() / "src")
            where = ["--data", f"{directory}/data"] if durable else []
            server = await stack.enter_async_context(live.up(directory, *where))
            await live.all_of(server, [(b"POST", "/api/v1/nodes", live.node("n"))])
            servers.append(server)
        for number in range(chunks):
            names = [f"p{number}-{at}" for at in range(count)]
            for what in ("created", "bound", "status patched", "replaced"):
                for at in (0, 1) if number % 2 else (1, 0):
                    calls = await calls_of(what, servers[at], names)
                    before = busy_s(servers[at])
                    media = MERGE if what == "status patched" else JSON
                    await live.all_of(servers[at], calls, media)
                    spent = (busy_s(servers[at]) - before) / count * 1e6
                    found.setdefault(what, [[], []])[at].append(spent)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--data", action="store_true", help="on disk")
    parser.add_argument("--count", type=int, default=200, help="writes in a chunk")
    parser.add_argument("--chunks", type=int, default=15, help="chunks of each kind")
    options = parser.parse_args()
    print(f"load before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    rows = asyncio.run(
        measured([options.old, options.new], options.count, options.chunks, durable=options.data)
    )
    for what, (old, new) in rows.items():
        before, now = statistics.median(old), statistics.median(new)
        best = f"best chunks {min(old):.0f}, {min(new):.0f}"
        print(f"{what:15} {before:6.0f} us before, {now:6.0f} now: x {now / before:.2f}; {best}")
    print(f"load after: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
