"""The page's server: a thread with an event loop of its own, so that neither decisions nor the
lease wait for a viewer.

It starts before there is a scheduler to look at, and goes on when that is replaced.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import threading
import time
from importlib.resources.abc import Traversable

from aiohttp import web

from stowplan.client.kubeconfig import ClientConfig
from stowplan.driver.http.listen_address import AddressError, ListenAddress, server_tls_context
from stowplan.driver.http.token_reviews import TokenReviews
from stowplan.driver.live.scheduler_server import SchedulerServer
from stowplan.driver.logs import log_keys
from stowplan.driver.loopback import is_loopback
from stowplan.web.serving.live_source import LiveSource
from stowplan.web.serving.page_access import PageAccess, access_middleware
from stowplan.web.serving.page_handlers import PageHandlers
from stowplan.web.serving.page_source import PageSource
from stowplan.web.serving.static_files import read_static_files
from stowplan.web.serving.viewers import Viewers

log = logging.getLogger("stowplan.http")

REQUEST_MAX = 4 << 20
"""Largest body of a request, in bytes."""
STOP_S = 5.0


class PageServer:
    """Serves the page from `start` until `stop`."""

    def __init__(
        self,
        address: ListenAddress,
        folder: Traversable | None = None,
        experiments: str = "",
    ) -> None:
        """folder: of static files, None for those of the package. experiments: folder below which
        experiments are looked for, "" for none."""
        self.port = address.port
        self.viewers = Viewers()
        self._address = address
        self._folder = folder
        self._experiments = experiments
        self._access = PageAccess(address)
        self._epoch = 0
        self._reviews: TokenReviews | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._started = threading.Event()
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="page", daemon=True)

    @property
    def url(self) -> str:
        """Where it listens, without a final slash."""
        scheme = "https" if self._address.is_secure else "http"
        host = {"localhost": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(
            self._address.host, self._address.host
        )
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"

    def start(self) -> None:
        """Listen. Raises AddressError."""
        self._thread.start()
        self._started.wait()
        if self._fault is not None:
            raise self._fault

    def attach(self, server: SchedulerServer) -> None:
        """Show a scheduler server from now on, before it runs; from any thread."""
        self._epoch = max(int(time.time()), self._epoch + 1)
        self.use(LiveSource(server, self._epoch), server.options.client_config)

    def use(self, source: PageSource, client_config: ClientConfig | None = None) -> None:
        """Show a source from now on; from any thread. client_config: of the API server that
        reviews tokens."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._use, source, client_config)

    def _use(self, source: PageSource, client_config: ClientConfig | None) -> None:
        self.viewers.use(source)
        if self._reviews is None and client_config is not None:
            self._access.reviews = self._reviews = TokenReviews(client_config)

    def stop(self) -> None:
        """Close all connections and end the thread; from another thread."""
        loop, stopping = self._loop, self._stopping
        if loop is not None and stopping is not None and not loop.is_closed():
            loop.call_soon_threadsafe(stopping.set)
        if self._thread.is_alive():
            self._thread.join(STOP_S)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except AddressError as fault:
            self._fault = fault
        # The starter has no other way to learn of it; scheduling goes on without a page.
        except Exception as fault:
            self._fault = fault
            log.exception("The page's server failed")
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        handlers = PageHandlers(
            self.viewers, self._access, read_static_files(self._folder), self._experiments
        )
        app = web.Application(
            middlewares=[access_middleware(self._access)], client_max_size=REQUEST_MAX
        )
        app.add_routes(handlers.routes())
        runner = web.AppRunner(app, access_log=None, keepalive_timeout=30, shutdown_timeout=1)
        await runner.setup()
        try:
            await self._listen(runner)
            serving = asyncio.create_task(self.viewers.run())
            stopping = asyncio.create_task(self._stopping.wait())
            self._started.set()
            await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
            await handlers.close()
            for task in (serving, stopping):
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                # A failure ends the server, and is logged.
                await serving
        finally:
            await runner.cleanup()
            if self._reviews is not None:
                await self._reviews.close()

    async def _listen(self, runner: web.AppRunner) -> None:
        address = self._address
        try:
            context = server_tls_context(address) if address.is_secure else None
            site = web.TCPSite(runner, address.host, address.port, ssl_context=context)
            await site.start()
        except (OSError, ssl.SSLError) as problem:
            what = problem.strerror or problem
            where = f"{address.host}:{address.port}"
            raise AddressError(f"--web: unable to listen on {where}: {what}") from None
        self.port = int(runner.addresses[0][1])
        log_keys(log, logging.INFO, "Serving the page", address=self.url)


def parse_web_address(text: str, certificate: str = "", key: str = "") -> ListenAddress:
    """The address of `--web`: HOST:PORT, or "" for a free port on loopback. certificate, key:
    files, "" for a self-signed certificate. Raises AddressError."""
    if not text:
        return ListenAddress("127.0.0.1", 0)
    host, separator, port = text.rpartition(":")
    host = host.strip("[]")
    if not separator or not host or not port.isdecimal() or int(port) > 65535:
        raise AddressError(f"--web: Invalid value: {text!r}: expected HOST:PORT")
    if is_loopback(host):
        return ListenAddress(host, int(port))
    return ListenAddress(host, int(port), certificate, key)
