"""SessionDecider: what decides many pods in one round. The machine is given one.

It is shown the whole cluster as it changes, keeps what it needs of it, and is asked from time to
time to hold a session. What a session decides it counts as done at once: bound pods take their
room, evicted ones are on their way out. The machine says what became of that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import msgspec

from stowplan.framework.cycle_state import CycleState
from stowplan.framework.handle_state import HandleState
from stowplan.framework.metrics import Metrics
from stowplan.framework.runtime.framework import Framework
from stowplan.framework.snapshot import Snapshot
from stowplan.objects.meta import Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import PodGroupStatus


class NodeAssignment(msgspec.Struct, frozen=True, gc=False):
    """A pod and the node that a session chose for it.

    gang: equal for pods that start together or not at all, "" for one of which no other depends.
    """

    pod: Pod
    node: str
    gang: str = ""


class SessionVictim(msgspec.Struct, frozen=True, gc=False):
    """A pod that has to go. why: the action. preemptor: the pod that gets its room, None where
    nobody in particular does. group: what the preemptor belongs to, in words."""

    pod: Pod
    why: str
    preemptor: Pod | None = None
    group: str = ""


class PodGroupReport(msgspec.Struct, frozen=True):
    """What is to be told of a pod group.

    status: to be written, None where it says so already. notes: (type, reason, message) of events.
    """

    uid: str
    namespace: str
    name: str
    api_version: str
    status: PodGroupStatus | None = None
    notes: tuple[tuple[str, str, str], ...] = ()


class PodReport(msgspec.Struct, frozen=True, gc=False):
    """Why a pod has no node."""

    pod: Pod
    message: str


class SessionResult(msgspec.Struct, frozen=True):
    """What a session decided.

    nominations: pods that wait for resources being released, with their nodes. fault: what
    broke it off; then it decided nothing.
    """

    binds: Sequence[NodeAssignment] = ()
    victims: Sequence[SessionVictim] = ()
    nominations: Sequence[NodeAssignment] = ()
    groups: Sequence[PodGroupReport] = ()
    pods: Sequence[PodReport] = ()
    fault: str = ""


class BindFailureResult(msgspec.Struct, frozen=True):
    """What a failed binding leads to. victims: members that go as the group is given up."""

    groups: Sequence[PodGroupReport] = ()
    victims: Sequence[SessionVictim] = ()


class SessionDecider(Protocol):
    """Decides the pods that name its schedulers, all at once."""

    @property
    def scheduler_name(self) -> str:
        """The first of the names, which its events have."""

    @property
    def scheduler_names(self) -> tuple[str, ...]:
        """Whose pods it decides."""

    @property
    def period_s(self) -> float:
        """How long after a session has ended the next one opens, in seconds."""

    @property
    def framework(self) -> Framework:
        """Whose plugins take part between the choice of a node and the binding."""

    @property
    def metrics(self) -> Metrics:
        """What it has counted and measured so far."""

    def attach(self, shared: HandleState, snapshot: Callable[[], Snapshot]) -> None:
        """Take part in a machine: what its plugins share, and the cluster as it is now."""

    # What the watch shows.

    def pod_updated(self, pod: Pod) -> None:
        """A pod is there, or is as it is now; finished ones too."""

    def pod_deleted(self, uid: str) -> None:
        """A pod is not there any more."""

    def node_updated(self, node: Node) -> None:
        """A node is there, or is as it is now."""

    def node_deleted(self, name: str) -> None:
        """A node is not there any more; its pods may be."""

    def object_updated(self, value: Object) -> None:
        """Something that is neither pod nor node is there, or is as it is now."""

    def object_deleted(self, value: Object) -> None:
        """It is not there any more."""

    # Sessions.

    def run_session(self, name: str, nominated: Sequence[NodeAssignment]) -> SessionResult:
        """Hold a session. name: of this session, never used twice. nominated: pods of others that
        wait for room on nodes."""

    def state_for(self, place: NodeAssignment) -> CycleState | str:
        """What plugins have found out about a pod on the node that was chosen for it; the reason
        where the node does not suit it after all."""

    # What became of it.

    def assumed(self, pod: Pod, node: str) -> None:
        """A pod, of its own or of others, takes its room on a node before the watch shows it."""

    def forgotten(self, uid: str) -> None:
        """It does not any more."""

    def bind_failed(self, pod: Pod, reason: str, *, counts: bool) -> BindFailureResult:
        """A pod has not been bound: it waits again. counts: False where nobody refused it."""

    def failures(self, uid: str) -> int:
        """How often a pod could not be bound, in a row."""

    def group_status_not_written(self, namespace: str, name: str) -> None:
        """The status of a group could not be written: it is to be tried again."""

    def pod_not_evicted(self, uid: str) -> None:
        """A pod that was to be evicted is there still, and is not leaving."""

    def reload(self, text: str, source: str) -> str:
        """Go by another configuration from now on; "", or why it is refused."""

    # Looking.

    @property
    def n_waiting(self) -> int:
        """How many of its pods wait for a node."""

    def waiting(self) -> Iterator[str]:
        """The uids of its pods that wait for a node."""

    def known(self) -> Iterator[str]:
        """The uids of all pods that it has been shown."""

    def validate(self) -> None:
        """Compare what is kept by delta with a rebuild; raises InvariantBroken."""
