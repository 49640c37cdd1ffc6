"""Replay: pods come, are decided by the machine, run and leave, in virtual time.

Nothing of the machine is different here: it is shown what a watch would show, and what it decides
is carried out by a world in memory. Pods that are evicted, or whose node leaves, come again as
their controllers would make them anew, and run from the beginning.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec
import numpy as np
from msgspec.structs import replace

from stowplan.framework import ContractError
from stowplan.messages import effects as to_do
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event
from stowplan.objects.pod import Pod, PodStatus
from stowplan.queue import QueueEntry
from stowplan.scheduler.machine import Machine
from stowplan.scheduler.outbox import shortened
from stowplan.sim.agenda import SECOND, Agenda
from stowplan.sim.churn import Absences, Churn
from stowplan.sim.cluster import Cluster
from stowplan.sim.fill import furnish
from stowplan.sim.input_error import InputError
from stowplan.sim.instance import Instance
from stowplan.sim.placement import FAILED
from stowplan.sim.volume_controller import VolumeController
from stowplan.sim.watch import Stream, everything
from stowplan.sim.world import OK, Pace, World, run_of

STILL = 660 * SECOND
"""When nobody comes or leaves any more, pods that wait are given this long: twice as long as it
takes until a pod that nothing has helped is tried again."""


class ReplayOptions(msgspec.Struct, frozen=True):
    """speedup: how much closer together pods arrive. until_s: when to stop, in virtual seconds.
    departures: whether pods that say how long they run leave. churn: of nodes, if any. sample_s:
    how often the state is written down; None: a thousand times over the arrivals.
    """

    speedup: float = 1.0
    until_s: float | None = None
    departures: bool = True
    pace: Pace = Pace()
    churn: Churn | None = None
    sample_s: float | None = None

    def check(self) -> None:
        """Raises InputError for what no replay can be held with."""
        spans = {"until_s": self.until_s, "sample_s": self.sample_s, "speedup": self.speedup}
        if self.churn is not None:
            spans |= {"churn.up_s": self.churn.up_s, "churn.down_s": self.churn.down_s}
        for name, value in spans.items():
            if value is not None and not 0 < value < math.inf:
                raise InputError("replay", name, f"{value:g}", "a number above 0")
        for name in self.pace.__struct_fields__:
            value = getattr(self.pace, name)
            if not 0 <= value < math.inf:
                raise InputError("replay", f"pace.{name}", f"{value:g}", "seconds, 0 or more")


class Stay(msgspec.Struct):
    """What became of a pod, times in nanoseconds; None for what has not happened.

    pod: as it came. refusals: attempts that failed. restarts: how often it had to come again.
    waited: from coming to being bound, the first time. note: of its last failure. was_there: on its
    node from the beginning.
    """

    pod: Pod
    arrived: int
    node: str = ""
    bound: int | None = None
    started: int | None = None
    ended: int | None = None
    waited: int | None = None
    refusals: int = 0
    restarts: int = 0
    note: str = ""
    was_there: bool = False


class Replay:
    """A cluster in virtual time, with one scheduler."""

    def __init__(
        self, cluster: Cluster, machine: Machine, options: ReplayOptions, seed: int = 0
    ) -> None:
        options.check()
        self.options = options
        self.machine = machine
        self.agenda = Agenda()
        self.world = World(self.agenda, options.pace)
        self.stays: dict[str, Stay] = {}
        self.evicted = 0
        self.fault = ""
        self.disrupted = 0
        self.preemptors: set[str] = set()
        self.binds = 0
        self.refusals = 0
        self.still_to_come = 0
        self.running_out = 0
        self.last_bound = 0
        self.last_left = 0
        self.volumes = VolumeController(self.world)
        self.instance = Instance(
            "scheduler", self.world, machine, [Stream(self.world, everything)], self._observe
        )
        furnish(self.world, cluster)
        self.world.run_of = self._run_of
        self.world.on_bound = self._bound
        self.world.on_started = self._started
        self.world.on_ended = self._ended
        self.instance.desk.on_taken = self._taken
        if machine.standing is not None:
            machine.standing.on_repeats = self._repeated
        self.instance.follow()
        for pod in cluster.bound():
            self.world.run(self.world.pods[pod.key])
        self._expect(cluster.pending())
        self.absences: Absences | None = None
        if options.churn is not None:
            dice = np.random.default_rng([seed, 2])
            self.absences = Absences(self.world, options.churn, dice)

    # Coming.

    def _expect(self, pods: list[Pod]) -> None:
        """Put the arrivals on the agenda; who does not say when it comes is there at first."""
        for pod in pods:
            run_of(pod)  # A pod that says nonsense is refused before the first one comes.
        times = [pod.metadata.creation_timestamp for pod in pods]
        first = min((at for at in times if at is not None), default=None)
        for pod, at in zip(pods, times, strict=True):
            when = 0.0
            if at is not None and first is not None:
                when = (at - first).total_seconds() / self.options.speedup
            self.still_to_come += 1
            self.agenda.at(round(when * SECOND), self._arrive, pod)

    def _arrive(self, pod: Pod) -> None:
        self.still_to_come -= 1
        now = self.agenda.now
        self.stays[pod.key] = Stay(pod, now)
        self.world.put_pod(pod)

    def _come_again(self, stay: Stay) -> None:
        """As the pod's controller would make it anew, under its old name."""
        self.still_to_come -= 1
        stay.restarts += 1
        stay.node, stay.bound, stay.started, stay.ended = "", None, None, None
        uid = f"{stay.pod.uid}#{stay.restarts}"
        meta = replace(stay.pod.metadata, uid=uid, deletion_timestamp=None)
        spec = stay.pod.spec
        if spec.node_name:
            spec = replace(spec, node_name="")
        # What it had come to on its node is over, too.
        self.world.put_pod(replace(stay.pod, metadata=meta, spec=spec, status=PodStatus()))

    # What happens to pods.

    def _run_of(self, pod: Pod) -> int | None:
        return run_of(pod) if self.options.departures else None

    def _bound(self, pod: Pod) -> None:
        now = self.agenda.now
        self.binds += 1
        self.last_bound = now
        stay = self.stays[pod.key]
        stay.node, stay.bound = pod.node_name, now
        if stay.waited is None:
            stay.waited = now - stay.arrived
        if self._run_of(pod) is not None:
            self.running_out += 1

    def _started(self, pod: Pod) -> None:
        stay = self.stays.get(pod.key)
        if stay is None:
            # It was bound before the beginning.
            self.stays[pod.key] = Stay(pod, 0, pod.node_name, 0, 0, was_there=True)
            self.running_out += self._run_of(pod) is not None
        else:
            stay.started = self.agenda.now

    def _ended(self, pod: Pod, why: str) -> None:
        now = self.agenda.now
        if pod.node_name and self._run_of(pod) is not None:
            self.running_out -= 1
        self.last_left = now
        stay = self.stays[pod.key]
        stay.ended = now
        if why:
            self.disrupted += 1
            self.still_to_come += 1
            self.agenda.after(0, self._come_again, stay)

    def _observe(self, instance: Instance, events: list[Event], effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, to_do.RecordEvent) and effect.reason == FAILED:
                self.refusals += 1
                stay = self.stays.get(f"{effect.namespace}/{effect.name}")
                if stay is not None:
                    stay.refusals += 1
                    stay.note = effect.note
            elif isinstance(effect, to_do.Report) and effect.is_fault:
                self.fault = self.fault or effect.text
        self.world.compact(instance.streams[0].version)

    def _repeated(self, entry: QueueEntry, n_repeats: int) -> None:
        """A pod has been refused so many times more, of which no effect says anything."""
        self.refusals += n_repeats
        stay = self.stays.get(entry.key)
        if stay is not None:
            stay.refusals += n_repeats

    def _take_over_repeats(self) -> None:
        """Write down what was said last to pods whose refusals were counted only."""
        standing = self.machine.standing
        if standing is None:
            return
        for entry, decision in standing.latest(self.machine.cache.snapshot()):
            self.stays[entry.key].note = shortened(decision.message)
            self.world.say_unscheduled(entry.key, decision.reason, decision.message)
        standing.settle()

    def _taken(self, effect: Effect, code: int) -> None:
        if isinstance(effect, to_do.Evict) and code == OK:
            self.evicted += 1
            # Nobody's, where a policy just wants the pod to go.
            if effect.preemptor:
                self.preemptors.add(effect.preemptor)

    # The whole.

    def run(self, on_sample: Callable[[int], None], every: int) -> None:
        """Let everything happen, and call `on_sample` with the time every so many nanoseconds.

        Raises ContractError when a policy or an action has failed in a session.
        """
        agenda = self.agenda
        limit = None if self.options.until_s is None else round(self.options.until_s * SECOND)
        sample = 0
        while not (self.fault or self._is_over()):
            at = agenda.next()
            if at is None or (limit is not None and at > limit):
                break
            while sample < at:
                agenda.run(sample)
                on_sample(sample)
                sample += every
            agenda.run(at)
        if limit is not None and not (self.fault or self._is_over()):
            agenda.run(limit)
        on_sample(agenda.now)
        self._take_over_repeats()
        if self.fault:
            raise ContractError(self.fault)

    def _is_over(self) -> bool:
        """True when nobody comes or leaves any more, and whoever waits has waited in vain."""
        if self.still_to_come or self.running_out or self.instance.is_due:
            return False
        if len(self.machine.bindings) or len(self.machine.extending):
            return False
        since = self.agenda.now - max(self.last_bound, self.last_left)
        if len(self.machine.queue) and since <= STILL:
            return False
        sessions = self.machine.sessions
        # Whoever is promised room waits for somebody to leave.
        waits = sessions is not None and bool(sessions.promised or not sessions.is_still)
        if waits and since <= STILL:
            return False
        if self.absences is not None:
            self.absences.goes_on = False
            return not len(self.absences)
        return True

    @property
    def n_waiting(self) -> int:
        """Pods that wait for a node."""
        return self.machine.n_waiting


def last_arrival(cluster: Cluster, speedup: float) -> float:
    """When the last pod comes, in virtual seconds."""
    times = [pod.metadata.creation_timestamp for pod in cluster.pending()]
    known = [at for at in times if at is not None]
    return (max(known) - min(known)).total_seconds() / speedup if known else 0.0
