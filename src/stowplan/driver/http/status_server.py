"""Status server: health, metrics, configuration and status of a scheduler over HTTP, read only.

    /healthz /livez   200 while the scheduling loop is alive
    /readyz           200 when all informers have synced
    /metrics          for Prometheus
    /configz          the effective configuration, and the options that decide beside it
    /statusz          what `stowplan status` shows

On a loopback address every local program may read, but no web page (403 for a foreign Host or
Origin). Other addresses use TLS, and all but the first three paths need a token that the API server
authenticates and authorizes (TokenReview, SubjectAccessReview of `get` on that path).

Source: kube-scheduler v1.36, cmd/kube-scheduler/app/server.go.
"""

from __future__ import annotations

import logging
import ssl
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from stowplan.assembly.running_configuration import running_configuration
from stowplan.config.effective_configuration import effective
from stowplan.driver.http.listen_address import AddressError, ListenAddress, server_tls_context
from stowplan.driver.http.origins import foreign_origin
from stowplan.driver.http.token_reviews import TokenReviews, bearer_token
from stowplan.driver.live import scheduler_status
from stowplan.driver.live.exposition import CONTENT_TYPE, SchedulerCollector, exposition_text
from stowplan.driver.logs import log_keys

if TYPE_CHECKING:
    from stowplan.driver.live.scheduler_server import SchedulerServer

log = logging.getLogger("stowplan.http")

UNAUTHENTICATED_PATHS = ("/healthz", "/livez", "/readyz")
NO_LIMIT = -1.0


class StatusServer:
    """Runs in the leader election thread while its context is entered, which raises AddressError
    when it cannot listen. port: where it listens."""

    def __init__(self, server: SchedulerServer, address: ListenAddress) -> None:
        self.port = address.port
        self._server = server
        self._address = address
        self._reviews = TokenReviews(server.options.client_config)
        self._runner: web.AppRunner | None = None
        server.metrics_recorder.registry.register(SchedulerCollector(server))

    async def __aenter__(self) -> StatusServer:
        try:
            await self._start()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
        await self._reviews.close()

    async def _start(self) -> None:
        app = web.Application(middlewares=[self._guarded])
        for path in UNAUTHENTICATED_PATHS:
            app.router.add_get(path, self._health)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/configz", self._configz)
        app.router.add_get("/statusz", self._statusz)
        # No client may block the thread for long.
        runner = web.AppRunner(app, access_log=None, keepalive_timeout=30, shutdown_timeout=1)
        self._runner = runner
        await runner.setup()
        address = self._address
        try:
            context = server_tls_context(address) if address.is_secure else None
            site = web.TCPSite(runner, address.host, address.port, ssl_context=context)
            await site.start()
        except (OSError, ssl.SSLError) as problem:
            raise AddressError(
                f"unable to listen on {address.host}:{address.port}: {problem.strerror or problem}"
            ) from None
        self.port = int(runner.addresses[0][1])
        scheme = "https" if address.is_secure else "http"
        url = f"{scheme}://{address.host}:{self.port}"
        log_keys(log, logging.INFO, "Serving status", address=url)

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if request.path not in UNAUTHENTICATED_PATHS and not self._address.is_loopback:
            token = bearer_token(request.headers.get("Authorization", ""))
            code = await self._reviews.refusal(token, request.path)
            if code:
                return web.Response(status=code, text=f"{code}\n")
        # With TLS, a web page under another name fails on the certificate.
        elif (
            request.path not in UNAUTHENTICATED_PATHS
            and not self._address.is_secure
            and (strange := foreign_origin(request.headers))
        ):
            return web.Response(status=403, text=f"forbidden: {strange} is not this machine\n")
        try:
            answer: web.StreamResponse = await handler(request)
        except TimeoutError:
            return web.Response(status=503, text="busy\n")
        return answer

    # Pages.

    async def _health(self, request: web.Request) -> web.Response:
        if request.path == "/readyz":
            missing = scheduler_status.unready_reasons(self._server)
            if missing:
                return web.Response(status=503, text="\n".join(missing) + "\n")
        elif not scheduler_status.is_alive(self._server):
            return web.Response(status=500, text="scheduling loop is stuck\n")
        return web.Response(text="ok")

    async def _metrics(self, request: web.Request) -> web.Response:
        server = self._server
        body = await server.call_between_handles(lambda: exposition_text(server))
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})

    async def _configz(self, request: web.Request) -> web.Response:
        server = self._server
        configuration = effective_configuration(server)
        files = server.options.plugin_files
        return _json(running_configuration(server.deciders, configuration, files))

    async def _statusz(self, request: web.Request) -> web.Response:
        server = self._server
        return _json(
            await server.call_between_handles(lambda: scheduler_status.status_summary(server))
        )


def effective_configuration(server: SchedulerServer) -> dict[str, Any]:
    """The configuration with command line options and Stowplan's defaults applied. No request limit
    is a qps below 0, as in configuration files."""
    configuration, options = server.deciders.configuration, server.options
    election_config = options.election_config
    election = msgspec.structs.replace(configuration.leader_election, leader_elect=False)
    if election_config is not None and not options.dry_run:
        election = msgspec.structs.replace(
            configuration.leader_election,
            resource_name=election_config.name,
            resource_namespace=election_config.namespace,
        )
    client = msgspec.structs.replace(
        configuration.client_connection, qps=options.qps or NO_LIMIT, burst=options.burst
    )
    changed = msgspec.structs.replace(
        configuration, leader_election=election, client_connection=client
    )
    return effective(changed)


def _json(tree: Any) -> web.Response:
    return web.Response(body=msgspec.json.encode(tree), content_type="application/json")
