"""Outbox: numbered effects of one call of `handle`, in decision order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import NamedTuple

import msgspec

from stowplan.framework import ObjectChange
from stowplan.framework.cycle_state import NO_TIMES
from stowplan.framework.deciders.session_decider import PodGroupReport, QueueStatusReport
from stowplan.framework.runtime.registered_plugin import RegisteredPlugin
from stowplan.messages.effects import (
    AnnotateGroup,
    Bind,
    CallExtender,
    Cancel,
    Effect,
    Evict,
    PatchGroup,
    PatchQueue,
    PatchStatus,
    Prepare,
    ReadPod,
    RecordEvent,
    Report,
    Wake,
    Write,
)
from stowplan.messages.extender_api import ExtenderRequest
from stowplan.objects.devices.card_reservation import CardReservations
from stowplan.objects.devices.gpu_cards import ASSUME_TIMES, INDEX_KEY
from stowplan.objects.devices.node_lock import NodeLock
from stowplan.objects.kai.bind_request import KaiBindRequestSpec
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import PodGroupCondition, PodGroupStatus
from stowplan.objects.scheduling_group import SCHEDULING_API_VERSION, SchedulingGroup

NOTE_BYTES_MAX = 1024
CONFIGURATION = "configuration"
"""Subject of reports about a changed configuration."""


DEFAULT = "default"
"""Namespace of a pod that names none; see `NamespacedObject.namespace`."""
NO_ANNOTATIONS: dict[str, str] = {}


class RequestedStatus(msgspec.Struct, frozen=True):
    """A requested pod status that the watch has not shown yet; see `Outbox.patch_status`."""

    nominated_node: str | None
    reason: str
    message: str

    def is_observed(self, pod: Pod) -> bool:
        """True if the pod's status shows what was requested."""
        if self.nominated_node not in (None, pod.status.nominated_node_name):
            return False
        return not self.reason or condition_of(pod) == ("False", self.reason, self.message)


class BindRun(NamedTuple):
    """Consecutive Bind effects of one `bind_all`. first: index in the effects of the call. pods,
    nodes: what they bind, and where, in the order of the effects."""

    first: int
    pods: Sequence[Pod]
    nodes: Sequence[str]


class Outbox:
    """One method per effect; it returns the effect number where an outcome may follow.

    term: leadership term. leads: without leadership no status or event is emitted; other effects
    but reports follow from decisions, which only a leader makes. requested_status: by uid, status
    changes that the watch has not shown yet. refused_configuration: the mistake of the changed
    configuration, "" for none. bind_runs: of the effects that `take` returned last.
    """

    __slots__ = (
        "_bind_runs",
        "_effects",
        "_last",
        "bind_runs",
        "leads",
        "refused_configuration",
        "requested_status",
        "term",
    )

    def __init__(self, *, leads: bool = True, term: int = 1) -> None:
        self.term = term
        self.leads = leads
        self.refused_configuration = ""
        self.requested_status: dict[str, RequestedStatus] = {}
        self.bind_runs: list[BindRun] = []
        self._bind_runs: list[BindRun] = []
        self._last = 0
        self._effects: list[Effect] = []

    def take(self) -> list[Effect]:
        """Return the effects added since the last call."""
        effects, self._effects = self._effects, []
        self.bind_runs, self._bind_runs = self._bind_runs, []
        return effects

    def _next(self) -> int:
        self._last += 1
        return self._last

    def bind(
        self,
        pod: Pod,
        uid: str,
        node: str,
        annotations: dict[str, str] = NO_ANNOTATIONS,
        times: Mapping[str, str] = NO_TIMES,
        lock: NodeLock | None = None,
        cards: CardReservations | None = None,
        request: KaiBindRequestSpec | None = None,
    ) -> int:
        """Bind a pod through the API server, which adds the annotations to it. times: annotations
        whose value is the time of the request, with its unit. lock, cards: of the node, taken or
        reserved before. request: that KAI's binder carries out in place of it."""
        self._last = number = self._last + 1
        own = NO_ANNOTATIONS if times is NO_TIMES else dict(times)
        name, namespace = pod.name, pod.namespace
        before = own, lock, cards, request
        self._effects.append(
            Bind(number, self.term, uid, namespace, name, node, annotations, *before)
        )
        return number

    def bind_all(
        self,
        pods: Sequence[Pod],
        uids: Sequence[str],
        nodes: Sequence[str],
        annotations: Sequence[dict[str, str]] = (),
    ) -> range:
        """Bind pods, each to its node; returns the numbers of the effects. annotations: of each
        pod, empty for none; with cards goes the time of the binding."""
        term, numbers = self.term, range(self._last + 1, self._last + 1 + len(pods))
        self._last += len(pods)
        metas = [pod.metadata for pod in pods]
        if not annotations:
            self._bind_runs.append(BindRun(len(self._effects), pods, nodes))
        notes = annotations or repeat(NO_ANNOTATIONS, len(pods))
        times = [
            ASSUME_TIMES if INDEX_KEY in own else NO_ANNOTATIONS for own in annotations
        ] or repeat(NO_ANNOTATIONS, len(pods))
        self._effects += [
            Bind(number, term, uid, meta.namespace or DEFAULT, meta.name, node, own, moments)
            for number, uid, meta, node, own, moments in zip(
                numbers, uids, metas, nodes, notes, times, strict=True
            )
        ]
        return numbers

    def read(self, pod: Pod) -> int:
        """Read a pod from the API server."""
        number = self._next()
        self._effects.append(ReadPod(number, self.term, pod.uid, pod.namespace, pod.name))
        return number

    def patch_status(
        self, pod: Pod, nominated_node: str | None, reason: str = "", message: str = ""
    ) -> None:
        """Patch nominatedNodeName (None leaves it, "" clears it) and, if `reason` is set, the
        PodScheduled condition."""
        if not self.leads:
            return
        before = self.requested_status.get(pod.uid)
        requested_status = RequestedStatus(nominated_node, reason, message)
        if before is not None and nominated_node is None:
            requested_status = msgspec.structs.replace(
                requested_status, nominated_node=before.nominated_node
            )
        if before is not None and not reason:
            requested_status = msgspec.structs.replace(
                requested_status, reason=before.reason, message=before.message
            )
        self.requested_status[pod.uid] = requested_status
        self._effects.append(
            PatchStatus(
                self._next(),
                self.term,
                pod.uid,
                pod.namespace,
                pod.name,
                reason,
                message,
                nominated_node,
            )
        )

    def nominate_all(self, pods: Iterable[Pod], nodes: Iterable[str]) -> None:
        """Patch nominatedNodeName of several pods."""
        if not self.leads:
            return
        term, requested, number = self.term, self.requested_status, self._last
        for pod, node in zip(pods, nodes, strict=True):
            meta = pod.metadata
            uid, namespace = meta.uid or pod.key, meta.namespace or DEFAULT
            if uid in requested:
                self._last = number
                self.patch_status(pod, node)
                number = self._last
                continue
            number += 1
            requested[uid] = RequestedStatus(node, "", "")
            self._effects.append(PatchStatus(number, term, uid, namespace, meta.name, "", "", node))
        self._last = number

    def pod_observed(self, pod: Pod) -> None:
        """The watch has shown a pod; drop the requested status that it confirms."""
        requested_status = self.requested_status.get(pod.uid)
        if requested_status is not None and (
            pod.spec.node_name or requested_status.is_observed(pod)
        ):
            del self.requested_status[pod.uid]

    def forget_status(self, uid: str) -> None:
        """Drop the requested status of a pod that was deleted or whose patch failed."""
        self.requested_status.pop(uid, None)

    def record(self, pod: Pod, kind: str, reason: str, action: str, note: str) -> None:
        """Record an event about a pod. kind: Normal or Warning."""
        if not self.leads:
            return
        self._effects.append(
            RecordEvent(
                self._next(),
                self.term,
                pod.uid,
                pod.namespace,
                pod.name,
                pod.spec.scheduler_name,
                kind,
                reason,
                action,
                truncate_note(note),
            )
        )

    def patch_group(self, group: PodGroupReport) -> int:
        """Patch the status of a group; `group.status` must be set."""
        assert group.status is not None
        number = self._next()
        self._effects.append(
            PatchGroup(
                number,
                self.term,
                group.uid,
                group.namespace,
                group.name,
                group.api_version,
                group.status,
            )
        )
        return number

    def annotate_group(self, group: PodGroupReport) -> int:
        """Set annotations of a group."""
        number = self._next()
        self._effects.append(
            AnnotateGroup(
                number,
                self.term,
                group.uid,
                group.namespace,
                group.name,
                group.api_version,
                dict(group.annotations),
            )
        )
        return number

    def patch_queue(self, queue: QueueStatusReport) -> int:
        """Patch what the pods of a queue have."""
        number = self._next()
        self._effects.append(
            PatchQueue(
                number,
                self.term,
                queue.uid,
                "",
                queue.name,
                queue.api_version,
                {**dict.fromkeys(queue.removed), **queue.allocated},
            )
        )
        return number

    def patch_scheduling_group(self, group: SchedulingGroup, condition: PodGroupCondition) -> None:
        """Write a condition of a group of scheduling.k8s.io."""
        if not self.leads:
            return
        status = PodGroupStatus(conditions=(condition,))
        self._effects.append(
            PatchGroup(
                self._next(),
                self.term,
                group.uid,
                group.namespace,
                group.name,
                SCHEDULING_API_VERSION,
                status,
                group.metadata.generation,
            )
        )

    def record_group(
        self, group: PodGroupReport, scheduler: str, note: tuple[str, str, str]
    ) -> None:
        """Record an event about a group. note: (type, reason, message)."""
        kind, reason, message = note
        self._effects.append(
            RecordEvent(
                self._next(),
                self.term,
                group.uid,
                group.namespace,
                group.name,
                scheduler,
                kind,
                reason,
                "Scheduling",
                truncate_note(message),
                "PodGroup",
                group.api_version,
                group.note_annotations,
            )
        )

    def report(self, subject: str, text: str, *, is_fault: bool) -> None:
        """Log a message for the operator."""
        self._effects.append(Report(self._next(), self.term, subject, text, is_fault))

    def report_reload(self, source: str, refused: str = "", what: str = "") -> None:
        """Log that a changed configuration applies, or why not; the same mistake is logged for one
        lane only. what: more about it."""
        if refused and refused == self.refused_configuration:
            return
        self.refused_configuration = refused
        if refused:
            problems = refused.replace("\n", "; ")
            text = f"{source}: invalid configuration, keeping the last valid one: {problems}"
        else:
            text = f"{source}: configuration reloaded{what}"
        self.report(CONFIGURATION, text, is_fault=bool(refused))

    def evict(self, victim: Pod, preemptor: str, message: str, cause: str, member: str = "") -> int:
        """Evict a victim through the API server. preemptor: uid, "" for none. cause, member: see
        Evict."""
        number = self._next()
        self._effects.append(
            Evict(
                number,
                self.term,
                victim.uid,
                victim.namespace,
                victim.name,
                preemptor,
                message,
                cause,
                member,
            )
        )
        return number

    def prepare(
        self, member: RegisteredPlugin, point: str, pod: Pod, node: str, timeout_s: float
    ) -> int:
        """Start a plugin's I/O."""
        number = self._next()
        self._effects.append(
            Prepare(
                number,
                self.term,
                pod.uid,
                pod.namespace,
                pod.name,
                member.name,
                point,
                node,
                timeout_s,
            )
        )
        return number

    def write(self, uid: str, change: ObjectChange) -> int:
        """Write an object on behalf of a pod."""
        number = self._next()
        self._effects.append(Write(number, self.term, uid, change.value, change.patch))
        return number

    def call_extender(self, uid: str, question: ExtenderRequest, timeout_s: float) -> int:
        """Call an extender on behalf of a pod."""
        number = self._next()
        self._effects.append(CallExtender(number, self.term, uid, question, timeout_s))
        return number

    def cancel(self, uid: str, prepare: int) -> None:
        """Cancel plugin I/O or an extender call."""
        self._effects.append(Cancel(self._next(), self.term, uid, prepare))

    def wake(self, at: int) -> None:
        """Request a call of `handle` at a time."""
        self._effects.append(Wake(self._next(), self.term, at))


def condition_of(pod: Pod) -> tuple[str, str, str] | None:
    """Status, reason and message of the PodScheduled condition, or None."""
    found = (c for c in pod.status.conditions if c.type == "PodScheduled")
    return next(((c.status, c.reason, c.message) for c in found), None)


def truncate_note(note: str) -> str:
    """Truncate to NOTE_BYTES_MAX bytes; a truncated note ends in " ..."."""
    if len(note) * 4 <= NOTE_BYTES_MAX:
        return note
    encoded = note.encode()
    if len(encoded) <= NOTE_BYTES_MAX:
        return note
    suffix = " ..."
    return encoded[: NOTE_BYTES_MAX - len(suffix)].decode(errors="ignore") + suffix
