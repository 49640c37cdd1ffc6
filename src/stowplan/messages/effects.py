"""Effects: what to do, in the imperative. `Effect` is the closed list of them.

An effect that writes carries an id, which its outcome repeats, and the term of leadership in
which it was decided; whoever performs it drops effects of an older term.
"""

from __future__ import annotations

from stowplan.messages.events import Message


class Bind(Message, frozen=True):
    """Bind a pod to a node."""

    effect: int
    term: int
    uid: str
    namespace: str
    name: str
    node: str


class ReadPod(Message, frozen=True):
    """Read a pod from the API: nobody knows what became of its binding."""

    effect: int
    uid: str
    namespace: str
    name: str


class PatchStatus(Message, frozen=True):
    """Set the PodScheduled condition to False, and the nomination.

    reason: Unschedulable or SchedulerError, "" leaves the condition alone. nominated_node: None
    leaves status.nominatedNodeName, "" clears it.
    """

    effect: int
    term: int
    uid: str
    namespace: str
    name: str
    reason: str = ""
    message: str = ""
    nominated_node: str | None = None


class RecordEvent(Message, frozen=True):
    """Tell users what happened to a pod, as an Event of events.k8s.io/v1.

    type: Normal or Warning. note: at most 1,024 bytes.
    """

    uid: str
    namespace: str
    name: str
    scheduler: str
    type: str
    reason: str
    action: str
    note: str


class Evict(Message, frozen=True):
    """Make room: set the DisruptionTarget condition on a victim, then delete it."""

    effect: int
    term: int
    uid: str
    namespace: str
    name: str
    preemptor: str
    message: str


class Prepare(Message, frozen=True):
    """Run a plugin's `perform` for a pod, outside, for at most timeout_s seconds."""

    effect: int
    term: int
    uid: str
    plugin: str
    point: str
    node: str
    timeout_s: float


class Wake(Message, frozen=True):
    """Send a Tick at this time, or later; nothing is due before."""

    at: float


Effect = Bind | ReadPod | PatchStatus | RecordEvent | Evict | Prepare | Wake
