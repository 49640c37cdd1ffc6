"""The embedded API server as the recorded one was set up: users, first objects, nothing alive."""

from __future__ import annotations

import re

import numpy as np

from stowplan.apis.machinery.http_messages import (
    HttpRequest,
    HttpResponse,
    StreamChunk,
    User,
    WatchResponse,
)
from stowplan.apis.machinery.resource import ChangeObserver
from stowplan.apiserver.admission import default_admission
from stowplan.apiserver.auth.static_tokens import StaticTokens
from stowplan.apiserver.auth.token_rbac import TokenRbacAccess
from stowplan.apiserver.bootstrap_objects import create_bootstrap_objects
from stowplan.apiserver.crd.definition_controller import DefinitionController
from stowplan.apiserver.discovery.default_pages import default_pages
from stowplan.apiserver.discovery.local_api_services import LocalApiServices
from stowplan.apiserver.options import ApiServerOptions
from stowplan.apiserver.resource_registry import built_in_registry
from stowplan.apiserver.server import ApiServer
from stowplan.driver.client.webhook_client import call_webhooks
from tests.contract.apiserver.symbols import Symbols

USERS = (
    ("admin-token", User("admin", "admin-uid", groups=("system:masters",))),
    ("plain", User("plain-user", "plain-uid", ("devs",))),
    ("plain-token", User("plain-user", "plain-uid", ("devs",))),
    ("reader-token", User("reader")),
    ("sched-token", User("system:kube-scheduler")),
)


class RestartableCluster:
    """A server that can be driven and started again."""

    def __init__(self, settings: str, now: float) -> None:
        self.settings = settings
        self.server = self._start(())
        create_bootstrap_objects(self.server, now)
        self.tick(now)

    def _start(self, records: object) -> ApiServer:
        access = TokenRbacAccess(StaticTokens(USERS, anonymous=self.settings != "no-anonymous"))
        observers: list[ChangeObserver] = [access, DefinitionController(), LocalApiServices()]
        options = ApiServerOptions(
            registry=built_in_registry(),
            access=access,
            admission=default_admission(),
            observers=observers,
            pages=default_pages("10.255.0.1:26443"),
            webhook_caller=call_webhooks,
        )
        return ApiServer(options, np.random.default_rng(9), records)

    def with_token(self, symbols: Symbols, header: str) -> str:
        """A header of a request: symbols filled in, tokens as they are here."""
        header = header.replace("<sa-token>", symbols.service_account_token)
        return symbols.filled(re.sub(r"<([a-z]+-token)>", r"\1", header))

    def handle(self, request: HttpRequest, now: float) -> HttpResponse | WatchResponse:
        """An answer."""
        return self.server.handle(request, now)

    def read(self, number: int, now: float) -> StreamChunk:
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
