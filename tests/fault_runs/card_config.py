"""Configuration of fault runs with GPU cards: parts of cards by milli, and vGPUs of Volcano.

Run: python -m tests.fault_runs.card_config SEED... prints the result of each seed.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache, partial
from typing import Any

from msgspec.structs import replace

from stowplan.assembly.build import configuration_of, scheduler_for
from stowplan.columns.nodetable import table_of
from stowplan.config import Configuration
from stowplan.framework import Registry
from stowplan.inputs.annotations import RUN_ANNOTATION
from stowplan.messages.events import Event, PodUpdated
from stowplan.objects.devices.gpu_cards import COUNT_KEY, INDEX_KEY, MILLI_KEY
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.plugins.gpu_share.card_ledger import CardLedger
from stowplan.scheduler import Scheduler, SchedulerOptions
from stowplan.testing.generators.choices import RandomSource, chance, pick, random_int
from tests.fault_runs.auditor import Auditor, Violation
from tests.fault_runs.cluster_churn import NODES, ChurnEvent, random_node
from tests.fault_runs.configs import PLUGINS
from tests.fault_runs.fault_run import FaultRunConfig, run_with_faults, shrink_failure
from tests.plugins.gpu_share.gpu_cases import WORKLOAD, gpu_pod
from tests.plugins.gpu_share.test_device_sharing import IGNORED, vgpu_pod, with_notes

CARD_MILLI, CARD_MIB = 1000, 1000
REGISTER, IDS = "volcano.sh/node-vgpu-register", "volcano.sh/vgpu-ids-new"
POLICIES = (("BestFit", "best"), ("FGD", "FGDScore"), ("GpuPacking", "worst"))


# The cluster.


def card_node(rng: RandomSource, name: str) -> Node:
    """A node with up to three cards, counted or registered."""
    made = random_node(rng, name)
    n_cards = random_int(rng, 0, 4)
    offered = {**made.status.allocatable, "cpu": "16", "pods": "30"}
    notes: dict[str, str] = {}
    if chance(rng, 2):
        offered[COUNT_KEY] = str(n_cards)
    else:
        ids = [f"{name}-{card}" for card in range(n_cards)]
        notes[REGISTER] = "".join(f"{one},100,{CARD_MIB},T4,true,hami-core:" for one in ids)
        offered["volcano.sh/vgpu-number"] = str(100 * n_cards)
        # Of what is offered in total the scheduler counts nothing: it counts cards.
        offered["volcano.sh/vgpu-memory"] = str(1000 * CARD_MIB)
    made = replace(made, status=replace(made.status, allocatable=offered))
    return replace(made, metadata=replace(made.metadata, annotations=notes))


def card_pod(rng: RandomSource, name: str) -> Pod:
    """A pod with parts of one or two cards."""
    num, part = pick(rng, (1, 1, 1, 2)), random_int(rng, 1, 6)
    runs = {RUN_ANNOTATION: str(random_int(rng, 1, 40))} if not chance(rng, 3) else {}
    made = gpu_pod(name, num, 100 * part, cpu="100m")
    if chance(rng, 2):
        made = vgpu_pod(name, num, CARD_MIB * part // 10)
    return with_notes(made, {**made.metadata.annotations, **runs})  # type: ignore[no-any-return]


def card_events(rng: RandomSource, until: int) -> Iterator[ChurnEvent]:
    """Nodes get cards, lose them and get others; pods request parts of them."""
    for name in NODES:
        made = card_node(rng, name)
        yield ChurnEvent(0, lambda churn, to=made: churn.change_node(to))  # type: ignore[misc]
    for _ in range(random_int(rng, 0, 3)):
        made = card_node(rng, pick(rng, NODES))
        at = random_int(rng, 0, until)
        yield ChurnEvent(at, lambda churn, to=made: churn.change_node(to))  # type: ignore[misc]
    # Many at once, so that pods are decided before others are seen on their nodes.
    moments = [random_int(rng, 0, until) for _ in range(4)]
    for number in range(random_int(rng, 10, 40)):
        one, at = card_pod(rng, f"c{number}"), pick(rng, moments)
        yield ChurnEvent(at, lambda churn, pod=one: churn.create_pod(pod))  # type: ignore[misc]


# What is checked, from the annotations alone.


def parts_of(pod: Pod) -> list[tuple[str, int]]:
    """(card, part) of a pod by its annotations; none where they name no cards."""
    notes = pod.metadata.annotations
    if MILLI_KEY in notes:
        cards = notes[INDEX_KEY].split("-") if INDEX_KEY in notes else []
        return [(card, int(notes[MILLI_KEY])) for card in cards]
    entries = [one.split(",") for one in notes.get(IDS, "").split(":") if one]
    return [(fields[0], int(fields[2])) for fields in entries]


def overfull_card(pods: Iterable[Pod]) -> str:
    """A card of a node of which pods have more than there is, "" for none."""
    totals: Counter[str] = Counter()
    for pod in pods:
        totals.update(dict(parts_of(pod)))
    found = (f"card {card}: {part}" for card, part in totals.items() if part > CARD_MILLI)
    return next(found, "")


def requests_cards(pod: Pod) -> bool:
    """True for a pod with parts of cards."""
    return pod.name.startswith("c")


class CardAuditor(Auditor):
    """Also checks the cards that bound pods have, rejected ones too."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._bound: dict[str, Pod] = {}

    def changed(self, version: int, event: Event) -> None:
        """Remember the annotations of a pod that is bound."""
        super().changed(version, event)
        if isinstance(event, PodUpdated) and event.pod.node_name:
            self._bound[event.pod.uid] = event.pod

    def called(self, *arguments: Any) -> None:
        """Check all cards as well: a pod that its node has rejected is gone by then."""
        super().called(*arguments)
        for name in self.nodes:
            why = overfull_card(pod for pod in self.pods.values() if pod.node_name == name)
            if why:
                raise Violation(f"node {name} runs pods with too much of {why}")

    def device_misfit(self, pod: Pod, others: list[Pod]) -> str:
        """Why the cards of a bound pod are not its own."""
        bound = self._bound.get(pod.uid, pod)
        if requests_cards(pod) and not parts_of(bound):
            return "its binding names no cards"
        return overfull_card([bound, *others])

    def _check_pending_reason(self, pod: Pod, node: Node) -> None:
        there = [one for one in self.pods.values() if one.node_name == node.name]
        if not requests_cards(pod) or cards_fit(pod, node, there):
            super()._check_pending_reason(pod, node)


def cards_fit(pod: Pod, node: Node, there: list[Pod]) -> bool:
    """True when a node has the cards for a pod. False as well where another client has bound a pod
    without naming its cards."""
    if any(requests_cards(one) and not parts_of(one) for one in there):
        return False
    notes = pod.metadata.annotations
    if MILLI_KEY in notes:
        num, part = int(notes["alibabacloud.com/gpu-count"]), int(notes[MILLI_KEY])
        cards = [str(card) for card in range(int(str(node.status.allocatable.get(COUNT_KEY, "0"))))]
    else:
        limits = pod.spec.containers[0].resources.limits
        num = int(str(limits["volcano.sh/vgpu-number"]))
        part = int(str(limits["volcano.sh/vgpu-memory"]))
        entries = node.metadata.annotations.get(REGISTER, "").split(":")
        cards = [entry.split(",")[0] for entry in entries if entry]
    totals: Counter[str] = Counter()
    for one in there:
        totals.update(dict(parts_of(one)))
    return sum(totals[card] + part <= CARD_MILLI for card in cards) >= num


def check_rebuilt(scheduler: Scheduler) -> None:
    """The cards left by the scheduler's account are those that follow from the pods' annotations.

    Raises Violation."""
    table = scheduler.cache.snapshot().nodes
    pods = [info.pod for row in range(table.n_nodes) for info in table.info(row).pods]
    again = CardLedger.of(table_of(table.nodes, pods)).columns()
    kept = CardLedger.of(table).columns()
    if not (kept.left.shape == again.left.shape and (kept.left == again.left).all()):
        raise Violation(f"cards left: {kept.left.tolist()}, rebuilt: {again.left.tolist()}")


# The configuration.


@cache
def configured(policy: str, gpu_sel: str) -> tuple[Configuration, Registry]:
    """The profile with GpuShare and without preemption."""
    names = [name for name in PLUGINS if name != "DefaultPreemption"]
    args = {"policy": policy, "gpuSel": gpu_sel, "workload": WORKLOAD}
    profile = {
        "plugins": {
            "multiPoint": {
                "disabled": [{"name": "*"}],
                "enabled": [{"name": name} for name in (*names, "GpuShare")],
            }
        },
        "pluginConfig": [IGNORED, {"name": "GpuShare", "args": args}],
    }
    tree = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile],
    }
    return configuration_of(json.dumps(tree), "fault runs")


def scheduler(seed: int, leads: bool, term: int) -> Scheduler:
    """A scheduler whose policy depends on the seed."""
    configuration, registry = configured(*POLICIES[seed % len(POLICIES)])
    return scheduler_for(configuration, registry, options=SchedulerOptions(leads=leads, term=term))


CARD_CONFIG = FaultRunConfig(
    scheduler,
    extra_events=card_events,
    auditor=partial(CardAuditor, evicts=False),
    check_rest=check_rebuilt,
)


def main(*arguments: str) -> None:
    """Print the result of each seed."""
    for seed in map(int, arguments):
        failure = run_with_faults(seed, CARD_CONFIG)
        print(f"seed {seed}: passed" if failure is None else shrink_failure(failure, CARD_CONFIG))


if __name__ == "__main__":
    main(*sys.argv[1:])
