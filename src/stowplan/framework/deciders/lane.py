"""Lane: decides the pods of its scheduler names.

The scheduler's state machine applies events to the cache and to the records of pods, and tells its
lanes. There are two kinds: the pod lane attempts the pods of all profiles one after the other, from
one queue; a session lane is a batch lane: it decides many pods at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from stowplan.framework.deciders.session_decider import SessionDecider
from stowplan.objects.meta import Object
from stowplan.objects.pod import Pod


class PodAssumed(msgspec.Struct, frozen=True, gc=False):
    """A pod, of any lane, is assumed on a node; the watch has not confirmed it yet."""

    pod: Pod
    node: str


class PodForgotten(msgspec.Struct, frozen=True, gc=False):
    """A pod, of any lane, is no longer assumed."""

    uid: str


class BindingCycleFailed(msgspec.Struct, frozen=True, gc=False):
    """A pod of the lane was not bound, and its resources are released. reason: of the PodScheduled
    condition."""

    pod: Pod
    message: str
    reason: str


class Lane(Protocol):
    """Decides the pods of its scheduler names."""

    @property
    def scheduler_names(self) -> tuple[str, ...]:
        """Scheduler names whose pods it decides."""

    @property
    def is_queued(self) -> bool:
        """True if its pods wait in the scheduling queue. The scheduler then requeues a pod whose
        binding cycle has failed; otherwise the lane gets BindingCycleFailed."""

    @property
    def outcomes(self) -> frozenset[type[Any]]:
        """Types of the messages and outcomes that `on_outcome` receives."""

    @property
    def n_waiting(self) -> int:
        """Number of its pods that wait for a node."""

    @property
    def follows_pods(self) -> bool:
        """True if `on_event` receives pods, of all schedulers; otherwise only other objects."""

    def on_event(self, before: Object | None, after: Object | None) -> None:
        """The watch showed an object: its versions before and after; one of them may be None.

        The cache and the records of pods are up to date. The last version of a finished pod is
        shown as an update.
        """

    def decide(self, n_max: int) -> None:
        """Decide what is due. n_max: number of pods, where pods are decided one by one."""

    def on_outcome(self, outcome: Any) -> None:
        """Something of one of the types in `outcomes` happened."""

    def read_delay(self, uid: str) -> int | None:
        """Nanoseconds until a pod of the lane whose bind was refused is read, which settles the
        binding; None if the refusal settles it."""

    def next_deadline(self) -> int | None:
        """The next time at which `decide` must be called; None if there is none."""

    def validate(self) -> None:
        """Compare kept state with the scheduler's; raises InvariantBroken."""


class BatchLane(Lane, Protocol):
    """A lane that decides all of its pods at once, in sessions."""

    @property
    def decider(self) -> SessionDecider:
        """Runs the sessions."""

    @property
    def number(self) -> int:
        """Number of sessions so far."""

    @property
    def is_again_due(self) -> bool:
        """True if there is a time from which on another session may decide more."""

    @property
    def due(self) -> int:
        """The earliest start of the next session."""

    @property
    def is_idle(self) -> bool:
        """True if no change is waiting for a session and no eviction is pending."""

    @property
    def nominations(self) -> Mapping[str, str]:
        """uid -> node of the pods nominated to nodes where resources are being freed."""
