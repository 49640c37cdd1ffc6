"""Informers of all resources that scheduling reads, each in a task, over HTTP."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

import numpy as np

from stowplan.client.informer import Informer
from stowplan.client.requests import ApiRequest
from stowplan.client.resources import ApiResource
from stowplan.client.responses import ApiResponse
from stowplan.client.watch_decoding import RawObjectCache
from stowplan.columns.pods.podinfo import PodInfo
from stowplan.driver.background_tasks import BackgroundTasks
from stowplan.driver.client.api_client import ApiClient
from stowplan.driver.clocks import monotonic_ns
from stowplan.driver.logs import log_keys
from stowplan.messages.events import Event
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.meta import Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.pod_templates import PodTemplates

log = logging.getLogger("stowplan.informers")

WATCH_FAILED_MESSAGE = "List or watch failed; retrying"
FALLBACK_MESSAGE = "Streaming list refused; falling back to paged lists"

LAG_S = 0.01
"""Seconds between two looks at a watch whose changes are not needed at once."""
EventsHandler = Callable[[list[Event]], None]


class Informers:
    """Runs one informer per resource."""

    def __init__(
        self,
        api: ApiClient,
        resources: Iterable[ApiResource],
        on_events: EventsHandler,
        rng: np.random.Generator,
        *,
        streams: bool = True,
        whole: RawObjectCache | None = None,
        whole_kinds: tuple[type[Object], ...] = (Pod, Node),
        may_lag: Callable[[], bool] | None = None,
    ) -> None:
        """on_events: called with events, in order for each resource. streams: ask for streaming
        lists first. whole: keeps objects of `whole_kinds` in the server's encoding. may_lag:
        whether changes are not needed at once; then they are read every `LAG_S`."""
        templates = PodTemplates(prepare=PodInfo.of)
        self.informers = [
            Informer(
                resource,
                rng,
                templates,
                streams=streams,
                whole=whole if resource.kind in whole_kinds else None,
            )
            for resource in resources
        ]
        self._pods = next((one for one in self.informers if one.resource.kind is Pod), None)
        self.synced = asyncio.Event()
        self._api = api
        self._on_events = on_events
        self._may_lag = may_lag

    @property
    def is_synced(self) -> bool:
        """True when all initial lists are complete."""
        return all(informer.is_synced for informer in self.informers)

    def unsynced(self) -> list[str]:
        """Resources whose initial list is incomplete, and why."""
        return [
            informer.resource.title + (f" ({informer.fault})" if informer.fault else "")
            for informer in self.informers
            if not informer.is_synced
        ]

    def version(self, namespace: str, name: str, uid: str) -> str:
        """Resource version of a pod in the cache, "" if it is unknown."""
        pod = self.pod(f"{namespace}/{name}")
        return pod.metadata.resource_version if pod is not None and pod.metadata.uid == uid else ""

    def pod(self, key: str) -> Pod | None:
        """A pod in the cache, by namespace/name."""
        found = None if self._pods is None else self._pods.find(key)
        return found if isinstance(found, Pod) else None

    def objects(self) -> list[Object]:
        """The latest version of every object of all resources."""
        return [value for informer in self.informers for value in informer.objects()]

    def objects_of(self, kind: type[Object]) -> list[Object]:
        """The latest version of every object of a kind."""
        found = (one for one in self.informers if one.resource.kind is kind)
        return [value for informer in found for value in informer.objects()]

    def start(self, tasks: BackgroundTasks) -> None:
        """Start all informers."""
        for informer in self.informers:
            tasks.start(self._follow(informer), f"informer {informer.resource.title}")

    async def _follow(self, informer: Informer) -> None:
        fault = refusal = ""
        while True:
            request = informer.next(monotonic_ns())
            if isinstance(request, int):
                await asyncio.sleep(max(0.0, (request - monotonic_ns()) / SECOND))
                continue
            if not request.is_watch:
                self._handle_events(
                    informer, informer.answered(await self._api.send(request), monotonic_ns())
                )
            else:
                await self._watch(informer, request)
            if informer.stream_refusal != refusal and informer.is_synced:
                refusal = informer.stream_refusal
                if refusal:
                    keys = {"resource": informer.resource.title, "err": refusal}
                    log_keys(log, logging.INFO, FALLBACK_MESSAGE, **keys)
            if informer.fault != fault:
                fault = informer.fault
                self._log(informer, fault)

    async def _watch(self, informer: Informer, request: ApiRequest) -> None:
        broken = ""
        opened = False
        clock = asyncio.get_running_loop().time
        try:
            async with (
                asyncio.timeout(informer.idle_timeout_s) as idle_timeout,
                self._api.stream(request) as stream,
            ):
                if isinstance(stream, ApiResponse):
                    self._handle_events(informer, informer.answered(stream, monotonic_ns()))
                    return
                informer.opened(monotonic_ns())
                opened = True
                while data := await stream.readany():
                    self._handle_events(informer, informer.feed(data, monotonic_ns()))
                    idle_timeout.reschedule(clock() + informer.idle_timeout_s)
                    if informer.is_closed:
                        return
                    if self._may_lag is not None and self._may_lag():
                        await stream.leave_unread(LAG_S)
        except TimeoutError:
            broken = f"no data for {informer.idle_timeout_s:g}s"
        except OSError as problem:
            broken = str(problem) or type(problem).__name__
        if opened:
            informer.closed(monotonic_ns(), broken)
        else:
            self._handle_events(
                informer, informer.answered(ApiResponse(0, fault=broken), monotonic_ns())
            )

    def _handle_events(self, informer: Informer, events: list[Event]) -> None:
        if events:
            self._on_events(events)
        while informer.unreadable:
            err = informer.unreadable.popleft()
            log_keys(log, logging.WARNING, "Skipped undecodable object", err=err)
        if not self.synced.is_set() and self.is_synced:
            self.synced.set()

    def _log(self, informer: Informer, fault: str) -> None:
        title = informer.resource.title
        if fault and informer.is_served:
            log_keys(log, logging.WARNING, WATCH_FAILED_MESSAGE, resource=title, err=fault)
        elif fault:
            log_keys(log, logging.INFO, "Resource is not served", resource=title, err=fault)
        else:
            log_keys(log, logging.INFO, "Watch resumed", resource=title)
