"""The embedded API server as the recorded one was set up: users, first objects, nothing alive."""

from __future__ import annotations

import re

import numpy as np

from stowplan.cluster.admission import default_admission
from stowplan.cluster.beginning import begin
from stowplan.cluster.crd.serving import Definitions
from stowplan.cluster.guard import Guard
from stowplan.cluster.options import Options
from stowplan.cluster.published import default_pages
from stowplan.cluster.registry import built_in
from stowplan.cluster.resource import Observer
from stowplan.cluster.server import ApiServer
from stowplan.cluster.tokens import Tokens
from stowplan.cluster.wire import Chunk, Request, Response, Stream, User
from tests.contract.apiserver.symbols import Symbols

USERS = (
    ("admin-token", User("admin", "admin-uid", groups=("system:masters",))),
    ("plain", User("plain-user", "plain-uid", ("devs",))),
    ("plain-token", User("plain-user", "plain-uid", ("devs",))),
    ("reader-token", User("reader")),
    ("sched-token", User("system:kube-scheduler")),
)


class World:
    """A server that can be driven and started again."""

    def __init__(self, settings: str, now: float) -> None:
        self.settings = settings
        self.server = self._start(())
        begin(self.server, now)
        self.tick(now)

    def _start(self, records: object) -> ApiServer:
        guard = Guard(Tokens(USERS, anonymous=self.settings != "no-anonymous"))
        observers: list[Observer] = [guard, Definitions()]
        options = Options(
            registry=built_in(),
            access=guard,
            admission=default_admission(),
            observers=observers,
            pages=default_pages("10.255.0.1:26443"),
        )
        return ApiServer(options, np.random.default_rng(9), records)

    def with_token(self, symbols: Symbols, header: str) -> str:
        """A header of a request: symbols filled in, tokens as they are here."""
        return symbols.filled(re.sub(r"<([a-z]+-token)>", r"\1", header))

    def handle(self, request: Request, now: float) -> Response | Stream:
        """An answer."""
        return self.server.handle(request, now)

    def read(self, number: int, now: float) -> Chunk:
        """What a stream has."""
        return self.server.read(number, now)

    def tick(self, now: float) -> float | None:
        """Let time pass."""
        return self.server.tick(now)

    def close(self, number: int) -> None:
        """A client goes away."""
        self.server.close(number)

    def compact(self, version: int) -> None:
        """Forget old versions where lists are concerned, as compacting the store does."""
        self.server.lists.horizon = version

    def restart(self) -> None:
        """Shut down, and start again on what was stored."""
        self.server = self._start(list(self.server.store.records()))
