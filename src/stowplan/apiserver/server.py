"""The API server: requests in, responses and watch streams out.

The caller drives it: `handle` answers a request, `read` returns what a watch has ready. What is not
HTTP (`tick`, `unsaved`, `saved`, in-process operations) is in `ServerState`. No method blocks.
"""

from __future__ import annotations

from functools import partial

from stowplan.apis.machinery.http_messages import (
    HttpRequest,
    HttpResponse,
    StreamChunk,
    WatchResponse,
)
from stowplan.apiserver.auth.request_info import parse_request_path
from stowplan.apiserver.http.audit_events import audit_event
from stowplan.apiserver.http.deferred_work import PendingRequest, RequestSteps
from stowplan.apiserver.request_pipeline import RequestPipeline
from stowplan.apiserver.server_state import ServerState


class ApiServer(ServerState):
    """The API of a cluster, as HTTP clients use it."""

    def handle(self, request: HttpRequest, now: float) -> HttpResponse | WatchResponse:
        """Answer a request. Never raises, whatever the client sends."""
        answer = self.begin(request, now)
        while isinstance(answer, PendingRequest):
            answer.work.run()
            answer = answer.resume(now)
        return answer

    def begin(
        self, request: HttpRequest, now: float
    ) -> HttpResponse | WatchResponse | PendingRequest:
        """As `handle`, but long work that needs no state is left to the caller."""
        exchange = RequestPipeline(self, request, now)
        return self._resume_request(exchange, exchange.answer(), now)

    def _resume_request(
        self, exchange: RequestPipeline, steps: RequestSteps, now: float
    ) -> HttpResponse | WatchResponse | PendingRequest:
        self._notify_observers(now)
        exchange.now = now
        try:
            work = self._alone(partial(next, steps))
        except StopIteration as ended:
            self._notify_observers(now)
            made: HttpResponse | WatchResponse = ended.value
            if exchange.route is not None:
                self.counters.count(exchange.request, exchange.route, made)
            if self.options.audit is not None:
                self._audit(exchange, made, now)
            return made
        return PendingRequest(work, partial(self._resume_request, exchange, steps))

    def _audit(
        self, exchange: RequestPipeline, made: HttpResponse | WatchResponse, now: float
    ) -> None:
        """Hand over the audit event of an answered request."""
        assert self.options.audit is not None
        request = exchange.request
        user, route = exchange.known_user, parse_request_path(request.path)
        times, level = (exchange.received, now), self.options.audit_level
        event = audit_event(request, user, made, level, times, self.uids.new(), route)
        self.options.audit(event)

    def read(self, stream: int, now: float) -> StreamChunk:
        """The next bytes of a watch, at most about chunk_bytes_max; may be empty."""
        return self.watch_cache.read(stream, now)

    def woken(self) -> list[int]:
        return self.watch_cache.woken()

    def close(self, stream: int) -> None:
        self.watch_cache.close(stream)
