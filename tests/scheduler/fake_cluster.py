"""FakeCluster: a small API server in memory, and a driver that performs effects late or not at all.

All choices are random and repeatable by seed. The watch keeps its order and lags; outcomes of
effects arrive before or after it.

Unlike `stowplan.simulation.cluster.simulated_cluster`, which has an event queue and durations, the
next step is always random here.
"""

from __future__ import annotations

import datetime
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event
from stowplan.messages.extender_api import ExtenderBindingArgs
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod, PodCondition
from stowplan.testing.generators.choices import RandomSource, chance, pick
from tests.scheduler import extender_replies
from tests.scheduler.volumes import Volumes

READS_AND_STOPS = (to_do.ReadPod, to_do.Cancel, to_do.Wake)
EPOCH = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


class Faults(msgspec.Struct, frozen=True):
    """Frequencies of faults: one in this many; 0 for never.

    refused: 500, and nothing was done. lost: done, without an answer. late: no answer, and done
    only afterwards. silent: neither done nor answered, for effects that may be repeated.
    """

    refused: int = 0
    lost: int = 0
    late: int = 0
    silent: int = 0


class FakeCluster:
    """Nodes and pods of the API server, and events on their way to the scheduler."""

    def __init__(self, rng: RandomSource, faults: Faults) -> None:
        self.rng = rng
        self.faults = faults
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.watch: deque[Event] = deque()
        self.pending_effects: list[Effect] = []
        self.answers: list[Event] = []
        self.alarm: int | None = None
        self.term = 1
        self._version = 0
        self.volumes = Volumes(self)
        self._carry_out: dict[type[Any], Callable[[Any], None]] = {
            to_do.Bind: self._bind,
            _Late: self._bind_late,
            to_do.ReadPod: self._read,
            to_do.PatchStatus: self._patch,
            to_do.Evict: self._evict,
            to_do.Prepare: self._prepare,
            to_do.Write: self._write,
            to_do.CallExtender: self._call,
        }

    # The API.

    def next_version(self) -> str:
        """Version of the next write."""
        self._version += 1
        return str(self._version)

    def put_node(self, node: Node) -> None:
        is_new = node.name not in self.nodes
        self.nodes[node.name] = node
        self.watch.append(happened.NodeAdded(node) if is_new else happened.NodeUpdated(node))

    def drop_node(self, name: str) -> None:
        self.watch.append(happened.NodeDeleted(self.nodes.pop(name)))

    def put_pod(self, pod: Pod) -> None:
        pod = replace(pod, metadata=replace(pod.metadata, resource_version=self.next_version()))
        is_new = pod.key not in self.pods
        self.pods[pod.key] = pod
        self.watch.append(happened.PodAdded(pod) if is_new else happened.PodUpdated(pod))

    def drop_pod(self, key: str) -> None:
        self.watch.append(happened.PodDeleted(self.pods.pop(key)))

    def delete_pod(self, key: str) -> None:
        """Delete gracefully: a bound pod terminates first, a pending one is deleted at once."""
        pod = self.pods[key]
        if not pod.node_name:
            self.drop_pod(key)
        elif pod.metadata.deletion_timestamp is None:
            self.put_pod(replace(pod, metadata=replace(pod.metadata, deletion_timestamp=EPOCH)))

    def bind_pod(self, key: str, uid: str, node: str) -> int:
        """Bind a pod; returns the HTTP status, 201 on success."""
        pod = self.pods.get(key)
        if pod is None:
            return 404
        if pod.uid != uid or pod.node_name or pod.metadata.deletion_timestamp is not None:
            return 409
        # The API server clears the nomination of a pod that it binds.
        status = replace(pod.status, nominated_node_name="")
        self.put_pod(replace(pod, spec=replace(pod.spec, node_name=node), status=status))
        return 201

    def requested_cpu(self, node: str) -> int:
        """CPU requests of the pods on a node, in whole CPUs."""
        return sum(cpu_of(p) for p in self.pods.values() if p.node_name == node and counts(p))

    # Driver.

    def take(self, effects: list[Effect]) -> None:
        """Queue effects to be performed later."""
        for effect in effects:
            if isinstance(effect, to_do.Wake):
                self.alarm = effect.at
            elif isinstance(effect, to_do.Cancel):
                self.pending_effects = [
                    one for one in self.pending_effects if one.effect != effect.prepare
                ]
            elif not isinstance(effect, to_do.RecordEvent):
                self.pending_effects.append(effect)

    def perform(self) -> None:
        """Perform one of the effects; effects about one pod keep their order."""
        if not self.pending_effects:
            return
        chosen: Any = pick(self.rng, self.pending_effects)
        first: Any = next(e for e in self.pending_effects if getattr(e, "uid", "") == chosen.uid)
        self.pending_effects.remove(first)
        if first.term < self.term and not isinstance(first, READS_AND_STOPS):
            return
        self._carry_out[type(first)](first)

    def _happens(self, one_in: int) -> bool:
        return one_in > 0 and chance(self.rng, one_in)

    def _bind(self, effect: to_do.Bind) -> None:
        key = f"{effect.namespace}/{effect.name}"
        if self._happens(self.faults.refused):
            code = 500
        elif self._happens(self.faults.late):
            self.pending_effects.append(
                _Late(effect.effect, effect.term, effect.uid, key, effect.node)
            )
            code = 0
        else:
            code = self.bind_pod(key, effect.uid, effect.node)
            if self._happens(self.faults.lost):
                code = pick(self.rng, (0, 504))
        if code == 201:
            self.answers.append(happened.BindDone(effect.effect, effect.uid))
        else:
            self.answers.append(happened.BindFailed(effect.effect, effect.uid, code))

    def _bind_late(self, effect: _Late) -> None:
        self.bind_pod(effect.key, effect.uid, effect.node)

    def _read(self, effect: to_do.ReadPod) -> None:
        if not self._happens(self.faults.silent):
            pod = self.pods.get(f"{effect.namespace}/{effect.name}")
            self.answers.append(happened.PodRead(effect.effect, effect.uid, pod))

    def _patch(self, effect: to_do.PatchStatus) -> None:
        pod = self.pods.get(f"{effect.namespace}/{effect.name}")
        if pod is None or pod.uid != effect.uid or self._happens(self.faults.refused):
            self.answers.append(happened.PatchFailed(effect.effect, effect.uid, 500))
            return
        status = pod.status
        if effect.reason:
            conditions = tuple(c for c in status.conditions if c.type != "PodScheduled")
            stated = PodCondition("PodScheduled", "False", effect.reason, effect.message)
            status = replace(status, conditions=(*conditions, stated))
        if effect.nominated_node is not None and not pod.node_name:
            status = replace(status, nominated_node_name=effect.nominated_node)
        if status != pod.status:
            self.put_pod(replace(pod, status=status))

    def _evict(self, effect: to_do.Evict) -> None:
        pod = self.pods.get(f"{effect.namespace}/{effect.name}")
        code = 200
        if self._happens(self.faults.refused):
            code = 500
        elif pod is None or pod.uid != effect.uid:
            code = 404
        else:
            stated = PodCondition("DisruptionTarget", "True", "PreemptionByScheduler")
            self.put_pod(replace(pod, status=replace(pod.status, conditions=(stated,))))
            self.delete_pod(pod.key)
            if self._happens(self.faults.lost):
                code = 0
        if code == 200:
            self.answers.append(happened.EvictDone(effect.effect, effect.uid))
        else:
            self.answers.append(happened.EvictFailed(effect.effect, effect.uid, code))

    def _prepare(self, effect: to_do.Prepare) -> None:
        if self._happens(self.faults.silent):
            return
        if self._happens(self.faults.refused):
            self.answers.append(happened.PrepareFailed(effect.effect, effect.uid, "no power"))
            return
        code = 201
        if effect.point == "bind":
            code = self.bind_pod(f"{effect.namespace}/{effect.name}", effect.uid, effect.node)
        if code == 201 and not self._happens(self.faults.lost):
            self.answers.append(happened.PrepareDone(effect.effect, effect.uid))
        else:
            self.answers.append(happened.PrepareFailed(effect.effect, effect.uid, str(code)))

    def _write(self, effect: to_do.Write) -> None:
        version = ""
        if self._happens(self.faults.refused):
            code = 500
        else:
            code, version = self.volumes.carry_out(effect)
            if self._happens(self.faults.lost):
                code = 0
        if code == 200:
            self.answers.append(happened.WriteDone(effect.effect, effect.uid, version))
        else:
            self.answers.append(happened.WriteFailed(effect.effect, effect.uid, code))

    def _call(self, effect: to_do.CallExtender) -> None:
        body = effect.question.body
        if self._happens(self.faults.silent):
            return
        if not isinstance(body, ExtenderBindingArgs):
            calm = self.faults == Faults()
            self.answers.append(extender_replies.reply(self.rng, effect, calm=calm))
            return
        key, stated = f"{body.pod_namespace}/{body.pod_name}", b"{}"
        if self._happens(self.faults.refused):
            stated = b'{"Error": "out of order"}'
        elif self._happens(self.faults.late):
            self.pending_effects.append(
                _Late(effect.effect, effect.term, effect.uid, key, body.node)
            )
            stated = b""
        elif self.bind_pod(key, body.pod_uid, body.node) != 201:
            stated = b'{"Error": "the API said no"}'
        elif self._happens(self.faults.lost):
            stated = b""
        self.answers.append(happened.ExtenderReplied(effect.effect, effect.uid, 200, stated))

    def deliver(self, *, everything: bool = False) -> list[Event]:
        """Some of the pending events: the watch in order, outcomes in any order."""
        batch: list[Event] = []
        while self.watch and (everything or not chance(self.rng, 3)):
            batch.append(self.watch.popleft())
        while self.answers and (everything or not chance(self.rng, 3)):
            place = 0 if everything else int(self.rng.integers(0, len(self.answers)))
            batch.insert(0 if chance(self.rng, 2) else len(batch), self.answers.pop(place))
        return batch


class _Late(to_do.Numbered, frozen=True):
    """A binding that reaches the server after its caller has timed out."""

    uid: str
    key: str
    node: str


def cpu_of(pod: Pod) -> int:
    """CPU request of a test pod, in whole CPUs."""
    return int(pod.spec.containers[0].resources.requests.get("cpu", "0"))


def counts(pod: Pod) -> bool:
    """True for a pod that holds resources."""
    return not pod.is_finished
