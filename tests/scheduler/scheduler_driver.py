"""SchedulerDriver: a scheduler for tests, with shortcuts for pods, nodes, time and effects."""

from __future__ import annotations

from typing import Any, TypeVar

from msgspec.structs import replace

from stowplan.assembly.deciders import deciders_of
from stowplan.framework.feature_gates import FeatureGates
from stowplan.messages import events as happened
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.pod import Pod
from stowplan.queue.pod_record import PodState
from stowplan.scheduler.scheduler import Scheduler
from stowplan.testing import node, pod
from tests.scenarios.script import made, rendered
from tests.scheduler.fake_cluster import EPOCH
from tests.scheduler.transition_trace import TransitionTrace

E = TypeVar("E")


class SchedulerDriver:
    """A scheduler with one node and a clock; every call is validated."""

    def __init__(
        self, *, cpu: str = "4", gates: FeatureGates | None = None, **settings: str
    ) -> None:
        """gates: of a scheduler with the default profile."""
        self.scheduler: Scheduler = (
            made(**settings) if gates is None else deciders_of((), gates=gates).scheduler()
        )
        TransitionTrace().follow(self.scheduler)
        self.now = 0
        self.effects: list[Effect] = []
        self.handle(happened.NodeAdded(node("n1", cpu=cpu)))

    def handle(self, *events: Event, heads_max: int = 1000) -> list[Effect]:
        """Effects of these events."""
        effects = self.scheduler.handle(events, self.now, heads_max)
        self.scheduler.validate()
        self.effects += effects
        return effects

    def lines(self, *events: Event) -> list[str]:
        """The same as lines, as in scripts."""
        return [rendered(effect) for effect in self.handle(*events)]

    def add(self, name: str, **settings: Any) -> Pod:
        """Add a pod."""
        made_pod = pod(name, **settings)
        self.handle(happened.PodAdded(made_pod))
        return made_pod

    def after(self, seconds: float) -> list[Effect]:
        """Advance the time."""
        self.now += round(seconds * SECOND)
        return self.handle(happened.Tick())

    def last(self, kind: type[E], name: str = "") -> E:
        """The latest effect of a kind, about a pod if one is named."""
        found = [
            effect
            for effect in self.effects
            if isinstance(effect, kind) and name in ("", getattr(effect, "name", ""))
        ]
        assert found, f"no {kind.__name__} about {name!r}"
        return found[-1]

    def stage(self, name: str) -> PodState | None:
        """Stage of a pod's binding cycle."""
        stages = {
            binding_cycle.pod.name: binding_cycle.state
            for _, binding_cycle in self.scheduler.bindings
        }
        return stages.get(name)


def bound(one: Pod, to: str = "n1") -> Pod:
    """The pod, bound to a node."""
    return replace(one, spec=replace(one.spec, node_name=to))


def leaving(one: Pod) -> Pod:
    """The pod, terminating."""
    return replace(one, metadata=replace(one.metadata, deletion_timestamp=EPOCH))
