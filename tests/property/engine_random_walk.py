"""Two schedulers on one random walk, one deciding by the engine, one by the walk; their effects
must be equal."""

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
from tests.scheduler.fake_cluster import EPOCH, FakeCluster, Faults
from tests.scheduler.volumes import CLAIMS, VOLUMES

NODES = tuple(f"n{i}" for i in range(9))
ROUGH = Faults(refused=15, lost=12, late=15, silent=8)
PROFILES = ("one", "two")
TEMPLATES_MAX = 8
CALLS_MAX = 50
"""Maximum number of calls caused by one workload event."""


def scheduler(seed: int | None, options: SchedulerOptions) -> Scheduler:
    """A scheduler with three profiles. seed: of the tie-break rng, None for none."""
    full, defaults = registered()
    names = (DEFAULT_SCHEDULER, *PROFILES)
    tree = {"profiles": [{"schedulerName": name} for name in names]}
    configuration = from_tree(tree, "", full, defaults, body=True)
    rng = None if seed is None else np.random.default_rng(seed)
    return Scheduler(frameworks_for(configuration, full), CycleDecider(), options, rng)


class Counting(Engine):
    """An engine that counts its placements."""

    n_placed = 0

    def place(self, run: PodRun, start: int, snapshot: Snapshot) -> list[int]:
        rows = super().place(run, start, snapshot)
        self.n_placed += len(rows)
        return rows


class Pair:
    """Two schedulers with the same events. told: number of effects returned."""

    def __init__(self, kernels: ModuleType, make: Callable[[], Scheduler]) -> None:
        """make: creates either scheduler."""
        self.compiled, self.walked = make(), make()
        decider = self.compiled.pod_lane.decider = CycleDecider(EngineMode.COMPILED)
        self.engine = decider._engine = Counting(kernels)
        self.walked.pod_lane.decider = CycleDecider(EngineMode.WALK)
        self.n_handled = 0

    @property
    def n_fast(self) -> int:
        """Number of pods placed by the engine."""
        return self.engine.n_placed

    def handle(self, batch: Iterable[Event], now: int, heads_max: int = 1000) -> list[Effect]:
        """Send the same events to both and compare their effects."""
        events = list(batch)
        got = self.compiled.handle(events, now, heads_max)
        wanted = self.walked.handle(events, now, heads_max)
        assert list(map(repr, got)) == list(map(repr, wanted)), first_difference(got, wanted)
        self.n_handled += len(got)
        return wanted

    def validate(self) -> None:
        """Validate both."""
        self.compiled.validate()
        self.walked.validate()

    def __getattr__(self, name: str) -> Any:
        """Other attributes are those of the scheduler that walks."""
        return getattr(self.walked, name)

    def compare(self) -> None:
        """Both schedulers hold the same, valid state."""
        self.validate()
        places = [
            [(e.key, one.queue.place_of(e.key), sorted(e.refusers)) for e in one.queue]
            for one in (self.compiled, self.walked)
        ]
        assert sorted(places[0], key=str) == sorted(places[1], key=str)


class RandomWalk:
    """Two schedulers on one cluster."""

    def __init__(self, seed: int, kernels: ModuleType) -> None:
        self.rng: RandomSource = np.random.default_rng(seed)
        self.cluster = FakeCluster(self.rng, pick(self.rng, (Faults(), ROUGH)))
        seed_of_ties = seed if chance(self.rng, 2) else None
        hints = not chance(self.rng, 4)
        queue = QueueOptions(hints=hints, pop_from_backoff=pick(self.rng, (None, True, False)))
        options = SchedulerOptions(queue=queue)
        self.pair = Pair(kernels, lambda: scheduler(seed_of_ties, options))
        self.now = 0
        self.templates: list[Pod] = []
        self._born = 0
        for name in NODES[: random_int(self.rng, 1, len(NODES))]:
            self.cluster.put_node(objects.node(self.rng, name))

    def name(self) -> str:
        """An unused name."""
        self._born += 1
        return f"p{self._born}"

    def step(self) -> None:
        """Apply random actions, perform some effects and deliver some events."""
        for _ in range(random_int(self.rng, 1, 3)):
            pick(self.rng, ACTIONS)(self)
        for _ in range(random_int(self.rng, 0, 25)):
            self.cluster.perform()
        self.call(self.cluster.deliver(), pick(self.rng, (1000, 1000, 1, 3)))

    def call(self, batch: list[Event], heads_max: int = 1000) -> None:
        """Call the schedulers and pass their effects to the cluster."""
        self.cluster.take(self.pair.handle(batch, self.now, heads_max))


def first_difference(got: list[Effect], wanted: list[Effect]) -> str:
    """The first differing effect."""
    for mine, theirs in zip(got, wanted, strict=False):
        if mine != theirs:
            return f"{mine} is not {theirs}"
    return f"{len(got)} effects, not {len(wanted)}"


# Actions.


def pods_come(walk: RandomWalk) -> None:
    """Pods of a few templates are created."""
    rng = walk.rng
    if not walk.templates or chance(rng, 2):
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
        walk.templates.append(replace(made, spec=spec))
        del walk.templates[:-TEMPLATES_MAX]
    for _ in range(pick(rng, (1, 4, 12))):
        walk.cluster.put_pod(objects.named(pick(rng, walk.templates), walk.name()))


def pods_go(walk: RandomWalk) -> None:
    """A few pods are deleted, or their grace period ends."""
    cluster = walk.cluster
    for _ in range(random_int(walk.rng, 1, 6)):
        if cluster.pods:
            key = pick(walk.rng, tuple(cluster.pods))
            if cluster.pods[key].metadata.deletion_timestamp is None:
                cluster.delete_pod(key)
            else:
                cluster.drop_pod(key)


def pod_ends(walk: RandomWalk) -> None:
    """A running pod finishes."""
    placed = [each for each in walk.cluster.pods.values() if each.node_name]
    if placed:
        each = pick(walk.rng, placed)
        walk.cluster.put_pod(replace(each, status=replace(each.status, phase="Succeeded")))


def pod_changes(walk: RandomWalk) -> None:
    """A pod gets other labels, loses its gates, or is kept by a finalizer."""
    if not walk.cluster.pods:
        return
    each = walk.cluster.pods[pick(walk.rng, tuple(walk.cluster.pods))]
    meta = replace(each.metadata, labels=objects.Wishes(walk.rng).labels)
    if chance(walk.rng, 6):
        meta = replace(each.metadata, deletion_timestamp=EPOCH)
    spec = replace(each.spec, scheduling_gates=()) if each.spec.scheduling_gates else each.spec
    walk.cluster.put_pod(replace(each, metadata=meta, spec=spec))


def stranger_binds(walk: RandomWalk) -> None:
    """Another client binds a pod."""
    waiting = [each for each in walk.cluster.pods.values() if not each.node_name]
    if waiting:
        each = pick(walk.rng, waiting)
        walk.cluster.bind_pod(each.key, each.uid, pick(walk.rng, (*NODES, "nowhere")))


def node_comes(walk: RandomWalk) -> None:
    """A node is added or changed."""
    name = pick(walk.rng, NODES)
    before, after = walk.cluster.nodes.get(name), objects.node(walk.rng, name)
    if before is not None and not chance(walk.rng, 3):
        status = replace(before.status, allocatable=after.status.allocatable)
        after = replace(before, status=status)
    walk.cluster.put_node(after)


def node_goes(walk: RandomWalk) -> None:
    """A node is deleted."""
    if walk.cluster.nodes and chance(walk.rng, 2):
        walk.cluster.drop_node(pick(walk.rng, tuple(walk.cluster.nodes)))


def object_changes(walk: RandomWalk) -> None:
    """A namespace, a service or a controller is added or changed."""
    if chance(walk.rng, 2):
        value = objects.namespace(walk.rng, pick(walk.rng, objects.NAMESPACES))
    else:
        value = objects.controller(walk.rng, pick(walk.rng, objects.APPS))
    walk.cluster.volumes.put(value)


def claims_change(walk: RandomWalk) -> None:
    """Claims and volumes are added, and the controller runs."""
    volumes = walk.cluster.volumes
    volumes.volume_comes(pick(walk.rng, VOLUMES), pick(walk.rng, NODES))
    volumes.claim_comes(pick(walk.rng, CLAIMS))
    volumes.control()


def time_passes(walk: RandomWalk) -> None:
    """Time advances to the next wake-up, or somewhat further."""
    alarm = walk.cluster.alarm
    if alarm is not None and not chance(walk.rng, 3):
        walk.now = max(walk.now, alarm)
    else:
        walk.now += random_int(walk.rng, 0, 40) * SECOND // 2


def leader_changes(walk: RandomWalk) -> None:
    """Another scheduler leads for a moment."""
    if chance(walk.rng, 4):
        walk.cluster.term += 1
        walk.call([happened.LeaderLost()])
        walk.call([happened.LeaderElected(walk.cluster.term)])


ACTIONS: tuple[Callable[[RandomWalk], None], ...] = (
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
"""Actions, repeated by their weight."""


def walk_together(seed: int, n_steps: int, kernels: ModuleType) -> Pair:
    """Run a random walk of `n_steps`; both schedulers must return the same effects."""
    walk = RandomWalk(seed, kernels)
    for _ in range(n_steps):
        walk.step()
    walk.pair.compare()
    return walk.pair


def play_together(
    workload: BenchmarkWorkload, seed_of_ties: int | None, kernels: ModuleType
) -> Pair:
    """Run a workload, with bindings confirmed and evictions performed; both must return the same
    effects."""
    pair = Pair(kernels, lambda: scheduler(seed_of_ties, SchedulerOptions()))
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
