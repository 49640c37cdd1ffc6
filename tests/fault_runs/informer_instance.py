"""Scheduler instance behind informers and an event correlator, as live, but without sockets.

Changes of pods and nodes pass through informers as watch lines; events pass through the correlator.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from stowplan.client.event_correlator import EventCorrelator
from stowplan.client.informer import Informer
from stowplan.client.resources import resources_of
from stowplan.client.responses import ApiResponse
from stowplan.client.watch_decoding import RawObjectCache
from stowplan.messages import events as happened
from stowplan.messages.effects import Effect, RecordEvent
from stowplan.messages.events import Event
from stowplan.objects.encoding.json_codec import encode
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.pod_templates import PodTemplates
from stowplan.simulation.cluster.scheduler_instance import SchedulerInstance
from stowplan.simulation.cluster.watch_stream import object_of

WATCHED = {
    happened.PodAdded: "ADDED",
    happened.PodUpdated: "MODIFIED",
    happened.PodDeleted: "DELETED",
    happened.NodeAdded: "ADDED",
    happened.NodeUpdated: "MODIFIED",
    happened.NodeDeleted: "DELETED",
}
EMPTY = b'{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}'


class InformerInstance(SchedulerInstance):
    """A scheduler instance whose pod and node events are decoded from watch lines."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        templates, whole, rng = PodTemplates(), RawObjectCache(), np.random.default_rng(0)
        self.informers = {
            resource.kind: Informer(resource, rng, templates, streams=False, whole=whole)
            for resource in resources_of((Pod, Node))
        }
        self.correlator = EventCorrelator("here", partial(version_in, self.informers[Pod]))
        for informer in self.informers.values():
            informer.next(0)
            informer.answered(ApiResponse(200, EMPTY), 0)
            informer.opened(0)

    def deliver(self, event: Event) -> None:
        """Deliver an event to the scheduler, pods and nodes through their informers."""
        kind = WATCHED.get(type(event))
        if kind is None:
            super().deliver(event)
            return
        value = object_of(event)
        line = b'{"type":"%b","object":%b}\n' % (kind.encode(), encode(value))
        for decoded in self.informers[type(value)].feed(line, self.cluster.event_queue.now):
            super().deliver(decoded)

    def recorded(self, effects: list[Effect]) -> None:
        """Pass RecordEvent effects to the event correlator."""
        now = self.cluster.event_queue.now
        for effect in effects:
            if isinstance(effect, RecordEvent):
                self.correlator.record(effect, now, now, "2001-02-03T04:05:06.000000Z")


def version_in(pods: Informer, namespace: str, name: str, uid: str) -> str:
    """The resource version of a pod as last delivered, "" when it does not exist."""
    found = pods.find(f"{namespace}/{name}")
    is_it = found is not None and found.metadata.uid == uid
    return found.metadata.resource_version if found is not None and is_it else ""
