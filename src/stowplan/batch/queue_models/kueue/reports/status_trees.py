"""Statuses of Kueue's objects as trees: what a Workload holds, what queues use.

Source: sigs.k8s.io/kueue of 2026-08-22, apis/kueue/v1beta2, pkg/controller/core.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from stowplan.batch.queue_models.kueue.admission_queue import AdmissionQueue
from stowplan.batch.queue_models.kueue.admission_workload import (
    ADMITTED,
    AdmissionWorkload,
    PodSetPlaces,
)
from stowplan.batch.queue_models.kueue.kueue_admission import KueueObjects
from stowplan.batch.queue_models.kueue.pending_workloads import PendingWorkloads
from stowplan.batch.queue_models.kueue.quota.dominant_share import dominant_share
from stowplan.batch.queue_models.kueue.quota.local_queue_usage import LocalQueueUsage
from stowplan.batch.queue_models.kueue.reports.quota_reports import problem_of
from stowplan.batch.queue_models.kueue.reports.usage_reports import usage_status
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.quantity import format_quantity

SHARE_MAX = (1 << 63) - 1
"""`weightedShare` of a queue of weight 0 that borrows."""


def admission_tree(workload: AdmissionWorkload) -> Tree:
    """`status.admission` of a Workload that holds quota."""
    assignments = []
    for one in workload.demands:
        usage = {name: format_quantity(name, n) for name, n in one.requests.items()}
        held: Tree = {"name": one.name, "flavors": dict(one.flavors), "count": one.count}
        held["resourceUsage"] = {name: n for name, n in usage.items() if name in one.flavors}
        if one.places is not None:
            held["topologyAssignment"] = _places(one.places)
        if one.delayed is not None:
            held["delayedTopologyRequest"] = one.delayed
        assignments.append(held)
    return {"clusterQueue": workload.cluster_queue, "podSetAssignments": assignments}


def _places(places: PodSetPlaces) -> Tree:
    """Domains in columns, one slice for all."""
    levels = [
        {"individual": {"roots": [values[i] for values, _ in places.domains]}}
        for i in range(len(places.levels))
    ]
    counts = {"individual": [count for _, count in places.domains]}
    one = {
        "domainCount": len(places.domains), "podCounts": counts, "valuesPerLevel": levels,
    }  # fmt: skip
    return {"levels": list(places.levels), "slices": [one]}


def queue_status(queue: AdmissionQueue, pending: PendingWorkloads, *, is_fair: bool) -> Tree:
    """`status` of a ClusterQueue, without conditions."""
    held = list(queue.workloads.values())
    found: Tree = {
        "pendingWorkloads": len(pending),
        "reservingWorkloads": len(held),
        "admittedWorkloads": sum(one.is_condition(ADMITTED) for one in held),
        "flavorsReservation": _flavors(queue, held, has_borrowed=True),
        "flavorsUsage": _flavors(
            queue, [one for one in held if one.is_condition(ADMITTED)], has_borrowed=True
        ),
    }
    if is_fair:
        share = dominant_share(queue.node).value
        found["fairSharing"] = {"weightedShare": SHARE_MAX if math.isinf(share) else round(share)}
    return found


def local_queue_status(
    queue: AdmissionQueue | None,
    pending: Iterable[AdmissionWorkload],
    key: str,
    usage: LocalQueueUsage | None,
) -> Tree:
    """`status` of a LocalQueue, without conditions. key: its namespace and name. pending: of its
    ClusterQueue. usage: of LocalQueues; None where it does not count."""
    held = [] if queue is None else [o for o in queue.workloads.values() if o.queue_name == key]
    admitted = [one for one in held if one.is_condition(ADMITTED)]
    found: Tree = {
        "pendingWorkloads": sum(one.queue_name == key for one in pending),
        "reservingWorkloads": len(held),
        "admittedWorkloads": len(admitted),
    }
    if queue is not None:
        found["flavorsReservation"] = _flavors(queue, held, has_borrowed=False)
        found["flavorsUsage"] = _flavors(queue, admitted, has_borrowed=False)
    if usage is not None and key in usage.sampled:
        found["fairSharing"] = usage_status(usage, key)
    return found


def _flavors(
    queue: AdmissionQueue, workloads: Iterable[AdmissionWorkload], *, has_borrowed: bool
) -> list[Tree]:
    """Usage by flavor and resource, in the order of the queue's spec."""
    used: dict[tuple[str, str], int] = {}
    for workload in workloads:
        for pair, n in workload.usage.quota.items():
            used[pair] = used.get(pair, 0) + n
    found = []
    for group in queue.groups:
        for flavor in group.flavors:
            resources = []
            for one in flavor.resources:
                total = used.get((flavor.name, one.name), 0)
                held: Tree = {"name": one.name, "total": format_quantity(one.name, total)}
                if has_borrowed:
                    nominal = queue.node.quota((flavor.name, one.name)).nominal
                    held["borrowed"] = format_quantity(one.name, max(0, total - nominal))
                resources.append(held)
            found.append({"name": flavor.name, "resources": resources})
    return found


def active_condition(queue: AdmissionQueue, objects: KueueObjects) -> tuple[bool, str, str]:
    """Status, reason and message of a ClusterQueue's condition Active.

    Source: sigs.k8s.io/kueue of 2026-08-22, pkg/cache/scheduler/clusterqueue.go (inactiveReason).
    """
    if not problem_of(queue):
        return True, "Ready", "Can admit new workloads"
    found = dict(_inactive_reasons(queue, objects))
    # Kueue does not say that a Cohort is in a cycle.
    found = found or {"Unknown": problem_of(queue)}
    return False, next(iter(found)), f"Can't admit new workloads: {', '.join(found.values())}."


def _inactive_reasons(queue: AdmissionQueue, objects: KueueObjects) -> Iterator[tuple[str, str]]:
    """Reasons and texts, the first one first."""
    if queue.spec.stop_policy not in (None, "None"):
        yield "Stopped", "is stopped"
    if queue.missing_flavors:
        names = ",".join(queue.missing_flavors)
        yield "FlavorNotFound", f"references missing ResourceFlavor(s): {names}"
    known = {one.name: one for one in objects.admission_checks}
    missing = [name for name in queue.checks if name not in known]
    if missing:
        text = f"references missing AdmissionCheck(s): {','.join(missing)}"
        yield "AdmissionCheckNotFound", text
    inactive = [name for name in queue.checks if name in known and not known[name].is_active]
    if inactive:
        text = f"references inactive AdmissionCheck(s): {','.join(inactive)}"
        yield "AdmissionCheckInactive", text
    topologies = {one.name for one in objects.topologies}
    flavors = {one.name: one.spec.topology_name for one in objects.resource_flavors}
    used = (name for group in queue.groups for name in group.flavor_names)
    for name in used:
        wanted = flavors.get(name)
        if wanted is not None and wanted not in topologies:
            yield "TopologyNotFound", f'there is no Topology "{wanted}" for TAS flavor "{name}"'
