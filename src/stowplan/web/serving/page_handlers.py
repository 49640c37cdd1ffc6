"""Requests of the page: `/`, static files, `/api/page/v1` and its WebSocket.

docs/page-api.md describes each.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket as sockets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from aiohttp import WSMsgType, web

from stowplan.objects.encoding.tree import Tree
from stowplan.web.model.page_frames import (
    TOPICS,
    FrameHeader,
    FrameKind,
    Topic,
    encode_frame,
)
from stowplan.web.serving.experiment_handlers import ExperimentQuestions
from stowplan.web.serving.page_access import (
    API,
    COOKIE,
    LOGIN,
    LOGOUT,
    STATIC,
    PageAccess,
    error_response,
    token_of,
)
from stowplan.web.serving.page_source import BadRequest, NotFound, PageSource, Unavailable
from stowplan.web.serving.static_files import PAGE, StaticFile, static_response
from stowplan.web.serving.viewers import Viewer, Viewers

BAD_MESSAGE, NOT_ALLOWED = 4400, 4401
MESSAGE_MAX = 4096
"""Largest message of a viewer, in bytes."""
COMPRESSED_MIN = 2000
SEND_BUFFER = 1 << 17
"""Bytes that the system keeps for one viewer. By itself it would keep megabytes for a slow one,
which would see them minutes later."""
REVIEW_S = 30.0
"""How often the token of an open connection is reviewed again."""
STARTING = "the scheduler has not started yet"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class _Login(msgspec.Struct, forbid_unknown_fields=True):
    token: str


class _Wanted(msgspec.Struct, forbid_unknown_fields=True):
    """What a viewer sends."""

    topics: list[str] | None = None
    snapshot: str | None = None


class PageHandlers:
    """viewers: with the source that is shown. experiments: folder below which experiments are
    looked for, "" for none."""

    def __init__(
        self,
        viewers: Viewers,
        access: PageAccess,
        static: Mapping[str, StaticFile],
        experiments: str,
    ) -> None:
        self._viewers = viewers
        self._access = access
        self._static = static
        self._experiments = ExperimentQuestions(experiments)
        self._sockets: dict[web.WebSocketResponse, asyncio.Transport | None] = {}

    def routes(self) -> list[web.RouteDef]:
        """All paths."""
        gets: dict[str, Callable[[PageSource, web.Request], Awaitable[Tree]]] = {
            "cluster": lambda source, _: source.cluster(),
            "labels": lambda source, request: source.labels(_required(request, "key")),
            "nodes/{name}": lambda source, request: source.node(
                request.match_info["name"], request.query.get("pod", "")
            ),
            "pending": lambda source, request: source.pending(request.query),
            "pods/{namespace}/{name}/why": lambda source, request: source.why(
                _pod(request),
                _number(request, "at") if "at" in request.query else None,
                quickly=request.query.get("changes", "") == "quick",
            ),
            "queues": lambda source, request: source.queues(_number(request, "since")),
            "decisions": lambda source, request: source.decisions(request.query),
            "decisions/{id:[0-9]{1,15}}": lambda source, request: source.decision(
                int(request.match_info["id"])
            ),
            "preemptions": lambda source, _: source.preemptions(),
        }
        found = [web.get(f"{API}/{path}", self._json(ask)) for path, ask in gets.items()]
        return [
            *found,
            web.get("/", self._page),
            web.get("/favicon.ico", _no_content),
            web.get(STATIC + "{path:.+}", self._file),
            web.get(f"{API}/live", self._live),
            web.get(f"{API}/replay", self._replay),
            web.get(f"{API}/experiments", self._list_experiments),
            web.get(f"{API}/experiments/report", self._report),
            web.post(f"{API}/what-if", self._what_if),
            web.post(LOGIN, self._login),
            web.post(LOGOUT, self._logout),
        ]

    async def close(self) -> None:
        """Close the connections of all viewers."""
        closing = [socket.close(code=1001, message=b"stopping") for socket in self._sockets]
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*closing, return_exceptions=True), 2.0)
        for transport in list(self._sockets.values()):
            # A slow viewer would have to receive first what is on its way.
            if transport is not None:
                transport.abort()

    @property
    def _source(self) -> PageSource:
        source = self._viewers.source
        if source is None:
            raise Unavailable(STARTING)
        return source

    def _json(self, ask: Callable[[PageSource, web.Request], Awaitable[Tree]]) -> Handler:
        async def answer(request: web.Request) -> web.StreamResponse:
            return await self._answered(lambda: ask(self._source, request))

        return answer

    async def _answered(self, ask: Callable[[], Awaitable[Tree]]) -> web.StreamResponse:
        async def answer() -> web.StreamResponse:
            return json_response(await ask())

        return await self._checked(answer)

    async def _checked(
        self, answer: Callable[[], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """The answer; an error as JSON."""
        try:
            return await answer()
        except BadRequest as problem:
            return error_response(400, str(problem))
        except NotFound as problem:
            return error_response(404, str(problem))
        except Unavailable as problem:
            return error_response(503, str(problem))
        except TimeoutError:
            return error_response(503, "the scheduler is busy")

    # Files.

    async def _page(self, request: web.Request) -> web.StreamResponse:
        return self._static_file(PAGE, request)

    async def _file(self, request: web.Request) -> web.StreamResponse:
        return self._static_file(request.match_info["path"], request)

    def _static_file(self, path: str, request: web.Request) -> web.StreamResponse:
        file = self._static.get(path)
        if file is None:
            return error_response(404, f"file {path[:200]!r} not found")
        return static_response(file, request)

    # Login.

    async def _login(self, request: web.Request) -> web.StreamResponse:
        try:
            token = msgspec.json.decode(await request.read(), type=_Login).token.strip()
        except msgspec.MsgspecError as problem:
            return error_response(400, str(problem))
        code = await self._access.review(token, f"{API}/cluster")
        if code:
            return error_response(code, "the API server does not accept this token for this page")
        answer = web.Response(status=204)
        answer.set_cookie(
            COOKIE, token, httponly=True, samesite="Strict", secure=request.secure, path="/"
        )
        return answer

    async def _logout(self, request: web.Request) -> web.StreamResponse:
        answer = web.Response(status=204)
        answer.del_cookie(COOKIE, path="/", httponly=True, samesite="Strict")
        return answer

    # Questions.

    async def _what_if(self, request: web.Request) -> web.StreamResponse:
        async def ask() -> Tree:
            try:
                asked = msgspec.json.decode(await request.read(), type=dict[str, Any])
            except msgspec.MsgspecError as problem:
                raise BadRequest(f"body: {problem}") from None
            return await self._source.what_if(asked)

        return await self._answered(ask)

    async def _list_experiments(self, request: web.Request) -> web.StreamResponse:
        return await self._answered(self._experiments.listed)

    async def _report(self, request: web.Request) -> web.StreamResponse:
        return await self._checked(lambda: self._experiments.report(_required(request, "folder")))

    async def _replay(self, request: web.Request) -> web.StreamResponse:
        try:
            body = await self._source.replay()
        except Unavailable as problem:
            return error_response(404, str(problem))
        header = FrameHeader(Topic.REPLAY, FrameKind.SNAPSHOT, self._source.epoch, 1, 0.0)
        answer = web.Response(
            body=encode_frame(header, body), content_type="application/octet-stream"
        )
        answer.enable_compression()
        return answer

    # The WebSocket.

    async def _live(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(max_msg_size=MESSAGE_MAX, compress=False, timeout=2.0)
        await socket.prepare(request)
        _limit_send_buffer(request)
        names = [name for name in request.query.get("topics", "").split(",") if name]
        topics = topics_of(names)
        if topics is None:
            await socket.close(code=BAD_MESSAGE, message=_unknown(names))
            return socket
        viewer = Viewer(topics)
        self._sockets[socket] = request.transport
        self._viewers.add(viewer)
        sending = asyncio.create_task(_send(socket, viewer))
        reviewing = asyncio.create_task(self._review(socket, token_of(request)))
        try:
            await _receive(socket, viewer)
        finally:
            self._viewers.remove(viewer)
            self._sockets.pop(socket, None)
            for task in (sending, reviewing):
                task.cancel()
            await asyncio.gather(sending, reviewing, return_exceptions=True)
        return socket

    async def _review(self, socket: web.WebSocketResponse, token: str) -> None:
        """Close the connection when its token is no longer allowed."""
        while self._access.needs_token:
            await asyncio.sleep(REVIEW_S)
            if await self._access.review(token, f"{API}/live"):
                await socket.close(code=NOT_ALLOWED, message=b"the token is no longer allowed")


def _limit_send_buffer(request: web.Request) -> None:
    """Let a slow viewer be seen early."""
    transport = request.transport
    found = None if transport is None else transport.get_extra_info("socket")
    if found is not None:
        found.setsockopt(sockets.SOL_SOCKET, sockets.SO_SNDBUF, SEND_BUFFER)


async def _send(socket: web.WebSocketResponse, viewer: Viewer) -> None:
    # The viewer has gone; the receiving side sees that, too.
    with contextlib.suppress(ConnectionError):
        while True:
            # Waits while the viewer is behind: aiohttp buffers no more than one frame.
            await socket.send_bytes(await viewer.next())
            viewer.done()


async def _receive(socket: web.WebSocketResponse, viewer: Viewer) -> None:
    """Follow what the viewer asks for, until it closes."""
    async for message in socket:
        wanted = _decoded(message.data) if message.type is WSMsgType.TEXT else None
        if wanted is None:
            await socket.close(code=BAD_MESSAGE, message=b'expected {"topics": [...]}')
            return
        if wanted.topics is not None:
            topics = topics_of(wanted.topics)
            if topics is None:
                await socket.close(code=BAD_MESSAGE, message=_unknown(wanted.topics))
                return
            viewer.subscribe(topics)
        if wanted.snapshot in TOPICS:
            viewer.need_snapshot(TOPICS[wanted.snapshot])


def _decoded(text: str) -> _Wanted | None:
    try:
        return msgspec.json.decode(text, type=_Wanted)
    except msgspec.MsgspecError:
        return None


def topics_of(names: list[str]) -> list[Topic] | None:
    """Topics by name; None if one is unknown."""
    return [TOPICS[name] for name in names] if all(name in TOPICS for name in names) else None


def _unknown(names: list[str]) -> bytes:
    unknown = next(name for name in names if name not in TOPICS)
    return f"unknown topic {unknown[:40]!r}".encode()


def json_response(tree: Tree) -> web.Response:
    """A tree as JSON, compressed if it is large."""
    body = msgspec.json.encode(tree)
    answer = web.Response(body=body, content_type="application/json")
    if len(body) >= COMPRESSED_MIN:
        answer.enable_compression()
    return answer


async def _no_content(request: web.Request) -> web.StreamResponse:
    return web.Response(status=204)


def _required(request: web.Request, name: str) -> str:
    value = request.query.get(name, "")
    if not value:
        raise BadRequest(f"{name}: Required value")
    return value


def _number(request: web.Request, name: str) -> float:
    text = request.query.get(name, "0")
    try:
        return float(text)
    except ValueError:
        raise BadRequest(f"{name}: Invalid value: {text[:80]!r}: expected a number") from None


def _pod(request: web.Request) -> str:
    return f"{request.match_info['namespace']}/{request.match_info['name']}"
