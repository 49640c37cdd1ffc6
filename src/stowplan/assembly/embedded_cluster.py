"""EmbeddedCluster: API server and controller manager behind the server's interface.

The driver (HTTP server or simulation) calls `handle` for requests and `tick` at `next_at`; a
request may bring `next_at` forward.
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
from stowplan.apiserver.storage.versioned_store import Record
from stowplan.assembly.controller_manager import ControllerManager, ControllerManagerOptions


class EmbeddedCluster:
    """`ApiServer` and `ControllerManager` in one object.

    server: for in-process access. controller_manager: controllers and hollow nodes. records: as for
    `ApiServer`.
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
        """Handle a request."""
        return self.server.handle(request, now)

    def begin(
        self, request: HttpRequest, now: float
    ) -> HttpResponse | WatchResponse | PendingRequest:
        """Like `handle`, but leaves long work that touches no state to the caller."""
        return self.server.begin(request, now)

    def later_work(self) -> PendingRequest | None:
        """Calls of webhooks about the cluster's own writes, if any are due."""
        return self.server.later_work()

    def read(self, stream: int, now: float) -> StreamChunk:
        """Return the next bytes of a watch."""
        return self.server.read(stream, now)

    def woken(self) -> list[int]:
        """Streams that may have data to read."""
        return self.server.woken()

    def close(self, stream: int) -> None:
        """Close a stream whose client has disconnected."""
        self.server.close(stream)

    def tick(self, now: float) -> float | None:
        """Advance the server's time, then run controllers; returns when to call again."""
        self._server_at = self.server.tick(now)
        self.controller_manager.step(now)
        return self.next_at()

    def next_at(self) -> float | None:
        """When to call `tick` next; valid until the next `handle`."""
        moments = [
            at for at in (self._server_at, self.controller_manager.next_at()) if at is not None
        ]
        return min(moments, default=None)

    @property
    def faults(self) -> ComponentErrors:
        """Failures of controllers and observers."""
        return self.server.faults

    def unsaved(self) -> PersistBatch | None:
        """Writes that are not persisted yet."""
        return self.server.unsaved()

    def saved(self, number: int) -> None:
        """A batch of writes has been persisted."""
        self.server.saved(number)
