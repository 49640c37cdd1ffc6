"""Queues and gangs of the page, as JSON, from the shares that `stowplan queues` prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from stowplan.forecast.queue_loans import Loan, PartAndUse, loans_between
from stowplan.forecast.queue_shares import Shares
from stowplan.framework.deciders.tasks import group_of
from stowplan.insight.pod_owners import job_titles
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.kai.kai_kinds import (
    KAI_GROUP_ANNOTATION,
    KaiPodGroupObject,
    KaiQueueObject,
)
from stowplan.objects.meta import Object
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import PodGroup, Queue
from stowplan.objects.quantity import nanos

if TYPE_CHECKING:
    # At run time Kueue's parts are imported where it is configured.
    from stowplan.batch.queue_models.kueue.reports.quota_reports import QueueReport, QuotaReport
    from stowplan.batch.queue_models.kueue.reports.workload_reports import (
        KueueReport,
        WorkloadReport,
    )

RUNNING, PENDING = "running", "pending"
NANOS = 1_000_000_000
GANG_KINDS = (PodGroup, KaiPodGroupObject)
QUEUE_KINDS = (Queue, KaiQueueObject)
DEFAULT_QUEUE, KAI_DEFAULT_QUEUE = "default", "default-queue"
CLUSTER_QUEUE, KUEUE_ADMITTED = "ClusterQueue", "Admitted"
KUEUE_LOAN_MIN = 0.0005
"""Smaller loans (cores, bytes, units) are rounding errors."""


def shares_tree(shares: Shares, objects: Iterable[Object], *, is_model: bool = False) -> Tree:
    """The queues of one scheduler: what they have and deserve, and what they borrow and lend.

    is_model: a queue model says what is above a queue and what it is guaranteed."""
    tree: Tree = msgspec.to_builtins(shares)
    specs = {one.name: one.spec for one in objects if isinstance(one, Queue)}
    borrowed: dict[str, dict[str, float]] = {}
    of_lenders: dict[str, dict[str, float]] = {}
    for loan in shares.loans:
        _add(borrowed, loan.borrower, loan.resource, loan.amount)
        _add(of_lenders, loan.lender, loan.resource, loan.amount)
    for queue in tree["queues"]:
        name = queue["name"]
        spec = specs.get(name)
        if not is_model and spec is not None:
            guarantee = spec.guarantee.resource
            queue["parent"] = spec.parent
            queue["guarantee"] = {key: nanos(n) / NANOS for key, n in guarantee.items()}
        queue |= {
            "borrowed": borrowed.get(name, {}),
            "lent": of_lenders.get(name, {}),
        }
    return {
        "schedulerName": shares.scheduler_name,
        "total": tree["total"],
        "queues": tree["queues"],
        "loans": tree["loans"],
    }


def _add(amounts: dict[str, dict[str, float]], queue: str, resource: str, amount: float) -> None:
    found = amounts.setdefault(queue, {})
    found[resource] = round(found.get(resource, 0.0) + amount, 3)


def gang_trees(objects: Iterable[Object], pods: Iterable[Pod]) -> list[Tree]:
    """PodGroups with the number of their pods."""
    counts: dict[str, Counter[str]] = {}
    for pod in pods:
        group = gang_key(pod)
        if group and not pod.is_finished:
            counts.setdefault(group, Counter())[RUNNING if pod.node_name else PENDING] += 1
    groups = (one for one in objects if isinstance(one, GANG_KINDS))
    return [_gang(group, counts.get(group.key, Counter())) for group in groups]


def gang_key(pod: Pod) -> str:
    """NAMESPACE/NAME of the PodGroup that a pod names, "" for none."""
    name = pod.metadata.annotations.get(KAI_GROUP_ANNOTATION)
    return group_of(pod) or (f"{pod.namespace}/{name}" if name else "")


def queues_of_gangs(objects: Iterable[Object]) -> dict[str, str]:
    """PodGroup -> its queue."""
    return {one.key: _queue_of(one) for one in objects if isinstance(one, GANG_KINDS)}


def _queue_of(group: PodGroup | KaiPodGroupObject) -> str:
    unnamed = DEFAULT_QUEUE if isinstance(group, PodGroup) else KAI_DEFAULT_QUEUE
    return group.spec.queue or unnamed


def gang_of(pod: Pod, objects: Sequence[Object], pods: Iterable[Pod]) -> Tree | None:
    """The PodGroup of a pod, None if it has none."""
    key = gang_key(pod)
    groups = [one for one in objects if isinstance(one, GANG_KINDS) and one.key == key]
    return gang_trees(groups, pods)[0] if key and groups else None


def _gang(group: PodGroup | KaiPodGroupObject, count: Counter[str]) -> Tree:
    running, pending = count[RUNNING], count[PENDING]
    least = group.spec.min_member or 0
    return {
        "gang": group.key,
        "queue": _queue_of(group),
        "phase": group.status.phase if isinstance(group, PodGroup) else "",
        "min": least,
        "running": running,
        "pending": pending,
        "missing": max(0, least - running - pending),
    }


def kueue_tree(report: KueueReport) -> Tree:
    """ClusterQueues and Cohorts with their quota. A resource is named with its flavor where
    several flavors have it."""
    names = _names_of_pairs(report)
    asked = _asked(report, names)
    pods = _pods_by_queue(report)
    queues = [_kueue_queue(one, names, asked, pods) for one in report.queues]
    by_name = {one["name"]: one for one in queues}
    total: dict[str, float] = {}
    for queue in queues:
        for resource, amount in queue["deserved"].items():
            total[resource] = total.get(resource, 0.0) + amount
    return {
        "schedulerName": "kueue",
        "total": total,
        "queues": queues,
        "loans": [
            msgspec.to_builtins(loan)
            for root in _trees(report.queues)
            for resource in total
            for loan in _kueue_loans(root, resource, by_name)
        ],
    }


def workload_trees(report: KueueReport, pods: Iterable[Pod]) -> list[Tree]:
    """Kueue's workloads as gangs: pods of a job that are admitted together, or not."""
    counts: dict[str, Counter[str]] = {}
    for pod in pods:
        for name in () if pod.is_finished else job_titles(pod):
            key = f"{pod.namespace}/{name}"
            counts.setdefault(key, Counter())[RUNNING if pod.node_name else PENDING] += 1
    return [_workload(one, counts) for one in report.workloads]


def _workload(one: WorkloadReport, counts: dict[str, Counter[str]]) -> Tree:
    key = f"{one.namespace}/{one.job}"
    count = counts.get(key, Counter())
    reason = f"{one.reason}: {one.message}" if one.reason else ""
    lines = [reason, *(shortage.text for shortage in one.shortages)]
    if one.position:
        lines.append(f"position {one.position} in the queue")
    if one.order_text:
        lines.append(f"order by usage: {one.order_text}")
    return {
        "gang": key,
        "queue": one.cluster_queue or one.local_queue,
        "phase": one.status,
        "min": one.pods,
        "running": count[RUNNING],
        "pending": count[PENDING],
        "missing": max(0, one.pods - count[RUNNING] - count[PENDING]),
        "workload": True,
        "message": "; ".join(line for line in lines if line),
    }


def _names_of_pairs(report: KueueReport) -> dict[tuple[str, str], str]:
    """Flavor and resource -> what the resource is called."""
    pairs = {(one.flavor, one.resource) for queue in report.queues for one in queue.quotas}
    flavors = Counter(resource for _, resource in pairs)
    return {
        (flavor, resource): resource if flavors[resource] == 1 else f"{resource} in {flavor}"
        for flavor, resource in pairs
    }


def _asked(report: KueueReport, names: dict[tuple[str, str], str]) -> dict[str, dict[str, float]]:
    """ClusterQueue -> what its workloads request that lack quota."""
    found: dict[str, dict[str, float]] = {}
    for one in report.workloads:
        for lack in one.shortages:
            name = names.get((lack.flavor, lack.resource))
            if name is not None:
                _add(found, one.cluster_queue, name, nanos(lack.requested) / NANOS)
    return found


def _pods_by_queue(report: KueueReport) -> dict[str, Counter[bool]]:
    """ClusterQueue -> pods of its workloads, by whether those are admitted."""
    found: dict[str, Counter[bool]] = {}
    for one in report.workloads:
        found.setdefault(one.cluster_queue, Counter())[one.status == KUEUE_ADMITTED] += one.pods
    return found


def _kueue_queue(
    one: QueueReport,
    names: dict[tuple[str, str], str],
    asked: dict[str, dict[str, float]],
    pods: dict[str, Counter[bool]],
) -> Tree:
    def amounts(field: str) -> dict[str, float]:
        texts = {names[q.flavor, q.resource]: str(getattr(q, field)) for q in one.quotas}
        return {name: nanos(text) / NANOS for name, text in texts.items() if text[0].isdigit()}

    is_queue = one.kind == CLUSTER_QUEUE
    held = pods.get(one.name, Counter()) if is_queue else Counter()
    limits = {names[q.flavor, q.resource]: _limit(q) for q in one.quotas}
    return {
        "name": one.name if is_queue else f"cohort/{one.name}",
        "parent": f"cohort/{one.cohort}" if one.cohort else "",
        "weight": one.weight,
        "share": None if one.share < 0 else one.share,
        "guarantee": {},
        "deserved": amounts("nominal"),
        "allocated": amounts("used"),
        "borrowed": {name: n for name, n in amounts("borrowed").items() if n},
        "lent": {name: n for name, n in amounts("used_by_others").items() if n},
        "pending": asked.get(one.name, {}) if is_queue else {},
        "capability": {name: n for name, n in limits.items() if n is not None},
        "podsPlaced": held[True],
        "podsPending": held[False],
        "problem": one.problem,
    }


def _limit(quota: QuotaReport) -> float | None:
    """What a queue may use with all that it may borrow, None without a limit."""
    if not quota.borrowing_limit[0].isdigit() or not quota.nominal[0].isdigit():
        return None
    return (nanos(quota.nominal) + nanos(quota.borrowing_limit)) / NANOS


def _trees(queues: Sequence[QueueReport]) -> list[list[str]]:
    """The ClusterQueues of each tree: they come after its top."""
    found: list[list[str]] = []
    for one in queues:
        if one.depth == 0:
            found.append([])
        if one.kind == CLUSTER_QUEUE:
            found[-1].append(one.name)
    return found


def _kueue_loans(root: Sequence[str], resource: str, trees: dict[str, Tree]) -> Iterator[Loan]:
    """Loans between the ClusterQueues of a tree."""
    uses = {}
    for name in root:
        queue = trees[name]
        part, used = (queue[key].get(resource, 0.0) for key in ("deserved", "allocated"))
        uses[name] = PartAndUse(part, used, queue["pending"].get(resource, 0.0))
    idle = max(0.0, sum(use.left for use in uses.values()))
    for loan in loans_between(uses, resource, idle, KUEUE_LOAN_MIN):
        amount, back = round(loan.amount, 3), round(loan.wanted_back, 3)
        yield msgspec.structs.replace(loan, amount=amount, wanted_back=back)
