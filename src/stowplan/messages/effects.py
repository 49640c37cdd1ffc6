"""Effects: what to do, in the imperative. `Effect` is the closed union of them.

Each has a number, which its outcome repeats, and the leader term in which it was decided. The
driver executes effects of one pod in the order of their numbers, and drops writes of an older term
than the latest `LeaderElected`; every other effect has exactly one outcome, if its kind has any.
"""

from __future__ import annotations

from typing import Any

from stowplan.messages.events import Message
from stowplan.messages.extender_api import ExtenderRequest, ExtenderVerb
from stowplan.objects.devices.card_reservation import CardReservations
from stowplan.objects.devices.node_lock import NodeLock
from stowplan.objects.kai.bind_request import KaiBindRequestSpec
from stowplan.objects.meta import Object
from stowplan.objects.podgroup import PodGroupStatus


class Numbered(Message, frozen=True):
    """Base of effects. effect: unique number. term: of leadership."""

    effect: int
    term: int


class OnObject(Numbered, frozen=True):
    """Base of effects on one object: its uid, namespace and name."""

    uid: str
    namespace: str
    name: str


class Bind(OnObject, frozen=True):
    """Bind a pod to a node, if it still has this uid. Outcome: BindDone, BindFailed.

    annotations: to be added to those of the pod. times: annotations that get the time at which the
    request is sent, with its unit, `s` or `ns`. lock: of the node, to be taken before; where
    another pod has it the binding fails. cards: of the node, to be reserved before. request: that
    KAI's binder carries out in place of the binding.
    """

    node: str
    annotations: dict[str, str] = {}
    times: dict[str, str] = {}
    lock: NodeLock | None = None
    cards: CardReservations | None = None
    request: KaiBindRequestSpec | None = None


class ReadPod(OnObject, frozen=True):
    """Read a pod whose binding has an unknown result. Outcome: PodRead.

    A read writes nothing, so it is executed in any term. A failed read needs no outcome: the
    scheduler sends it again.
    """


class PatchStatus(OnObject, frozen=True):
    """Set the PodScheduled condition to False, and the nomination. Outcome: only PatchFailed.

    reason: Unschedulable or SchedulerError, "" leaves the condition unchanged. nominated_node: None
    leaves status.nominatedNodeName unchanged, "" clears it.
    """

    reason: str = ""
    message: str = ""
    nominated_node: str | None = None


class PatchGroup(OnObject, frozen=True):
    """Set the status of a PodGroup. Outcome: only PatchFailed.

    api_version: version under which it was read. Conditions without a time get that of the write.
    observed_generation: of the conditions, for groups of scheduling.k8s.io.
    """

    api_version: str
    status: PodGroupStatus
    observed_generation: int = 0


class AnnotateGroup(OnObject, frozen=True):
    """Set annotations of a PodGroup. Outcome: only PatchFailed.

    api_version: version under which it was read. annotations: key -> text, None for one to remove.
    """

    api_version: str
    annotations: dict[str, str | None]


class PatchQueue(OnObject, frozen=True):
    """Set `status.allocated` of a Queue. Outcome: only PatchFailed.

    api_version: version under which it was read. allocated: resource -> quantity, None for a
    resource to remove.
    """

    api_version: str
    allocated: dict[str, str | None]


class RecordEvent(OnObject, frozen=True):
    """Record an Event (events.k8s.io/v1) about a pod or a group. No outcome.

    type: Normal or Warning. note: at most 1,024 bytes. kind, api_version: of the regarding object.
    annotations: of the Event, by key.
    """

    scheduler: str
    type: str
    reason: str
    action: str
    note: str
    kind: str = "Pod"
    api_version: str = "v1"
    annotations: tuple[tuple[str, str], ...] = ()


class Evict(OnObject, frozen=True):
    """Evict a victim: set its DisruptionTarget condition, then delete it.

    The condition has status True, reason PreemptionByScheduler and `message`; if it cannot be set
    nothing is deleted. preemptor: uid of the pod that gets the resources, "" for none in
    particular. cause: name of the action that evicts it, `preemption` for that of profiles. member:
    uid of a pod of the job that gets them, where that is no one pod; "" for none.
    Outcome: EvictDone when the deletion was accepted, EvictFailed.
    """

    preemptor: str
    message: str
    cause: str = ""
    member: str = ""


class Prepare(OnObject, frozen=True):
    """Run a plugin's `perform` for a pod, with a timeout. Outcome: PrepareDone, PrepareFailed.

    `Scheduler.work` returns its context.
    """

    plugin: str
    point: str
    node: str
    timeout_s: float


class Write(Numbered, frozen=True):
    """Write an object, if it still has the resource version of `value`. Outcome: WriteDone,
    WriteFailed.

    value: the object after the write. patch: the change as a JSON merge patch; the driver adds
    resource version and kind. A value without uid and resource version is created with `patch` as
    its content; an empty patch deletes the object.
    """

    uid: str
    value: Object
    patch: dict[str, Any]


class CallExtender(Numbered, frozen=True):
    """Call an extender, with a timeout for the whole call. Outcome: ExtenderReplied,
    ExtenderFailed.

    The POST body is `messages.extender_api.encode_body(question.body)`, the URL
    `question.extender.url(question.verb)`; trust settings are in the configuration, at
    `extenders[question.extender.place]`. Only the verb bind writes.
    """

    uid: str
    question: ExtenderRequest
    timeout_s: float


class Cancel(Numbered, frozen=True):
    """Cancel the Prepare or CallExtender with number `prepare`. No outcome, also not of the
    cancelled effect. Writes nothing, so it is executed in any term."""

    uid: str
    prepare: int


class Report(Numbered, frozen=True):
    """Report to the operator. No outcome.

    subject: "configuration", "session" or "pod". is_fault: an error.
    """

    subject: str
    text: str
    is_fault: bool


class Wake(Numbered, frozen=True):
    """Call `handle` again at this time or later, with or without events. No outcome.

    at: whole nanoseconds. Before that, only events need a call.
    """

    at: int


Effect = (
    Bind
    | ReadPod
    | PatchStatus
    | PatchGroup
    | AnnotateGroup
    | PatchQueue
    | RecordEvent
    | Evict
    | Prepare
    | Write
    | CallExtender
    | Cancel
    | Report
    | Wake
)


_NOT_WRITES = (ReadPod, Cancel, Report, Wake)


def is_write(effect: Effect) -> bool:
    """True for an effect that only the leader may carry out."""
    if isinstance(effect, CallExtender):
        return effect.question.verb is ExtenderVerb.BIND
    return not isinstance(effect, _NOT_WRITES)
