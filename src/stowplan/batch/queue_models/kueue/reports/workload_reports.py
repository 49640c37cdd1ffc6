"""What Kueue's admission says about workloads, and why one is not admitted."""

from __future__ import annotations

import msgspec

from stowplan.batch.queue_models.kueue.admission_queue import MULTI_KUEUE, AdmissionQueue
from stowplan.batch.queue_models.kueue.admission_workload import (
    ADMITTED,
    QUOTA_RESERVED,
    AdmissionWorkload,
    PodSetDemand,
)
from stowplan.batch.queue_models.kueue.flavor_assignment import TOPOLOGY_FAILED
from stowplan.batch.queue_models.kueue.flavor_search import selects_flavor
from stowplan.batch.queue_models.kueue.kueue_admission import KueueAdmission
from stowplan.batch.queue_models.kueue.kueue_objects import LocalQueue, PodSet, ResourceFlavor
from stowplan.batch.queue_models.kueue.quota.quota_amounts import FlavorResource
from stowplan.batch.queue_models.kueue.quota.quota_tree import QuotaNode
from stowplan.batch.queue_models.kueue.reports.quota_reports import (
    QueueReport,
    amount_text,
    borrowers,
    problem_of,
)
from stowplan.batch.queue_models.kueue.reports.usage_reports import LocalQueueUse, order_text
from stowplan.objects.taints import HARD_EFFECTS, is_untolerated

MISCONFIGURED, SUSPENDED, DEACTIVATED = "Misconfigured", "Suspended", "Deactivated"


class QuotaShortage(msgspec.Struct, frozen=True):
    """Quota that a workload lacks in a flavor; amounts as in manifests. most: that the queue could
    ever have. cohort: at the top of its tree, "" for none. borrowers: ClusterQueue -> what it uses
    beyond its own quota."""

    flavor: str
    resource: str
    requested: str
    available: str
    most: str
    cohort: str
    borrowers: dict[str, str] = {}

    @property
    def text(self) -> str:
        """For people."""
        where = f" in cohort {self.cohort}" if self.cohort else ""
        loans = ", ".join(f"{name} {n}" for name, n in self.borrowers.items())
        found = (
            f"{self.resource} in flavor {self.flavor}: requested {self.requested}, available "
            f"{self.available}{where}, at most {self.most}"
        )
        return f"{found}; borrowed by {loans}" if loans else found


class WorkloadSummary(msgspec.Struct, frozen=True):
    """What a report of any kind says of a workload.

    job: as `kubectl` names it. status: Finished, Admitted, QuotaReserved or Pending. reason,
    message: why it is pending, "" for others. flavors: pod set -> resource -> flavor.
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


class WorkloadReport(WorkloadSummary, frozen=True):
    """A workload when the admission has settled.

    counts: pod set -> pods that may run. preempted_by: workload that took its quota, "" for none.
    position: among those that wait in its ClusterQueue, from 1; 0 for others. shortages: quota
    that it lacks. name: of the Workload. admitted_by: changes that would admit it, where asked for.
    usage: of the LocalQueues that wait with it, where that orders them, in order.
    """

    counts: dict[str, int] = {}
    preempted_by: str = ""
    position: int = 0
    shortages: list[QuotaShortage] = []
    name: str = ""
    admitted_by: list[str] = []
    usage: list[LocalQueueUse] = []

    @property
    def order_text(self) -> str:
        """What usage of LocalQueues says about the order; "" where it does not decide."""
        return order_text(self.usage, self.namespace, self.local_queue)


class KueueReport(msgspec.Struct, frozen=True):
    """The admission when nothing changes any more. cycles: that it took. notes: what is not
    modelled."""

    workloads: list[WorkloadReport]
    queues: list[QueueReport]
    cycles: int
    notes: list[str] = []

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
            *self.notes,
        ]


def status_of(workload: AdmissionWorkload) -> str:
    """Admitted, QuotaReserved or Pending."""
    if workload.is_condition(ADMITTED) and workload.holds_quota:
        return ADMITTED
    return QUOTA_RESERVED if workload.holds_quota else "Pending"


def why_pending(workload: AdmissionWorkload, admission: KueueAdmission) -> tuple[str, str]:
    """Reason and message of a workload that is not admitted, as in its condition.

    Source: sigs.k8s.io/kueue of 2026-08-22, pkg/controller/core/workload_controller.go
    (getQueueBlocker), pkg/scheduler/flavorassigner/flavorassigner.go (Assignment.Message).
    """
    if workload.holds_quota:
        return "WaitingForAdmissionChecks", "its admission checks are not Ready"
    if workload.workload.spec.active is False:
        return DEACTIVATED, "The workload is deactivated"
    blocker = _queue_blocker(workload, admission)
    if blocker is not None:
        return blocker
    queue = admission.queues[workload.cluster_queue]
    condition = workload.conditions.get(QUOTA_RESERVED)
    reason = condition.reason if condition is not None else "Pending"
    if reason == MISCONFIGURED:
        return reason, "workload namespace doesn't match ClusterQueue selector"
    parts = []
    taken: dict[str, int] = {}
    for pod_set, demand in zip(workload.pod_sets, workload.demands, strict=True):
        found = sorted(set(_problems(pod_set, demand, taken, queue, admission)))
        if found:
            parts.append(f"couldn't assign flavors to pod set {demand.name}: {', '.join(found)}")
            break
        for name, n in demand.requests.items():
            taken[name] = taken.get(name, 0) + n
    if not parts and reason == "WaitingForPreemptedWorkloads":
        return reason, "Pending the preemption of workloads"
    if not parts and reason == TOPOLOGY_FAILED:
        return reason, "topology doesn't allow to fit the pods"
    return reason, "; ".join(parts) or "Workload no longer fits after processing another workload"


def _problems(
    pod_set: PodSet,
    demand: PodSetDemand,
    taken: dict[str, int],
    queue: AdmissionQueue,
    admission: KueueAdmission,
) -> list[str]:
    """Why no flavor has what a pod set asks for. taken: by pod sets before."""
    flavors = {one.name: one for one in admission.objects.resource_flavors}
    found = []
    for name, n in demand.requests.items():
        group = queue.group_of(name)
        if group is None:
            if n:
                found.append(f"resource {name} unavailable in ClusterQueue")
            continue
        parts = [
            _mismatch(pod_set, flavors[flavor])
            or _shortage(queue.node, (flavor, name), n, taken.get(name, 0))
            for flavor in group.flavor_names
            if flavor in flavors
        ]
        if all(parts):
            found += parts
    return found


def _mismatch(pod_set: PodSet, flavor: ResourceFlavor) -> str:
    """Why pods may not use a flavor, "" if they may."""
    spec = pod_set.template.spec
    tolerations = (*spec.tolerations, *flavor.spec.tolerations)
    for taint in flavor.spec.node_taints:
        if is_untolerated(taint, tolerations, HARD_EFFECTS, True):
            text = f"{{{taint.key} {taint.value} {taint.effect} <nil>}}"
            return f"untolerated taint {text} in flavor {flavor.name}"
    if not selects_flavor(spec, flavor):
        return f"flavor {flavor.name} doesn't match node affinity"
    request = pod_set.topology_request
    if request is not None and request.is_explicit and flavor.spec.topology_name is None:
        return f'Flavor "{flavor.name}" does not support TopologyAwareScheduling'
    return ""


def _shortage(node: QuotaNode, pair: FlavorResource, n: int, taken: int) -> str:
    """What is short of one resource in one flavor, "" if nothing is."""
    flavor, resource = pair
    most, free = node.potential(pair), node.available_now(pair)
    if n + taken > most:
        before, own, limit = (amount_text(resource, k) for k in (taken, n, most))
        return (
            f"insufficient quota for {resource} in flavor {flavor}, previously considered podsets "
            f"requests ({before}) + current podset request ({own}) > maximum capacity ({limit})"
        )
    if n + taken <= free:
        return ""
    more = amount_text(resource, n + taken - free)
    return f"insufficient unused quota for {resource} in flavor {flavor}, {more} more needed"


def shortages_of(workload: AdmissionWorkload, admission: KueueAdmission) -> list[QuotaShortage]:
    """Quota that a waiting workload lacks, per flavor and resource, and who has it."""
    queue = admission.queues.get(workload.cluster_queue)
    if queue is None or workload.holds_quota:
        return []
    wanted: dict[str, int] = {}
    for demand in workload.demands:
        for name, n in demand.requests.items():
            wanted[name] = wanted.get(name, 0) + n
    found = []
    for name, n in wanted.items():
        group = queue.group_of(name)
        for flavor in group.flavor_names if group is not None else ():
            pair, node = (flavor, name), queue.node
            free = node.available_now(pair)
            if n > free:
                found.append(
                    QuotaShortage(
                        flavor,
                        name,
                        amount_text(name, n),
                        amount_text(name, max(0, free)),
                        amount_text(name, node.potential(pair)),
                        node.root.name if node.parent is not None else "",
                        {one.name: amount_text(name, k) for one, k in borrowers(node, pair)},
                    )
                )
    return found


def _queue_blocker(
    workload: AdmissionWorkload, admission: KueueAdmission
) -> tuple[str, str] | None:
    """Why no queue takes the workload; None if one does."""
    name, plain = workload.queue_name, workload.workload.spec.queue_name
    local = {f"{one.metadata.namespace}/{one.name}": one for one in admission.objects.local_queues}
    if name not in local:
        return MISCONFIGURED, f"LocalQueue {plain} doesn't exist"
    queue: LocalQueue = local[name]
    if queue.spec.stop_policy not in (None, "None"):
        return SUSPENDED, f"LocalQueue {plain} is inactive"
    if queue.spec.cluster_queue not in admission.queues:
        return MISCONFIGURED, f"ClusterQueue {queue.spec.cluster_queue} doesn't exist"
    if problem_of(admission.queues[queue.spec.cluster_queue]):
        return SUSPENDED, f"ClusterQueue {queue.spec.cluster_queue} is inactive"
    return None


def not_modelled(admission: KueueAdmission) -> list[str]:
    """What of the objects has no effect here."""
    return [
        f"AdmissionCheck {one.name}: MultiKueue is not modelled: no other cluster is asked"
        for one in admission.objects.admission_checks
        if one.spec.controller_name == MULTI_KUEUE
    ]


def why_inactive(workload: AdmissionWorkload, admission: KueueAdmission) -> str:
    """Why the ClusterQueue of a workload admits nothing, which the condition does not say; "" for
    one that does."""
    queue = admission.queues.get(workload.cluster_queue)
    return "" if queue is None else problem_of(queue)
