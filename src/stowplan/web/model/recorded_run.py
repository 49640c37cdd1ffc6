"""A flight recording as a finished run: intervals of its pods and nodes, and its decisions."""

from __future__ import annotations

from typing import Any

import msgspec

from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.objects.meta import Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.recording.recording_files import Recording
from stowplan.web.model.decision_ring import PROFILES, DecisionRing, HandledCall
from stowplan.web.model.replay_intervals import NEVER, TIME, PodInterval, RunIntervals

S, MS = 1e9, 1e6
"""Nanoseconds."""


class NodePresence(msgspec.Struct):
    """When a node was there, in seconds from the start. node: its last version."""

    node: Node
    added: float
    removed: float = NEVER


class RecordedRun(msgspec.Struct, frozen=True):
    """run: the pods. presence: of the nodes, in the order of `run.nodes`. ring: the decisions, in
    milliseconds from the start."""

    run: RunIntervals
    presence: tuple[NodePresence, ...]
    ring: DecisionRing


class _RecordedPod(msgspec.Struct):
    """A pod so far. bound: NEVER while it has no node."""

    pod: Pod
    created: float
    node: str = ""
    bound: float = NEVER
    ended: float = NEVER


def recorded_run(recording: Recording, objects: list[Object]) -> RecordedRun:
    """Read a recording. objects: those of its end, for queues of gangs. Raises RecordingError."""
    reader = _RunReader()
    if recording.snapshot is not None:
        reader.take_all(recording.snapshot.events(), 0.0)
    ring = DecisionRing(reader.scheduler_of)
    now = recording.began
    for call in recording.calls():
        now = call.now
        at = (now - recording.began) / S
        reader.take_all(call.events(), at)
        effects: list[Any] = call.effects()
        reader.take_effects(effects, at)
        if effects:
            ring.add(HandledCall(at * 1000, 0, PROFILES, effects))
            # Before later calls push these out of the ring.
            ring.read()
    pods = [
        PodInterval(one.pod, one.node, one.created, one.bound, one.ended)
        for one in reader.pods.values()
    ]
    presence = tuple(reader.nodes.values())
    nodes = [one.node for one in presence]
    run = RunIntervals(nodes, pods, objects, TIME, (now - recording.began) / S)
    return RecordedRun(run, presence, ring)


class _RunReader:
    """pods: by uid. nodes: by name."""

    def __init__(self) -> None:
        self.pods: dict[str, _RecordedPod] = {}
        self.nodes: dict[str, NodePresence] = {}
        self._schedulers: dict[str, str] = {}

    def scheduler_of(self, pod: str) -> str:
        """The schedulerName of a pod by NAMESPACE/NAME, "" for an unknown one."""
        return self._schedulers.get(pod, "")

    def take_all(self, events: list[Any], at: float) -> None:
        """Events of one call."""
        for event in events:
            match event:
                case happened.PodAdded(pod) | happened.PodUpdated(pod):
                    self._put_pod(pod, at)
                case happened.PodDeleted(pod):
                    self._end(pod.uid, at)
                case happened.NodeAdded(node) | happened.NodeUpdated(node):
                    self._put_node(node, at)
                case happened.NodeDeleted(node):
                    known = self.nodes.get(node.name)
                    if known is not None:
                        known.removed = at
                case happened.BindFailed() if event.uid in self.pods:
                    one = self.pods[event.uid]
                    if not one.pod.node_name:
                        one.node, one.bound = "", NEVER

    def take_effects(self, effects: list[Any], at: float) -> None:
        """Bindings that were sent."""
        for effect in effects:
            if isinstance(effect, to_do.Bind) and effect.uid in self.pods:
                one = self.pods[effect.uid]
                one.node, one.bound = effect.node, at

    def _put_node(self, node: Node, at: float) -> None:
        known = self.nodes.get(node.name)
        if known is None:
            self.nodes[node.name] = NodePresence(node, at)
            return
        # A node that came back counts as one that was never away.
        known.node, known.removed = node, NEVER

    def _put_pod(self, pod: Pod, at: float) -> None:
        one = self.pods.get(pod.uid)
        if one is None:
            one = self.pods[pod.uid] = _RecordedPod(pod, at)
            self._schedulers[pod.key] = pod.spec.scheduler_name
        one.pod = pod
        if pod.node_name and one.node != pod.node_name:
            one.node, one.bound = pod.node_name, at
        if pod.is_finished:
            self._end(pod.uid, at)

    def _end(self, uid: str, at: float) -> None:
        one = self.pods.get(uid)
        if one is not None and one.ended == NEVER:
            one.ended = at
