"""Extender service: serves a profile's plugins over HTTP to another scheduler.

    POST PREFIX/filter  PREFIX/prioritize  PREFIX/preempt  PREFIX/bind

If it follows a cluster, nodes are evaluated with the pods on them, including those that it has
bound and the watch has not shown yet. Missing arguments are reported in `Error`, where the response
has one, else by status 400; undecodable calls by 400. On loopback, other content types than JSON
(415) and requests of web pages (a foreign Host or Origin: 403) are refused.

On other addresses it requires a client certificate signed by a given CA, since kube-scheduler sends
no token to an extender. It binds for such callers, and on loopback only with --bind.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import Any

import msgspec
import numpy as np
from aiohttp import web

from stowplan.assembly.build import frameworks_for
from stowplan.assembly.deciders import Deciders
from stowplan.assembly.watched_kinds import kinds_read
from stowplan.client.kubeconfig import ClientConfig
from stowplan.client.requests import bind
from stowplan.client.resources import resources_of
from stowplan.client.responses import error_message
from stowplan.driver.background_tasks import BackgroundTasks, background_tasks
from stowplan.driver.client.api_client import ApiClient
from stowplan.driver.client.apiserver_readiness import wait_for_apiserver
from stowplan.driver.clocks import monotonic_ns
from stowplan.driver.http.extender_handlers import ExtenderHandlers, InvalidExtenderArgs
from stowplan.driver.http.listen_address import AddressError, ListenAddress, server_tls_context
from stowplan.driver.http.origins import foreign_origin
from stowplan.driver.live.informers import Informers
from stowplan.driver.logs import log_keys
from stowplan.framework import ContractError, Snapshot
from stowplan.messages.effects import Bind
from stowplan.messages.events import Event
from stowplan.objects.meta import Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.scheduler import Scheduler, SchedulerOptions

log = logging.getLogger("stowplan.http")

BODY_BYTES_MAX = 256 << 20
JSON = "application/json"
_TEXT_MAX = 300
VERBS = ("filter", "prioritize", "preempt", "bind")


class ExtenderService:
    """The HTTP service. port: where it listens, once started."""

    def __init__(
        self,
        deciders: Deciders,
        address: ListenAddress,
        client_config: ClientConfig | None = None,
        profile: str = "",
        *,
        binds: bool = False,
    ) -> None:
        """client_config: of the cluster to follow, None for none. binds: bind for all callers.
        Raises ContractError and AddressError."""
        if not (address.is_loopback or address.client_ca):
            raise AddressError(
                f"listen: {address.host} is not a loopback address: --client-ca-file is required"
            )
        self._may_bind = binds or bool(address.client_ca)
        self.port = address.port
        self.n_asked = 0
        self._deciders = deciders
        self._address = address
        self._client_config = client_config
        frameworks = frameworks_for(deciders.configuration, deciders.registry, deciders.gates)
        self._handlers = ExtenderHandlers(frameworks, profile)
        # Only its cache is used; it schedules nothing.
        self._scheduler: Scheduler = deciders.scheduler(options=SchedulerOptions(leads=False))
        self._api: ApiClient | None = None
        self._informers: Informers | None = None
        self._runner: web.AppRunner | None = None
        self._n_bound = 0

    async def start(self, tasks: BackgroundTasks) -> None:
        """Follow the cluster, then listen; raises AddressError and CredentialError. tasks: ended
        after `stop`."""
        if self._client_config is not None:
            await self._follow(self._client_config, tasks)
        app = web.Application(client_max_size=BODY_BYTES_MAX)
        app.router.add_get("/healthz", self._health)
        app.router.add_post("/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=2)
        await self._runner.setup()
        address = self._address
        context = server_tls_context(address) if address.is_secure else None
        try:
            site = web.TCPSite(self._runner, address.host, address.port, ssl_context=context)
            await site.start()
        except OSError as problem:
            what = problem.strerror or problem
            place = f"{address.host}:{address.port}"
            raise AddressError(f"unable to listen on {place}: {what}") from None
        self.port = int(self._runner.addresses[0][1])
        scheme = "https" if address.is_secure else "http"
        url = f"{scheme}://{address.host}:{self.port}"
        log_keys(log, logging.INFO, "Serving extender", address=url)

    async def stop(self) -> None:
        """Stop listening and sending requests."""
        if self._runner is not None:
            await self._runner.cleanup()
        if self._api is not None:
            await self._api.close()

    async def _follow(self, client_config: ClientConfig, tasks: BackgroundTasks) -> None:
        await wait_for_apiserver(client_config)
        kinds: tuple[type[Object], ...] = (Node, Pod, *kinds_read(self._deciders))
        self._api = ApiClient(client_config)
        rng = np.random.default_rng()
        self._informers = Informers(self._api, resources_of(kinds), self._add_events, rng)
        self._informers.start(tasks)
        await self._informers.synced.wait()
        log_keys(log, logging.INFO, "Following cluster", server=client_config.server)

    def _add_events(self, events: list[Event]) -> None:
        self._scheduler.handle(events, monotonic_ns(), 0)

    def _snapshot(self) -> Snapshot | None:
        return None if self._client_config is None else self._scheduler.cache.snapshot()

    # Calls.

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _serve(self, request: web.Request) -> web.Response:
        verb = request.path.rstrip("/").rpartition("/")[2]
        if verb not in VERBS:
            wanted = f"a path that ends in {', '.join(VERBS)}"
            return web.Response(status=404, text=f"{request.path} not found: expected {wanted}\n")
        if refused := self._refusal(request):
            return refused
        self.n_asked += 1
        try:
            question = _decode_request(await request.read())
            answer = await self._answer(verb, question)
        except InvalidExtenderRequest as problem:
            return web.Response(status=400, text=f"{verb}: {problem}\n")
        except InvalidExtenderArgs as problem:
            return _failed(verb, f"{verb}: {problem}")
        return web.Response(body=msgspec.json.encode(answer), content_type="application/json")

    def _refusal(self, request: web.Request) -> web.Response | None:
        """415 for another content type than JSON, 403 for a web page; None for a scheduler."""
        if request.content_type != JSON:
            text = f"unsupported Content-Type {request.content_type}: expected {JSON}\n"
            return web.Response(status=415, text=text)
        if not self._address.is_secure and (strange := foreign_origin(request.headers)):
            return web.Response(status=403, text=f"forbidden: {strange} is not this machine\n")
        return None

    async def _answer(self, verb: str, question: Any) -> Any:
        if verb == "bind":
            return {"Error": await self._bind(question)}
        asked = getattr(self._handlers, verb)
        try:
            return asked(question, self._snapshot())
        except InvalidExtenderArgs:
            raise
        # Plugins parse quantities when they need them: an error there is the caller's.
        except (ValueError, ArithmeticError, ContractError, RecursionError) as problem:
            text = str(problem)[:_TEXT_MAX]
            # It may be a bug of a plugin after all, so it is logged here.
            log_keys(log, logging.WARNING, "Extender call failed", verb=verb, err=text)
            raise InvalidExtenderRequest(f"cannot be evaluated: {text}") from None

    async def _bind(self, question: Any) -> str:
        """Bind a pod; returns the error, "" for none."""
        if self._api is None:
            raise InvalidExtenderArgs("needs a cluster to bind in (--kubeconfig)")
        if not self._may_bind:
            raise InvalidExtenderArgs(
                "refused for callers without a client certificate; use --client-ca-file or --bind"
            )
        if not isinstance(question, dict):
            raise InvalidExtenderArgs(
                "Invalid value: expected PodName, PodNamespace, PodUID and Node"
            )
        names = ("PodUID", "PodNamespace", "PodName", "Node")
        uid, namespace, name, node = (str(question.get(key) or "") for key in names)
        if not (name and namespace and node):
            raise InvalidExtenderArgs("Required value: PodName, PodNamespace and Node")
        self._n_bound += 1
        answer = await self._api.send(bind(Bind(self._n_bound, 1, uid, namespace, name, node), {}))
        if not answer.is_done:
            return error_message(answer)
        self._assume(uid, f"{namespace}/{name}", node)
        return ""

    def _assume(self, uid: str, key: str, node: str) -> None:
        """Count the pod on its node until the watch shows it there."""
        following = self._informers
        pods = () if following is None else following.informers
        for informer in pods:
            pod = informer.find(key) if informer.resource.kind is Pod else None
            if isinstance(pod, Pod) and pod.uid == uid and not pod.node_name:
                cache = self._scheduler.cache
                if not cache.nodes.knows_pod(uid):
                    cache.assume(pod, node)


class InvalidExtenderRequest(ValueError):
    """A call that cannot be decoded, or contains invalid quantities."""


def _decode_request(body: bytes) -> Any:
    """Decode a call; raises InvalidExtenderRequest."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise InvalidExtenderRequest(f"invalid JSON: {problem}") from None


def _failed(verb: str, text: str) -> web.Response:
    if verb in ("filter", "bind"):
        return web.Response(
            body=msgspec.json.encode({"Error": text}), content_type="application/json"
        )
    return web.Response(status=400, text=text + "\n")


def serve(service: ExtenderService) -> None:
    """Serve until a signal arrives. Raises AddressError and CredentialError."""
    asyncio.run(_serve(service))


async def _serve(service: ExtenderService) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with background_tasks() as tasks:
        stopping = asyncio.create_task(stop.wait())
        # Starting may wait long for a cluster that does not answer.
        starting = asyncio.create_task(service.start(tasks))
        try:
            await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
            await stopping
        finally:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            await service.stop()
