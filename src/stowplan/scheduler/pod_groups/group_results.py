"""Results of a group cycle: of the group, and of each of its members.

Source: kube-scheduler v1.36, schedule_one_podgroup.go.
"""

from __future__ import annotations

import msgspec

from stowplan.framework.deciders.decider import Decision
from stowplan.framework.diagnosis import single_node_diagnosis
from stowplan.framework.status import Code, Status
from stowplan.queue import PodRecord

GROUP_UNSCHEDULABLE = "pod group is unschedulable"
WAITING_ON_PREEMPTION = "pod group is waiting for preemption to complete"
ASKED_TO_WAIT = "one or more plugins asked to wait and no plugin rejected pod"


class GroupStatus(msgspec.Struct, frozen=True):
    """Why a group is not scheduled. error: the text that stands for it in other texts, "" where
    that is the whole message."""

    code: Code = Code.SUCCESS
    error: str = ""
    reasons: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        """The whole text."""
        return ", ".join((self.error, *self.reasons) if self.error else self.reasons)

    @property
    def text(self) -> str:
        """The text within the text of another status."""
        return self.error or self.message

    @property
    def is_error(self) -> bool:
        """True for a failure that is no refusal."""
        return self.code == Code.ERROR

    def with_reason(self, reason: str) -> GroupStatus:
        """The same with another reason."""
        return msgspec.structs.replace(self, reasons=(*self.reasons, reason))


SCHEDULED = GroupStatus()
UNSCHEDULED = GroupStatus(Code.UNSCHEDULABLE, GROUP_UNSCHEDULABLE)
TO_PREEMPT = UNSCHEDULED.with_reason(WAITING_ON_PREEMPTION)


class MemberResult(msgspec.Struct):
    """What a group cycle found for one member.

    node: where it is placed, also by preemption; "" for none. permit: what Permit waits for, ""
    when it allowed the member. needs_preemption: the node has room only after evictions.
    """

    record: PodRecord
    decision: Decision
    node: str = ""
    permit: str = ""
    is_allowed: bool = False
    needs_preemption: bool = False

    @property
    def is_placed(self) -> bool:
        """True where the member fits without evictions."""
        return self.decision.refusal is None

    @property
    def is_error(self) -> bool:
        """True where the attempt ended with an error."""
        refusal = self.decision.refusal
        return refusal is not None and not refusal.is_rejected


class GroupResult(msgspec.Struct):
    """What a group cycle found. members: in the order in which they were tried; fewer than the
    group has after an error. is_waiting: schedulable once evictions are over."""

    members: list[MemberResult]
    status: GroupStatus
    is_waiting: bool = False

    @property
    def outcome(self) -> str:
        """`scheduled`, `unschedulable`, `waiting_on_preemption` or `error`, as metrics count."""
        if self.status.code == Code.SUCCESS:
            return "scheduled"
        if self.status.is_error:
            return "error"
        return "waiting_on_preemption" if self.is_waiting else "unschedulable"


def refused_on_node(status: Status) -> Decision:
    """The decision of a member that a plugin refused after its node was chosen."""
    if not status.is_rejected:
        return Decision(refusal=status, message=status.message, nominated_node="")
    diagnosis = single_node_diagnosis(status)
    return Decision(
        refusal=status,
        message=diagnosis.text(),
        plugins=tuple(sorted(diagnosis.plugins)),
        pending=tuple(sorted(diagnosis.pending)),
        nominated_node="",
    )
