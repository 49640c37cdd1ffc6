"""Events: what happened, in the past tense. `Event` is the closed list of them.

The watch is the truth: PodAdded, PodUpdated, PodDeleted and their like. What became of an effect
is a hint, and carries the effect's id.
"""

from __future__ import annotations

import msgspec

from stowplan.objects.meta import Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod


class Message(msgspec.Struct, frozen=True, gc=False):
    """Base of events and effects: frozen, small, compared and printed by content."""


class PodAdded(Message, frozen=True):
    """A pod is there, or the watch has started over and names it again."""

    pod: Pod


class PodUpdated(Message, frozen=True):
    """A pod changed; this is all of it as it is now."""

    pod: Pod


class PodDeleted(Message, frozen=True):
    """A pod is gone."""

    pod: Pod


class NodeAdded(Message, frozen=True):
    """A node is there."""

    node: Node


class NodeUpdated(Message, frozen=True):
    """A node changed."""

    node: Node


class NodeDeleted(Message, frozen=True):
    """A node is gone."""

    node: Node


class ObjectAdded(Message, frozen=True):
    """Something that rules read, neither pod nor node, is there."""

    value: Object


class ObjectUpdated(Message, frozen=True):
    """Something that rules read changed."""

    value: Object


class ObjectDeleted(Message, frozen=True):
    """Something that rules read is gone."""

    value: Object


class BindDone(Message, frozen=True):
    """The API took the binding. The watch will say so too, and counts."""

    effect: int
    uid: str


class BindFailed(Message, frozen=True):
    """The API refused the binding, or nobody knows.

    code: the HTTP status, 0 for none (a timeout, a connection that broke). 4xx is definite, save
    408; that, 0 and 5xx leave it open whether the pod is bound.
    """

    effect: int
    uid: str
    code: int
    reason: str = ""


class PodRead(Message, frozen=True):
    """The answer to ReadPod. pod: None when the API knows no such pod (any more)."""

    effect: int
    uid: str
    pod: Pod | None


class PatchFailed(Message, frozen=True):
    """A status patch was refused or lost."""

    effect: int
    uid: str
    code: int
    reason: str = ""


class EvictDone(Message, frozen=True):
    """The API took the deletion of a victim; the watch says when it is gone."""

    effect: int
    uid: str


class EvictFailed(Message, frozen=True):
    """The API refused to delete a victim."""

    effect: int
    uid: str
    code: int
    reason: str = ""


class PrepareDone(Message, frozen=True):
    """The work that a plugin's PreBind, Bind or PostBind had to do outside is done."""

    effect: int
    uid: str


class PrepareFailed(Message, frozen=True):
    """That work failed, or was stopped because its time was up."""

    effect: int
    uid: str
    reason: str = ""


class WriteDone(Message, frozen=True):
    """The API took a change of an object; the watch will show it.

    version: of the object from now on, where the caller knows; a change that changed nothing
    leaves it.
    """

    effect: int
    uid: str
    version: str = ""


class WriteFailed(Message, frozen=True):
    """The API did not take the change, or nobody knows."""

    effect: int
    uid: str
    code: int
    reason: str = ""


class ExtenderReplied(Message, frozen=True):
    """An extender has answered. code: the HTTP status. body: of the answer, unpacked."""

    effect: int
    uid: str
    code: int
    body: bytes = b""


class ExtenderFailed(Message, frozen=True):
    """An extender could not be asked, or has not answered, or not in time.

    reason: in the words of Go's HTTP client, for those who compare:
    `Post "URL": dial tcp HOST:PORT: connect: connection refused`.
    """

    effect: int
    uid: str
    reason: str


class Allowed(Message, frozen=True):
    """A pod that waits at Permit was allowed by a plugin."""

    uid: str
    plugin: str


class Rejected(Message, frozen=True):
    """A pod that waits at Permit was rejected."""

    uid: str
    plugin: str
    reason: str = ""


class LeaderElected(Message, frozen=True):
    """This scheduler leads from now on. term: grows with every change of leader."""

    term: int


class LeaderLost(Message, frozen=True):
    """This scheduler leads no more. It goes on following the watch."""


class Synced(Message, frozen=True):
    """Every source has shown all that was there when it began: from now on sessions are held."""


class ConfigurationChanged(Message, frozen=True):
    """The configuration of sessions reads otherwise now. source: the file, named in answers."""

    text: str
    source: str


class SessionEnded(Message, frozen=True):
    """The session that the call before has held is over now: it took time. The next one is held a
    period later."""


class Tick(Message, frozen=True):
    """Time has passed; whatever is due is due."""


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
