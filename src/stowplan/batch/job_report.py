"""JobReport: a job as a session leaves it, for people and programs."""

from __future__ import annotations

import msgspec

from stowplan.batch.missing_objects import POD_GROUP_NOT_FOUND
from stowplan.batch.session import INVALID_GROUP


class JobReport(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """State of a job after a session.

    uid: job id of sessions. name: its PodGroup, its only pod, or the controller of its pods. kind:
    PodGroup, Pods or PodDisruptionBudget. pods: number of pods. ready: pods that have a node or
    have succeeded. placed: pod -> node, placed by this session. promised: pod -> node of
    allocated and pipelined pods. waiting: other pods without a node. reason, message: why the job
    cannot start, "" when it can or has. uses, wanted: what queues count for its pods with a place,
    and for those that come next; is_preemptible; all three of KAI-Scheduler's model only.
    """

    uid: str
    name: str
    kind: str
    queue: str
    priority: int
    min_member: int
    pods: int
    ready: int
    phase: str = ""
    placed: dict[str, str] = {}
    promised: dict[str, str] = {}
    waiting: tuple[str, ...] = ()
    reason: str = ""
    message: str = ""
    uses: dict[str, float] = {}
    wanted: dict[str, float] = {}
    is_preemptible: bool = True

    @property
    def is_ready(self) -> bool:
        """True when at least minMember pods have a node and its PodGroup is valid."""
        return (
            self.reason not in (POD_GROUP_NOT_FOUND, INVALID_GROUP)
            and self.ready >= self.min_member
        )
