"""Configuration of fault runs with gangs that request parts of GPU cards: sessions and a profile
that count the same cards.

Run: python -m tests.fault_runs.card_gang_config SEED... prints the result of each seed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache, partial

from msgspec.structs import replace

from stowplan.assembly.deciders import ConfigText, Deciders, deciders_of
from stowplan.inputs.annotations import RUN_ANNOTATION
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import PodGroup, PodGroupSpec, Queue, QueueSpec
from stowplan.objects.workload import PriorityClass
from stowplan.scheduler import Scheduler, SchedulerOptions
from stowplan.testing.generators.choices import RandomSource, chance, pick, random_int
from tests.fault_runs.card_config import CardAuditor, card_events, card_pod, check_rebuilt
from tests.fault_runs.cluster_churn import ChurnEvent, ClusterChurn
from tests.fault_runs.fault_run import FaultRunConfig, run_with_faults, shrink_failure
from tests.fault_runs.gang_config import (
    BATCH,
    CLASSES,
    GROUPS,
    PROFILE,
    SESSIONS,
    GangAuditor,
    check_rest,
    is_session_pod,
)
from tests.plugins.gpu_share.test_device_sharing import with_notes

GPU_SHARE = """
      - {name: GpuShare}
  pluginConfig:
  - name: NodeResourcesFit
    args: {ignoredResourceGroups: [volcano.sh]}
"""


@cache
def deciders(policy: str) -> Deciders:
    texts = [
        ConfigText(PROFILE.rstrip() + GPU_SHARE, "profiles"),
        ConfigText(SESSIONS.replace("POLICY", policy), "sessions"),
    ]
    return deciders_of(texts)


def scheduler(seed: int, leads: bool, term: int) -> Scheduler:
    """A scheduler whose policy for failed binds depends on the seed."""
    options = SchedulerOptions(leads=leads, term=term, identity=f"run-{seed}")
    return deciders("Release" if seed % 4 == 0 else "Keep").scheduler(options=options)


class CardGangAuditor(CardAuditor, GangAuditor):
    """Checks cards, and evictions by sessions."""


def card_gangs(rng: RandomSource, until: int) -> Iterator[ChurnEvent]:
    """Nodes with cards, pods of the profile with parts of them, and gangs whose pods have some."""
    yield from card_events(rng, until)
    spec = QueueSpec(weight=1)
    queue = Queue(metadata=ObjectMeta(name="default", uid="default"), spec=spec)
    yield ChurnEvent(0, partial(_put, value=queue))
    for name, value in CLASSES.items():
        if name:
            known = PriorityClass(metadata=ObjectMeta(name=name, uid=name), value=value)
            yield ChurnEvent(0, partial(_put, value=known))
    for name in GROUPS[: random_int(rng, 2, 6)]:
        yield from _gang(rng, name, until)


def _gang(rng: RandomSource, name: str, until: int) -> Iterator[ChurnEvent]:
    at = random_int(rng, 0, until // SECOND // 2) * SECOND
    size, priority = random_int(rng, 1, 4), pick(rng, tuple(CLASSES))
    meta = ObjectMeta(name=name, namespace="default", uid=name)
    least = random_int(rng, 1, size)
    group = PodGroup(metadata=meta, spec=PodGroupSpec(least, "default", priority))
    yield ChurnEvent(at, partial(_put, value=group))
    runs = {RUN_ANNOTATION: str(random_int(rng, 1, 40))} if chance(rng, 2) else {}
    kind = card_pod(rng, "kind")
    for index in range(size):
        notes = {**kind.metadata.annotations, "scheduling.k8s.io/group-name": name, **runs}
        given = f"c{name}-{index}"
        meta_ = replace(kind.metadata, name=given, uid=f"default/{given}")
        made_spec = replace(kind.spec, scheduler_name=BATCH, priority=CLASSES[priority])
        one: Pod = with_notes(replace(kind, metadata=meta_, spec=made_spec), notes)
        yield ChurnEvent(at, partial(_come, one=one))


def _put(churn: ClusterChurn, value: Queue | PriorityClass | PodGroup) -> None:
    churn.cluster.put_object(value)


def _come(churn: ClusterChurn, one: Pod) -> None:
    churn.create_pod(one)


def check_cards_at_rest(made: Scheduler) -> None:
    """Another session decides nothing, and the cards are those of the annotations."""
    check_rebuilt(made)
    check_rest(made)
    check_rebuilt(made)


CARD_GANG_CONFIG = FaultRunConfig(
    scheduler,
    may_wait=is_session_pod,
    extra_events=card_gangs,
    auditor=CardGangAuditor,
    check_rest=check_cards_at_rest,
)


if __name__ == "__main__":
    for seed in map(int, sys.argv[1:]):
        failure = run_with_faults(seed, CARD_GANG_CONFIG)
        print(seed, "passed" if failure is None else shrink_failure(failure, CARD_GANG_CONFIG))
