"""Storms with plugins that pause, reserve and refuse, some with a whole crew of such, and some with
extenders.

Run: python -m tests.fault_runs.fault_runs [--manned] [--extended] [--story] [--wrong] SEED... and
read what became of each;
with --story, all that happened in it; with --wrong, parked pods that an event may help come in the
order of a set.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

from stowplan.assembly.build import configuration_of, scheduler_for
from stowplan.assembly.extenders import extenders_of
from stowplan.config import Configuration
from stowplan.fault_runs.cluster_churn import ChurnEvent, ClusterChurn
from stowplan.fault_runs.fault_run import FaultRun, FaultRunConfig, run_with_faults, shrink_failure
from stowplan.framework import OK, Handle, PermitWait, Registry, Status
from stowplan.framework.clusterevents import STORAGE_CLASS, Action, ClusterEventWithHint, on
from stowplan.messages import events as happened
from stowplan.messages.effects import CallExtender
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.storage import StorageClass
from stowplan.queue import QueueEntry, QueueOptions
from stowplan.queue.unschedulable_pods import UnschedulablePods
from stowplan.scheduler import Scheduler, SchedulerOptions
from stowplan.simulation.cluster.simulated_cluster import SimulatedCluster
from stowplan.simulation.cluster.simulated_dispatcher import SimulatedReply
from stowplan.simulation.cluster.simulated_extenders import SimulatedExtenders
from stowplan.testing.generators.choices import RandomSource, pick, random_int
from tests.scenarios import crew as scenarios
from tests.scenarios.crew import Purser

TIDE = "tide"
WAIT_S = 6.0


class Tide:
    """Permit: a pod labelled `tide` waits a while for high water, and then is sent back."""

    name = "Tide"

    def __init__(self, handle: Handle) -> None:
        self.shared = handle.shared

    def permit(self, pod: Pod) -> Status | PermitWait:
        if TIDE not in pod.labels or is_high(self.shared.object_store.find(StorageClass, TIDE)):
            return OK
        return PermitWait(WAIT_S)

    def events_to_register(self) -> tuple[ClusterEventWithHint, ...]:
        return (on(STORAGE_CLASS, Action.ADD | Action.UPDATE),)


def is_high(gauge: Any) -> bool:
    return gauge is not None and gauge.labels["level"] == "high"


def tides(rng: RandomSource, until: int) -> Iterator[ChurnEvent]:
    """The water changes a few times, and often stays high in the end."""
    levels = [pick(rng, ("low", "high")) for _ in range(random_int(rng, 0, 4))]
    at = 0
    for level in [*levels, "high"]:
        at += random_int(rng, 0, until // SECOND // 5) * SECOND
        gauge = StorageClass(metadata=ObjectMeta(name=TIDE, uid=TIDE, labels={"level": level}))
        yield ChurnEvent(min(at, until), lambda sea, gauge=gauge: sea.world.put_object(gauge))


PLUGINS = (
    "PrioritySort",
    "SchedulingGates",
    "NodeUnschedulable",
    "NodeName",
    "TaintToleration",
    "NodeAffinity",
    "NodeResourcesFit",
    "DefaultPreemption",
    "DefaultBinder",
)


ALONE = (Tide, Purser)
CREW = (Tide, *(one for one in scenarios.CREW.values() if one.name != "Loadmaster"))
BINDERS = ("Saboteur", "Pilot", "DefaultBinder")


# Extenders: one that has to be heard, and one that may be passed over.

HARBOUR = {
    "urlPrefix": "http://harbour",
    "filterVerb": "filter",
    "prioritizeVerb": "prioritize",
    "preemptVerb": "preempt",
    "weight": 2,
    "httpTimeout": "3s",
    "nodeCacheCapable": True,
}
PILOT = {
    "urlPrefix": "http://pilot",
    "filterVerb": "filter",
    "preemptVerb": "preempt",
    "httpTimeout": "1s",
    "ignorable": True,
}
BINDS = {"bindVerb": "bind"}
EXTENDERS: tuple[tuple[dict[str, Any], ...], ...] = (
    (PILOT, HARBOUR | BINDS),
    (HARBOUR, PILOT | BINDS),
    (HARBOUR, PILOT),
)
DEEP, LONG = "deep", "long"


def harbour_bars(pod: Pod, node: str) -> bool:
    return DEEP in pod.labels and node == "n0"


def pilot_bars(pod: Pod, node: str) -> bool:
    return LONG in pod.labels and node == "n1"


class Harbour:
    """Keeps deep pods from the first node, at all times."""

    url = "http://harbour"

    def filter(self, pod: Pod, node: Node) -> bool | str:
        return not harbour_bars(pod, node.name) or "too shallow"

    def prioritize(self, node: Node) -> int:
        return int(node.name[1:]) * 3

    def preempt(self, pod: Pod, node: Node) -> bool:
        return not harbour_bars(pod, node.name)


class Pilot:
    """Keeps long pods from the second node, where it is heard."""

    url = "http://pilot"

    def filter(self, pod: Pod, node: Node) -> bool:
        return not pilot_bars(pod, node.name)

    def preempt(self, pod: Pod, node: Node) -> bool:
        return not pilot_bars(pod, node.name)


def answering(world: SimulatedCluster, seed: int) -> Callable[[CallExtender], SimulatedReply]:
    """Extenders that take no time, little, or sometimes more than they have."""
    takes_s = (0.0, 0.05, 0.9)[seed // 3 % 3]
    classes = [type(one.__name__, (one,), {"simulated_s": takes_s}) for one in (Harbour, Pilot)]
    asked, _ = configured(Tide, extenders=seed % 3)
    return SimulatedExtenders(world, extenders_of(asked), classes).answer


@cache
def configured(*plugins: type[Any], extenders: int | None = None) -> tuple[Configuration, Registry]:
    names = [{"name": name} for name in (*PLUGINS, *(plugin.name for plugin in plugins))]
    off = [{"name": "*"}]
    points: dict[str, Any] = {"multiPoint": {"disabled": off, "enabled": names}}
    if plugins == CREW:
        points["bind"] = {"disabled": off, "enabled": [{"name": name} for name in BINDERS]}
    tree = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": points}],
        "extenders": [] if extenders is None else EXTENDERS[extenders],
    }
    return configuration_of(json.dumps(tree), "storms", plugins)


def scheduler(seed: int, leads: bool, term: int) -> Scheduler:
    configuration, registry = configured(*ALONE)
    return scheduler_for(configuration, registry, options=SchedulerOptions(leads=leads, term=term))


def manned(seed: int, leads: bool, term: int) -> Scheduler:
    """With a crew; every fourth goes by the rules from before there were hints."""
    configuration, registry = configured(*CREW)
    queue = QueueOptions(hints=seed % 4 > 0)
    options = SchedulerOptions(queue=queue, leads=leads, term=term)
    return scheduler_for(configuration, registry, options=options)


def extended(seed: int, leads: bool, term: int) -> Scheduler:
    """With extenders; in every second one several attempts may wait for them."""
    configuration, registry = configured(Tide, extenders=seed % 3)
    options = SchedulerOptions(leads=leads, term=term, extender_waits_max=1 + seed % 2 * 2)
    return scheduler_for(configuration, registry, options=options)


PAUSES = {TIDE, "captain", "mate", "crane", "winch", "pilot"}
HOLDS = {"captain", "mate", "crane", "purser", "saboteur"}
SABOTAGE = ("filter", "reserve", "unreserve", "permit", "flight", "prebind", "bind", "postbind")
CREW_LABELS = (
    (TIDE, "yes"),
    ("captain", "30"),
    ("captain", "no"),
    ("mate", "20"),
    ("crane", "yes"),
    ("crane", "broken"),
    ("winch", "yes"),
    ("purser", "no"),
    ("pilot", "yes"),
    ("wakes", "p1"),
    ("wakes", "p2"),
    *(("saboteur", point) for point in SABOTAGE[::3]),
)


def waits(pod: Pod) -> bool:
    return bool(PAUSES & set(pod.labels))


def waits_for_water(pod: Pod, world: SimulatedCluster, note: str) -> bool:
    return TIDE in pod.labels and not is_high(world.objects.get((StorageClass, TIDE)))


def restless(pod: Pod) -> bool:
    """True for a pod that somebody may send back for ever."""
    return bool(HOLDS & set(pod.labels))


def answers(rng: RandomSource, until: int) -> Iterator[ChurnEvent]:
    """Those that wait at Permit are let go or sent back."""
    for _ in range(random_int(rng, 0, 12)):
        at = random_int(rng, 0, until // SECOND) * SECOND
        kind = pick(rng, (happened.Allowed, happened.Allowed, happened.Rejected))
        yield ChurnEvent(at, lambda sea, kind=kind: answer(sea, kind))


def answer(sea: ClusterChurn, kind: type[Any]) -> None:
    for instance in sea.schedulers:
        for waiting in instance.scheduler._context.shared.waiting:
            instance.deliver(kind(waiting.pod.uid, min(waiting.pending)))


def tides_and_answers(rng: RandomSource, until: int) -> Iterator[ChurnEvent]:
    yield from tides(rng, until)
    yield from answers(rng, until)


def look(scheduler: Scheduler) -> None:
    """Nobody who waits in the queue holds a cabin."""
    for framework in scheduler._context.frameworks.values():
        reserved = framework.members[Purser.name].plugin.reserved
        for entry in scheduler.queue:
            assert entry.uid not in reserved, f"{entry.key} waits and holds a cabin"


LABELS = ((TIDE, "yes"), (TIDE, "yes"), ("purser", "yes"))
KIT = FaultRunConfig(
    scheduler,
    waits=lambda pod: TIDE in pod.labels,
    held=waits_for_water,
    look=look,
    labels=LABELS,
    more=tides,
)
MANNED = FaultRunConfig(
    manned,
    waits=waits,
    held=waits_for_water,
    restless=restless,
    look=look,
    labels=CREW_LABELS,
    more=tides_and_answers,
)


WORDS = re.compile(r"preemption: (?!0/|not eligible)")


def has_not_been_told(pod: Pod, world: SimulatedCluster, note: str) -> bool:
    """An extender that fails when it is asked about evictions leaves the pod to wait for an event
    of those that refused it, as in the original."""
    return bool(WORDS.search(note)) or waits_for_water(pod, world, note)


EXTENDED = FaultRunConfig(
    extended,
    waits=lambda pod: TIDE in pod.labels,
    held=has_not_been_told,
    labels=((TIDE, "yes"), (DEEP, "yes"), (DEEP, "yes"), (LONG, "yes"), (LONG, "yes")),
    more=tides,
    extender=answering,
    extender_rejects=lambda pod, node: harbour_bars(pod, node) or pilot_bars(pod, node),
    extender_must_reject=harbour_bars,
)


def in_order_of_a_set(self: UnschedulablePods, plugins: Iterable[str]) -> list[QueueEntry]:
    """The wrong variant of Parked.refused_by."""
    keys = {key for plugin in plugins for key in self._by_plugin.get(plugin, {})}
    return [self.entries[key] for key in keys]


def story(seed: int, kit: FaultRunConfig) -> str:
    """All that happens in a storm, in full."""
    storm = FaultRun(seed, kit)
    storm.run()
    return "\n".join(f"{now} {who} {message}" for now, who, message in storm.auditor.story)


def main(*arguments: str) -> None:
    """Print what became of the seeds."""
    kit = KIT
    if "--manned" in arguments:
        kit = MANNED
    elif "--extended" in arguments:
        kit = EXTENDED
    if "--wrong" in arguments:
        UnschedulablePods.refused_by = in_order_of_a_set  # type: ignore[method-assign]
    for seed in (int(text) for text in arguments if text.isdecimal()):
        if "--story" in arguments:
            print(story(seed, kit))
            continue
        failure = run_with_faults(seed, kit)
        print(f"seed {seed}: all is well" if failure is None else shrink_failure(failure, kit))


if __name__ == "__main__":
    main(*sys.argv[1:])
