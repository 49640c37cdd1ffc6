"""Function-call transport: requests of API clients, answered by an API server in this process."""

from __future__ import annotations

from collections.abc import Callable

from stowplan.apis.machinery.http_messages import HttpRequest, StreamChunk, WatchResponse
from stowplan.apiserver.server import ApiServer
from stowplan.client.requests import ApiRequest
from stowplan.client.responses import ApiResponse


class FunctionTransport:
    """Sends requests of one client. clock: Unix seconds of each request. headers: of all."""

    def __init__(self, server: ApiServer, clock: Callable[[], float]) -> None:
        self._server = server
        self._clock = clock
        self.headers = {"accept": "application/json"}

    def send(self, request: ApiRequest) -> ApiResponse:
        """The response to a request that is no watch."""
        found = self.open(request)
        assert isinstance(found, ApiResponse), "a watch is opened, not sent"
        return found

    def open(self, request: ApiRequest) -> ApiResponse | int:
        """The number of the stream that a watch request opens; else the response."""
        headers = dict(self.headers)
        if request.content_type:
            headers["content-type"] = request.content_type
        sent = HttpRequest(request.method, request.path, request.query, headers, request.body)
        reply = self._server.handle(sent, self._clock())
        if isinstance(reply, WatchResponse):
            return reply.number
        return ApiResponse(reply.status, reply.body)

    def read(self, stream: int) -> StreamChunk:
        """What a stream has ready; may be empty."""
        return self._server.read(stream, self._clock())
