"""Effects: what to do, in the imperative. `Effect` is the closed list of them.

Each carries a number, which its outcome repeats, and the term of leadership in which it was
decided. Whoever performs effects takes those about one pod in the order of their numbers, and drops
those that write and are of an older term than the latest `LeaderElected`; every other one ends in
exactly one outcome, where its kind has any.
"""

from __future__ import annotations

from typing import Any

from stowplan.messages.events import Message
from stowplan.messages.extender_api import ExtenderRequest, ExtenderVerb
from stowplan.objects.meta import Object
from stowplan.objects.podgroup import PodGroupStatus


class Numbered(Message, frozen=True):
    """Base of effects. effect: its number, never used twice. term: of leadership."""

    effect: int
    term: int


class Bind(Numbered, frozen=True):
    """Bind a pod to a node, on condition that it still has this uid. Ends: BindDone, BindFailed."""

    uid: str
    namespace: str
    name: str
    node: str


class ReadPod(Numbered, frozen=True):
    """Read a pod from the API: nobody knows what became of its binding. Ends: PodRead.

    A read writes nothing, so it is done in any term. One that gets no answer needs no outcome: it
    is asked for again.
    """

    uid: str
    namespace: str
    name: str


class PatchStatus(Numbered, frozen=True):
    """Set the PodScheduled condition to False, and the nomination. Ends: at most PatchFailed.

    reason: Unschedulable or SchedulerError, "" leaves the condition alone. nominated_node: None
    leaves status.nominatedNodeName, "" clears it.
    """

    uid: str
    namespace: str
    name: str
    reason: str = ""
    message: str = ""
    nominated_node: str | None = None


class PatchGroup(Numbered, frozen=True):
    """Set the status of a PodGroup. Ends: at most PatchFailed.

    api_version: under which it was read. Conditions without a time get that of the write.
    """

    uid: str
    namespace: str
    name: str
    api_version: str
    status: PodGroupStatus


class RecordEvent(Numbered, frozen=True):
    """Tell users what happened to a pod or a group, as an Event of events.k8s.io/v1. Has no
    outcome.

    type: Normal or Warning. note: at most 1,024 bytes. kind, api_version: of what it is about.
    """

    uid: str
    namespace: str
    name: str
    scheduler: str
    type: str
    reason: str
    action: str
    note: str
    kind: str = "Pod"
    api_version: str = "v1"


class Evict(Numbered, frozen=True):
    """Make room: set the DisruptionTarget condition on a victim, then delete it.

    The condition's status is True, its reason PreemptionByScheduler, its message `message`; where
    it cannot be set nothing is deleted. preemptor: the uid of the pod that gets the room, "" where
    none in particular does. Ends: EvictDone when the deletion was taken, EvictFailed.
    """

    uid: str
    namespace: str
    name: str
    preemptor: str
    message: str


class Prepare(Numbered, frozen=True):
    """Run a plugin's `perform` for a pod, for at most timeout_s seconds.

    `Scheduler.work` has all that it is told. Ends: PrepareDone, PrepareFailed.
    """

    uid: str
    namespace: str
    name: str
    plugin: str
    point: str
    node: str
    timeout_s: float


class Write(Numbered, frozen=True):
    """Change an object for a pod's sake, on condition that it still has the version of `value`.

    value: the object as it is to be. patch: what that takes, as a JSON merge patch; whoever sends
    it adds the version and the kind. Ends: WriteDone, WriteFailed.
    """

    uid: str
    value: Object
    patch: dict[str, Any]


class CallExtender(Numbered, frozen=True):
    """Ask an extender, within timeout_s seconds for the whole call. Ends: ExtenderReplied,
    ExtenderFailed.

    The body of the POST is `objects.extender.encoded(question.body)`, the address
    `question.extender.url(question.verb)`; the configuration says how that is trusted, at
    `extenders[question.extender.place]`. To bind is a write, the other verbs are not.
    """

    uid: str
    question: ExtenderRequest
    timeout_s: float


class Cancel(Numbered, frozen=True):
    """Stop the Prepare or CallExtender of number `prepare`: nobody waits for it any more. Has no
    outcome, nor has that effect now. As it writes nothing it is done in any term."""

    uid: str
    prepare: int


class Report(Numbered, frozen=True):
    """Tell whoever runs the scheduler. Has no outcome.

    subject: what it is about: "configuration" or "session". is_fault: something is wrong.
    """

    subject: str
    text: str
    is_fault: bool


class Wake(Numbered, frozen=True):
    """Call again at this time, or later, with or without events. Has no outcome.

    at: whole nanoseconds. Until then nothing is due but what events bring.
    """

    at: int


Effect = (
    Bind
    | ReadPod
    | PatchStatus
    | PatchGroup
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
