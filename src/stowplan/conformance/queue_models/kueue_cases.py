"""Kueue's cases: runs cycles until nothing changes, step by step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from stowplan.batch.queue_models.kueue.admission_order import AdmissionEntry
from stowplan.batch.queue_models.kueue.admission_workload import QUOTA_RESERVED, PodSetDemand
from stowplan.batch.queue_models.kueue.kueue_admission import (
    CycleOutcome,
    KueueAdmission,
    KueueObjects,
)
from stowplan.batch.queue_models.kueue.kueue_objects import (
    AdmissionCheck,
    Cohort,
    KueueClusterQueue,
    KueueLimitRange,
    KueueNamespace,
    LocalQueue,
    ResourceFlavor,
    Topology,
    Workload,
    seconds,
)
from stowplan.batch.queue_models.kueue.kueue_options import kueue_options_of
from stowplan.batch.queue_models.kueue.quota.dominant_share import dominant_share
from stowplan.batch.queue_models.kueue.quota.quota_amounts import UNLIMITED
from stowplan.batch.queue_models.kueue.quota.quota_tree import QuotaNode
from stowplan.conformance.queue_models.queue_model_cases import QueueModelCase
from stowplan.objects.meta import Time, Value
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod

Answer = dict[str, Any]

KUEUE = "kueue"
"""Compat name: all defects of the original."""

CYCLES_MAX = 24
IDLE_MAX = 6


class KueueCaseCluster(Value, frozen=True, gc=True):
    """`cluster` of a case."""

    cluster_queues: tuple[KueueClusterQueue, ...] = ()
    cohorts: tuple[Cohort, ...] = ()
    local_queues: tuple[LocalQueue, ...] = ()
    resource_flavors: tuple[ResourceFlavor, ...] = ()
    topologies: tuple[Topology, ...] = ()
    admission_checks: tuple[AdmissionCheck, ...] = ()
    workloads: tuple[Workload, ...] = ()
    namespaces: tuple[KueueNamespace, ...] = ()
    limit_ranges: tuple[KueueLimitRange, ...] = ()
    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    now: Time | None = None


class KueueCaseStep(Value, frozen=True, gc=True):
    """`steps[]` of a case."""

    finish: tuple[str, ...] = ()
    workloads: tuple[Workload, ...] = ()
    cluster_queues: tuple[KueueClusterQueue, ...] = ()
    cohorts: tuple[Cohort, ...] = ()


def answer(case: QueueModelCase, compat: str = "") -> Answer:
    """The answer to one case. compat: KUEUE, or "" for cycles without its defects."""
    cluster = msgspec.convert(case.cluster, KueueCaseCluster)
    objects = KueueObjects(
        **{name: getattr(cluster, name) for name in cluster.__struct_fields__ if name != "now"},
        now=seconds(cluster.now),
    )
    config = case.config if isinstance(case.config, dict) else {}
    admission = KueueAdmission(objects, kueue_options_of(config, is_fixed=compat != KUEUE))
    result: Answer = {"open": _quota_facts(admission), "steps": []}
    result["steps"].append(_run(admission, case.max_cycles, is_first=True))
    for tree in case.steps or ():
        step = msgspec.convert(tree, KueueCaseStep)
        admission.now += 1
        admission.finish(step.finish)
        admission.change(step.cluster_queues, step.cohorts)
        admission.add(step.workloads)
        result["steps"].append(_run(admission, case.max_cycles, is_first=False))
    return result


def _run(admission: KueueAdmission, cycles_max: int | None, *, is_first: bool) -> Answer:
    """Cycles of a step, and the state at its end."""
    cycles: list[Answer] = []
    idle = 0
    most = CYCLES_MAX if cycles_max is None else cycles_max
    while len(cycles) < most and idle < IDLE_MAX:
        before = _waiting(admission)
        outcome = admission.run_cycle()
        if outcome is None:
            break
        cycles.append(_cycle(outcome, admission))
        if cycles_max is not None and len(cycles) == cycles_max:
            break
        admission.between_cycles()
        if is_first and len(cycles) == 1:
            admission.activate_all()
        is_idle = not outcome.has_effect and _waiting(admission) == before
        idle = idle + 1 if is_idle else 0
    return {"cycles": cycles, "pending": _pending(admission), **_quota_facts(admission)}


def _waiting(admission: KueueAdmission) -> Answer:
    return {
        name: (sorted(one.active), sorted(one.inadmissible))
        for name, one in admission.pending.items()
    }


def _cycle(outcome: CycleOutcome, admission: KueueAdmission) -> Answer:
    return {
        "heads": outcome.heads,
        "order": outcome.order,
        "admitted": {key: _admitted(one) for key, one in outcome.admitted.items()},
        "preempted": {
            key: {"reason": reason, "by": by} for key, (reason, by) in outcome.preempted.items()
        },
        "evicted": outcome.evicted,
    }


def _admitted(entry: AdmissionEntry) -> Answer:
    workload = entry.workload
    return {
        "clusterQueue": workload.cluster_queue,
        "admitted": workload.is_condition("Admitted"),
        "podSets": [_pod_set(one) for one in workload.demands],
    }


def _pod_set(demand: PodSetDemand) -> Answer:
    found: Answer = {"name": demand.name, "count": demand.count, "flavors": demand.flavors}
    if demand.places is not None:
        found["topology"] = {
            "levels": list(demand.places.levels),
            "domains": [
                {"values": list(values), "count": count} for values, count in demand.places.domains
            ],
        }
    if demand.delayed is not None:
        found["delayedTopologyRequest"] = demand.delayed
    return found


def _pending(admission: KueueAdmission) -> Answer:
    found: Answer = {}
    active = {key for pending in admission.pending.values() for key in pending.active}
    waiting = {key for pending in admission.pending.values() for key in pending.inadmissible}
    for key, one in admission.workloads.items():
        if one.holds_quota:
            continue
        queue = "inadmissible" if key in waiting else "none"
        found[key] = {"queue": "active" if key in active else queue}
        if QUOTA_RESERVED in one.conditions:
            found[key]["reason"] = one.conditions[QUOTA_RESERVED].reason
    return found


def _quota_facts(admission: KueueAdmission) -> Answer:
    nodes = admission.tree.queues
    return {
        "clusterQueues": {
            name: _node_facts(node, admission) for name, node in nodes.items() if node.is_active
        },
        "cohorts": {
            name: _node_facts(node, admission) for name, node in admission.tree.cohorts.items()
        },
    }


def _node_facts(node: QuotaNode, admission: KueueAdmission) -> Answer:
    facts: Answer = {
        "usage": _amounts(node.usage),
        "subtreeQuota": _amounts(node.subtree),
    }
    if node.is_queue:
        facts["available"] = {
            f"{flavor}/{name}": _amount(node.available_now((flavor, name)))
            for flavor, name in node.quotas
        }
    if admission.options.is_fair:
        share = dominant_share(node)
        facts["share"] = "unlimited" if share.rank[0] else share.value
    return facts


def _amounts(amounts: Mapping[tuple[str, str], int]) -> Answer:
    return {f"{flavor}/{name}": _amount(n) for (flavor, name), n in amounts.items() if n}


def _amount(n: int) -> int | str:
    return "unlimited" if n == UNLIMITED else n
