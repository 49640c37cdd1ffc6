"""Voyages: a machine and a world, and what may happen to them, by the dice.

After every call of `handle` the machine is validated, and its effects are looked at.

Storms (`stowplan.fault_runs.fault_run`) sail the same machine through other waters, and both are
needed. A storm is a cluster over time: watches that lag and are cut, schedulers that end, two of
them, and an auditor who knows nothing of the machine. A voyage is a walk: anything at all may
happen between any two calls, in any order, whatever the time. Here are what storms leave out:
claims and volumes, two profiles, pods that are made anew under a name, finalizers, assumptions that
expire; and what only somebody can see who looks into the machine, as rooms that are held in vain.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec.structs import replace

from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event
from stowplan.messages.extender_api import ExtenderBindingArgs, ExtenderVerb
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.pod import Pod
from stowplan.plugins.volumes.volume_claims import volume_uses_of
from stowplan.scheduler.scheduler import Scheduler
from stowplan.testing import node, pod
from stowplan.testing.generators.choices import RandomSource, chance, pick, random_int
from tests.scenarios.script import made
from tests.scheduler.volumes import CLAIMS, VOLUMES
from tests.scheduler.world import EPOCH, READS_AND_STOPS, Faults, World, counts, cpu_of

NODES = ("n0", "n1", "n2", "n3")
PODS = tuple(f"p{i}" for i in range(14))
ROUGH = Faults(refused=15, lost=12, late=15, silent=8)
CREW = "Captain,Mate,Crane,Winch,Purser,Pilot,Signaller,Saboteur"
BINDERS = "Saboteur,Pilot,DefaultBinder"

REST = 700 * SECOND
HELD = {"captain", "mate", "crane", "purser", "saboteur"}
SABOTAGE = ("filter", "reserve", "unreserve", "permit", "flight", "prebind", "bind", "postbind")
"""Labels of pods that a plugin may send back again and again."""

Action = Callable[["Voyage"], None]


class Voyage:
    """A machine under way. strangers: whether others bind pods and nodes shrink or go.

    extenders: those of the machine, as in scripts. n_waits: how often it was seen to wait for some.
    """

    def __init__(
        self,
        rng: RandomSource,
        faults: Faults = ROUGH,
        *,
        strangers: bool = True,
        extenders: str = "",
        waits: str = "1",
    ) -> None:
        self.rng = rng
        self.strangers = strangers
        self.manned = not chance(rng, 4)
        self.world = World(rng, faults)
        self.scheduler: Scheduler = made(
            profiles="one,two",
            plugins=CREW if self.manned else "",
            binders=BINDERS if self.manned else "",
            # An assumption that expires gives away room that is taken in truth.
            assume_limit=pick(rng, ("", "", "20")) if strangers else "",
            hints=pick(rng, ("yes", "yes", "yes", "no")),
            extenders=extenders,
            waits=waits,
        )
        self.n_waits = 0
        self._extended: set[str] = set()
        self.now = 0
        self.leads = True
        self.numbers: set[int] = set()
        self._born = 0
        self._shaken: set[str] = set()
        for name in NODES[:3]:
            self.world.put_node(node(name, cpu="4", pods=4))

    # One step.

    def step(self) -> None:
        """Something happens, something is carried out, something is told to the machine."""
        actions = ACTIONS if self.strangers else CALM_ACTIONS
        for _ in range(random_int(self.rng, 1, 3)):
            one_of(self.rng, actions)(self)
        for _ in range(random_int(self.rng, 0, 6)):
            self.world.perform()
        self.call(self.world.deliver(), pick(self.rng, (1000, 1, 3)))

    def call(self, batch: list[Event], heads_max: int = 1000) -> list[Effect]:
        """Call the machine, and see that all is well with it."""
        before = {uid for uid, _ in self.scheduler.bindings}
        effects = self.scheduler.handle(batch, self.now, heads_max)
        self.scheduler.validate()
        self.n_waits += len(self.scheduler.extender_attempts)
        self._check([_as_bind(effect) for effect in effects], before)
        # While an extender is asked to bind, claims may change; the plugins bind all the same.
        self._extended |= {
            effect.uid
            for effect in effects
            if isinstance(effect, to_do.CallExtender) and effect.question.verb is ExtenderVerb.BIND
        }
        self.world.take(effects)
        return effects

    def _check(self, effects: list[Effect], before: set[str]) -> None:
        for effect in effects:
            assert effect.effect not in self.numbers, effect
            self.numbers.add(effect.effect)
            assert self.leads or isinstance(effect, READS_AND_STOPS), effect
            if isinstance(effect, to_do.Bind):
                if effect.uid not in self._extended:
                    self._check_volumes(effect)
                if effect.uid not in before:
                    self._check_fits(effect)
        reserved = self._reserved()
        for entry in self.scheduler.queue:
            assert entry.uid not in reserved, f"{entry.key} waits and holds a cabin"

    def _reserved(self) -> set[str]:
        members = [f.members for f in self.scheduler._context.frameworks.values()]
        pursers = [each["Purser"].plugin for each in members if "Purser" in each]
        return set().union(*(purser.reserved for purser in pursers))

    def _check_fits(self, effect: to_do.Bind) -> None:
        """A pod that was given its node in this call is on it, and the node is not too full."""
        nodes = self.scheduler.cache.nodes
        row = nodes.row(effect.node)
        assert row >= 0, f"{effect} binds to a node that is not there"
        held = nodes.pod(effect.uid)
        assert held is not None, f"{effect} holds no room"
        for resource in ("cpu", "pods"):
            taken = nodes.pod_count if resource == "pods" else nodes.requested(resource)
            offered = int(nodes.allocatable(resource)[row])
            if resource == "pods" or held.footprint.requested.get(resource, 0):
                assert int(taken[row]) <= offered, f"{effect}: {resource} {taken[row]} of {offered}"

    def _check_volumes(self, effect: to_do.Bind) -> None:
        """A pod is bound when its claims are, to a node that reaches their volumes."""
        one = self.world.pods.get(f"{effect.namespace}/{effect.name}")
        if one is not None and one.uid == effect.uid:
            assert self.world.volumes.are_bound(one, effect.node), f"{effect}: no volumes"

    def check_truth(self) -> None:
        """Without strangers and late bindings no node is ever over-committed in truth."""
        for name, one in self.world.nodes.items():
            offered = int(one.status.allocatable["cpu"])
            assert self.world.requested_cpu(name) <= offered, name

    # Calm.

    def settle(self) -> None:
        """Faults stop; carry everything out, longer than any pod is parked unasked."""
        self.world.faults = Faults()
        self.rng = self.world.rng = np.random.default_rng(0)
        if not self.leads:
            elect(self)
        until = self.now + REST
        while True:
            while self.world.desk:
                self.world.perform()
            for key in [key for key, each in self.world.pods.items() if is_leaving(each)]:
                self.world.drop_pod(key)
            self.world.volumes.control(everything=True)
            batch = self.world.deliver(everything=True)
            if not batch and not self.world.desk:
                if self.now >= until:
                    return
                self.now = max(self.now + SECOND, min(self.world.alarm or until, until))
            self.call(batch)

    def check_rest(self) -> None:
        """At rest the machine knows what there is, and no pod waits that could be placed."""
        world, scheduler = self.world, self.scheduler
        there = {key: p for key, p in world.pods.items() if counts(p)}
        assert dict(scheduler._context.pods) == there
        under_way = [binding_cycle.pod for _, binding_cycle in scheduler.bindings]
        assumes = any(volume_uses_of(each.spec).claims for each in under_way)
        # One that is sent back again and again holds room for a while, and may do so just when
        # another is tried; where nobody is tried early that can go on for ever.
        waiting = [each for each in there.values() if not each.node_name]
        is_held_up = not scheduler.queue.options.pops_from_backoff and any(
            HELD & set(each.labels) for each in waiting
        )
        for (kind, key), value in world.volumes.objects.items():
            assert scheduler.cache.object_store.observed(kind, key) == value, (
                f"{key} is not known so"
            )
            seen = scheduler.cache.object_store.find(kind, key)
            assert assumes or seen == value, f"{key} is seen as it is not"
        for each in there.values():
            if each.node_name or each.spec.scheduler_name == "other":
                continue
            entry = scheduler.queue.get(each.key)
            if entry is None:
                assert each.uid in scheduler.bindings, f"{each.key} is lost"
                continue
            nominated = scheduler.queue.nominator.node_of(each.uid)
            assert each.status.nominated_node_name == nominated, f"{each.key} is kept room for"
            if each.spec.scheduling_gates or HELD & set(each.labels):
                continue
            if assumes and volume_uses_of(each.spec).claims:
                continue
            fits = not is_held_up and self._fits_somewhere(each)
            assert not fits, f"{each.key} fits and waits: {entry}"

    def _fits_somewhere(self, waiting: Pod) -> bool:
        nodes = self.scheduler.cache.nodes
        nominated = self.scheduler.queue.nominator.nodes()
        room = nodes.allocatable("cpu") - nodes.requested("cpu") >= 1000 * cpu_of(waiting)
        places = nodes.pod_count < nodes.pod_limit
        free = np.array(
            [
                name not in nominated and self.world.volumes.may_go_to(waiting, name)
                for name in nodes.names
            ],
            dtype=np.bool_,
        )
        return bool((room & places & free).any())


def _as_bind(effect: Effect) -> Effect:
    """The binding that an extender is asked for."""
    if isinstance(effect, to_do.CallExtender):
        body = effect.question.body
        if isinstance(body, ExtenderBindingArgs):
            who = (body.pod_namespace, body.pod_name)
            return to_do.Bind(effect.effect, effect.term, effect.uid, *who, body.node)
    return effect


def is_leaving(one: Pod) -> bool:
    """True for a pod that is being deleted."""
    return one.metadata.deletion_timestamp is not None


# What may happen.


def pod_comes(voyage: Voyage) -> None:
    """A pod is made, or made anew under the name of one that is there."""
    rng, world = voyage.rng, voyage.world
    name = pick(rng, PODS)
    # The watch may have missed the end of the one before.
    if f"default/{name}" in world.pods and chance(rng, 2):
        world.drop_pod(f"default/{name}")
    voyage._born += 1
    labels = {
        key: value
        for key, value in (
            ("captain", pick(rng, ("30", "30", "30", "no"))),
            ("mate", "20"),
            ("crane", pick(rng, ("yes", "yes", "yes", "broken"))),
            ("winch", "yes"),
            ("purser", "no"),
            ("pilot", "yes"),
            ("wakes", pick(rng, PODS)),
            ("saboteur", pick(rng, SABOTAGE)),
        )
        if chance(rng, 8)
    }
    world.put_pod(
        pod(
            name,
            uid=f"{name}-{voyage._born}",
            cpu=str(random_int(rng, 0, 3)),
            priority=pick(rng, (0, 5, 50, 100)),
            labels=labels,
            gates=("later",) if chance(rng, 8) else (),
            claims=(pick(rng, CLAIMS),) if chance(rng, 4) else (),
            scheduler=pick(rng, ("one", "one", "two", "other")),
        )
    )


def plain_pod_comes(voyage: Voyage) -> None:
    """A pod without wishes, to keep the nodes full."""
    name = pick(voyage.rng, PODS)
    if f"default/{name}" not in voyage.world.pods:
        voyage._born += 1
        cpu = str(random_int(voyage.rng, 1, 2))
        made = pod(name, uid=f"{name}-{voyage._born}", cpu=cpu, scheduler="one")
        voyage.world.put_pod(made)


def pod_goes(voyage: Voyage) -> None:
    """A pod is deleted, or is gone after its grace."""
    if voyage.world.pods:
        key = pick(voyage.rng, tuple(voyage.world.pods))
        if is_leaving(voyage.world.pods[key]):
            voyage.world.drop_pod(key)
        else:
            voyage.world.delete_pod(key)


def pod_is_held(voyage: Voyage) -> None:
    """A pod that is on no node is deleted and a finalizer keeps it."""
    for each in voyage.world.pods.values():
        if not each.node_name and not is_leaving(each) and chance(voyage.rng, 3):
            meta = replace(each.metadata, deletion_timestamp=EPOCH)
            voyage.world.put_pod(replace(each, metadata=meta))
            return


def pod_ends(voyage: Voyage) -> None:
    """A pod that runs has ended."""
    for each in voyage.world.pods.values():
        if each.node_name and chance(voyage.rng, 3):
            status = replace(each.status, phase="Succeeded")
            voyage.world.put_pod(replace(each, status=status))
            return


def pod_changes(voyage: Voyage) -> None:
    """A pod loses its gates, or gets another label."""
    if voyage.world.pods:
        each = voyage.world.pods[pick(voyage.rng, tuple(voyage.world.pods))]
        if each.spec.scheduling_gates:
            each = replace(each, spec=replace(each.spec, scheduling_gates=()))
        else:
            labels = each.labels | {"app": pick(voyage.rng, ("a", "b"))}
            each = replace(each, metadata=replace(each.metadata, labels=labels))
        voyage.world.put_pod(each)


def claims_change(voyage: Voyage) -> None:
    """Claims and volumes come and go."""
    rng, volumes = voyage.rng, voyage.world.volumes
    volumes.volume_comes(pick(rng, VOLUMES), pick(rng, NODES))
    volumes.claim_comes(pick(rng, CLAIMS))
    if chance(rng, 3):
        volumes.claim_goes(pick(rng, CLAIMS))


def controllers_work(voyage: Voyage) -> None:
    """Claims are bound, volumes made and set free."""
    voyage.world.volumes.control()


def stranger_binds(voyage: Voyage) -> None:
    """Somebody else binds a pod."""
    for key, each in tuple(voyage.world.pods.items()):
        if not each.node_name and chance(voyage.rng, 2):
            voyage.world.bind_pod(key, each.uid, pick(voyage.rng, (*NODES, "nowhere")))
            return


def node_comes(voyage: Voyage) -> None:
    """A node arrives, or gets more room."""
    name = pick(voyage.rng, NODES)
    there = voyage.world.nodes.get(name)
    cpu = random_int(voyage.rng, 1, 4)
    if there is not None:
        cpu = max(cpu, int(there.status.allocatable["cpu"]))
    voyage.world.put_node(node(name, cpu=str(cpu), pods=4))


def node_shrinks(voyage: Voyage) -> None:
    """A node is left with less room."""
    if voyage.world.nodes:
        name = pick(voyage.rng, tuple(voyage.world.nodes))
        voyage.world.put_node(node(name, cpu=str(random_int(voyage.rng, 0, 2)), pods=3))


def node_goes(voyage: Voyage) -> None:
    """A node leaves."""
    if voyage.world.nodes:
        voyage.world.drop_node(pick(voyage.rng, tuple(voyage.world.nodes)))


def permit_answers(voyage: Voyage) -> None:
    """A pod that waits at Permit is allowed or rejected."""
    for waiting in voyage.scheduler._context.shared.waiting:
        plugin = min(waiting.pending)
        kind = happened.Rejected if chance(voyage.rng, 4) else happened.Allowed
        voyage.world.answers.append(kind(waiting.pod.uid, plugin))


def watch_starts_over(voyage: Voyage) -> None:
    """The watch broke off and all is listed anew; what has gone meanwhile is told as well."""
    world, known = voyage.world, voyage.scheduler._context.pods
    world.watch.clear()
    nodes = voyage.scheduler.cache.nodes
    gone = [one for one in nodes.nodes if one.name not in world.nodes]
    world.watch.extend(happened.NodeDeleted(one) for one in gone)
    world.watch.extend(happened.NodeAdded(one) for one in world.nodes.values())
    world.watch.extend(world.volumes.shown_anew(voyage.scheduler.cache.object_store))
    ended = [one for key, one in known.items() if key not in world.pods]
    world.watch.extend(happened.PodDeleted(one) for one in ended)
    world.watch.extend(happened.PodAdded(one) for one in world.pods.values())


def time_passes(voyage: Voyage) -> None:
    """Until the machine wants to be called, or somewhat longer."""
    alarm = voyage.world.alarm
    if alarm is not None and not chance(voyage.rng, 3):
        voyage.now = max(voyage.now, alarm)
    else:
        voyage.now += random_int(voyage.rng, 0, 40) * SECOND // 2


def leader_changes(voyage: Voyage) -> None:
    """This scheduler loses the lead, or wins it; it may not have noticed the loss."""
    if voyage.leads and chance(voyage.rng, 4):
        voyage.leads = False
        # From now on nothing of this term is carried out.
        voyage.world.term += 1
        voyage.call([happened.LeaderLost()])
    elif not voyage.leads or chance(voyage.rng, 2):
        elect(voyage)


def elect(voyage: Voyage) -> None:
    """This scheduler leads in a new term."""
    voyage.world.term += 1
    voyage.leads = True
    voyage.call([happened.LeaderElected(voyage.world.term)])


CALM_ACTIONS: tuple[tuple[Action, int], ...] = (
    (pod_comes, 8),
    (plain_pod_comes, 8),
    (pod_goes, 3),
    (pod_ends, 2),
    (pod_is_held, 1),
    (pod_changes, 2),
    (node_comes, 2),
    (permit_answers, 5),
    (claims_change, 4),
    (controllers_work, 4),
    (watch_starts_over, 1),
    (time_passes, 8),
    (leader_changes, 1),
)
ACTIONS: tuple[tuple[Action, int], ...] = (
    *CALM_ACTIONS,
    (stranger_binds, 1),
    (node_shrinks, 1),
    (node_goes, 1),
)
"""What may happen, and how often beside the others."""


def one_of(rng: RandomSource, actions: tuple[tuple[Action, int], ...]) -> Action:
    """An action, drawn by its weight."""
    return pick(rng, tuple(action for action, weight in actions for _ in range(weight)))
