"""Extender service: a profile's opinion over HTTP, for a scheduler that cannot be replaced.

    POST PREFIX/filter  PREFIX/prioritize  PREFIX/preempt  PREFIX/bind

Where it follows a cluster, nodes are judged with the pods on them, those included that it has bound
and the watch has not shown yet. What a question lacks is told in `Error`, where the answer has one,
and by status 400 where not; 400 it is for what cannot be read. On loopback, other forms than JSON
(415) and pages of a browser (a foreign Host or Origin: 403) are refused.

Elsewhere than on loopback it answers those only whose certificate a given authority has signed: a
kube-scheduler has no token to show to an extender. It binds for such callers, and on loopback where
that was asked for.
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
from stowplan.driver.client.api_client import ApiClient
from stowplan.driver.client.apiserver_readiness import wait_for_apiserver
from stowplan.driver.clocks import monotonic_ns
from stowplan.driver.http.extender_handlers import ExtenderHandlers, InvalidExtenderArgs
from stowplan.driver.http.origins import foreign_origin
from stowplan.driver.http.status_server import AddressError, ListenAddress, server_tls_context
from stowplan.driver.live.informers import Informers
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
    """port: where it listens, once it does."""

    def __init__(
        self,
        deciders: Deciders,
        address: ListenAddress,
        client_config: ClientConfig | None = None,
        profile: str = "",
        *,
        binds: bool = False,
    ) -> None:
        """connection: of the cluster to follow, None for none. binds: for whoever connects.
        Raises ContractError and AddressError."""
        if not (address.is_loopback or address.client_ca):
            raise AddressError(
                f"listen: got {address.host}, where others can connect, wanted --client-ca-file, "
                "which says who may, or a loopback address"
            )
        self._may_bind = binds or bool(address.client_ca)
        self.port = address.port
        self.n_asked = 0
        self._deciders = deciders
        self._address = address
        self._client_config = client_config
        frameworks = frameworks_for(deciders.configuration, deciders.registry)
        self._handlers = ExtenderHandlers(frameworks, profile)
        # It decides nothing; it knows the cluster.
        self._scheduler: Scheduler = deciders.scheduler(options=SchedulerOptions(leads=False))
        self._api: ApiClient | None = None
        self._informers: Informers | None = None
        self._runner: web.AppRunner | None = None
        self._n_bound = 0

    async def start(self) -> None:
        """Follow the cluster, then listen; raises AddressError and CredentialError."""
        if self._client_config is not None:
            await self._follow(self._client_config)
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
            said = problem.strerror or problem
            raise AddressError(f"listen: {address.host}:{address.port}: {said}") from None
        self.port = int(self._runner.addresses[0][1])
        scheme = "https" if address.is_secure else "http"
        log.info("extender at %s://%s:%d", scheme, address.host, self.port)

    async def stop(self) -> None:
        """Listen and follow no more."""
        if self._runner is not None:
            await self._runner.cleanup()
        if self._informers is not None:
            await self._informers.stop()
        if self._api is not None:
            await self._api.close()

    async def _follow(self, client_config: ClientConfig) -> None:
        await wait_for_apiserver(client_config)
        kinds: tuple[type[Object], ...] = (Node, Pod, *kinds_read(self._deciders))
        self._api = ApiClient(client_config)
        rng = np.random.default_rng()
        self._informers = Informers(self._api, resources_of(kinds), self._tell, rng)
        self._informers.start()
        await self._informers.synced.wait()
        log.info("following %s", client_config.server)

    def _tell(self, events: list[Event]) -> None:
        self._scheduler.handle(events, monotonic_ns(), 0)

    def _snapshot(self) -> Snapshot | None:
        return None if self._client_config is None else self._scheduler.cache.snapshot()

    # Questions.

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _serve(self, request: web.Request) -> web.Response:
        verb = request.path.rstrip("/").rpartition("/")[2]
        if verb not in VERBS:
            wanted = f"one that ends in {', '.join(VERBS)}"
            return web.Response(status=404, text=f"got the path {request.path}, wanted {wanted}\n")
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
        """415 for another form than JSON, 403 for a page of a browser; None for a scheduler."""
        if request.content_type != JSON:
            text = f"got Content-Type {request.content_type}, wanted {JSON}\n"
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
        # Amounts are read where rules need them: what they raise then is the question's fault.
        except (ValueError, ArithmeticError, ContractError, RecursionError) as problem:
            text = str(problem)[:_TEXT_MAX]
            # It may be a rule's fault after all, and nobody else would be told.
            log.warning("Extender call cannot be judged: verb=%s err=%s", verb, text)
            raise InvalidExtenderRequest(f"cannot be judged: {text}") from None

    async def _bind(self, question: Any) -> str:
        """What went wrong, "" for nothing."""
        if self._api is None:
            raise InvalidExtenderArgs(
                "got a pod to bind, wanted a cluster to bind it in (--kubeconfig)"
            )
        if not self._may_bind:
            raise InvalidExtenderArgs(
                "got a pod to bind from somebody unknown, wanted --bind, or callers "
                "with a certificate (--client-ca-file)"
            )
        if not isinstance(question, dict):
            raise InvalidExtenderArgs(
                "got something else, wanted PodName, PodNamespace, PodUID and Node"
            )
        names = ("PodUID", "PodNamespace", "PodName", "Node")
        uid, namespace, name, node = (str(question.get(key) or "") for key in names)
        if not (name and namespace and node):
            raise InvalidExtenderArgs("got no PodName, PodNamespace or Node, wanted all of them")
        self._n_bound += 1
        answer = await self._api.send(bind(Bind(self._n_bound, 1, uid, namespace, name, node)))
        if not answer.is_done:
            return error_message(answer)
        self._assume(uid, f"{namespace}/{name}", node)
        return ""

    def _assume(self, uid: str, key: str, node: str) -> None:
        """Count the pod where it is bound, until the watch shows it there."""
        following = self._informers
        pods = () if following is None else following.informers
        for informer in pods:
            pod = informer.find(key) if informer.resource.kind is Pod else None
            if isinstance(pod, Pod) and pod.uid == uid and not pod.node_name:
                cache = self._scheduler.cache
                if not cache.nodes.knows_pod(uid):
                    cache.assume(pod, node)


class InvalidExtenderRequest(ValueError):
    """A question that cannot be read at all, or holds amounts that are none."""


def _decode_request(body: bytes) -> Any:
    """The question; raises Unreadable."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise InvalidExtenderRequest(f"no JSON document: {problem}") from None


def _failed(verb: str, text: str) -> web.Response:
    if verb in ("filter", "bind"):
        return web.Response(
            body=msgspec.json.encode({"Error": text}), content_type="application/json"
        )
    return web.Response(status=400, text=text + "\n")


def serve(service: ExtenderService) -> None:
    """Serve until a signal comes. Raises AddressError and CredentialError."""
    asyncio.run(_serve(service))


async def _serve(service: ExtenderService) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    stopping = asyncio.create_task(stop.wait())
    # A cluster that does not answer may be waited for long.
    starting = asyncio.create_task(service.start())
    try:
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
        await stopping
    finally:
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await service.stop()
