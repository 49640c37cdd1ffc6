"""The audit of Kueue's quotas: what no node of a flavor has, what admits nothing, workloads that
can never be admitted, and who starves while others of the cohort borrow.

Quota is looked at as the cluster is now; whether a workload is ever admitted, as Kueue would say of
it once nothing changes any more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import msgspec

from stowplan.batch.queue_models.kueue.kueue_admission import KueueAdmission
from stowplan.batch.queue_models.kueue.kueue_objects import ResourceFlavor
from stowplan.batch.queue_models.kueue.kueue_options import KueueOptions
from stowplan.batch.queue_models.kueue.quota.quota_amounts import UNLIMITED, FlavorResource
from stowplan.batch.queue_models.kueue.quota.quota_tree import QuotaNode
from stowplan.batch.queue_models.kueue.reports.quota_reports import problem_of
from stowplan.batch.queue_models.kueue.reports.workload_reports import (
    MISCONFIGURED,
    WorkloadReport,
)
from stowplan.forecast.queue_reports.audited_queue import (
    ERROR,
    INFO,
    AuditedQueue,
    AuditedTree,
    AuditFinding,
)
from stowplan.forecast.queue_reports.promise_rules import cluster_findings, limit_findings
from stowplan.forecast.queue_reports.queue_audit import QueueAudit, audit_of
from stowplan.forecast.queue_reports.use_rules import USE_RULES, excess_findings
from stowplan.inputs.cluster_reader import Cluster
from stowplan.objects.node import Node
from stowplan.objects.quantity import milli_value, value
from stowplan.simulation.kueue.job_admission import admission_of, admit_jobs

QUEUE, COHORT = "clusterqueue", "cohort"
NOMINAL = "nominal quota"
NEVER = (MISCONFIGURED, "ExceedsMaxQuota", "NoMatchingFlavor")
"""Reasons of workloads that are not admitted before quotas, flavors or names change."""


def audit_kueue(cluster: Cluster, options: KueueOptions) -> QueueAudit:
    """Audit the ClusterQueues and Cohorts of a cluster. Raises InputError."""
    admission, _ = admission_of(cluster, options)
    offered = _offered(cluster, admission)
    by_flavor = AuditedTree(_by_flavor(admission), offered, tops="queues and cohorts")
    by_resource = AuditedTree(_by_resource(admission), _ready(cluster.nodes))
    report = admit_jobs(cluster, options).report
    found = [
        *_inactive(admission),
        *_local_queues(admission),
        *cluster_findings(by_flavor),
        *limit_findings(by_flavor),
        *excess_findings(by_flavor),
        *_of_use(by_resource),
        *_workloads(report.workloads if report is not None else ()),
    ]
    return audit_of("kueue", len(by_resource.queues), by_resource.total, found)


def _of_use(tree: AuditedTree) -> Iterator[AuditFinding]:
    for rule in USE_RULES:
        if rule is not excess_findings:
            for one in rule(tree):
                yield msgspec.structs.replace(one, name=one.name.removeprefix(f"{COHORT} "))


# Queues.


def _nodes(admission: KueueAdmission) -> Iterator[QuotaNode]:
    yield from admission.tree.cohorts.values()
    yield from admission.tree.queues.values()


def _by_flavor(admission: KueueAdmission) -> Iterator[AuditedQueue]:
    """What queues and cohorts have themselves, each flavor as a resource of its own."""
    for node in _nodes(admission):
        yield AuditedQueue(
            name=node.name,
            kind=QUEUE if node.is_queue else COHORT,
            promises={
                NOMINAL: {
                    _of(pair): _amount(pair, quota.nominal) for pair, quota in node.quotas.items()
                }
            },
            main=NOMINAL,
            limit={_of(pair): _limit(node, pair) for pair in node.quotas if node.is_queue},
            allocated={_of(pair): _amount(pair, n) for pair, n in node.usage.items()},
        )


def _limit(node: QuotaNode, pair: FlavorResource) -> float:
    """What a queue may use at most."""
    quota = node.quota(pair)
    if node.parent is None:
        return _amount(pair, quota.nominal)
    if quota.borrowing_limit is None:
        return math.inf
    return _amount(pair, quota.nominal) + _amount(pair, quota.borrowing_limit)


def _by_resource(admission: KueueAdmission) -> Iterator[AuditedQueue]:
    """What queues and cohorts have with those below, all flavors together: a workload that waits
    asks for none in particular."""
    for node in _nodes(admission):
        asked: dict[str, float] = {}
        for queue in [node] if node.is_queue else node.subtree_queues():
            for key in admission.pending[queue.name].in_order():
                for demand in admission.workloads[key].demands:
                    for name, n in demand.requests.items():
                        asked[name] = asked.get(name, 0.0) + _amount(("", name), n)
        below = [*node.cohorts, *node.queues]
        yield AuditedQueue(
            name=_key(node),
            parent="" if node.parent is None else _key(node.parent),
            kind=QUEUE if node.is_queue else COHORT,
            promises={NOMINAL: _sums(node.subtree)},
            main=NOMINAL,
            allocated=_sums(node.usage) or dict.fromkeys(_sums(node.subtree), 0.0),
            pending=asked,
            children=tuple(_key(one) for one in below),
        )


def _key(node: QuotaNode) -> str:
    """A name that a queue and a cohort of one name do not share."""
    return node.name if node.is_queue else f"{COHORT} {node.name}"


def _of(pair: FlavorResource) -> str:
    return f"{pair[1]} in flavor {pair[0]}"


def _amount(pair: FlavorResource, n: int) -> float:
    """Cores, bytes or units."""
    if n >= UNLIMITED:
        return math.inf
    return n / 1000 if pair[1] == "cpu" else float(n)


def _sums(amounts: dict[FlavorResource, int]) -> dict[str, float]:
    found: dict[str, float] = {}
    for pair, n in amounts.items():
        found[pair[1]] = found.get(pair[1], 0.0) + _amount(pair, n)
    return found


# The cluster.


def _offered(cluster: Cluster, admission: KueueAdmission) -> dict[str, float]:
    """What the ready nodes of each flavor have."""
    found: dict[str, float] = {}
    for flavor in admission.objects.resource_flavors:
        own = [node for node in cluster.nodes if _is_of(node, flavor)]
        found.update((_of((flavor.name, name)), n) for name, n in _ready(own).items())
    return found


def _is_of(node: Node, flavor: ResourceFlavor) -> bool:
    return flavor.spec.node_labels.items() <= node.labels.items()


def _ready(nodes: Iterable[Node]) -> dict[str, float]:
    found: dict[str, float] = {}
    for node in nodes:
        if node.spec.unschedulable or not _is_ready(node):
            continue
        for name, amount in node.status.allocatable.items():
            n = milli_value(amount) / 1000 if name == "cpu" else float(value(amount))
            found[name] = found.get(name, 0.0) + n
    return found


def _is_ready(node: Node) -> bool:
    return all(one.status == "True" for one in node.status.conditions if one.type == "Ready")


# What admits nothing.


def _inactive(admission: KueueAdmission) -> Iterator[AuditFinding]:
    for queue in admission.queues.values():
        problem = problem_of(queue)
        if problem and queue.spec.stop_policy not in (None, "None"):
            text = f"{problem}: it admits nothing"
            yield AuditFinding(INFO, QUEUE, queue.name, "Stopped", text)
        elif problem:
            text = f"{problem}: it admits nothing"
            yield AuditFinding(ERROR, QUEUE, queue.name, "Inactive", text)


def _local_queues(admission: KueueAdmission) -> Iterator[AuditFinding]:
    for one in admission.objects.local_queues:
        if one.spec.cluster_queue not in admission.queues:
            name = f"{one.metadata.namespace}/{one.name}"
            text = f"ClusterQueue {one.spec.cluster_queue} not found"
            yield AuditFinding(ERROR, "localqueue", name, "QueueNotFound", text)


def _workloads(reports: Iterable[WorkloadReport]) -> Iterator[AuditFinding]:
    for one in reports:
        if one.reason in NEVER:
            kind, _, name = one.job.partition("/")
            yield AuditFinding(ERROR, kind, f"{one.namespace}/{name}", one.reason, one.message)
