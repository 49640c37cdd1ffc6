"""Works: what plugins are doing outside, asked for with Prepare and not over yet."""

from __future__ import annotations

from typing import Any

import msgspec

from stowplan.framework import CycleState
from stowplan.framework.member import Member
from stowplan.objects.pod import Pod
from stowplan.queue.options import in_ns
from stowplan.scheduler.context import Context
from stowplan.scheduler.deadlines import Deadlines


class Work(msgspec.Struct, frozen=True):
    """All that a plugin's `perform` is told: what the driver's `ctx` is made of."""

    plugin: Any
    name: str
    point: str
    pod: Pod
    node_name: str
    state: CycleState
    timeout_s: float


class Works:
    """The works under way, by the number of the effect that asked for them."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._works: dict[int, Work] = {}
        self._deadlines: Deadlines[int] = Deadlines()

    def __len__(self) -> int:
        return len(self._works)

    def get(self, effect: int) -> Work | None:
        """The work of a number, None when it is over."""
        return self._works.get(effect)

    def start(self, member: Member, point: str, pod: Pod, node_name: str, state: CycleState) -> int:
        """Ask for a plugin's work; returns its number."""
        context = self._context
        usual = context.options.work_timeout_s
        timeout_s = float(getattr(member.plugin, "perform_timeout_s", usual))
        effect = context.outbox.prepare(member, point, pod, node_name, timeout_s)
        self._works[effect] = Work(
            member.plugin, member.name, point, pod, node_name, state, timeout_s
        )
        self._deadlines.set(effect, context.now + in_ns(timeout_s))
        return effect

    def end(self, effect: int) -> Work | None:
        """The work is over; None when it was before."""
        self._deadlines.clear(effect)
        return self._works.pop(effect, None)

    def cancel(self, effect: int) -> None:
        """Nobody waits for the work any more."""
        work = self.end(effect)
        if work is not None:
            self._context.outbox.cancel(work.pod.uid, effect)

    def overdue(self) -> list[int]:
        """The numbers of works whose time is up, the earliest first; to be cancelled."""
        return self._deadlines.due(self._context.now)

    def next_deadline(self) -> int | None:
        """When the next work's time is up."""
        return self._deadlines.next()
