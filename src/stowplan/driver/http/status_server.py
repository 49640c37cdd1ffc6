"""Serving: what a live scheduler shows of itself over HTTP. Everything is read only.

    /healthz /livez   200 while the loop goes round
    /readyz           200 when all objects have been listed
    /metrics          for Prometheus
    /configz          the configuration that holds
    /statusz          what `stowplan status` shows

On a loopback address everybody on the computer may read, but no page of a browser that comes by
another name (403 for such a Host or Origin). Elsewhere it speaks TLS only, and all but
the first three asks the API server who somebody is, and whether they may (TokenReview,
SubjectAccessReview of `get` on that path).

Source: kube-scheduler v1.36, cmd/kube-scheduler/app/server.go.
"""

from __future__ import annotations

import ipaddress
import logging
import platform
import ssl
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from stowplan.client.access_reviews import (
    is_access_allowed,
    subject_access_review,
    token_review,
    user_of_token_review,
)
from stowplan.config.effective_configuration import effective
from stowplan.driver.certificate import self_signed_certificate
from stowplan.driver.client.api_client import ApiClient
from stowplan.driver.clocks import monotonic_ns
from stowplan.driver.http.origins import foreign_origin
from stowplan.driver.live import status as standing
from stowplan.driver.live.exposition import CONTENT_TYPE, SchedulerCollector, exposition_text
from stowplan.objects.encoding.duration import SECOND

if TYPE_CHECKING:
    from stowplan.driver.live.scheduler_server import SchedulerServer

log = logging.getLogger("stowplan.http")

DEFAULT_LISTEN_ADDRESS = "127.0.0.1:10259"
UNAUTHENTICATED_PATHS = ("/healthz", "/livez", "/readyz")
REVIEW_CACHE_TTL_S = 10
"""How long an answer of the API server about somebody is gone by."""
REVIEW_CACHE_SIZE = 1000
NO_LIMIT = -1.0


class AddressError(ValueError):
    """An address that cannot be listened at."""


class ListenAddress(msgspec.Struct, frozen=True):
    """Where to listen. certificate, key: files, "" for a certificate of one's own making.
    client_ca: a file; whoever connects has to have a certificate that it signs. "" asks for none.
    """

    host: str
    port: int
    certificate: str = ""
    key: str = ""
    client_ca: str = ""

    @property
    def is_secure(self) -> bool:
        """True where TLS is spoken."""
        return not self.is_loopback or bool(self.certificate or self.client_ca)

    @property
    def is_loopback(self) -> bool:
        """True where only this computer can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_listen_address(text: str, certificate: str = "", key: str = "") -> ListenAddress | None:
    """HOST:PORT, or PORT on loopback, as an address; None for "0" or "", which is none. Raises
    AddressError."""
    if text in ("", "0"):
        return None
    host, _, port = text.rpartition(":")
    host = host.strip("[]") or ("127.0.0.1" if ":" not in text else "0.0.0.0")
    if not port.isdecimal() or int(port) > 65535:
        raise AddressError(f"listen: got {text!r}, wanted HOST:PORT")
    if bool(certificate) != bool(key):
        raise AddressError("TLS: got a certificate or a key alone, wanted both or none")
    return ListenAddress(host, int(port), certificate, key)


class StatusServer:
    """Runs in the thread of the lease, as long as it is entered, which raises AddressError where
    nobody can listen. port: where it listens."""

    def __init__(self, live: SchedulerServer, address: ListenAddress) -> None:
        self.port = address.port
        self._live = live
        self._address = address
        self._api: ApiClient | None = None
        self._runner: web.AppRunner | None = None
        self._known: dict[tuple[str, str], tuple[int, bool]] = {}
        live.metrics_recorder.registry.register(SchedulerCollector(live))

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
        if self._api is not None:
            await self._api.close()

    async def _start(self) -> None:
        app = web.Application(middlewares=[self._guarded])
        for path in UNAUTHENTICATED_PATHS:
            app.router.add_get(path, self._health)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/configz", self._configz)
        app.router.add_get("/statusz", self._statusz)
        # Nobody may hold the thread up for long.
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
                f"listen: {address.host}:{address.port}: {problem.strerror or problem}"
            ) from None
        self.port = int(runner.addresses[0][1])
        scheme = "https" if address.is_secure else "http"
        log.info("serving %s://%s:%d", scheme, address.host, self.port)

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if request.path not in UNAUTHENTICATED_PATHS and not self._address.is_loopback:
            code = await self._refusal(request)
            if code:
                return web.Response(status=code, text=f"{code}\n")
        # With TLS, a page by another name meets a certificate that is not its own.
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

    async def _refusal(self, request: web.Request) -> int:
        """401 or 403, 0 for whoever may read."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return 401
        key = (token.strip(), request.path)
        known = self._known.get(key)
        if known is None or monotonic_ns() - known[0] > REVIEW_CACHE_TTL_S * SECOND:
            answer = await self._ask(*key)
            if answer is None:
                return 401
            if len(self._known) >= REVIEW_CACHE_SIZE:
                self._known.clear()
            known = self._known[key] = monotonic_ns(), answer
        return 0 if known[1] else 403

    async def _ask(self, token: str, path: str) -> bool | None:
        """Whether somebody may read a path; None for nobody that the API server knows."""
        if self._api is None:
            self._api = ApiClient(self._live.options.client_config)
        user = user_of_token_review(await self._api.send(token_review(token)))
        if user is None:
            return None
        return is_access_allowed(await self._api.send(subject_access_review(user, path)))

    # Pages.

    async def _health(self, request: web.Request) -> web.Response:
        if request.path == "/readyz":
            missing = standing.unready_reasons(self._live)
            if missing:
                return web.Response(status=503, text="\n".join(missing) + "\n")
        elif not standing.is_alive(self._live):
            return web.Response(status=500, text="the loop is stuck\n")
        return web.Response(text="ok")

    async def _metrics(self, request: web.Request) -> web.Response:
        live = self._live
        body = await live.call_between_handles(lambda: exposition_text(live))
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})

    async def _configz(self, request: web.Request) -> web.Response:
        return _json({"kubescheduler.config.k8s.io": effective_configuration(self._live)})

    async def _statusz(self, request: web.Request) -> web.Response:
        live = self._live
        return _json(await live.call_between_handles(lambda: standing.status_summary(live)))


def effective_configuration(live: SchedulerServer) -> dict[str, Any]:
    """The configuration with what the command line and our own defaults have made of it. Requests
    without a limit have a qps below 0, as configurations spell it."""
    configuration, options = live.deciders.configuration, live.options
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


def server_tls_context(address: ListenAddress) -> ssl.SSLContext:
    """How TLS is spoken as a server, with a certificate of one's own making where none is given;
    raises AddressError."""
    read = address.certificate
    try:
        context = _context(address)
        if read := address.client_ca:
            context.load_verify_locations(read)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as problem:
        raise AddressError(f"TLS: {read}: {problem.strerror or problem}") from None
    return context


def _context(address: ListenAddress) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if address.certificate:
        context.load_cert_chain(address.certificate, address.key)
        return context
    own = self_signed_certificate(["localhost", platform.node(), "127.0.0.1"], time.time())
    with tempfile.NamedTemporaryFile("w", prefix="stowplan-") as file:
        file.write(own.certificate + own.key)
        file.flush()
        context.load_cert_chain(Path(file.name))
    return context
