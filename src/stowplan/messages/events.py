"""Events: what happened, in the past tense. `Event` is the closed union of them.

The watch is authoritative: PodAdded, PodUpdated, PodDeleted and the like. Outcomes of effects are
hints, and have the effect's number.
"""

from __future__ import annotations

import msgspec

from stowplan.objects.meta import Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod


class Message(
    msgspec.Struct, frozen=True, gc=False, array_like=True, tag=True, tag_field="type_name"
):
    """Base of events and effects: immutable values, encoded as arrays that begin with their type's
    name, so that a recording is short and its unions decode in one step."""


class PodAdded(Message, frozen=True):
    """A pod was added, or listed again after the watch restarted."""

    pod: Pod


class PodUpdated(Message, frozen=True):
    """A pod was updated; pod: its new version."""

    pod: Pod


class PodDeleted(Message, frozen=True):
    """A pod was deleted."""

    pod: Pod


class NodeAdded(Message, frozen=True):
    """A node was added."""

    node: Node


class NodeUpdated(Message, frozen=True):
    """A node was updated."""

    node: Node


class NodeDeleted(Message, frozen=True):
    """A node was deleted."""

    node: Node


class ObjectAdded(Message, frozen=True):
    """An object that plugins read, neither pod nor node, was added."""

    value: Object


class ObjectUpdated(Message, frozen=True):
    """An object that plugins read was updated."""

    value: Object


class ObjectDeleted(Message, frozen=True):
    """An object that plugins read was deleted."""

    value: Object


class Outcome(Message, frozen=True):
    """Base of outcomes. effect: number of the effect. uid: of the pod or object it is about."""

    effect: int
    uid: str


class FailedRequest(Outcome, frozen=True):
    """Base of outcomes of a request that failed.

    code: HTTP status, 0 for none (a timeout, a broken connection). 4xx is definite, except 408;
    with that, 0 and 5xx the request may have been carried out.
    """

    code: int
    reason: str = ""


class BindDone(Outcome, frozen=True):
    """The API accepted the binding. The watch confirms it."""


class BindFailed(FailedRequest, frozen=True):
    """The API refused the binding, or its result is unknown: the pod may be bound."""

    @property
    def is_definite(self) -> bool:
        """True for an HTTP status after which the write certainly did not happen."""
        return 400 <= self.code < 500 and self.code != 408


class PodRead(Outcome, frozen=True):
    """Outcome of ReadPod. pod: None when it does not exist."""

    pod: Pod | None


class PatchFailed(FailedRequest, frozen=True):
    """A status patch was refused or lost."""


class EvictDone(Outcome, frozen=True):
    """The API accepted the deletion of a victim; the watch shows when it is deleted."""


class EvictFailed(FailedRequest, frozen=True):
    """The API refused to delete a victim."""


class PrepareDone(Outcome, frozen=True):
    """`perform` of a plugin's PreBind, Bind or PostBind has finished."""


class PrepareFailed(Outcome, frozen=True):
    """`perform` failed or timed out."""

    reason: str = ""


class WriteDone(Outcome, frozen=True):
    """The API accepted a write of an object; the watch will show it.

    version: its new resource version, where known; unchanged by a write without effect.
    """

    version: str = ""


class WriteFailed(FailedRequest, frozen=True):
    """The API refused a write, or its result is unknown."""


class ExtenderReplied(Outcome, frozen=True):
    """An extender has responded. code: HTTP status. body: decompressed."""

    code: int
    body: bytes = b""


class ExtenderFailed(Outcome, frozen=True):
    """An extender could not be called or did not respond in time.

    reason: in the words of Go's HTTP client: `Post "URL": dial tcp HOST:PORT: connect: connection
    refused`.
    """

    reason: str


class Allowed(Message, frozen=True):
    """A plugin allowed a pod that waits at Permit."""

    uid: str
    plugin: str


class Rejected(Message, frozen=True):
    """A pod that waits at Permit was rejected."""

    uid: str
    plugin: str
    reason: str = ""


class LeaderElected(Message, frozen=True):
    """This scheduler became leader. term: increases with every change of leader."""

    term: int


class LeaderLost(Message, frozen=True):
    """This scheduler is no longer leader. Watches continue."""


class Synced(Message, frozen=True):
    """All informers have synced; sessions may start."""


class ConfigurationChanged(Message, frozen=True):
    """A file of the configuration changed. source: name of the file. has_profiles, has_sessions:
    what it configured when it was read first."""

    text: str
    source: str
    has_profiles: bool = False
    has_sessions: bool = True


class SessionEnded(Message, frozen=True):
    """The duration of the previous session has elapsed; the next one starts a period later."""


class Tick(Message, frozen=True):
    """Time has passed."""


Event = (
    PodAdded
    | PodUpdated
    | PodDeleted
    | NodeAdded
    | NodeUpdated
    | NodeDeleted
    | ObjectAdded
    | ObjectUpdated
    | ObjectDeleted
    | BindDone
    | BindFailed
    | PodRead
    | PatchFailed
    | EvictDone
    | EvictFailed
    | PrepareDone
    | PrepareFailed
    | WriteDone
    | WriteFailed
    | ExtenderReplied
    | ExtenderFailed
    | Allowed
    | Rejected
    | LeaderElected
    | LeaderLost
    | Synced
    | ConfigurationChanged
    | SessionEnded
    | Tick
)
