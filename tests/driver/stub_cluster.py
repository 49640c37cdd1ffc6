"""Stub of a served cluster: records requests and returns configured responses."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import ClassVar

from stowplan.apis.machinery.component_errors import ComponentErrors
from stowplan.apis.machinery.http_messages import (
    HttpRequest,
    HttpResponse,
    PersistBatch,
    StreamChunk,
    WatchResponse,
)
from stowplan.apiserver.http.deferred_work import PendingRequest
from stowplan.driver.background_tasks import background_tasks
from stowplan.driver.http.http_server import (
    PLAIN_ONLY,
    HttpServer,
    ServerLimits,
    ServerTls,
    listening_socket,
)
from stowplan.driver.http.server_loop import ServerLoop
from stowplan.driver.storage.sqlite_store import SqliteStore

JSON = (("Content-Type", "application/json"),)


class StubCluster:
    """Answers by `answer`; a GET of /watch opens a stream, fed through `feed`."""

    def __init__(self, answer: Callable[[HttpRequest], HttpResponse] | None = None) -> None:
        self.requests: list[HttpRequest] = []
        self.closed: list[int] = []
        self.ended: set[int] = set()
        self.batches: list[PersistBatch] = []
        self.durable = 0
        self.waiting: dict[int, bytes] = {}
        self.reads = 0
        self.faults = ComponentErrors()
        self._answer = answer or (lambda request: HttpResponse(200, JSON, b"{}"))
        self._woken: list[int] = []

    def begin(
        self, request: HttpRequest, now: float
    ) -> HttpResponse | WatchResponse | PendingRequest:
        return self.handle(request, now)

    def handle(self, request: HttpRequest, now: float) -> HttpResponse | WatchResponse:
        self.requests.append(request)
        if request.path == "/watch":
            number = len(self.waiting) + 1
            self.waiting[number] = b""
            return WatchResponse(200, JSON, number)
        return self._answer(request)

    def feed(self, stream: int, data: bytes) -> None:
        self.waiting[stream] += data
        self._woken.append(stream)

    def read(self, stream: int, now: float) -> StreamChunk:
        self.reads += 1
        data = self.waiting[stream][: 1 << 18]
        self.waiting[stream] = self.waiting[stream][len(data) :]
        return StreamChunk(data, end=stream in self.ended and not data)

    def woken(self) -> list[int]:
        woken, self._woken = self._woken, []
        return woken

    def close(self, stream: int) -> None:
        self.closed.append(stream)

    def tick(self, now: float) -> float | None:
        return None

    def later_work(self) -> PendingRequest | None:
        return None

    def unsaved(self) -> PersistBatch | None:
        return self.batches.pop(0) if self.batches else None

    def saved(self, number: int) -> None:
        self.durable = number


@contextlib.asynccontextmanager
async def served(
    cluster: StubCluster,
    bounds: ServerLimits | None = None,
    store: SqliteStore | None = None,
    tls: ServerTls = PLAIN_ONLY,
    failed: Callable[[str], None] | None = None,
) -> AsyncIterator[tuple[HttpServer, int]]:
    server = HttpServer(ServerLoop(cluster, store, failed), bounds)
    listener = listening_socket("127.0.0.1", 0)
    port = listener.getsockname()[1]
    async with background_tasks() as tasks:
        await server.start(listener, tasks, tls)
        try:
            yield server, port
        finally:
            await server.stop()
            await Client.close_all()


class Client:
    """One raw HTTP connection."""

    opened: ClassVar[list["Client"]] = []

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.opened.append(self)

    @classmethod
    async def close_all(cls) -> None:
        for client in cls.opened:
            client.close()
            with contextlib.suppress(OSError):
                await client.writer.wait_closed()
        cls.opened.clear()

    @classmethod
    async def to(cls, port: int, **options: object) -> "Client":
        return cls(*await asyncio.open_connection("127.0.0.1", port, **options))  # type: ignore[arg-type]

    def send(self, text: bytes) -> None:
        self.writer.write(text)

    def get(self, path: str, *headers: str, method: str = "GET", body: bytes = b"") -> None:
        lines = [f"{method} {path} HTTP/1.1", "Host: x", *headers]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        self.send("\r\n".join((*lines, "", "")).encode() + body)

    async def head(self) -> tuple[int, dict[str, str]]:
        """Status and headers, names in lower case."""
        text = (await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 120)).decode()
        first, *lines = text.strip().split("\r\n")
        pairs = (line.split(": ", 1) for line in lines)
        return int(first.split()[1]), {name.lower(): value for name, value in pairs}

    async def whole(self) -> tuple[int, dict[str, str], bytes]:
        status, headers = await self.head()
        return status, headers, await self.reader.readexactly(int(headers["content-length"]))

    async def rest(self) -> bytes:
        """All that comes until the server closes the connection, or breaks it."""
        try:
            return await asyncio.wait_for(self.reader.read(), 120)
        except ConnectionResetError:
            return b""

    def close(self) -> None:
        self.writer.close()
