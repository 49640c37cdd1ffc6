"""Informer stream: the production informers of one scheduler on the function-call transport."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from stowplan.client.informer import Informer
from stowplan.client.resources import ApiResource
from stowplan.client.responses import ApiResponse
from stowplan.columns.pods.podinfo import PodInfo
from stowplan.messages.events import Event
from stowplan.objects.pod_templates import PodTemplates
from stowplan.simulation.api_cluster.function_transport import FunctionTransport
from stowplan.simulation.event_queue import EventQueue


class InformerStream:
    """All informers of a scheduler, read together. It has the interface of `WatchStream`."""

    def __init__(
        self,
        transport: FunctionTransport,
        resources: Iterable[ApiResource],
        event_queue: EventQueue,
        rng: np.random.Generator,
    ) -> None:
        self.version = 0
        templates = PodTemplates(prepare=PodInfo.of)
        self.informers = [Informer(resource, rng, templates) for resource in resources]
        self._transport = transport
        self._event_queue = event_queue
        self._streams: dict[int, int] = {}
        """Number of the open stream, by index of the informer."""

    def take(self) -> list[Event]:
        """The events since the last call, of one resource after the other."""
        found: list[Event] = []
        for index, informer in enumerate(self.informers):
            found += self._of(index, informer)
        return found

    def _of(self, index: int, informer: Informer) -> list[Event]:
        found: list[Event] = []
        now = self._event_queue.now
        while True:
            stream = self._streams.get(index)
            if stream is None:
                request = informer.next(now)
                if isinstance(request, int):
                    return found
                reply = self._transport.open(request)
                if isinstance(reply, ApiResponse):
                    found += informer.answered(reply, now)
                    continue
                informer.opened(now)
                stream = self._streams[index] = reply
            chunk = self._transport.read(stream)
            if chunk.body:
                found += informer.feed(chunk.body, now)
            if chunk.end or informer.is_closed:
                informer.closed(now)
                del self._streams[index]
            elif not chunk.body:
                return found
