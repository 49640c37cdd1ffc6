"""Two machines on one voyage: one decides by the engine, one by the walk, and both are told the
same. What they answer must be the same, to the byte."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
from msgspec.structs import replace

from stowplan.assembly import registered
from stowplan.assembly.build import frameworks_for
from stowplan.benchmarks.benchmark_workload import BenchmarkWorkload
from stowplan.config import from_tree
from stowplan.cycle import CycleDecider
from stowplan.cycle.engine import Engine
from stowplan.cycle.engine.engine import PodRun
from stowplan.cycle.engine.kernel_loading import EngineMode
from stowplan.framework import Snapshot
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.pod import DEFAULT_SCHEDULER, Pod
from stowplan.objects.volume import PVCVolumeSource, Volume
from stowplan.queue import QueueOptions
from stowplan.scheduler import Scheduler, SchedulerOptions
from stowplan.testing.generators.choices import RandomSource, chance, pick, random_int
from tests.property import engine_objects as objects
from tests.scheduler.volumes import CLAIMS, VOLUMES
from tests.scheduler.world import EPOCH, Faults, World

NODES = tuple(f"n{i}" for i in range(9))
ROUGH = Faults(refused=15, lost=12, late=15, silent=8)
PROFILES = ("one", "two")
TEMPLATES_MAX = 8
CALLS_MAX = 50
"""Calls to which a workload's own events lead."""


def scheduler(seed: int | None, options: SchedulerOptions) -> Scheduler:
    """A machine with three profiles. seed: of the dice that break ties, None for none."""
    full, defaults = registered()
    names = (DEFAULT_SCHEDULER, *PROFILES)
    tree = {"profiles": [{"schedulerName": name} for name in names]}
    configuration = from_tree(tree, "", full, defaults, body=True)
    rng = None if seed is None else np.random.default_rng(seed)
    return Scheduler(frameworks_for(configuration, full), CycleDecider(), options, rng)


class Counting(Engine):
    """An engine that counts what it places."""

    n_placed = 0

    def place(self, run: PodRun, start: int, snapshot: Snapshot) -> list[int]:
        rows = super().place(run, start, snapshot)
        self.n_placed += len(rows)
        return rows


class Pair:
    """Two machines that are told the same. told: how many effects they have answered with."""

    def __init__(self, kernels: ModuleType, make: Callable[[], Scheduler]) -> None:
        """make: makes either."""
        self.compiled, self.walked = make(), make()
        decider = self.compiled._decider = CycleDecider(EngineMode.COMPILED)
        self.engine = decider._engine = Counting(kernels)
        self.walked._decider = CycleDecider(EngineMode.WALK)
        self.told = 0

    @property
    def n_fast(self) -> int:
        """How many pods the engine has placed."""
        return self.engine.n_placed

    def handle(self, batch: Iterable[Event], now: int, heads_max: int = 1000) -> list[Effect]:
        """Tell both the same, and compare what they answer."""
        events = list(batch)
        got = self.compiled.handle(events, now, heads_max)
        wanted = self.walked.handle(events, now, heads_max)
        assert list(map(repr, got)) == list(map(repr, wanted)), first_difference(got, wanted)
        self.told += len(got)
        return wanted

    def validate(self) -> None:
        """What either holds is true."""
        self.compiled.validate()
        self.walked.validate()

    def __getattr__(self, name: str) -> Any:
        """Whoever looks into the machine sees the one that walks."""
        return getattr(self.walked, name)

    def compare(self) -> None:
        """What the machines hold is the same, and true."""
        self.validate()
        places = [
            [(e.key, one.queue.place_of(e.key), sorted(e.refusers)) for e in one.queue]
            for one in (self.compiled, self.walked)
        ]
        assert sorted(places[0], key=str) == sorted(places[1], key=str)


class Voyage:
    """Two machines under way in one world."""

    def __init__(self, seed: int, kernels: ModuleType) -> None:
        self.rng: RandomSource = np.random.default_rng(seed)
        self.world = World(self.rng, pick(self.rng, (Faults(), ROUGH)))
        drawn = seed if chance(self.rng, 2) else None
        hints = not chance(self.rng, 4)
        queue = QueueOptions(hints=hints, pop_from_backoff=pick(self.rng, (None, True, False)))
        options = SchedulerOptions(queue=queue)
        self.pair = Pair(kernels, lambda: scheduler(drawn, options))
        self.now = 0
        self.templates: list[Pod] = []
        self._born = 0
        for name in NODES[: random_int(self.rng, 1, len(NODES))]:
            self.world.put_node(objects.node(self.rng, name))

    def name(self) -> str:
        """A name that nobody has had."""
        self._born += 1
        return f"p{self._born}"

    def step(self) -> None:
        """Something happens, something is carried out, something is told to the machines."""
        for _ in range(random_int(self.rng, 1, 3)):
            pick(self.rng, ACTIONS)(self)
        for _ in range(random_int(self.rng, 0, 25)):
            self.world.perform()
        self.call(self.world.deliver(), pick(self.rng, (1000, 1000, 1, 3)))

    def call(self, batch: list[Event], heads_max: int = 1000) -> None:
        """Tell the machines, and let the world see what they answer."""
        self.world.take(self.pair.handle(batch, self.now, heads_max))


def first_difference(got: list[Effect], wanted: list[Effect]) -> str:
    """The first of the effects that differ."""
    for mine, theirs in zip(got, wanted, strict=False):
        if mine != theirs:
            return f"{mine} is not {theirs}"
    return f"{len(got)} effects, not {len(wanted)}"


# What may happen.


def pods_come(voyage: Voyage) -> None:
    """Pods of a few templates."""
    rng = voyage.rng
    if not voyage.templates or chance(rng, 2):
        made = objects.template(rng)
        spec = replace(
            made.spec,
            scheduler_name=pick(rng, PROFILES),
            priority=pick(rng, (0, 0, 0, 5, 1000)),
            scheduling_gates=made.spec.scheduling_gates if chance(rng, 4) else (),
        )
        if chance(rng, 12):
            claim = PVCVolumeSource(claim_name=pick(rng, CLAIMS))
            spec = replace(spec, volumes=(Volume(name="c", persistent_volume_claim=claim),))
        voyage.templates.append(replace(made, spec=spec))
        del voyage.templates[:-TEMPLATES_MAX]
    for _ in range(pick(rng, (1, 4, 12))):
        voyage.world.put_pod(objects.named(pick(rng, voyage.templates), voyage.name()))


def pods_go(voyage: Voyage) -> None:
    """A few pods are deleted, or are gone after their grace."""
    world = voyage.world
    for _ in range(random_int(voyage.rng, 1, 6)):
        if world.pods:
            key = pick(voyage.rng, tuple(world.pods))
            if world.pods[key].metadata.deletion_timestamp is None:
                world.delete_pod(key)
            else:
                world.drop_pod(key)


def pod_ends(voyage: Voyage) -> None:
    """A pod that runs has ended."""
    placed = [each for each in voyage.world.pods.values() if each.node_name]
    if placed:
        each = pick(voyage.rng, placed)
        voyage.world.put_pod(replace(each, status=replace(each.status, phase="Succeeded")))


def pod_changes(voyage: Voyage) -> None:
    """A pod gets other labels, loses its gates, or is kept by a finalizer."""
    if not voyage.world.pods:
        return
    each = voyage.world.pods[pick(voyage.rng, tuple(voyage.world.pods))]
    meta = replace(each.metadata, labels=objects.Wishes(voyage.rng).labels)
    if chance(voyage.rng, 6):
        meta = replace(each.metadata, deletion_timestamp=EPOCH)
    spec = replace(each.spec, scheduling_gates=()) if each.spec.scheduling_gates else each.spec
    voyage.world.put_pod(replace(each, metadata=meta, spec=spec))


def stranger_binds(voyage: Voyage) -> None:
    """Somebody else binds a pod."""
    waiting = [each for each in voyage.world.pods.values() if not each.node_name]
    if waiting:
        each = pick(voyage.rng, waiting)
        voyage.world.bind_pod(each.key, each.uid, pick(voyage.rng, (*NODES, "nowhere")))


def node_comes(voyage: Voyage) -> None:
    """A node arrives or has another content."""
    name = pick(voyage.rng, NODES)
    before, after = voyage.world.nodes.get(name), objects.node(voyage.rng, name)
    if before is not None and not chance(voyage.rng, 3):
        status = replace(before.status, allocatable=after.status.allocatable)
        after = replace(before, status=status)
    voyage.world.put_node(after)


def node_goes(voyage: Voyage) -> None:
    """A node leaves."""
    if voyage.world.nodes and chance(voyage.rng, 2):
        voyage.world.drop_node(pick(voyage.rng, tuple(voyage.world.nodes)))


def object_changes(voyage: Voyage) -> None:
    """A namespace, a service or a controller is there or has changed."""
    if chance(voyage.rng, 2):
        value = objects.namespace(voyage.rng, pick(voyage.rng, objects.NAMESPACES))
    else:
        value = objects.controller(voyage.rng, pick(voyage.rng, objects.APPS))
    voyage.world.volumes.put(value)


def claims_change(voyage: Voyage) -> None:
    """Claims and volumes come, and are seen to."""
    volumes = voyage.world.volumes
    volumes.volume_comes(pick(voyage.rng, VOLUMES), pick(voyage.rng, NODES))
    volumes.claim_comes(pick(voyage.rng, CLAIMS))
    volumes.control()


def time_passes(voyage: Voyage) -> None:
    """Until the machine wants to be called, or somewhat longer."""
    alarm = voyage.world.alarm
    if alarm is not None and not chance(voyage.rng, 3):
        voyage.now = max(voyage.now, alarm)
    else:
        voyage.now += random_int(voyage.rng, 0, 40) * SECOND // 2


def leader_changes(voyage: Voyage) -> None:
    """Another scheduler leads for a moment."""
    if chance(voyage.rng, 4):
        voyage.world.term += 1
        voyage.call([happened.LeaderLost()])
        voyage.call([happened.LeaderElected(voyage.world.term)])


ACTIONS: tuple[Callable[[Voyage], None], ...] = (
    *(pods_come,) * 8,
    *(time_passes,) * 6,
    *(pods_go,) * 3,
    pod_ends,
    pod_changes,
    pod_changes,
    stranger_binds,
    node_comes,
    node_comes,
    node_goes,
    object_changes,
    claims_change,
    leader_changes,
)
"""What may happen, as often as it stands here beside the others."""


def voyage_together(seed: int, n_steps: int, kernels: ModuleType) -> Pair:
    """So many steps; both machines answer the same."""
    voyage = Voyage(seed, kernels)
    for _ in range(n_steps):
        voyage.step()
    voyage.pair.compare()
    return voyage.pair


def play_together(workload: BenchmarkWorkload, drawn: int | None, kernels: ModuleType) -> Pair:
    """A workload, its bindings confirmed and its evictions carried out; both answer the same."""
    pair = Pair(kernels, lambda: scheduler(drawn, SchedulerOptions()))
    pods = {event.pod.uid: event.pod for event in _added(workload)}
    now, due = 0, [*((0, workload.before),), *((call.at, call.events) for call in workload.calls)]
    for at, events in due:
        now = max(now, at)
        for _ in range(CALLS_MAX):
            events = _outcomes(pair.handle(events, now), pods)
            if not events:
                break
    pair.compare()
    return pair


def _added(workload: BenchmarkWorkload) -> Iterator[happened.PodAdded]:
    for events in (workload.before, *(call.events for call in workload.calls)):
        yield from (event for event in events if isinstance(event, happened.PodAdded))


def _outcomes(effects: Iterable[Effect], pods: dict[str, Pod]) -> list[Event]:
    found: list[Event] = []
    for effect in effects:
        if isinstance(effect, to_do.Bind):
            pod = pods[effect.uid]
            bound = replace(pod, spec=replace(pod.spec, node_name=effect.node))
            found += [happened.BindDone(effect.effect, effect.uid), happened.PodUpdated(bound)]
        elif isinstance(effect, to_do.Evict):
            found.append(happened.EvictDone(effect.effect, effect.uid))
            found.append(happened.PodDeleted(pods[effect.uid]))
    return found
