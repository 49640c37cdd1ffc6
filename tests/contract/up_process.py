"""`stowplan up` as users run it: a process, its kubeconfig, a connection to it."""

import asyncio
import contextlib
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

Tree = dict[str, Any]


class Up:
    """A running cluster. token: the administrator's."""

    def __init__(self, process: "subprocess.Popen[str]", kubeconfig: Path) -> None:
        self.process = process
        self.kubeconfig = kubeconfig
        content = json.loads(kubeconfig.read_text())
        self.server = content["clusters"][0]["cluster"]["server"]
        self.port = int(self.server.rsplit(":", 1)[1])
        self.token = content["users"][0]["user"]["token"]

    def kill(self) -> None:
        """As if the power failed for this process: nothing is told, nothing is flushed."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Ask it to stop; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=240)


def start(directory: Path, *arguments: str, schedules: bool = False) -> Up:
    """Start one whose kubeconfig stands in `directory`, and wait until it listens."""
    config = directory / "kubeconfig"
    command = [sys.executable, "-m", "stowplan", "up", "--port", "0"]
    command += [] if schedules else ["--no-scheduler"]
    command += ["--kubeconfig", str(config), *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    output = ""
    for line in process.stdout:
        output += line
        if line.startswith("kubectl "):
            return Up(process, config)
    raise AssertionError(f"it did not start: {output}")


@contextlib.contextmanager
def up(directory: Path, *arguments: str, schedules: bool = False) -> Iterator[Up]:
    """A running cluster, stopped at the end."""
    cluster = start(directory, *arguments, schedules=schedules)
    try:
        yield cluster
    finally:
        if cluster.process.poll() is None:
            cluster.process.kill()
        cluster.process.wait()
        assert cluster.process.stdout is not None
        cluster.process.stdout.close()


class Caller:
    """A kept connection, one request after the other. Raises OSError when it is broken."""

    opened: ClassVar[list["Caller"]] = []

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str
    ) -> None:
        self.reader, self.writer, self.token = reader, writer, token
        self.opened.append(self)

    @classmethod
    async def close_all(cls) -> None:
        """Close what was opened and not closed, also after a failure."""
        for caller in cls.opened:
            caller.close()
            with contextlib.suppress(OSError):
                await caller.writer.wait_closed()
        cls.opened.clear()

    @classmethod
    async def to(cls, port: int, token: str) -> "Caller":
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 24), token)

    def send(self, method: str, path: str, body: Tree | None = None, kind: str = "json") -> None:
        content = b"" if body is None else json.dumps(body).encode()
        media = "application/json" if kind == "json" else f"application/{kind}+json"
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.token}\r\n"
            f"Content-Type: {media}\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        self.writer.write(head.encode() + content)

    async def ask(
        self, method: str, path: str, body: Tree | None = None, kind: str = "json"
    ) -> tuple[int, Tree]:
        """Status and body of an answer."""
        self.send(method, path, body, kind)
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: (\d+)", head)
            text = await self.reader.readexactly(int(length[1]) if length else 0)
        except asyncio.IncompleteReadError:
            raise ConnectionResetError("closed in the middle of an answer") from None
        return int(head[9:12]), json.loads(text)

    async def lines(self) -> Any:
        """The lines of a chunked stream; ends when the connection does."""
        await self.reader.readuntil(b"\r\n\r\n")
        rest = b""
        while True:
            size = int((await self.reader.readline()).strip() or b"0", 16)
            if not size:
                return
            rest += await self.reader.readexactly(size)
            await self.reader.readexactly(2)
            *whole, rest = rest.split(b"\n")
            for line in whole:
                yield json.loads(line)

    def close(self) -> None:
        self.writer.close()
