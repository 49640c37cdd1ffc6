"""Cluster snapshot: what a scheduler knows at a moment, from which another one can start.

It has the objects of the watch and the assumed pods, not the inner state of the queue: a scheduler
that starts from it tries every pending pod again at once, as after a restart.
"""

from __future__ import annotations

import zlib

import msgspec
from msgspec.structs import replace

from stowplan.messages import events as happened
from stowplan.messages.events import Event
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.recording.frames import RecordingError, compress
from stowplan.recording.message_codec import ObjectRecord
from stowplan.scheduler import Scheduler


class ClusterSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """now: time of the snapshot. nodes: zone by zone. pods: in order of arrival. assumed: key
    of a pod whose binding the watch has not shown -> node. term, leads: of leadership."""

    now: int
    term: int
    leads: bool
    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    objects: tuple[ObjectRecord, ...]
    assumed: dict[str, str]

    def events(self) -> list[Event]:
        """The events by which a new scheduler learns of it. An assumed pod counts as bound."""
        found: list[Event] = [happened.NodeAdded(node) for node in self.nodes]
        found += [happened.ObjectAdded(record.object()) for record in self.objects]
        for pod in self.pods:
            node = self.assumed.get(pod.key)
            bound = pod if node is None else replace(pod, spec=replace(pod.spec, node_name=node))
            found.append(happened.PodAdded(bound))
        found.append(happened.Synced())
        if self.leads:
            found.append(happened.LeaderElected(self.term))
        return found


def take_snapshot(scheduler: Scheduler, now: int) -> ClusterSnapshot:
    """The snapshot of a scheduler between two calls."""
    outbox, cache = scheduler._context.outbox, scheduler.cache
    table = cache.nodes
    assumed: dict[str, str] = {}
    for uid in sorted(cache.assumed()):
        info, row = table.pod(uid), table.row_of_pod(uid)
        if info is not None and row >= 0:
            assumed[info.pod.key] = table.names[row]
    return ClusterSnapshot(
        now,
        outbox.term,
        outbox.leads,
        tuple(table.nodes[table.row(name)] for name in table.node_order.arrivals()),
        tuple(scheduler.pods.pods.values()),
        tuple(ObjectRecord.of(value) for value in cache.object_store.every()),
        assumed,
    )


def encode_snapshot(snapshot: ClusterSnapshot) -> bytes:
    """The payload of a snapshot frame."""
    return compress(msgspec.msgpack.encode(snapshot))


def decode_snapshot(payload: bytes, source: str) -> ClusterSnapshot:
    """Raises RecordingError."""
    try:
        return msgspec.msgpack.decode(zlib.decompress(payload), type=ClusterSnapshot)
    except (zlib.error, msgspec.DecodeError) as problem:
        raise RecordingError(f"{source}: snapshot that cannot be decoded: {problem}") from None
