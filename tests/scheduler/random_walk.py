"""Random walks: a scheduler on a fake cluster, with random events.

After every call of `handle` the scheduler is validated and its effects are checked.

Fault runs (`tests.fault_runs.fault_run`) test the same scheduler in another way, and both are
needed. A fault run is a cluster over time: watches lag and break, schedulers restart, two compete,
and an auditor checks them from outside. In a random walk anything may happen between two calls, in
any order, at any time. It covers what fault runs do not: claims and volumes, two profiles, pods
recreated under the same name, finalizers, expiring assumptions, and internal state such as
resources that are held without effect.
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
from tests.scenarios.script import SCRIPT, made, profiles_text
from tests.scheduler.fake_cluster import (
    EPOCH,
    READS_AND_STOPS,
    FakeCluster,
    Faults,
    counts,
    cpu_of,
)
from tests.scheduler.transition_trace import TransitionTrace
from tests.scheduler.volumes import CLAIMS, VOLUMES

NODES = ("n0", "n1", "n2", "n3")
PODS = tuple(f"p{i}" for i in range(14))
ROUGH = Faults(refused=15, lost=12, late=15, silent=8)
LABEL_PLUGINS = (
    "PermitByLabel,SecondPermit,PreBindIO,SecondPreBindIO,ReserveByLabel,BindIO,"
    "ActivateOthers,ContractBreaker"
)
BINDERS = "ContractBreaker,BindIO,DefaultBinder"

PROFILES: tuple[dict[str, str], ...] = (
    {"names": "one,two"},
    {"names": "one"},
    {"names": "two,one", "backoff": "3"},
    {"names": "one,two,other"},
    {"names": "one,two", "off": "SchedulingGates"},
    {"names": "two", "off": "NodeResourcesBalancedAllocation"},
)
"""Configurations that a walk changes to; at its end it is the first again."""

REST = 700 * SECOND
HELD = {"permit", "second-permit", "prebind-io", "reserve", "breaks"}
SABOTAGE = ("filter", "reserve", "unreserve", "permit", "flight", "prebind", "bind", "postbind")
"""Labels of pods that a plugin may refuse repeatedly."""

Action = Callable[["RandomWalk"], None]


class RandomWalk:
    """A scheduler on a random walk. strangers: whether other clients bind pods and nodes shrink or
    are deleted. reloads: whether its configuration changes.

    extenders: of the scheduler, as in scripts. n_waits: number of calls with attempts that wait for
    extenders.
    """

    def __init__(
        self,
        rng: RandomSource,
        faults: Faults = ROUGH,
        *,
        strangers: bool = True,
        extenders: str = "",
        waits: str = "1",
        reloads: bool = False,
    ) -> None:
        self.rng = rng
        self.reloads = reloads
        self.profiles: list[Event] = []
        self._extenders = extenders
        self.strangers = strangers
        self.manned = not chance(rng, 4)
        self.cluster = FakeCluster(rng, faults)
        self.scheduler: Scheduler = made(
            profiles="one,two",
            plugins=LABEL_PLUGINS if self.manned else "",
            binders=BINDERS if self.manned else "",
            # An expired assumption releases resources that are really in use.
            assume_limit=pick(rng, ("", "", "20")) if strangers else "",
            hints=pick(rng, ("yes", "yes", "yes", "no")),
            extenders=extenders,
            waits=waits,
        )
        TransitionTrace().follow(self.scheduler)
        self.n_waits = 0
        self._extended: set[str] = set()
        self.now = 0
        self.leads = True
        self.numbers: set[int] = set()
        self._born = 0
        self._shaken: set[str] = set()
        for name in NODES[:3]:
            self.cluster.put_node(node(name, cpu="4", pods=4))

    # Steps.

    def step(self) -> None:
        """Apply random actions, perform some effects and deliver some events."""
        actions = ACTIONS if self.strangers else CALM_ACTIONS
        for _ in range(random_int(self.rng, 1, 3)):
            one_of(self.rng, actions)(self)
        for _ in range(random_int(self.rng, 0, 6)):
            self.cluster.perform()
        if self.reloads and chance(self.rng, 4):
            self.profiles.append(self.changed_profiles(pick(self.rng, PROFILES)))
        batch = [*self.profiles, *self.cluster.deliver()]
        self.profiles.clear()
        self.call(batch, pick(self.rng, (1000, 1, 3)))

    def changed_profiles(self, settings: dict[str, str]) -> Event:
        """A change of the configuration."""
        more = settings | {"binders": BINDERS} if self.manned else settings
        text = profiles_text(extenders=self._extenders, **more)
        return happened.ConfigurationChanged(text, SCRIPT, has_profiles=True, has_sessions=False)

    def call(self, batch: list[Event], heads_max: int = 1000) -> list[Effect]:
        """Call the scheduler and check its state and effects."""
        before = {uid for uid, _ in self.scheduler.bindings}
        effects = self.scheduler.handle(batch, self.now, heads_max)
        self.scheduler.validate()
        # A changed configuration is reported to the log, by a standby too.
        effects = [effect for effect in effects if not isinstance(effect, to_do.Report)]
        self.n_waits += len(self.scheduler.extender_attempts)
        self._check([_as_bind(effect) for effect in effects], before)
        # Claims may change during an extender's bind call; the plugins bind all the same.
        self._extended |= {
            effect.uid
            for effect in effects
            if isinstance(effect, to_do.CallExtender) and effect.question.verb is ExtenderVerb.BIND
        }
        self.cluster.take(effects)
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
            assert entry.uid not in reserved, f"{entry.key} is queued and holds a reservation"

    def _reserved(self) -> set[str]:
        members = [f.members for f in self.scheduler._context.frameworks.values()]
        pursers = [each["ReserveByLabel"].plugin for each in members if "ReserveByLabel" in each]
        return set().union(*(purser.reserved for purser in pursers))

    def _check_fits(self, effect: to_do.Bind) -> None:
        """A pod that got its node in this call is on it, and the node is not over-committed."""
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
        """A pod is bound after its claims, to a node that reaches their volumes."""
        one = self.cluster.pods.get(f"{effect.namespace}/{effect.name}")
        if one is not None and one.uid == effect.uid:
            assert self.cluster.volumes.are_bound(one, effect.node), f"{effect}: no volumes"

    def check_truth(self) -> None:
        """Without other clients and late bindings no node is ever really over-committed."""
        for name, one in self.cluster.nodes.items():
            offered = int(one.status.allocatable["cpu"])
            assert self.cluster.requested_cpu(name) <= offered, name

    # Settling.

    def settle(self) -> None:
        """Stop the faults and perform everything, for longer than the unschedulable flush takes."""
        self.cluster.faults = Faults()
        self.rng = self.cluster.rng = np.random.default_rng(0)
        if not self.leads:
            elect(self)
        if self.reloads:
            self.call([self.changed_profiles(PROFILES[0])])
        until = self.now + REST
        while True:
            while self.cluster.pending_effects:
                self.cluster.perform()
            for key in [key for key, each in self.cluster.pods.items() if is_leaving(each)]:
                self.cluster.drop_pod(key)
            self.cluster.volumes.control(everything=True)
            batch = self.cluster.deliver(everything=True)
            if not batch and not self.cluster.pending_effects:
                if self.now >= until:
                    return
                self.now = max(self.now + SECOND, min(self.cluster.alarm or until, until))
            self.call(batch)

    def check_rest(self) -> None:
        """At rest the scheduler knows every object, and no pending pod fits anywhere."""
        cluster, scheduler = self.cluster, self.scheduler
        there = {key: p for key, p in cluster.pods.items() if counts(p)}
        assert dict(scheduler._context.pods) == there
        under_way = [binding_cycle.pod for _, binding_cycle in scheduler.bindings]
        assumes = any(volume_uses_of(each.spec).claims for each in under_way)
        # A pod that is refused repeatedly holds resources for a while, possibly just when another
        # is attempted; without early pops from backoff that may repeat forever.
        waiting = [each for each in there.values() if not each.node_name]
        is_held_up = not scheduler.queue.options.pops_from_backoff and any(
            HELD & set(each.labels) for each in waiting
        )
        for (kind, key), value in cluster.volumes.objects.items():
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
                name not in nominated and self.cluster.volumes.may_go_to(waiting, name)
                for name in nodes.names
            ],
            dtype=np.bool_,
        )
        return bool((room & places & free).any())


def _as_bind(effect: Effect) -> Effect:
    """The binding of an extender's bind call."""
    if isinstance(effect, to_do.CallExtender):
        body = effect.question.body
        if isinstance(body, ExtenderBindingArgs):
            who = (body.pod_namespace, body.pod_name)
            return to_do.Bind(effect.effect, effect.term, effect.uid, *who, body.node)
    return effect


def is_leaving(one: Pod) -> bool:
    """True for a pod that is being deleted."""
    return one.metadata.deletion_timestamp is not None


# Actions.


def pod_comes(walk: RandomWalk) -> None:
    """A pod is created, or recreated under an existing name."""
    rng, cluster = walk.rng, walk.cluster
    name = pick(rng, PODS)
    # The watch may have missed the deletion of the previous pod.
    if f"default/{name}" in cluster.pods and chance(rng, 2):
        cluster.drop_pod(f"default/{name}")
    walk._born += 1
    labels = {
        key: value
        for key, value in (
            ("permit", pick(rng, ("30", "30", "30", "no"))),
            ("second-permit", "20"),
            ("prebind-io", pick(rng, ("yes", "yes", "yes", "fails"))),
            ("second-prebind-io", "yes"),
            ("reserve", "no"),
            ("bind-io", "yes"),
            ("activates", pick(rng, PODS)),
            ("breaks", pick(rng, SABOTAGE)),
        )
        if chance(rng, 8)
    }
    cluster.put_pod(
        pod(
            name,
            uid=f"{name}-{walk._born}",
            cpu=str(random_int(rng, 0, 3)),
            priority=pick(rng, (0, 5, 50, 100)),
            labels=labels,
            gates=("later",) if chance(rng, 8) else (),
            claims=(pick(rng, CLAIMS),) if chance(rng, 4) else (),
            scheduler=pick(rng, ("one", "one", "two", "other")),
        )
    )


def plain_pod_comes(walk: RandomWalk) -> None:
    """A pod without labels and claims, to keep the nodes full."""
    name = pick(walk.rng, PODS)
    if f"default/{name}" not in walk.cluster.pods:
        walk._born += 1
        cpu = str(random_int(walk.rng, 1, 2))
        made = pod(name, uid=f"{name}-{walk._born}", cpu=cpu, scheduler="one")
        walk.cluster.put_pod(made)


def pod_goes(walk: RandomWalk) -> None:
    """A pod is deleted, or its grace period ends."""
    if walk.cluster.pods:
        key = pick(walk.rng, tuple(walk.cluster.pods))
        if is_leaving(walk.cluster.pods[key]):
            walk.cluster.drop_pod(key)
        else:
            walk.cluster.delete_pod(key)


def pod_is_held(walk: RandomWalk) -> None:
    """A pending pod is deleted and kept by a finalizer."""
    for each in walk.cluster.pods.values():
        if not each.node_name and not is_leaving(each) and chance(walk.rng, 3):
            meta = replace(each.metadata, deletion_timestamp=EPOCH)
            walk.cluster.put_pod(replace(each, metadata=meta))
            return


def pod_ends(walk: RandomWalk) -> None:
    """A running pod finishes."""
    for each in walk.cluster.pods.values():
        if each.node_name and chance(walk.rng, 3):
            status = replace(each.status, phase="Succeeded")
            walk.cluster.put_pod(replace(each, status=status))
            return


def pod_changes(walk: RandomWalk) -> None:
    """A pod loses its gates or gets another label."""
    if walk.cluster.pods:
        each = walk.cluster.pods[pick(walk.rng, tuple(walk.cluster.pods))]
        if each.spec.scheduling_gates:
            each = replace(each, spec=replace(each.spec, scheduling_gates=()))
        else:
            labels = each.labels | {"app": pick(walk.rng, ("a", "b"))}
            each = replace(each, metadata=replace(each.metadata, labels=labels))
        walk.cluster.put_pod(each)


def claims_change(walk: RandomWalk) -> None:
    """Claims and volumes are created and deleted."""
    rng, volumes = walk.rng, walk.cluster.volumes
    volumes.volume_comes(pick(rng, VOLUMES), pick(rng, NODES))
    volumes.claim_comes(pick(rng, CLAIMS))
    if chance(rng, 3):
        volumes.claim_goes(pick(rng, CLAIMS))


def controllers_work(walk: RandomWalk) -> None:
    """The volume controller binds claims and creates and releases volumes."""
    walk.cluster.volumes.control()


def stranger_binds(walk: RandomWalk) -> None:
    """Another client binds a pod."""
    for key, each in tuple(walk.cluster.pods.items()):
        if not each.node_name and chance(walk.rng, 2):
            walk.cluster.bind_pod(key, each.uid, pick(walk.rng, (*NODES, "nowhere")))
            return


def node_comes(walk: RandomWalk) -> None:
    """A node is added or grows."""
    name = pick(walk.rng, NODES)
    there = walk.cluster.nodes.get(name)
    cpu = random_int(walk.rng, 1, 4)
    if there is not None:
        cpu = max(cpu, int(there.status.allocatable["cpu"]))
    walk.cluster.put_node(node(name, cpu=str(cpu), pods=4))


def node_shrinks(walk: RandomWalk) -> None:
    """A node shrinks."""
    if walk.cluster.nodes:
        name = pick(walk.rng, tuple(walk.cluster.nodes))
        walk.cluster.put_node(node(name, cpu=str(random_int(walk.rng, 0, 2)), pods=3))


def node_goes(walk: RandomWalk) -> None:
    """A node is deleted."""
    if walk.cluster.nodes:
        walk.cluster.drop_node(pick(walk.rng, tuple(walk.cluster.nodes)))


def permit_answers(walk: RandomWalk) -> None:
    """A pod that waits at Permit is allowed or rejected."""
    for waiting in walk.scheduler._context.shared.waiting:
        plugin = min(waiting.pending)
        kind = happened.Rejected if chance(walk.rng, 4) else happened.Allowed
        walk.cluster.answers.append(kind(waiting.pod.uid, plugin))


def watch_starts_over(walk: RandomWalk) -> None:
    """The watch restarts with a list; deletions that it missed are sent too."""
    cluster, known = walk.cluster, walk.scheduler._context.pods
    cluster.watch.clear()
    nodes = walk.scheduler.cache.nodes
    gone = [one for one in nodes.nodes if one.name not in cluster.nodes]
    cluster.watch.extend(happened.NodeDeleted(one) for one in gone)
    cluster.watch.extend(happened.NodeAdded(one) for one in cluster.nodes.values())
    cluster.watch.extend(cluster.volumes.observed_again(walk.scheduler.cache.object_store))
    ended = [one for key, one in known.items() if key not in cluster.pods]
    cluster.watch.extend(happened.PodDeleted(one) for one in ended)
    cluster.watch.extend(happened.PodAdded(one) for one in cluster.pods.values())


def time_passes(walk: RandomWalk) -> None:
    """Time advances to the next wake-up, or somewhat further."""
    alarm = walk.cluster.alarm
    if alarm is not None and not chance(walk.rng, 3):
        walk.now = max(walk.now, alarm)
    else:
        walk.now += random_int(walk.rng, 0, 40) * SECOND // 2


def leader_changes(walk: RandomWalk) -> None:
    """This scheduler loses or gains leadership; it may not have noticed the loss."""
    if walk.leads and chance(walk.rng, 4):
        walk.leads = False
        # From now on no effect of this term is performed.
        walk.cluster.term += 1
        walk.call([happened.LeaderLost()])
    elif not walk.leads or chance(walk.rng, 2):
        elect(walk)


def elect(walk: RandomWalk) -> None:
    """This scheduler leads in a new term."""
    walk.cluster.term += 1
    walk.leads = True
    walk.call([happened.LeaderElected(walk.cluster.term)])


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
"""Actions and their relative weights."""


def one_of(rng: RandomSource, actions: tuple[tuple[Action, int], ...]) -> Action:
    """A random action by weight."""
    return pick(rng, tuple(action for action, weight in actions for _ in range(weight)))
