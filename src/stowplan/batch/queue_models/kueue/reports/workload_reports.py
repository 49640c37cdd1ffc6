"""What Kueue's admission says about workloads and quota, and why a workload is not admitted."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from stowplan.batch.queue_models.kueue.admission_queue import AdmissionQueue
from stowplan.batch.queue_models.kueue.admission_workload import (
    ADMITTED,
    QUOTA_RESERVED,
    AdmissionWorkload,
)
from stowplan.batch.queue_models.kueue.flavor_assignment import NO_MATCHING_FLAVOR
from stowplan.batch.queue_models.kueue.kueue_admission import KueueAdmission
from stowplan.batch.queue_models.kueue.kueue_objects import LocalQueue
from stowplan.batch.queue_models.kueue.quota.quota_amounts import FlavorResource
from stowplan.batch.queue_models.kueue.quota.quota_tree import QuotaNode

INACTIVE = "Inadmissible"


class WorkloadReport(msgspec.Struct, frozen=True):
    """A workload.

    job: as `kubectl` names it. status: Admitted, QuotaReserved or Pending. flavors: pod set ->
    resource -> flavor. counts: pod set -> pods that may run. reason, message: why it is pending, ""
    for others. preempted_by: workload that took its quota, "" for none.
    """

    namespace: str
    job: str
    local_queue: str
    cluster_queue: str
    priority: int
    pods: int
    status: str
    reason: str = ""
    message: str = ""
    flavors: dict[str, dict[str, str]] = {}
    counts: dict[str, int] = {}
    preempted_by: str = ""


class QuotaReport(msgspec.Struct, frozen=True):
    """Quota of a ClusterQueue in a flavor and resource; amounts as in manifests. borrowing_limit:
    "-" for none. is_active: whether the queue admits at all."""

    cluster_queue: str
    cohort: str
    flavor: str
    resource: str
    nominal: str
    borrowing_limit: str
    used: str
    borrowed: str
    is_active: bool


class QueueReport(msgspec.Struct, frozen=True):
    """Numbers of workloads of a ClusterQueue. problem: why it admits nothing, "" if it does."""

    name: str
    admitted: int
    pending: int
    problem: str = ""


class KueueReport(msgspec.Struct, frozen=True):
    """The admission when nothing changes any more. cycles: that it took."""

    workloads: list[WorkloadReport]
    quotas: list[QuotaReport]
    queues: list[QueueReport]
    cycles: int

    def pending(self) -> list[WorkloadReport]:
        """Workloads whose pods may not run."""
        return [one for one in self.workloads if one.status != ADMITTED]

    def lines(self) -> list[str]:
        """How many are admitted, and why the others are not, for notes."""
        held = self.pending()
        n_admitted = len(self.workloads) - len(held)
        head = f"Kueue: {n_admitted} of {len(self.workloads)} workloads admitted"
        return [
            head,
            *(f"{one.job} in {one.namespace}: {one.reason}: {one.message}" for one in held),
        ]


def status_of(workload: AdmissionWorkload) -> str:
    """Admitted, QuotaReserved or Pending."""
    if workload.is_condition(ADMITTED) and workload.holds_quota:
        return ADMITTED
    return QUOTA_RESERVED if workload.holds_quota else "Pending"


def why_pending(workload: AdmissionWorkload, admission: KueueAdmission) -> tuple[str, str]:
    """Reason and message of a workload that is not admitted."""
    if workload.holds_quota:
        return "WaitingForAdmissionChecks", "its admission checks are not Ready"
    if workload.workload.spec.active is False:
        return INACTIVE, "the workload is deactivated"
    problem = _queue_problem(workload, admission)
    if problem:
        return INACTIVE, problem
    queue = admission.queues[workload.cluster_queue]
    condition = workload.conditions.get(QUOTA_RESERVED)
    reason = condition.reason if condition is not None else "Pending"
    if reason == "Misconfigured":
        return reason, f"namespace {workload.namespace} does not match ClusterQueue {queue.name}"
    parts = [part for one in workload.demands for part in _shortages(one.requests, queue)]
    parts = list(dict.fromkeys(parts))
    if reason == NO_MATCHING_FLAVOR:
        names = ", ".join(name for group in queue.groups for name in group.flavor_names)
        parts = parts or [f"no flavor matches its pods' selectors and tolerations: {names}"]
    ahead = ["another workload of the queue is ahead of it"]
    return reason, "; ".join(parts or ahead)


def _queue_problem(workload: AdmissionWorkload, admission: KueueAdmission) -> str:
    """Why no queue takes the workload."""
    name = workload.queue_name
    local = {f"{one.metadata.namespace}/{one.name}": one for one in admission.objects.local_queues}
    if name not in local:
        return f"LocalQueue {name} doesn't exist"
    queue: LocalQueue = local[name]
    if queue.spec.stop_policy not in (None, "None"):
        return f"LocalQueue {name} is stopped"
    if queue.spec.cluster_queue not in admission.queues:
        return f"ClusterQueue {queue.spec.cluster_queue} doesn't exist"
    problem = problem_of(admission.queues[queue.spec.cluster_queue])
    return f"ClusterQueue {queue.spec.cluster_queue} is inactive: {problem}" if problem else ""


def problem_of(queue: AdmissionQueue) -> str:
    """Why a queue is not active, "" if it is."""
    if queue.node.is_active:
        return ""
    if queue.spec.stop_policy not in (None, "None"):
        return "it is stopped"
    if queue.missing_flavors:
        return f"ResourceFlavor {', '.join(queue.missing_flavors)} not found"
    if queue.spec.cohort_name and queue.node.parent is None:
        return f"Cohort {queue.spec.cohort_name} is in a cycle"
    return "a topology or admission check is missing or not active"


def _shortages(requests: dict[str, int], queue: AdmissionQueue) -> list[str]:
    """What is short for a pod set: a part per resource and flavor."""
    found = []
    for name, n in requests.items():
        group = queue.group_of(name)
        if group is None:
            if n:
                found.append(f"resource {name} unavailable in ClusterQueue {queue.name}")
            continue
        parts = [_shortage(queue.node, (flavor, name), n) for flavor in group.flavor_names]
        if all(parts):
            found += parts
    return found


def _shortage(node: QuotaNode, pair: FlavorResource, n: int) -> str:
    """What is short of one resource in one flavor, and who borrows it; "" if nothing is."""
    flavor, resource = pair
    most, free = node.potential(pair), node.available_now(pair)
    if n > most:
        amounts = f"{amount_text(resource, n)} > {amount_text(resource, most)}"
        return (
            f"insufficient quota for {resource} in flavor {flavor}, "
            f"request > maximum capacity ({amounts})"
        )
    if n <= free:
        return ""
    more = amount_text(resource, n - free)
    where = f" in cohort {node.root.name}" if node.parent is not None else ""
    found = (
        f"insufficient unused quota for {resource} in flavor {flavor}{where}, {more} more needed"
    )
    loans = [f"{one.name} {amount_text(resource, k)}" for one, k in borrowers(node, pair)]
    return f"{found} (borrowed: {', '.join(loans)})" if loans else found


def borrowers(node: QuotaNode, pair: FlavorResource) -> list[tuple[QuotaNode, int]]:
    """Other queues of the tree that use more than their own quota, and how much more."""
    if node.parent is None:
        return []
    every = _queues_below(node.root)
    found = [(one, one.usage.get(pair, 0) - one.subtree.get(pair, 0)) for one in every]
    return [(one, n) for one, n in found if n > 0 and one is not node]


def _queues_below(node: QuotaNode) -> list[QuotaNode]:
    found = list(node.queues)
    for cohort in node.cohorts:
        found += _queues_below(cohort)
    return found


def quota_reports(queues: Iterable[AdmissionQueue]) -> list[QuotaReport]:
    """Quota of all queues, by flavor and resource."""
    found = []
    for queue in queues:
        node = queue.node
        for (flavor, name), quota in node.quotas.items():
            used = node.usage.get((flavor, name), 0)
            limit = quota.borrowing_limit
            found.append(
                QuotaReport(
                    queue.name,
                    queue.spec.cohort_name,
                    flavor,
                    name,
                    amount_text(name, quota.nominal),
                    "-" if limit is None else amount_text(name, limit),
                    amount_text(name, used),
                    amount_text(name, max(0, used - quota.nominal)),
                    node.is_active,
                )
            )
    return found


def amount_text(resource: str, n: int) -> str:
    """An amount in base units as in manifests."""
    if resource != "cpu":
        return _bytes_text(n) if resource in ("memory", "ephemeral-storage") else str(n)
    return str(n // 1000) if n % 1000 == 0 else f"{n}m"


def _bytes_text(n: int) -> str:
    for power, suffix in ((4, "Ti"), (3, "Gi"), (2, "Mi"), (1, "Ki")):
        if n and n % 1024**power == 0:
            return f"{n // 1024**power}{suffix}"
    return str(n)
