"""Following: informers run over HTTP, each in a task of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

import aiohttp
import numpy as np

from stowplan.client.answers import Answer
from stowplan.client.backoff import SECOND
from stowplan.client.decoding import Whole
from stowplan.client.informer import Informer
from stowplan.client.requests import Request
from stowplan.client.resources import Resource
from stowplan.driver.api import ApiClient
from stowplan.driver.clocks import steady
from stowplan.driver.logs import log_keys
from stowplan.messages.events import Event
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.templates import Templates

log = logging.getLogger("stowplan.informers")

FALLBACK = "Streaming list refused; falling back to paged lists"

Tell = Callable[[list[Event]], None]


class Following:
    """The informers of all resources that somebody wants to know of."""

    def __init__(
        self,
        api: ApiClient,
        resources: Iterable[Resource],
        tell: Tell,
        dice: np.random.Generator,
        *,
        streams: bool = True,
        whole: Whole | None = None,
    ) -> None:
        """tell: called with what has happened, in order for each resource. whole: keeps pods and
        nodes as the server spells them."""
        templates = Templates()
        self.informers = [
            Informer(
                resource,
                dice,
                templates,
                streams=streams,
                whole=whole if resource.kind in (Pod, Node) else None,
            )
            for resource in resources
        ]
        self._pods = next((one for one in self.informers if one.resource.kind is Pod), None)
        self.synced = asyncio.Event()
        self._api = api
        self._tell = tell
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def is_synced(self) -> bool:
        """True when all there was at the beginning has been told."""
        return all(informer.is_synced for informer in self.informers)

    def waiting_for(self) -> list[str]:
        """What has not been told yet, and why."""
        return [
            informer.resource.title + (f" ({informer.fault})" if informer.fault else "")
            for informer in self.informers
            if not informer.is_synced
        ]

    def version(self, namespace: str, name: str, uid: str) -> str:
        """The resource version of a pod as it was shown last, "" for one that is not there."""
        pod = self.pod(f"{namespace}/{name}")
        return pod.metadata.resource_version if pod is not None and pod.metadata.uid == uid else ""

    def pod(self, key: str) -> Pod | None:
        """A pod as it was shown last, by namespace/name."""
        found = None if self._pods is None else self._pods.find(key)
        return found if isinstance(found, Pod) else None

    def start(self) -> None:
        """Begin to follow."""
        for informer in self.informers:
            name = f"informer {informer.resource.title}"
            self._tasks.append(asyncio.create_task(self._follow(informer), name=name))

    async def stop(self) -> None:
        """Follow no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    def failed(self) -> BaseException | None:
        """The bug that has ended a task, if one has."""
        for task in self._tasks:
            if task.done() and not task.cancelled():
                return task.exception()
        return None

    async def _follow(self, informer: Informer) -> None:
        fault = refusal = ""
        while True:
            request = informer.next(steady())
            if isinstance(request, int):
                await asyncio.sleep(max(0.0, (request - steady()) / SECOND))
                continue
            if not request.is_watch:
                self._told(informer, informer.answered(await self._api.send(request), steady()))
            else:
                await self._watch(informer, request)
            if informer.stream_refusal != refusal and informer.is_synced:
                refusal = informer.stream_refusal
                if refusal:
                    keys = {"resource": informer.resource.title, "err": refusal}
                    log_keys(log, logging.INFO, FALLBACK, **keys)
            if informer.fault != fault:
                fault = informer.fault
                self._log(informer, fault)

    async def _watch(self, informer: Informer, request: Request) -> None:
        broken = ""
        opened = False
        clock = asyncio.get_running_loop().time
        try:
            async with (
                asyncio.timeout(informer.patience_s) as patience,
                self._api.stream(request) as stream,
            ):
                if isinstance(stream, Answer):
                    self._told(informer, informer.answered(stream, steady()))
                    return
                informer.opened(steady())
                opened = True
                while data := await stream.readany():
                    self._told(informer, informer.fed(data, steady()))
                    patience.reschedule(clock() + informer.patience_s)
                    if informer.is_over:
                        return
        except TimeoutError:
            broken = f"nothing came for {informer.patience_s:g} s"
        except (aiohttp.ClientError, OSError) as problem:
            broken = str(problem) or type(problem).__name__
        if opened:
            informer.closed(steady(), broken)
        else:
            self._told(informer, informer.answered(Answer(0, fault=broken), steady()))

    def _told(self, informer: Informer, events: list[Event]) -> None:
        if events:
            self._tell(events)
        while informer.unreadable:
            log.warning("passed over: %s", informer.unreadable.popleft())
        if not self.synced.is_set() and self.is_synced:
            self.synced.set()

    def _log(self, informer: Informer, fault: str) -> None:
        title = informer.resource.title
        if fault and informer.is_served:
            log.warning("%s: %s", title, fault)
        elif fault:
            log.info("%s: not served (%s)", title, fault)
        else:
            log.info("%s: followed again", title)
