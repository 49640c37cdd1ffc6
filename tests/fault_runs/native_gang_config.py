"""Configuration of fault runs with PodGroups of scheduling.k8s.io beside plain pods.

Run: python -m tests.fault_runs.native_gang_config SEED... prints the result of each seed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache, partial

from msgspec.structs import replace

from stowplan.assembly.deciders import ConfigText, Deciders, deciders_of
from stowplan.forecast.explain_scheduling_group import explain_scheduling_group
from stowplan.framework.feature_gates import FeatureGates
from stowplan.framework.pod_groups.pod_group_states import group_key_of
from stowplan.inputs.annotations import RUN_ANNOTATION
from stowplan.inputs.cluster_reader import Cluster
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.pod import Pod, PodSchedulingGroup
from stowplan.objects.scheduling_group import (
    GangSchedulingPolicy,
    PodGroupSchedulingPolicy,
    SchedulingGroup,
    SchedulingGroupMeta,
    SchedulingGroupSpec,
)
from stowplan.scheduler import Scheduler, SchedulerOptions
from stowplan.scheduler.pod_groups.group_cycle import GroupReport
from stowplan.simulation.cluster.simulated_cluster import SimulatedCluster
from stowplan.testing import pod
from stowplan.testing.generators.choices import RandomSource, chance, pick, random_int
from tests.fault_runs.auditor import Violation
from tests.fault_runs.cluster_churn import ChurnEvent, ClusterChurn
from tests.fault_runs.fault_run import FaultRunConfig, run_with_faults, shrink_failure
from tests.fault_runs.gang_config import PROFILE

GATES = FeatureGates(generic_workload=True, gang_scheduling=True)
GROUPS = tuple(f"g{number}" for number in range(7))
WITH_GANGS = PROFILE.replace("      - {name: DefaultBinder}", "      - {name: GangScheduling}\n"
                             "      - {name: DefaultBinder}")  # fmt: skip


@cache
def deciders() -> Deciders:
    return deciders_of([ConfigText(WITH_GANGS, "profiles")], gates=GATES)


def scheduler(seed: int, leads: bool, term: int) -> Scheduler:
    options = SchedulerOptions(leads=leads, term=term, identity=f"run-{seed}")
    engine = "walk" if seed % 2 else "auto"
    made = deciders().scheduler(options=options, engine=engine)
    made.pod_lane.group_cycles.on_group = partial(check_group, made)
    return made


def check_group(made: Scheduler, report: GroupReport) -> None:
    """A gang is bound when enough of it has a node, and not before."""
    groups = made.pod_groups
    assert groups is not None
    group = made.cache.object_store.find(SchedulingGroup, report.key)
    state = groups.get(report.key)
    if report.outcome != "scheduled" or group is None or state is None:
        return
    if state.n_scheduled < (group.min_count or 0):
        raise Violation(f"{report.key} is bound with {state.n_scheduled} of {group.min_count} pods")


def check_waits(made: Scheduler) -> None:
    """Nobody waits at Permit: no gang holds room that it cannot use, so that no two of them can
    wait for each other."""
    waiting = [one.pod.key for one in made.waiting_pods]
    if waiting:
        raise Violation(f"{', '.join(waiting)}: waiting at Permit, with resources held")


def gangs(rng: RandomSource, until: int) -> Iterator[ChurnEvent]:
    """PodGroups, with their pods before and after them."""
    for name in GROUPS[: random_int(rng, 3, len(GROUPS))]:
        at = random_int(rng, 0, until // SECOND // pick(rng, (1, 4))) * SECOND
        size = random_int(rng, 1, 6)
        gang = GangSchedulingPolicy(random_int(rng, 1, size))
        policy = PodGroupSchedulingPolicy(gang=gang)
        meta = SchedulingGroupMeta(name=name, namespace="default", uid=name)
        group = SchedulingGroup(metadata=meta, spec=SchedulingGroupSpec(scheduling_policy=policy))
        yield ChurnEvent(at, partial(_put, value=group))
        cpu, memory = str(random_int(rng, 0, 2)), f"{pick(rng, (0, 1, 3))}Gi"
        priority = pick(rng, (0, 0, 100))
        runs = {RUN_ANNOTATION: str(random_int(rng, 1, 40))} if chance(rng, 4) else {}
        for index in range(size):
            made = pod(f"{name}-{index}", cpu=cpu, memory=memory, priority=priority)
            spec = replace(made.spec, scheduling_group=PodSchedulingGroup(name))
            metadata = replace(made.metadata, annotations=runs)
            later = random_int(rng, 0, 5) * SECOND if chance(rng, 3) else 0
            one = replace(made, metadata=metadata, spec=spec)
            yield ChurnEvent(at + later, partial(_come, one=one))


def _put(churn: ClusterChurn, value: SchedulingGroup) -> None:
    churn.cluster.put_object(value)


def _come(churn: ClusterChurn, one: Pod) -> None:
    churn.create_pod(one)


def may_wait(one: Pod, cluster: SimulatedCluster, note: str = "") -> bool:
    """True for a member of a group that one more cycle would not schedule."""
    key = group_key_of(one)
    if not key:
        return False
    now = Cluster(
        list(cluster.nodes.values()), list(cluster.pods.values()), list(cluster.objects.values())
    )
    found = explain_scheduling_group(key, now, config=deciders())
    return found.outcome != "scheduled" or all(each.pod != one.key for each in found.members)


NATIVE_GANG_CONFIG = FaultRunConfig(
    scheduler, may_wait=may_wait, on_call=check_waits, extra_events=gangs
)


if __name__ == "__main__":
    for seed in map(int, sys.argv[1:]):
        failure = run_with_faults(seed, NATIVE_GANG_CONFIG)
        print(seed, "passed" if failure is None else shrink_failure(failure, NATIVE_GANG_CONFIG))
