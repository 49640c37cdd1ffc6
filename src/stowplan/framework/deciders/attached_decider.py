"""AttachedDecider: what deciders of sessions have in common, whatever decides in a session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from msgspec.structs import replace

from stowplan.framework.cycle_state import CycleState
from stowplan.framework.deciders.session_decider import NodeAssignment
from stowplan.framework.deciders.session_states import SessionCycleStates
from stowplan.framework.handle_state import HandleState
from stowplan.framework.metrics import Metrics
from stowplan.framework.problems import ContractError
from stowplan.framework.runtime.framework import Framework
from stowplan.framework.snapshot import Snapshot
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod


class SessionPlan(Protocol):
    """Settings that every configuration of sessions has."""

    @property
    def scheduler_names(self) -> tuple[str, ...]: ...

    @property
    def period_s(self) -> float: ...


PlanT = TypeVar("PlanT", bound=SessionPlan)


class AttachedDecider(Generic[PlanT]):
    """The part of a SessionDecider that does not depend on how a session decides.

    framework: runs plugins between the choice of a node and the binding.
    """

    def __init__(self, plan: PlanT, framework: Framework, metrics: Metrics | None) -> None:
        self.plan = plan
        self.framework = framework
        self.metrics = metrics or Metrics()
        self._failures: dict[str, int] = {}
        self._states = SessionCycleStates(framework)
        self._snapshot: Callable[[], Snapshot] = _unattached

    @property
    def scheduler_name(self) -> str:
        """The first scheduler name, used for events."""
        return self.plan.scheduler_names[0]

    @property
    def scheduler_names(self) -> tuple[str, ...]:
        """Scheduler names of the pods that sessions decide."""
        return self.plan.scheduler_names

    @property
    def period_s(self) -> float:
        """Period between the end of a session and the next one, in seconds."""
        return self.plan.period_s

    def attach(self, shared: HandleState, snapshot: Callable[[], Snapshot]) -> None:
        """Connect to a scheduler: handle state of its plugins, and the current snapshot."""
        if self.framework.shared is not shared:
            raise ContractError("session plugins and profile plugins must share their handle state")
        self._snapshot = snapshot

    def snapshot(self) -> Snapshot:
        """The current snapshot. Raises ContractError before `attach`."""
        return self._snapshot()

    def node_updated(self, node: Node) -> None:
        """A node was added or updated; sessions read it in the scheduler's node table."""

    def node_deleted(self, name: str) -> None:
        """A node was deleted; its pods may remain."""

    def state_for(self, place: NodeAssignment) -> CycleState | str:
        """Cycle state of a pod for its chosen node; the reason if the node does not fit after
        all."""
        state = self._states.state_for(place, self._snapshot)
        if place.request is None or isinstance(state, str):
            return state
        own = state.clone()
        own.binding_request = place.request
        # Where the pod is bound directly after all.
        own.binding_annotations.update(place.request.predicted_annotation)
        return own

    def failures(self, uid: str) -> int:
        """Number of consecutive failed binds of a pod."""
        return self._failures.get(uid, 0)


def with_phase(pod: Pod) -> Pod:
    """The pod with a phase, which manifests leave out."""
    if pod.status.phase:
        return pod
    phase = "Running" if pod.node_name else "Pending"
    return replace(pod, status=replace(pod.status, phase=phase))


def _unattached() -> Snapshot:
    raise ContractError("`attach` must be called before the first session")
