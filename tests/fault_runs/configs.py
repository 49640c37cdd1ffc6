"""Configurations of fault runs: with plugins that wait and reserve, with all test plugins, with
extenders.

Run: python -m tests.fault_runs.configs [--test-plugins | --extenders] [--log] [--wrong] SEED...

Prints the result of each seed. --log: prints the event log. --wrong: unschedulable pods that an
event may help are gathered in a set, so that their order depends on the hash seed.
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
from stowplan.framework import OK, Handle, PermitWait, Registry, Status
from stowplan.framework.clusterevents import STORAGE_CLASS, Action, ClusterEventWithHint, on
from stowplan.messages import events as happened
from stowplan.messages.effects import CallExtender
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.storage import StorageClass
from stowplan.queue import PodRecord, QueueOptions
from stowplan.queue.unschedulable_pods import UnschedulablePods
from stowplan.scheduler import Scheduler, SchedulerOptions
from stowplan.simulation.cluster.effect_dispatcher import SimulatedReply
from stowplan.simulation.cluster.simulated_cluster import SimulatedCluster
from stowplan.simulation.cluster.simulated_extenders import SimulatedExtenders
from stowplan.testing.generators.choices import RandomSource, pick, random_int
from tests.fault_runs.cluster_churn import ChurnEvent, ClusterChurn
from tests.fault_runs.fault_run import FaultRun, FaultRunConfig, run_with_faults, shrink_failure
from tests.scenarios.label_plugins import LABEL_PLUGINS, ReserveByLabel

PERMIT_GATE = "permit-gate"
WAIT_S = 6.0


class GatePermit:
    """Permit: a pod labelled `permit-gate` waits until the gate opens, for 6 s at most."""

    name = "GatePermit"

    def __init__(self, handle: Handle) -> None:
        self.shared = handle.shared

    def permit(self, pod: Pod) -> Status | PermitWait:
        if PERMIT_GATE not in pod.labels or is_open(
            self.shared.object_store.find(StorageClass, PERMIT_GATE)
        ):
            return OK
        return PermitWait(WAIT_S)

    def events_to_register(self) -> tuple[ClusterEventWithHint, ...]:
        return (on(STORAGE_CLASS, Action.ADD | Action.UPDATE),)


def is_open(gate: Any) -> bool:
    return gate is not None and gate.labels["level"] == "high"


def gate_events(rng: RandomSource, until: int) -> Iterator[ChurnEvent]:
    """The permit gate opens and closes a few times and stays open in the end."""
    levels = [pick(rng, ("low", "high")) for _ in range(random_int(rng, 0, 4))]
    at = 0
    for level in [*levels, "high"]:
        at += random_int(rng, 0, until // SECOND // 5) * SECOND
        gate = StorageClass(
            metadata=ObjectMeta(name=PERMIT_GATE, uid=PERMIT_GATE, labels={"level": level})
        )
        yield ChurnEvent(min(at, until), lambda churn, gate=gate: churn.cluster.put_object(gate))


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


ALONE = (GatePermit, ReserveByLabel)
TEST_PLUGINS = (
    GatePermit,
    *(one for one in LABEL_PLUGINS.values() if one.name != "PreBindRefusal"),
)
BINDERS = ("ContractBreaker", "BindIO", "DefaultBinder")


# Extenders: one that is required, and one that is ignorable.

STRICT = {
    "urlPrefix": "http://strict",
    "filterVerb": "filter",
    "prioritizeVerb": "prioritize",
    "preemptVerb": "preempt",
    "weight": 2,
    "httpTimeout": "3s",
    "nodeCacheCapable": True,
}
IGNORABLE = {
    "urlPrefix": "http://ignorable",
    "filterVerb": "filter",
    "preemptVerb": "preempt",
    "httpTimeout": "1s",
    "ignorable": True,
}
BINDS = {"bindVerb": "bind"}
EXTENDERS: tuple[tuple[dict[str, Any], ...], ...] = (
    (IGNORABLE, STRICT | BINDS),
    (STRICT, IGNORABLE | BINDS),
    (STRICT, IGNORABLE),
)
STRICT_LABEL, IGNORABLE_LABEL = "strict-rejects", "ignorable-rejects"


def strict_rejects(pod: Pod, node: str) -> bool:
    return STRICT_LABEL in pod.labels and node == "n0"


def ignorable_rejects(pod: Pod, node: str) -> bool:
    return IGNORABLE_LABEL in pod.labels and node == "n1"


class StrictExtender:
    """Rejects node n0 for labelled pods."""

    url = "http://strict"

    def filter(self, pod: Pod, node: Node) -> bool | str:
        return not strict_rejects(pod, node.name) or "rejected by the strict extender"

    def prioritize(self, node: Node) -> int:
        return int(node.name[1:]) * 3

    def preempt(self, pod: Pod, node: Node) -> bool:
        return not strict_rejects(pod, node.name)


class IgnorableExtender:
    """Rejects node n1 for labelled pods; the scheduler ignores its failures."""

    url = "http://ignorable"

    def filter(self, pod: Pod, node: Node) -> bool:
        return not ignorable_rejects(pod, node.name)

    def preempt(self, pod: Pod, node: Node) -> bool:
        return not ignorable_rejects(pod, node.name)


def answering(cluster: SimulatedCluster, seed: int) -> Callable[[CallExtender], SimulatedReply]:
    """Extenders that answer at once, in 50 ms, or in 0.9 s of a timeout of 1 s."""
    takes_s = (0.0, 0.05, 0.9)[seed // 3 % 3]
    classes = [
        type(one.__name__, (one,), {"simulated_s": takes_s})
        for one in (StrictExtender, IgnorableExtender)
    ]
    asked, _ = configured(GatePermit, extenders=seed % 3)
    return SimulatedExtenders(cluster, extenders_of(asked), classes).answer


@cache
def configured(*plugins: type[Any], extenders: int | None = None) -> tuple[Configuration, Registry]:
    names = [{"name": name} for name in (*PLUGINS, *(plugin.name for plugin in plugins))]
    off = [{"name": "*"}]
    points: dict[str, Any] = {"multiPoint": {"disabled": off, "enabled": names}}
    if plugins == TEST_PLUGINS:
        points["bind"] = {"disabled": off, "enabled": [{"name": name} for name in BINDERS]}
    tree = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": points}],
        "extenders": [] if extenders is None else EXTENDERS[extenders],
    }
    return configuration_of(json.dumps(tree), "fault runs", plugins)


def scheduler(seed: int, leads: bool, term: int) -> Scheduler:
    configuration, registry = configured(*ALONE)
    return scheduler_for(configuration, registry, options=SchedulerOptions(leads=leads, term=term))


def with_test_plugins(seed: int, leads: bool, term: int) -> Scheduler:
    """With all test plugins; one run in four without QueueingHints."""
    configuration, registry = configured(*TEST_PLUGINS)
    queue = QueueOptions(hints=seed % 4 > 0)
    options = SchedulerOptions(queue=queue, leads=leads, term=term)
    return scheduler_for(configuration, registry, options=options)


def with_extenders(seed: int, leads: bool, term: int) -> Scheduler:
    """With extenders; in every second run up to three attempts may await them at once."""
    configuration, registry = configured(GatePermit, extenders=seed % 3)
    options = SchedulerOptions(leads=leads, term=term, extender_waits_max=1 + seed % 2 * 2)
    return scheduler_for(configuration, registry, options=options)


PAUSES = {PERMIT_GATE, "permit", "second-permit", "prebind-io", "second-prebind-io", "bind-io"}
HOLDS = {"permit", "second-permit", "prebind-io", "reserve", "breaks"}
SABOTAGE = ("filter", "reserve", "unreserve", "permit", "flight", "prebind", "bind", "postbind")
TEST_PLUGIN_LABELS = (
    (PERMIT_GATE, "yes"),
    ("permit", "30"),
    ("permit", "no"),
    ("second-permit", "20"),
    ("prebind-io", "yes"),
    ("prebind-io", "fails"),
    ("second-prebind-io", "yes"),
    ("reserve", "no"),
    ("bind-io", "yes"),
    ("activates", "p1"),
    ("activates", "p2"),
    *(("breaks", point) for point in SABOTAGE[::3]),
)


def waits(pod: Pod) -> bool:
    return bool(PAUSES & set(pod.labels))


def waits_for_gate(pod: Pod, cluster: SimulatedCluster, note: str) -> bool:
    return PERMIT_GATE in pod.labels and not is_open(
        cluster.objects.get((StorageClass, PERMIT_GATE))
    )


def retries_forever(pod: Pod) -> bool:
    """True for a pod that a test plugin may reject for ever."""
    return bool(HOLDS & set(pod.labels))


def permit_replies(rng: RandomSource, until: int) -> Iterator[ChurnEvent]:
    """Pods that wait at Permit are allowed or rejected."""
    for _ in range(random_int(rng, 0, 12)):
        at = random_int(rng, 0, until // SECOND) * SECOND
        kind = pick(rng, (happened.Allowed, happened.Allowed, happened.Rejected))
        yield ChurnEvent(at, lambda churn, kind=kind: send_permit_reply(churn, kind))


def send_permit_reply(churn: ClusterChurn, kind: type[Any]) -> None:
    for instance in churn.schedulers:
        for waiting in instance.scheduler._context.shared.waiting:
            instance.deliver(kind(waiting.pod.uid, min(waiting.pending)))


def gate_events_and_permit_replies(rng: RandomSource, until: int) -> Iterator[ChurnEvent]:
    yield from gate_events(rng, until)
    yield from permit_replies(rng, until)


def check_reservations(scheduler: Scheduler) -> None:
    """A pod in the queue holds no reservation."""
    for framework in scheduler._context.frameworks.values():
        reserved = framework.members[ReserveByLabel.name].plugin.reserved
        for entry in scheduler.queue:
            assert entry.uid not in reserved, f"{entry.key} is queued and holds a reservation"


LABELS = ((PERMIT_GATE, "yes"), (PERMIT_GATE, "yes"), ("reserve", "yes"))
BASE_CONFIG = FaultRunConfig(
    scheduler,
    may_pause=lambda pod: PERMIT_GATE in pod.labels,
    may_wait=waits_for_gate,
    on_call=check_reservations,
    labels=LABELS,
    extra_events=gate_events,
)
TEST_PLUGINS_CONFIG = FaultRunConfig(
    with_test_plugins,
    may_pause=waits,
    may_wait=waits_for_gate,
    retries_forever=retries_forever,
    on_call=check_reservations,
    labels=TEST_PLUGIN_LABELS,
    extra_events=gate_events_and_permit_replies,
)


FAILED_PREEMPTION = re.compile(r"preemption: (?!0/|not eligible)")


def preemption_failed(pod: Pod, cluster: SimulatedCluster, note: str) -> bool:
    """True for a pod whose preemption an extender has failed: it waits for an event of the plugins
    that rejected it, as in kube-scheduler."""
    return bool(FAILED_PREEMPTION.search(note)) or waits_for_gate(pod, cluster, note)


EXTENDERS_CONFIG = FaultRunConfig(
    with_extenders,
    may_pause=lambda pod: PERMIT_GATE in pod.labels,
    may_wait=preemption_failed,
    labels=(
        (PERMIT_GATE, "yes"),
        (STRICT_LABEL, "yes"),
        (STRICT_LABEL, "yes"),
        (IGNORABLE_LABEL, "yes"),
        (IGNORABLE_LABEL, "yes"),
    ),
    extra_events=gate_events,
    extender=answering,
    extender_rejects=lambda pod, node: strict_rejects(pod, node) or ignorable_rejects(pod, node),
    extender_must_reject=strict_rejects,
)


def unordered_refused_by(self: UnschedulablePods, plugins: Iterable[str]) -> list[PodRecord]:
    """Wrong variant of UnschedulablePods.refused_by: the order of a set."""
    keys = {key for plugin in plugins for key in self._by_plugin.get(plugin, {})}
    return [self.entries[key] for key in keys]


def event_log(seed: int, config: FaultRunConfig) -> str:
    """The event log of a run."""
    fault_run = FaultRun(seed, config)
    fault_run.run()
    return "\n".join(f"{now} {who} {message}" for now, who, message in fault_run.auditor.event_log)


def main(*arguments: str) -> None:
    """Print the result of each seed."""
    config = BASE_CONFIG
    if "--test-plugins" in arguments:
        config = TEST_PLUGINS_CONFIG
    elif "--extenders" in arguments:
        config = EXTENDERS_CONFIG
    if "--wrong" in arguments:
        UnschedulablePods.refused_by = unordered_refused_by  # type: ignore[method-assign]
    for seed in (int(text) for text in arguments if text.isdecimal()):
        if "--log" in arguments:
            print(event_log(seed, config))
            continue
        failure = run_with_faults(seed, config)
        print(f"seed {seed}: passed" if failure is None else shrink_failure(failure, config))


if __name__ == "__main__":
    main(*sys.argv[1:])
