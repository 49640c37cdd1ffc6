"""Recordings of the second series, repeated: actions with a poll, tokens of service accounts, and
servers with other settings (`KindsCluster`)."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

from stowplan.apis.machinery.http_messages import (
    HttpRequest,
    HttpResponse,
    StreamChunk,
    WatchResponse,
)
from stowplan.apis.machinery.resource import ChangeObserver
from stowplan.apiserver.admission import admission_plugins
from stowplan.apiserver.auth.static_tokens import StaticTokens
from stowplan.apiserver.auth.token_rbac import TokenRbacAccess
from stowplan.apiserver.bootstrap_objects import create_bootstrap_objects
from stowplan.apiserver.crd.definition_controller import DefinitionController
from stowplan.apiserver.discovery.default_pages import default_pages
from stowplan.apiserver.discovery.local_api_services import LocalApiServices
from stowplan.apiserver.options import ApiServerOptions
from stowplan.apiserver.resource_registry import built_in_registry
from stowplan.assembly.controller_manager import ControllerManagerOptions
from stowplan.assembly.embedded_cluster import EmbeddedCluster
from stowplan.driver.client.webhook_client import call_webhooks
from tests.contract.apiserver.parity import everywhere
from tests.contract.apiserver.recorded_server import USERS
from tests.contract.apiserver.replay import DATA, START, Replay
from tests.contract.apiserver.symbols import Finding

Tree = dict[str, Any]
TOKEN = "<sa-token>"
AUDIENCE = "https://x"
POLL_S = 60.0
ABSENT_CONTROLLERS = {"node-lifecycle", "taint-eviction"}


GROUPS = ("kinds", "default-admission", "workload-api")
"""The groups that are repeated so."""


class KindsCluster:
    """A server as the second series had it. settings: `server` of a scenario."""

    def __init__(self, settings: str, now: float) -> None:
        access = TokenRbacAccess(StaticTokens(USERS), audience=AUDIENCE)
        observers: list[ChangeObserver] = [access, DefinitionController(), LocalApiServices()]
        identities = settings == "default-admission"
        options = ApiServerOptions(
            registry=built_in_registry(workloads=settings == "workload-gates"),
            access=access,
            admission=admission_plugins(accounts=identities, taints=identities),
            observers=observers,
            pages=default_pages("10.255.0.1:26443"),
            webhook_caller=call_webhooks,
        )
        running = settings == "controllers"
        manager = ControllerManagerOptions(controllers=running, hollow_nodes=False)
        self.cluster = EmbeddedCluster(options, np.random.default_rng(9), manager_options=manager)
        parts = self.cluster.controller_manager.parts
        parts[:] = [part for part in parts if part.name not in ABSENT_CONTROLLERS]
        self.server = self.cluster.server
        create_bootstrap_objects(self.server, now)
        self.tick(now)

    def handle(self, request: HttpRequest, now: float) -> HttpResponse | WatchResponse:
        """An answer."""
        return self.cluster.handle(request, now)

    def read(self, number: int, now: float) -> StreamChunk:
        """What a stream has."""
        return self.cluster.read(number, now)

    def tick(self, now: float) -> float | None:
        """Let time pass."""
        return self.cluster.tick(now)

    def close(self, number: int) -> None:
        """A client goes away."""
        self.cluster.close(number)

    def with_token(self, symbols: Any, header: str) -> str:
        """A header of a request: symbols filled in, tokens as they are here."""
        text = symbols.filled(header)
        for name in ("admin", "plain", "reader", "sched", "wrong"):
            text = text.replace(f"<{name}-token>", f"{name}-token")
        return str(text)


class KindsReplay(Replay):
    """One scenario; it stands alone."""

    token = ""

    def request(self, recorded: Tree) -> HttpRequest:
        """The request, with the token that was returned in place of its symbol."""
        if self.token:
            recorded = json.loads(json.dumps(recorded).replace(TOKEN, self.token))
        return super().request(recorded)

    def _exchange(self, exchange: Tree) -> None:
        super()._exchange(exchange)
        if TOKEN in json.dumps(exchange["response"]) and not self.token:
            self._issue(exchange)

    def _issue(self, exchange: Tree) -> None:
        answer = self.cluster.handle(self.request(exchange["request"]), self.now)
        assert isinstance(answer, HttpResponse)
        self.token = json.loads(answer.body).get("status", {}).get("token", "")

    def _body(
        self, wanted: Any, answer: HttpResponse, any_order: Sequence[str] = ()
    ) -> Iterator[Finding]:
        if self.token:
            wanted = json.loads(json.dumps(wanted).replace(TOKEN, self.token))
        return super()._body(wanted, answer, any_order)

    def run(self) -> None:
        """Repeat every exchange in order."""
        for exchange in self.scenario["exchanges"]:
            self._pass(0.02)
            if "action" in exchange:
                self._wait(exchange)
            else:
                self._exchange(exchange)
            self._drain(exchange["n"])

    def _pass(self, seconds: float) -> None:
        """Let time pass, in the steps that something is due in."""
        until = self.now + seconds
        following = self.cluster.tick(self.now)
        while following is not None and following <= until:
            self.now = max(self.now + 0.001, following)
            following = self.cluster.tick(self.now)
        self.now = max(self.now, until)
        self.symbols.now = self.now
        self.cluster.tick(self.now)

    def _wait(self, exchange: Tree) -> None:
        self._pass(float(exchange.get("seconds") or 0.0))
        poll = exchange.get("poll")
        deadline = self.now + POLL_S
        while poll is not None:
            answer = self.cluster.handle(self.request(poll["request"]), self.now)
            assert isinstance(answer, HttpResponse)
            text = answer.body.decode()
            if answer.status == poll["status"] and str(poll.get("contains") or "") in text:
                return
            if self.now > deadline:
                found = Finding("poll", poll.get("contains"), text)
                self.findings.append((exchange["n"], found))
                return
            self._pass(0.5)


def scenarios(name: str = "kinds") -> list[Tree]:
    """The scenarios of a file."""
    with gzip.open(DATA / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@cache
def repeated(scenario: str, name: str = "kinds") -> list[tuple[int, Finding]]:
    """What differs from the recording of a scenario."""
    (found,) = (one for one in scenarios(name) if one["scenario"] == scenario)
    replay = KindsReplay(found, KindsCluster(found["server"], START), START)
    replay.run()
    return [(n, one) for n, one in replay.findings if not everywhere(one, name)]
