"""A cluster in one object: the API server and what lives on it, with the server's own face.

Whoever drives it (over HTTP, or in a simulation) calls `handle` for requests and `tick` when
`next_at` has come; a request may bring `next_at` forward.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from stowplan.apis.machinery.component_errors import ComponentErrors
from stowplan.apis.machinery.http_messages import (
    HttpRequest,
    HttpResponse,
    PersistBatch,
    StreamChunk,
    WatchResponse,
)
from stowplan.apiserver.http.deferred_work import PendingRequest
from stowplan.apiserver.options import ApiServerOptions
from stowplan.apiserver.server import ApiServer
from stowplan.apiserver.storage.store import Record
from stowplan.assembly.controller_manager import ControllerManager, ControllerManagerOptions


class EmbeddedCluster:
    """`ApiServer` and `ControllerManager`.

    server: for in-process access. living: what is alive; records: as for `ApiServer`.
    """

    def __init__(
        self,
        options: ApiServerOptions,
        rng: np.random.Generator,
        records: Iterable[Record] = (),
        manager_options: ControllerManagerOptions | None = None,
    ) -> None:
        self.controller_manager = ControllerManager(manager_options)
        observers = (*options.observers, self.controller_manager)
        self.server = ApiServer(replace(options, observers=observers), rng, records)
        self.server.faults.failing = self.controller_manager.failing
        self.controller_manager.api.attach(self.server)
        self._server_at: float | None = 0.0

    def handle(self, request: HttpRequest, now: float) -> HttpResponse | WatchResponse:
        """Answer a request."""
        return self.server.handle(request, now)

    def begin(
        self, request: HttpRequest, now: float
    ) -> HttpResponse | WatchResponse | PendingRequest:
        """As `handle`, but that long work which touches no state is left to the caller."""
        return self.server.begin(request, now)

    def read(self, stream: int, now: float) -> StreamChunk:
        """The next bytes of a watch."""
        return self.server.read(stream, now)

    def woken(self) -> list[int]:
        """Streams that may have something to read."""
        return self.server.woken()

    def close(self, stream: int) -> None:
        """The client of a stream has gone."""
        self.server.close(stream)

    def tick(self, now: float) -> float | None:
        """Let time pass: for the server, then for what lives on it; when to be called again."""
        self._server_at = self.server.tick(now)
        self.controller_manager.step(now)
        return self.next_at()

    def next_at(self) -> float | None:
        """When `tick` has something to do; ask again after every `handle`."""
        moments = [
            at for at in (self._server_at, self.controller_manager.next_at()) if at is not None
        ]
        return min(moments, default=None)

    @property
    def faults(self) -> ComponentErrors:
        """What controllers and observers failed at."""
        return self.server.faults

    def unsaved(self) -> PersistBatch | None:
        """Writes to be saved."""
        return self.server.unsaved()

    def saved(self, number: int) -> None:
        """A batch of writes is saved."""
        self.server.saved(number)
