"""A cluster in one object: the API server and what lives on it, with the server's own face.

Whoever drives it (over HTTP, or in a simulation) calls `handle` for requests and `tick` when
`next_at` has come; a request may bring `next_at` forward.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from stowplan.cluster.faults import Faults
from stowplan.cluster.later import Pending
from stowplan.cluster.life import Life, Living
from stowplan.cluster.options import Options
from stowplan.cluster.server import ApiServer
from stowplan.cluster.store import Record
from stowplan.cluster.wire import Chunk, Persist, Request, Response, Stream


class Cluster:
    """`ApiServer` and `Life`.

    server: for in-process access. living: what is alive; records: as for `ApiServer`.
    """

    def __init__(
        self,
        options: Options,
        dice: np.random.Generator,
        records: Iterable[Record] = (),
        living: Living | None = None,
    ) -> None:
        self.life = Life(living)
        observers = (*options.observers, self.life)
        self.server = ApiServer(replace(options, observers=observers), dice, records)
        self.server.faults.failing = self.life.failing
        self.life.api.attach(self.server)
        self._server_at: float | None = 0.0

    def handle(self, request: Request, now: float) -> Response | Stream:
        """Answer a request."""
        return self.server.handle(request, now)

    def begin(self, request: Request, now: float) -> Response | Stream | Pending:
        """As `handle`, but that long work which touches no state is left to the caller."""
        return self.server.begin(request, now)

    def read(self, stream: int, now: float) -> Chunk:
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
        self.life.step(now)
        return self.next_at()

    def next_at(self) -> float | None:
        """When `tick` has something to do; ask again after every `handle`."""
        moments = [at for at in (self._server_at, self.life.next_at()) if at is not None]
        return min(moments, default=None)

    @property
    def faults(self) -> Faults:
        """What controllers and observers failed at."""
        return self.server.faults

    def unsaved(self) -> Persist | None:
        """Writes to be saved."""
        return self.server.unsaved()

    def saved(self, number: int) -> None:
        """A batch of writes is saved."""
        self.server.saved(number)
