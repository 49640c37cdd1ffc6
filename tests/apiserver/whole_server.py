"""A server with all kinds and the default admission, asked request by request."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np

from stowplan.apis.machinery.access import AccessControl, AlwaysAllow
from stowplan.apis.machinery.http_messages import HttpRequest, HttpResponse
from stowplan.apiserver.admission import default_admission
from stowplan.apiserver.crd.definition_controller import DefinitionController
from stowplan.apiserver.discovery.default_pages import default_pages
from stowplan.apiserver.discovery.local_api_services import LocalApiServices
from stowplan.apiserver.options import ApiServerOptions
from stowplan.apiserver.resource_registry import built_in_registry
from stowplan.apiserver.server import ApiServer
from stowplan.objects.encoding.tree import Tree

NOW = 1_790_000_000.0


class WholeServer:
    """server: the server. headers: of the last answer."""

    def __init__(
        self,
        audit: Callable[[Tree], None] | None = None,
        level: str = "",
        *,
        device_taint_rules: bool = False,
        access: AccessControl | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """device_taint_rules: with that kind, which is off by default. access: who may do what;
        None: everybody everything. clock: times requests."""
        options = ApiServerOptions(
            registry=built_in_registry(device_taint_rules=device_taint_rules),
            admission=default_admission(),
            pages=default_pages(),
            observers=(DefinitionController(), LocalApiServices()),
            access=access or AlwaysAllow(),
            audit=audit,
            clock=clock,
            audit_level=level or "Metadata",
        )
        self.server = ApiServer(options, np.random.default_rng(3))
        self.headers: tuple[tuple[str, str], ...] = ()

    def answer(self, method: str, path: str, body: Tree | None = None, **headers: str) -> bytes:
        """The body of an answer."""
        path, _, query = path.partition("?")
        pairs = tuple((a, b) for a, _, b in (one.partition("=") for one in query.split("&") if one))
        given = {"content-type": "application/json", **headers}
        raw = json.dumps(body).encode() if body is not None else b""
        made = self.server.handle(HttpRequest(method, path, pairs, given, raw), NOW)
        assert isinstance(made, HttpResponse)
        self.server.tick(NOW)
        self.status, self.headers = made.status, made.headers
        return made.body

    def send(self, method: str, path: str, body: Tree | None = None) -> tuple[int, Tree]:
        """Status and tree of an answer."""
        raw = self.answer(method, path, body)
        return self.status, json.loads(raw)

    def warnings(self) -> list[str]:
        """Warnings of the last answer."""
        return [value for name, value in self.headers if name == "Warning"]
