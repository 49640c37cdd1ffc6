"""Storm: a small cluster, one scheduler or two, and everything that may go wrong, by the dice.

A storm is repeated by its seed: the workload, how long everything takes, and the plan of faults. An
auditor judges every step. When the faults are over, whoever fits somewhere must be bound within
minutes, and nothing may be left under way.

What has struck is counted: a fault that finds nothing to strike proves nothing.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import msgspec
import numpy as np

from stowplan.columns.audit import InvariantBroken
from stowplan.messages import events as happened
from stowplan.messages.effects import CallExtender, Effect, RecordEvent
from stowplan.messages.events import Event
from stowplan.objects.pod import Pod
from stowplan.scheduler.machine import Machine
from stowplan.sim.agenda import SECOND, Agenda
from stowplan.sim.desk import Said
from stowplan.sim.faults import CALLS, LEADERS, REQUESTS, Armed, Fault, plan_of, shrunk
from stowplan.sim.feed import Feed
from stowplan.sim.instance import Instance
from stowplan.sim.sea import Happening, Sea, happenings
from stowplan.sim.watch import Stream, is_no_pod, is_pod
from stowplan.sim.world import Pace, World
from stowplan.testing.auditor import Auditor, Violation, is_leaving
from stowplan.testing.dice import Dice, chance, number, pick

LENGTH = 90 * SECOND
CALM = 150 * SECOND
"""How long the calm lasts: less than it takes until a pod that no event has helped is tried again,
so that a pod which was forgotten is found."""
VALIDATED = 5
"""Of so many storms, one in which the machine compares itself with a rebuild after every call."""
LEASE = 15 * SECOND
"""How long a lease holds that is not renewed."""

MachineMaker = Callable[[int, bool, int], Machine]
"""Makes a scheduler. Called with (seed of the storm, whether it leads from the start, the term)."""


class Kit(msgspec.Struct, frozen=True):
    """What a storm is made with.

    machine: makes schedulers. waits: which pods may pause between the choice of a node and Bind.
    held: which pods may have a reason of their own to wait at rest, in the world as it is then, and
    with what was last said of them.
    restless: which pods may be tried for ever, and take room from others each time: where one of
    them is left, nobody is asked why he waits.
    look: called after every call of a machine. labels: what pods may be labelled with. more: what
    happens besides, by the dice, up to a time. extender: makes what answers in place of extenders,
    None where there are none. bars, minds: which pods they keep from which nodes, see `Auditor`.
    auditor: makes who judges. rested: looks at the scheduler that leads at rest.
    """

    machine: MachineMaker
    waits: Callable[[Pod], bool] = lambda pod: False
    held: Callable[[Pod, World, str], bool] = lambda pod, world, note: False
    restless: Callable[[Pod], bool] = lambda pod: False
    look: Callable[[Machine], None] = lambda machine: None
    labels: tuple[tuple[str, str], ...] = ()
    more: Callable[[Dice, int], Iterable[Happening]] = lambda dice, until: ()
    extender: Callable[[World, int], Callable[[CallExtender], Said]] | None = None
    bars: Callable[[Pod, str], bool] = lambda pod, node: False
    minds: Callable[[Pod, str], bool] = lambda pod, node: False
    auditor: Callable[..., Auditor] = Auditor
    rested: Callable[[Machine], None] = lambda machine: None


class Failure(msgspec.Struct):
    """A storm in which something went wrong: enough to tell it and to repeat it."""

    seed: int
    plan: list[Fault]
    what: str
    story: list[str]

    def __str__(self) -> str:
        faults = [f"  {fault}" for fault in self.plan] or ["  (none)"]
        story = [f"  {line}" for line in self.story]
        lines = [f"seed {self.seed}: {self.what}", "faults:", *faults, "story:", *story]
        return "\n".join(lines)


class Storm:
    """One run. Raises Violation, or InvariantBroken of the machine."""

    def __init__(self, seed: int, kit: Kit, plan: list[Fault] | None = None) -> None:
        self.seed = seed
        self.kit = kit
        dice = np.random.default_rng([seed, 0])
        self.two = chance(dice, 3)
        self.plan = plan_of(
            np.random.default_rng([seed, 1]),
            LENGTH,
            two_schedulers=self.two,
            has_extenders=kit.extender is not None,
        )
        if plan is not None:
            self.plan = plan
        self.dice: Dice = np.random.default_rng([seed, 2])
        self.haste = pick(dice, (0, 1, 20, 200, 2000))
        self.agenda = Agenda()
        self.world = World(self.agenda, Pace(0, 0.5, number(dice, 0, 5)))
        self.struck: Counter[str] = Counter()
        self.armed = Armed(self._has_struck)
        self.auditor = kit.auditor(kit.waits, bars=kit.bars, minds=kit.minds)
        self._extender = None if kit.extender is None else kit.extender(self.world, seed)
        self.world.on_change.append(self._tell_auditor)
        self.crew: list[Instance] = []
        self.feeds: dict[str, tuple[Feed, Feed]] = {}
        self.term = 1
        self.is_calm = False
        self._n_started = 0
        self._doomed: list[Fault] = []
        self._notes: dict[str, str] = {}
        self._synced: set[str] = set()
        for happening in (*happenings(dice, LENGTH, kit.labels), *kit.more(dice, LENGTH)):
            self.agenda.at(happening.at, self._befall, happening)
        self.sea = Sea(self.world, self.crew, dice)
        for one in self.plan:
            self.agenda.at(one.at, self._strike, one)
        self._start("one", leads=True)
        if self.two:
            self._start("two", leads=False)

    # Schedulers.

    def _start(self, name: str, *, leads: bool) -> None:
        """A scheduler process begins, knowing nothing."""
        self._n_started += 1
        name = f"{name}#{self._n_started}"
        machine = self.kit.machine(self.seed, leads, self.term)
        instance = Instance(name, self.world, machine, (), self._observe)
        instance.heads_max = pick(self.dice, (None, None, 1, 3))
        desk = instance.desk
        desk.delay = self._delay
        desk.strike = self.armed.strike
        if self._extender is not None:
            desk.extender = self._extender
        desk.may_write = lambda effect: self._may_write(name, effect)
        desk.on_sent = lambda effect: self.auditor.sent(name, effect)
        desk.on_taken = lambda effect, code: self.auditor.taken(name, effect, code)
        self.auditor.joined(name, leads=leads, term=self.term)
        self.crew.append(instance)
        streams = (Stream(self.world, is_pod), Stream(self.world, is_no_pod))
        pods, nodes = (
            Feed(self.world, stream, instance, self._delay, self._portion) for stream in streams
        )
        self.feeds[name] = (pods, nodes)

    def _may_write(self, name: str, effect: Effect) -> bool:
        """Just before a write is sent its lease is looked at."""
        auditor = self.auditor
        return auditor.holder == name and effect.term == auditor.term

    def _delay(self) -> int:
        """How long a message takes."""
        haste = self.haste
        if not haste or self.is_calm:
            return 0
        return number(self.dice, 0, haste) * SECOND // 1000

    def _portion(self) -> int | None:
        return None if self.is_calm else pick(self.dice, (None, 1, 3))

    def _restart(self, instance: Instance, fault: Fault) -> None:
        """A process ends at once, and another takes its place, knowing nothing."""
        if instance not in self.crew:
            return
        self.struck["restart"] += 1
        name = instance.name
        instance.stop()
        self.crew.remove(instance)
        for feed in self.feeds.pop(name):
            feed.stop()
        if fault.choice % 3 == 0:
            # What it has decided was on its way already, and arrives.
            self.struck["requests of the dead"] += 1
            instance.desk.on_sent = lambda effect: None
            instance.desk.may_write = None
            instance.desk.is_open = True
        if self.auditor.holder == name:
            self.auditor.leads("", self.term)
            if self.two:
                self.agenda.after(LEASE, self._elect, name)
        self.agenda.after(fault.span, self._come_back, name)

    def _come_back(self, name: str) -> None:
        if not self.two:
            self.term += 1
        self._start(name.partition("#")[0], leads=not self.two)

    def _elect(self, loser: str) -> None:
        """Whoever does not hold the lease wins it, if nobody has it."""
        if self.auditor.holder:
            return
        fit = [one for one in self.crew if one.runs and not one.frozen]
        fit = [one for one in fit if one.name != loser] or fit
        if not fit:
            self.agenda.after(SECOND, self._elect, loser)
            return
        self.term += 1
        self.struck["lead won"] += 1
        self.auditor.leads(fit[0].name, self.term)
        fit[0].tell(happened.LeaderElected(self.term))

    # What befalls them.

    def _befall(self, happening: Happening) -> None:
        happening(self.sea)

    def _strike(self, fault: Fault) -> None:
        kind = fault.kind
        if kind in REQUESTS + CALLS:
            self.armed.arm(fault)
        elif kind.startswith("watch"):
            self._strike_watch(fault)
        elif kind in LEADERS:
            self._strike_leader(fault)
        elif kind == "restart" and fault.choice % 2:
            self._doomed.append(fault)
        elif kind == "restart":
            if self.crew:
                self._restart(self.crew[fault.choice // 2 % len(self.crew)], fault)
        else:
            found = self.sea.befall(fault)
            if found:
                self.struck[kind] += 1
                self.struck[f"{kind} {found}"] += 1

    def _has_struck(self, fault: Fault) -> None:
        self.struck[fault.kind] += 1
        if fault.kind == "bind refused":
            self.struck[f"{fault.kind} {fault.code}"] += 1

    def _strike_watch(self, fault: Fault) -> None:
        pairs = list(self.feeds.values())
        if not pairs:
            return
        feed = pairs[fault.choice % len(pairs)][fault.choice // 7 % 2]
        self.struck[fault.kind] += 1
        if fault.kind == "watch repeats":
            feed.repeat(fault.choice)
        else:
            feed.close(fault.span, expired=fault.kind == "watch expired")

    def _strike_leader(self, fault: Fault) -> None:
        """The leader gives the lead up, loses it and learns of that later, or is frozen."""
        name = self.auditor.holder
        leader = next((one for one in self.crew if one.name == name), None)
        if leader is None:
            return
        self.struck[fault.kind] += 1
        self.auditor.leads("", self.term)
        if fault.kind == "lead released":
            leader.tell(happened.LeaderLost())
            self.agenda.after(0, self._elect, name)
        elif fault.kind == "lead lost":
            self.agenda.after(fault.span, self._notice, leader)
            self.agenda.after(max(LEASE, fault.span), self._elect, name)
        else:
            leader.frozen = True
            self.agenda.after(LEASE, self._elect, name)
            self.agenda.after(LEASE + fault.span, self._thaw, leader)

    def _thaw(self, instance: Instance) -> None:
        instance.frozen = False
        instance.soon()
        self.agenda.after(self._delay(), self._notice, instance)

    def _notice(self, instance: Instance) -> None:
        """A scheduler learns that it has lost the lead, unless it has won it again meanwhile."""
        if self.auditor.holder != instance.name:
            instance.tell(happened.LeaderLost())

    # Watching over it.

    def _tell_auditor(self) -> None:
        self.auditor.now = self.agenda.now
        self.auditor.changed(self.world.version, self.world.latest)

    def _observe(self, instance: Instance, events: list[Event], effects: list[Effect]) -> None:
        self.auditor.now = self.agenda.now
        pods, nodes = self.feeds[instance.name]
        seen = (pods.stream.version, nodes.stream.version)
        self.auditor.called(instance.name, events, effects, seen)
        if instance.name not in self._synced and min(seen) >= 0:
            self._synced.add(instance.name)
            instance.tell(happened.Synced())
        for effect in effects:
            if isinstance(effect, RecordEvent):
                self._notes[effect.uid] = effect.note
        if self._doomed:
            # It ends between its decision and the first request.
            self.struck["restart before a request"] += 1
            self.agenda.after(0, self._restart, instance, self._doomed.pop(0))
        self.kit.look(instance.machine)
        if self.seed % VALIDATED == 0:
            instance.machine.validate()

    # The whole.

    def run(self) -> None:
        """The storm, and the calm after it."""
        self.agenda.run(LENGTH)
        self._calm()
        self.agenda.run(LENGTH + CALM)
        self._check_rest()

    def _calm(self) -> None:
        """Faults stop, and what is closed is opened again; nobody comes or ends any more."""
        self.is_calm = True
        self.armed.disarm()
        self._doomed.clear()
        self.sea.calm()
        for pair in self.feeds.values():
            for feed in pair:
                feed.open()

    def _check_rest(self) -> None:
        leaders = [one for one in self.crew if one.name == self.auditor.holder]
        if len(leaders) != 1:
            raise Violation(f"nobody leads at rest: {[one.name for one in self.crew]}")
        machine = leaders[0].machine
        there = {pod.key: pod for pod in self.world.pods.values() if not pod.is_finished}
        for uid in self._not_known(machine, there):
            raise Violation("the scheduler does not know the pod as it is", uid)
        machine.validate()
        if any(self.kit.restless(pod) for pod in there.values() if not pod.node_name):
            return
        self.auditor.at_rest(self._is_held)
        for uid, _ in machine.extending:
            raise Violation("still awaiting an extender at rest", uid)
        for uid, journey in machine.bindings:
            if not self._may_be_under_way(journey.pod):
                raise Violation(f"still {journey.stage.value} at rest", uid)
        for entry in (*machine.queue.active, *machine.queue.backoff):
            # Without any node an attempt ends as an error, and those are tried for ever.
            if self.world.nodes and not self._may_be_under_way(entry.pod):
                raise Violation(f"still tried at rest, {entry.attempts} times so far", entry.uid)
        self.kit.rested(machine)

    def _not_known(self, machine: Machine, there: dict[str, Pod]) -> Iterator[str]:
        waiting = {entry.uid for entry in machine.queue} | {uid for uid, _ in machine.bindings}
        if machine.sessions is not None:
            waiting.update(machine.sessions.decider.waiting())
        for pod in there.values():
            known = pod.uid in waiting or machine.cache.nodes.knows_pod(pod.uid)
            if not known and not is_leaving(pod):
                yield pod.uid
        yield from sorted(waiting - {pod.uid for pod in there.values()})

    def _may_be_under_way(self, pod: Pod) -> bool:
        return self.kit.waits(pod) or self._is_held(pod)

    def _is_held(self, pod: Pod) -> bool:
        note = self._notes.get(pod.uid, "")
        return bool(pod.spec.scheduling_gates) or self.kit.held(pod, self.world, note)


def weathered(seed: int, kit: Kit, plan: list[Fault] | None = None) -> Failure | None:
    """Run a storm; None when all went well."""
    storm = Storm(seed, kit, plan)
    try:
        storm.run()
    except (Violation, InvariantBroken, AssertionError, LookupError, ValueError) as wrong:
        uid = wrong.uid if isinstance(wrong, Violation) else ""
        what = f"{type(wrong).__name__}: {wrong}"
        if not uid:
            place = traceback.extract_tb(wrong.__traceback__)[-1]
            what += f" ({place.filename.rpartition('/')[2]}:{place.lineno} in {place.name})"
        return Failure(seed, storm.plan, what, storm.auditor.told(uid))
    return None


def told(failure: Failure, kit: Kit) -> Failure:
    """The failure with the fewest faults that still lead to one, and its story."""
    least = failure

    def fails(plan: list[Fault]) -> bool:
        nonlocal least
        found = weathered(failure.seed, kit, plan)
        if found is not None:
            least = found
        return found is not None

    shrunk(failure.plan, fails)
    return least


def first_failure(seeds: range, kit: Kit) -> Failure | None:
    """The first seed that fails, shrunk; None when none does."""
    for seed in seeds:
        failure = weathered(seed, kit)
        if failure is not None:
            return told(failure, kit)
    return None
