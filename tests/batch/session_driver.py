"""SessionDriver: a scheduler with sessions only, for tests."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from stowplan.assembly.deciders import ConfigText, deciders_of
from stowplan.batch.decider import BatchDecider
from stowplan.framework.metrics import Metrics
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.pod import Pod, PodSchedulingGate
from stowplan.scheduler import Scheduler
from stowplan.testing import node, pod
from tests.scenarios import group_commands


class SessionDriver:
    """A scheduler with sessions only, with a node, a queue and a clock."""

    def __init__(self, cpu: str = "2", text: str = "", **more: Any) -> None:
        found = deciders_of(
            [ConfigText(text or group_commands.configured(()), "batch.yaml")], **more
        )
        self.metrics = Metrics(self._stopwatch)
        self.scheduler: Scheduler = found.scheduler(metrics=self.metrics)
        self.now = 0
        self.ticks = 0.0
        self.handle(
            happened.NodeAdded(node("n1", cpu=cpu)),
            happened.ObjectAdded(group_commands.queue("default", "1", {})),
            happened.Synced(),
        )

    def _stopwatch(self) -> float:
        self.ticks += 0.001
        return self.ticks

    @property
    def decider(self) -> BatchDecider:
        (lane,) = self.scheduler.lanes.batch
        decider = lane.decider
        assert isinstance(decider, BatchDecider)
        return decider

    def handle(self, *events: Event) -> list[Effect]:
        """Effects of the scheduler one second later."""
        self.now += SECOND
        return self.scheduler.handle(events, self.now)

    def gang(self, name: str, size: int, cpu: str = "1", **settings: str) -> list[Event]:
        """A gang of pods that are all needed."""
        group = group_commands.group(name, "1", {"min": str(size)} | settings)
        return [
            happened.ObjectAdded(group),
            *(happened.PodAdded(member(f"{name}-{i}", name, cpu)) for i in range(size)),
        ]


def member(name: str, group: str, cpu: str = "1", on: str = "") -> Pod:
    made = pod(name, cpu=cpu, on=on, scheduler="kube-batch")
    return replace(
        made, metadata=replace(made.metadata, annotations=group_commands.annotations(group))
    )


def binds(effects: list[Effect]) -> dict[str, str]:
    return {one.name: one.node for one in effects if isinstance(one, to_do.Bind)}


def reports(effects: list[Effect]) -> list[to_do.Report]:
    return [one for one in effects if isinstance(one, to_do.Report)]


def gated(name: str, group: str, *gates: str) -> Pod:
    made = member(name, group)
    names = tuple(PodSchedulingGate(gate) for gate in gates)
    return replace(made, spec=replace(made.spec, scheduling_gates=names))
