"""SessionDecider: decides many pods in one session.

It receives all watch events, keeps its own state, and is called periodically to run a session. Its
decisions take effect in its state at once: bound pods use resources, evicted pods are terminating.
The scheduler reports the outcome of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from stowplan.framework.cycle_state import CycleState
from stowplan.framework.handle_state import HandleState
from stowplan.framework.metrics import Metrics
from stowplan.framework.runtime.framework import Framework
from stowplan.framework.snapshot import Snapshot
from stowplan.objects.kai.bind_request import KaiBindRequestSpec
from stowplan.objects.meta import Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import PodGroupStatus


class NodeAssignment(msgspec.Struct, frozen=True, gc=False):
    """A pod and the node that a session chose for it.

    gang: equal for pods that start all or none, "" for a pod on which no other depends. request:
    by which KAI's binder binds the pod, None where the scheduler does.
    """

    pod: Pod
    node: str
    gang: str = ""
    request: KaiBindRequestSpec | None = None


class SessionVictim(msgspec.Struct, frozen=True, gc=False):
    """A pod to evict.

    why: name of the action. preemptor: pod that gets its resources, None where there is no
    particular one. group: description of the preemptor's group. decided_by: the rules that agreed
    on it, "" if unknown. member: uid of a pod of the group, where there is no particular one.
    """

    pod: Pod
    why: str
    preemptor: Pod | None = None
    group: str = ""
    decided_by: str = ""
    member: str = ""


class PodGroupReport(msgspec.Struct, frozen=True):
    """Status, events and annotations of a pod group to write.

    status: None when it is unchanged. notes: (type, reason, message) of events. annotations: those
    that change, None for one to remove. note_annotations: of the events, by key.
    """

    uid: str
    namespace: str
    name: str
    api_version: str
    status: PodGroupStatus | None = None
    notes: tuple[tuple[str, str, str], ...] = ()
    annotations: Mapping[str, str | None] = {}
    note_annotations: tuple[tuple[str, str], ...] = ()


class QueueStatusReport(msgspec.Struct, frozen=True, gc=False):
    """What the placed pods of a queue, and of those below it, request, to be written on it.

    allocated: resource -> quantity. removed: resources that its status has and they do not request.
    """

    uid: str
    name: str
    api_version: str
    allocated: dict[str, str]
    removed: tuple[str, ...] = ()


class PodReport(msgspec.Struct, frozen=True, gc=False):
    """Why a pod has no node. is_own: the reason is the pod's alone, not that of its job."""

    pod: Pod
    message: str
    is_own: bool = False


class SessionResult(msgspec.Struct, frozen=True):
    """Decisions of a session.

    nominations: pods that wait for resources being freed, with their nodes. fault: error that ended
    it; then there are no decisions. continues: what it decided about groups lets another session
    decide more, though nothing else has changed. again_in_s: the same after so many seconds.
    """

    binds: Sequence[NodeAssignment] = ()
    victims: Sequence[SessionVictim] = ()
    nominations: Sequence[NodeAssignment] = ()
    groups: Sequence[PodGroupReport] = ()
    pods: Sequence[PodReport] = ()
    queues: Sequence[QueueStatusReport] = ()
    fault: str = ""
    continues: bool = False
    again_in_s: float | None = None


class BindFailureResult(msgspec.Struct, frozen=True):
    """Consequence of a failed binding. victims: members to evict because the group is given up."""

    groups: Sequence[PodGroupReport] = ()
    victims: Sequence[SessionVictim] = ()


class SessionDecider(Protocol):
    """Decides the pods of its scheduler names, all at once."""

    @property
    def scheduler_name(self) -> str:
        """First scheduler name; the reporter of its events."""

    @property
    def scheduler_names(self) -> tuple[str, ...]:
        """Scheduler names whose pods it decides."""

    @property
    def period_s(self) -> float:
        """Seconds from the end of one session to the start of the next."""

    @property
    def framework(self) -> Framework:
        """Framework whose plugins run between the choice of a node and the binding."""

    @property
    def metrics(self) -> Metrics:
        """Its metrics so far."""

    def attach(self, shared: HandleState, snapshot: Callable[[], Snapshot]) -> None:
        """Connect to a scheduler: the profiles' shared handle state and the current cluster."""

    # Watch events.

    def pod_updated(self, pod: Pod) -> None:
        """A pod was added or updated, finished pods included."""

    def pod_deleted(self, uid: str) -> None:
        """A pod was deleted."""

    def node_updated(self, node: Node) -> None:
        """A node was added or updated."""

    def node_deleted(self, name: str) -> None:
        """A node was deleted; its pods may remain."""

    def object_updated(self, value: Object) -> None:
        """An object that is neither pod nor node was added or updated."""

    def object_deleted(self, value: Object) -> None:
        """Such an object was deleted."""

    # Sessions.

    def run_session(
        self, name: str, nominated: Sequence[NodeAssignment], now: int = 0
    ) -> SessionResult:
        """Run a session.

        name: unique name of the session. nominated: other deciders' pods nominated to nodes. now:
        Unix time in nanoseconds.
        """

    def state_for(self, place: NodeAssignment) -> CycleState | str:
        """CycleState of a pod for the node chosen for it; the reason where the node no longer suits
        it."""

    # Outcomes.

    def assumed(self, pod: Pod, node: str) -> None:
        """A pod, of this or another decider, was assumed on a node."""

    def forgotten(self, uid: str) -> None:
        """A pod is no longer assumed."""

    def bind_failed(self, pod: Pod, reason: str, *, counts: bool) -> BindFailureResult:
        """A pod was not bound and waits again. counts: False when the API did not refuse it."""

    def failures(self, uid: str) -> int:
        """Number of consecutive failed bindings of a pod."""

    def status_not_written(self, namespace: str, name: str) -> None:
        """Writing the status of a group, or without a namespace of a queue, failed; it must be
        retried."""

    def pod_not_evicted(self, uid: str) -> None:
        """A pod to be evicted still exists and is not terminating."""

    def reload(self, text: str, source: str) -> str:
        """Use another configuration from now on; "", or why it is refused."""

    # Reads.

    @property
    def n_waiting(self) -> int:
        """Number of its pods that wait for a node."""

    def waiting(self) -> Iterator[str]:
        """Uids of its pods that wait for a node."""

    def known(self) -> Iterator[str]:
        """Uids of all pods that it knows."""

    def validate(self) -> None:
        """Compare incrementally kept state with a rebuild; raises InvariantBroken."""
