"""Decider: makes a decision from a pending pod and a snapshot.

The scheduler is given one and does not depend on its rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from stowplan.columns import NodeTable, PodInfo
from stowplan.columns.array_types import Bools, Ints
from stowplan.columns.engine.tie_break import TieBreakSource
from stowplan.framework.cycle_state import CycleState
from stowplan.framework.runtime.framework import Framework
from stowplan.framework.snapshot import Snapshot
from stowplan.framework.status import Status
from stowplan.messages.extender_api import ExtenderRequest, ExtenderResponse, HTTPExtender
from stowplan.objects.pod import Pod


class Decision(msgspec.Struct):
    """Outcome of one attempt.

    node_name: "" when the pod was rejected. refusal: None when it was placed. message: text of the
    PodScheduled condition. reasons: reason -> number of nodes; near_misses: the part of them that
    evictions could resolve. plugins: those that rejected a node or the pod, empty for a placed pod.
    nominated_node: the node that preemption chose, "" clears an earlier nomination, None leaves it.
    victims: pods that preemption evicts there; preempted_by: the plugin that chose them. pending:
    plugins that returned Pending. state: the CycleState of the attempt, for later extension points.
    score: weighted total of the node, None where nodes were not scored.
    """

    node_name: str = ""
    refusal: Status | None = None
    message: str = ""
    reasons: dict[str, int] = {}
    near_misses: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    nominated_node: str | None = None
    victims: tuple[PodInfo, ...] = ()
    preempted_by: str = ""
    state: CycleState | None = None
    score: int | None = None

    @property
    def reason(self) -> str:
        """Reason of the condition: Unschedulable or SchedulerError; "" when placed."""
        if self.refusal is None:
            return ""
        return "Unschedulable" if self.refusal.is_rejected else "SchedulerError"


class MemberTrial(msgspec.Struct, frozen=True):
    """How a member of a group is tried.

    rows: int64, of the nodes that may take it; None: all. draw: tie-break number, None takes the
    first node. has_post_filter: False asks only whether the member fits. values: what plugins keep
    for the cycle.
    """

    rows: Ints | None = None
    draw: int | None = None
    has_post_filter: bool = True
    values: dict[str, Any] = {}


class Decider(Protocol):
    """Chooses a node for a pod."""

    def decide(
        self, pod: Pod, snapshot: Snapshot, framework: Framework, rng: TieBreakSource
    ) -> Decision:
        """Choose a node for `pod`, or report why none fits; changes nothing.

        rng: breaks ties.
        """

    def decide_member(
        self, pod: Pod, snapshot: Snapshot, framework: Framework, trial: MemberTrial
    ) -> Decision:
        """The same for a member of a group, on a snapshot that shows the members before it."""

    def decide_with_extenders(
        self, pod: Pod, framework: Framework, rng: TieBreakSource, extenders: Sequence[HTTPExtender]
    ) -> Consultation:
        """Start an attempt in which these extenders are called, in this order."""

    def engine(self) -> KernelPlacer | None:
        """The kernel placer for runs of pods; None where each pod is decided alone."""

    def forget_idle(self) -> None:
        """Drop cached answers that were not used since the call before last; called
        periodically."""


class Consultation(Protocol):
    """An attempt with extender calls, from its start to its decision."""

    @property
    def framework(self) -> Framework:
        """Framework of the profile that the attempt began with."""

    def try_decide(self, snapshot: Snapshot) -> Decision | None:
        """Decide on the current snapshot with the responses so far; None while requests are
        pending. Changes nothing."""

    @property
    def pending_requests(self) -> Sequence[ExtenderRequest]:
        """Requests to send in parallel before the next call of `try_decide`."""

    def answer(self, question: ExtenderRequest, reply: ExtenderResponse) -> None:
        """Record the response to a request."""


class PodClass(Protocol):
    """Pods that all plugins treat alike. state: CycleState that an attempt left."""

    framework: Framework
    state: CycleState

    def lacks_resources_by(self, snapshot: Snapshot) -> frozenset[str] | None:
        """Plugins that rejected the class last, if only resources on eligible rows are missing;
        otherwise None."""

    def is_decided_alone(self, pod: Pod, snapshot: Snapshot) -> bool:
        """True where it is known that no kernel places `pod`, one of the class: no pod of the class
        passes on any row, nominated pods counted, unless it is nominated there itself; or this pod
        is."""

    def nominated_row(self, pod: Pod, snapshot: Snapshot) -> int:
        """The row that `pod`, one of the class, is nominated to, where it is placed there, unscored
        and with the state of the class; -1 where it has to be decided. Pods that are placed on
        other rows, which they are nominated to, change nothing about that."""

    def nominated_decision(
        self, pod: Pod, snapshot: Snapshot, draw: Callable[[], int | None]
    ) -> Decision | None:
        """The decision for `pod`, one of the class, which is nominated to a node, where it is
        placed, on whatever node, with the state of the class; None where it has to be decided by
        the decider. draw: draws its tie-break number; called only where there is a decision."""

    def decide_in_turn(
        self, pods: Sequence[Pod], classes: Sequence[Any], snapshot: Snapshot
    ) -> Iterator[Decision]:
        """Decisions for the first of these pods, which preempt: that of each holds while nothing
        but the nominations of those before it changes. The class of the first pod is this one, and
        no kernel places it. Empty where each pod is decided by itself."""

    def refusal_in(self, snapshot: Snapshot) -> Decision | None:
        """The rejection that the next attempt would repeat; None where the attempt must be made."""


class KernelPlacer(Protocol):
    """Places runs of pods, each counted before the next is placed."""

    def class_of(
        self, pod: Pod, framework: Framework, *, with_devices: bool = False
    ) -> PodClass | None:
        """The class of a pod; None for a pod that must be decided alone.

        with_devices: pods with resource claims may have one, too. A caller that places such pods
        runs the binding cycle of each with its state; devices are taken for it.
        """

    def classes_of(self, pods: Iterable[Pod], frameworks: Mapping[str, Framework]) -> list[Any]:
        """The classes of the first of these pods, up to one that must be decided alone, with
        devices. frameworks: by scheduler name."""

    def run(
        self, pods: Sequence[Pod], classes: Sequence[Any], draws: NDArray[np.uint64]
    ) -> KernelRun:
        """A run of pods with their classes, to be placed in this order.

        draws: uint64 (n_pods,), tie-breaks; or (0,): the first row wins.
        """

    def row_subsets(self, run: Any, snapshot: Snapshot) -> RowSubsets | None:
        """Limits a run of pods of one class to some rows; None where kernels cannot: with terms
        that count pods on other nodes, and with cards."""

    def fit_check(
        self, classes: Sequence[tuple[Any, frozenset[str]]], snapshot: Snapshot
    ) -> FitCheck | None:
        """Compares the requests of classes with free resources; None where that does not decide.
        classes: each with the plugins that have refused its pods."""


class RowTrial(msgspec.Struct, frozen=True, eq=False):
    """What pods of a class would get of some rows. rows: of those that have one. scores: what
    plugins have found for as many such pods on these rows."""

    rows: list[int]
    scores: dict[str, int] = {}


class RowSubsets(Protocol):
    """Places a run of pods of one class on some rows."""

    def trials(self, placements: Iterable[Ints]) -> list[RowTrial] | None:
        """How many pods of the run the rows of each placement take; None where kernels cannot tell.
        Nothing is changed. While rows are as they are, the result is kept for as many such pods,
        whatever their tie-breaks."""

    def place(self, rows: Ints, nodes: NodeTable) -> list[int] | None:
        """Choose among these rows for all pods of the run, and add them to the table as assumed
        pods; None, with nothing changed, where they do not fit."""


class FitCheck(Protocol):
    """Whether pods of some classes may fit, by their requests."""

    def hold(self, snapshot: Snapshot) -> bool:
        """True while nothing relevant changed but pods and allocatable amounts."""

    def may_fit(self, rows: Sequence[int] | None) -> Bools:
        """bool (n_classes,): classes that may fit on some row. rows: those that have changed since
        the last call; None for all."""

    def refusers_of(self, number: int) -> frozenset[str] | None:
        """The plugins that refuse a class after the last `may_fit` where no row fits; None where an
        attempt has to find out."""

    def other_refusers(self) -> Bools:
        """bool (n_classes,): classes whose pods were refused by other plugins at the last
        `may_fit`."""


class KernelRun(Protocol):
    """Pods being placed. scores: int64 (n_pods,), total score of the node of each placed pod."""

    scores: Ints

    @property
    def annotations(self) -> Mapping[int, dict[str, str]]:
        """By index of a placed pod, what its binding carries; pods without are left out."""

    @property
    def states(self) -> Mapping[int, CycleState]:
        """By index of a placed pod with resource claims, the state of its binding cycle."""

    def place(self, start: int, snapshot: Snapshot) -> list[int]:
        """Choose rows for the pods from `start` on and add them to the table as assumed pods.

        Returns the rows of the placed pods. Fewer rows than pods: the next pod fits nowhere, or
        must be decided alone.
        """
