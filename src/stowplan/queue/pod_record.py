"""PodRecord: all that the scheduler keeps about one pending pod, its state and its sub-queue."""

from __future__ import annotations

from enum import Enum, IntEnum

import msgspec

from stowplan.framework.cycle_state import CycleState
from stowplan.framework.plugin import QueuedPod
from stowplan.framework.runtime.framework import Framework
from stowplan.objects.pod import Pod

NO_PLUGINS: frozenset[str] = frozenset()


class SubQueue(Enum):
    """The sub-queue a pod is in."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"


class PodState(IntEnum):
    """State of a pod that the scheduler knows.

    The events that end a state are in `scheduler.pods.transitions`. NEW: in no index yet. SKIPPED:
    being deleted, so no attempt is made until its next update. AWAITING_SESSION, BOUND, DELETED and
    LEFT_ALONE, where no lane has its scheduler name any more, are where a record begins or ends:
    pods in these states have none.
    """

    NEW = 0
    GATED = 1
    ACTIVE = 2
    BACKOFF = 3
    UNSCHEDULABLE = 4
    IN_FLIGHT = 5
    AWAITING_EXTENDER = 6
    WAITING_ON_PERMIT = 7
    PREBINDING = 8
    BINDING = 9
    BIND_UNKNOWN = 10
    ASSUMED = 11
    SKIPPED = 12
    AWAITING_SESSION = 13
    BOUND = 14
    DELETED = 15
    LEFT_ALONE = 16

    @property
    def label(self) -> str:
        """The state in lower case, with spaces."""
        return self.name.lower().replace("_", " ")


class BindingCycle(msgspec.Struct, gc=False):
    """What a binding cycle keeps about its pod. A struct of its own, so that a pod that waits in
    the queue needs no memory for it.

    node: name of the chosen node. framework, cycle_state: of the attempt. score: of the node, see
    `Decision`. awaits: effect numbers whose outcomes are pending; in BIND_UNKNOWN, the number of
    the first read. waits: plugins that wait for objects they changed (see
    `scheduler.binding.prebind`). announced: the node is, or is about to be, in the pod's
    nominatedNodeName. step: number of PreBind plugins started so far. binder: plugin that handles
    the pod's Bind, "" where the framework has an unconditional one. unknown_reason: the failure to
    report if the binding turns out not to have happened.
    """

    node: str = ""
    framework: Framework | None = None
    cycle_state: CycleState | None = None
    score: int | None = None
    awaits: tuple[int, ...] = ()
    waits: tuple[str, ...] = ()
    announced: bool = False
    step: int = 0
    binder: str = ""
    unknown_reason: str = ""

    @property
    def is_busy(self) -> bool:
        """True while an outcome or a PreBind wait is pending; Permit and the final confirmation do
        not count."""
        return bool(self.awaits or self.waits)

    @property
    def attempt(self) -> tuple[Framework, CycleState]:
        """Framework and CycleState of the attempt that chose the node."""
        framework, cycle_state = self.framework, self.cycle_state
        assert framework is not None, "no node is chosen"
        assert cycle_state is not None, "no node is chosen"
        return framework, cycle_state


# msgspec allows what dataclasses do not.
class NoBindingCycle(BindingCycle, frozen=True, gc=False):  # type: ignore[misc]
    """The binding cycle of a pod that is in none."""


NO_BINDING = NoBindingCycle()


class PodRecord(QueuedPod, gc=False):
    """A pending pod from its arrival until it is bound or deleted; one object for all attempts.

    All times are whole nanoseconds.

    state: see `PodState`. pod: its latest version while it is in the queue; from the pop on, the
    version that is being attempted.

    Of the queue; the scheduler sets refused_by and pending_on before it returns the record.
    added_at: time of arrival or of the last failure; ties of equal priority are broken by it.
    attempts: number of pops. refusals: attempts that a plugin rejected. errors: consecutive
    attempts that failed otherwise. initial_attempt: first time in the active queue, None before.
    refused_by, pending_on: plugins of the last rejection, pending_on those that returned Pending;
    includes a plugin that once gated the pod. gated_by: PreEnqueue plugin that keeps the pod out of
    the queue, or "". flushed: requeued by the unschedulable flush since its last failure. cycle:
    cycle of the last pop. tie_break: random number that breaks ties between nodes in every attempt;
    None before the first attempt and where ties are not broken at random.

    binding: of the binding cycle, from the choice of a node until the cycle ends.
    """

    key: str = ""
    state: PodState = PodState.NEW
    attempts: int = 0
    refusals: int = 0
    errors: int = 0
    initial_attempt: int | None = None
    refused_by: frozenset[str] = NO_PLUGINS
    pending_on: frozenset[str] = NO_PLUGINS
    gated_by: str = ""
    flushed: bool = False
    cycle: int = 0
    tie_break: int | None = None
    binding: BindingCycle = NO_BINDING

    @classmethod
    def of(cls, pod: Pod, now: int) -> PodRecord:
        """The record of a pod that arrives now."""
        return cls(pod, now, pod.key)

    @property
    def uid(self) -> str:
        """The uid of the pod."""
        return self.pod.uid

    @property
    def refusers(self) -> frozenset[str]:
        """All plugins that rejected the pod; empty when the last attempt ended with an error."""
        return self.refused_by | self.pending_on if self.pending_on else self.refused_by

    def count_failure(self, now: int, *, is_error: bool) -> None:
        """Count an attempt that has failed. is_error: no plugin has rejected the pod."""
        if is_error:
            self.errors += 1
        else:
            self.refusals += 1
            self.errors = 0
        self.added_at = now
        self.flushed = False
