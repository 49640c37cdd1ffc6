"""Decider: what turns a pending pod and a snapshot into a decision.

The machine is given one and does not know which rules it follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from stowplan.columns import PodInfo
from stowplan.columns.engine.tie_break import TieBreakSource
from stowplan.framework.cycle_state import CycleState
from stowplan.framework.runtime.framework import Framework
from stowplan.framework.snapshot import Snapshot
from stowplan.framework.status import Status
from stowplan.messages.extender_api import ExtenderRequest, ExtenderResponse, HTTPExtender
from stowplan.objects.pod import Pod


class Decision(msgspec.Struct):
    """The outcome of one attempt.

    node_name: "" when the pod was refused. refusal: None when it was placed. message: the text
    of the PodScheduled condition. reasons: refusal reason -> number of nodes; near_misses:
    those of the nodes that evictions could help, if there are such. plugins: those
    that refused something, empty for a placed pod. nominated_node: the node that preemption
    chose, "" clears an earlier nomination, None leaves it. victims: what preemption evicts
    there; preempted_by: the plugin that chose them. pending: plugins that answered Pending.
    state: what the plugins of the attempt left, for those that come after. score: the weighted
    total of the node, None where nodes were not scored.
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
        """The condition's reason: Unschedulable or SchedulerError; "" when placed."""
        if self.refusal is None:
            return ""
        return "Unschedulable" if self.refusal.is_rejected else "SchedulerError"


class Decider(Protocol):
    """Chooses nodes for pods."""

    def decide(
        self,
        pod: Pod,
        snapshot: Snapshot,
        framework: Framework,
        rng: TieBreakSource,
    ) -> Decision:
        """A node for `pod`, or why there is none; nothing is changed. dice: breaks ties."""

    def decide_with_extenders(
        self, pod: Pod, framework: Framework, rng: TieBreakSource, extenders: Sequence[HTTPExtender]
    ) -> Consultation:
        """The attempt of a pod about which these extenders are asked, in this order."""

    def engine(self) -> KernelPlacer | None:
        """What places many pods at once; None where each is decided for itself."""

    def forget_idle(self) -> None:
        """Called now and then: what nobody has asked for since the call before the last one may be
        forgotten."""


class Consultation(Protocol):
    """The attempt of a pod about which extenders are asked, from its start to its decision."""

    def try_decide(self, snapshot: Snapshot) -> Decision | None:
        """Decide the pod on the cluster as it is now, by the answers so far; None while there are
        questions that have none. Nothing is changed."""

    @property
    def pending_requests(self) -> Sequence[ExtenderRequest]:
        """What is to be asked now, all at the same time, before `try_decide` is called again."""

    def answer(self, question: ExtenderRequest, reply: ExtenderResponse) -> None:
        """What came of one of the questions."""


class PodClass(Protocol):
    """Pods of which rules read the same. state: what their plugins have left in an attempt."""

    framework: Framework
    state: CycleState

    def lacks_resources_by(self, snapshot: Snapshot) -> frozenset[str] | None:
        """The plugins that have refused it last, where what it lacks is room on the rows that it
        may go to, and nothing else; None where it is not so."""

    def refusal_in(self, snapshot: Snapshot) -> Decision | None:
        """The refusal that the next attempt would end in as well; None where it has to be made."""


class KernelPlacer(Protocol):
    """Places runs of pods, each counted before the next is chosen."""

    def class_of(self, pod: Pod, framework: Framework) -> PodClass | None:
        """The class of a pod; None for one that must be decided for itself."""

    def run(
        self, pods: Sequence[Pod], classes: Sequence[Any], draws: NDArray[np.uint64]
    ) -> KernelRun:
        """Pods with their classes, to be placed in this order. draws: uint64 (n_pods,), to break
        ties, or (0,) for the first row."""

    def fit_check(self, classes: Sequence[Any], snapshot: Snapshot) -> FitCheck | None:
        """What these classes need, to be compared with what there is; None where that does not
        decide."""


class FitCheck(Protocol):
    """What classes need."""

    def hold(self, snapshot: Snapshot) -> bool:
        """True while nothing has changed for them but pods, and amounts of nodes."""

    def may_fit(self, rows: Sequence[int] | None) -> NDArray[np.bool_]:
        """bool (n_classes,): which of them may be placed on one of these rows; None: on any."""


class KernelRun(Protocol):
    """Pods that are being placed. scores: int64 (n_pods,), of those placed the total score of their
    node."""

    scores: NDArray[np.int64]

    def place(self, start: int, snapshot: Snapshot) -> list[int]:
        """Choose rows for the pods from `start` on, and enter them in the table as assumed bound.

        Returns the rows of those placed. Where they are fewer than the pods left, the next pod
        fits nowhere, or has to be decided for itself. The snapshot must have no nominations.
        """
