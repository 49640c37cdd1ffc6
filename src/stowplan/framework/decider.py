"""Decider: what turns a pending pod and a snapshot into a decision.

The machine is given one and does not know which rules it follows.
"""

from __future__ import annotations

from typing import Protocol

import msgspec
import numpy as np

from stowplan.columns import PodInfo
from stowplan.framework.runtime import Framework
from stowplan.framework.snapshot import Snapshot
from stowplan.framework.state import CycleState
from stowplan.framework.status import Status
from stowplan.objects.pod import Pod


class Decision(msgspec.Struct):
    """The outcome of one attempt.

    node_name: "" when the pod was refused. refusal: None when it was placed. message: the text
    of the PodScheduled condition. reasons: refusal reason -> number of nodes; near_misses:
    those of the nodes that evictions could help, if there are such. plugins: those
    that refused something, empty for a placed pod. nominated_node: the node that preemption
    chose, "" clears an earlier nomination, None leaves it. victims: what preemption evicts
    there; preempted_by: the plugin that chose them. pending: plugins that answered Pending.
    state: what the plugins of the attempt left, for those that come after.
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
        dice: np.random.Generator | None,
    ) -> Decision:
        """A node for `pod`, or why there is none; nothing is changed. dice: breaks ties."""
