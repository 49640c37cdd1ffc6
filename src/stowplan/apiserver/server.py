"""The API server: requests in, responses and watch streams out.

The caller drives it: `handle` answers a request, `read` returns what a watch has ready. What is not
HTTP (`tick`, `unsaved`, `saved`, in-process operations) is in `ServerState`. No method blocks.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np

from stowplan.apis.machinery.http_messages import (
    HttpRequest,
    HttpResponse,
    StreamChunk,
    WatchResponse,
)
from stowplan.apiserver.auth.request_info import parse_request_path
from stowplan.apiserver.http.audit_events import AuditedRequest, audit_event, ended_watch_event
from stowplan.apiserver.http.deferred_work import PendingRequest, RequestSteps
from stowplan.apiserver.options import ApiServerOptions
from stowplan.apiserver.request_pipeline import RequestPipeline
from stowplan.apiserver.server_state import ServerState
from stowplan.apiserver.storage.versioned_store import Record
from stowplan.objects.encoding.tree import Tree


class ApiServer(ServerState):
    """The API of a cluster, as HTTP clients use it."""

    def __init__(
        self, options: ApiServerOptions, rng: np.random.Generator, records: Iterable[Record] = ()
    ) -> None:
        super().__init__(options, rng, records)
        self._audited_watches: dict[int, Tree] = {}
        self._heard_at = 0.0
        """When this was called last."""

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
        self._heard_at = now
        exchange = RequestPipeline(self, request, now)
        if self.options.clock is not None:
            exchange.begun = self.options.clock()
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
                seconds = self.options.clock() - exchange.begun if self.options.clock else 0.0
                self.counters.count(exchange.request, exchange.route, made, seconds)
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
        route = parse_request_path(request.path)
        kind = route and self.registry.find(route.group, route.version, route.plural)
        asked = AuditedRequest(
            request, made, exchange.known_user, route, kind or None, exchange.received
        )
        options = self.options
        event = audit_event(asked, options.access, options.audit_level, self.uids.new(), now)
        self.options.audit(event)
        self.counters.n_audited += 1
        if isinstance(made, WatchResponse):
            self._audited_watches[made.number] = event

    def _audit_end(self, stream: int, now: float) -> None:
        """Hand over the audit event of the end of a watch."""
        began = self._audited_watches.pop(stream, None)
        if began is not None and self.options.audit is not None:
            self.options.audit(ended_watch_event(began, now))
            self.counters.n_audited += 1

    def read(self, stream: int, now: float) -> StreamChunk:
        """The next bytes of a watch, at most about chunk_bytes_max; may be empty."""
        self._heard_at = now
        chunk = self.watch_cache.read(stream, now)
        if chunk.end:
            self._audit_end(stream, now)
        return chunk

    def woken(self) -> list[int]:
        return self.watch_cache.woken()

    def close(self, stream: int) -> None:
        """The client of a watch has gone."""
        self.watch_cache.close(stream)
        self._audit_end(stream, self._heard_at)

    def tick(self, now: float) -> float | None:
        self._heard_at = now
        return super().tick(now)
