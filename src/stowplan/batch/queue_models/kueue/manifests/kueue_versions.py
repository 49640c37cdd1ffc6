"""Objects of Kueue in the versions v1beta1 and v1beta2, as the objects that admission reads.

Source: sigs.k8s.io/kueue, apis/kueue/v1beta1 and v1beta2 (conversions and defaults).
"""

from __future__ import annotations

from collections.abc import Mapping

from stowplan.batch.queue_models.kueue.admission_workload import AdmissionWorkload
from stowplan.batch.queue_models.kueue.kueue_objects import (
    BY_USAGE,
    NEVER,
    NOT_BY_USAGE,
    AdmissionCheck,
    Cohort,
    KueueClusterQueue,
    LocalQueue,
    ResourceFlavor,
    Topology,
    Workload,
)
from stowplan.batch.queue_models.kueue.kueue_options import KueueOptions, UsageOptions
from stowplan.batch.queue_models.kueue.quota.local_queue_usage import LocalQueueUsage
from stowplan.batch.queue_models.kueue.quota.quota_tree import quotas_of, weight_of
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.meta import Object
from stowplan.objects.quantity import QuantityError
from stowplan.objects.selectors import SelectorError, label_selector_matches

_OLD_CHOICES = {"Borrow": "MayStopSearch", "Preempt": "MayStopSearch"}
_NAMESPACED = ("LocalQueue", "Workload")


class WorkloadPriorityClass(Object, frozen=True):
    """A WorkloadPriorityClass."""

    value: int = 0


KUEUE_TYPES: Mapping[str, type[Object]] = {
    "ClusterQueue": KueueClusterQueue,
    "Cohort": Cohort,
    "LocalQueue": LocalQueue,
    "ResourceFlavor": ResourceFlavor,
    "Topology": Topology,
    "AdmissionCheck": AdmissionCheck,
    "Workload": Workload,
    "WorkloadPriorityClass": WorkloadPriorityClass,
}
"""Kind -> type."""


def value_problem(value: Object) -> str:
    """What of an object cannot be read: a quantity or selector; "" if all can."""
    try:
        if isinstance(value, KueueClusterQueue | Cohort):
            quotas_of(value.spec.resource_groups)
            weight_of(value.spec.fair_sharing)
        if isinstance(value, KueueClusterQueue):
            label_selector_matches(value.spec.namespace_selector, {})
            return _scope_problem(value)
        if isinstance(value, LocalQueue):
            LocalQueueUsage(UsageOptions(), [value], 0.0)
        elif isinstance(value, Workload):
            AdmissionWorkload(value, KueueOptions())
    except (QuantityError, SelectorError) as problem:
        return str(problem)
    return ""


def _scope_problem(queue: KueueClusterQueue) -> str:
    scope = queue.spec.admission_scope
    if scope is None or scope.admission_mode in (BY_USAGE, NOT_BY_USAGE):
        return ""
    path = "spec.admissionScope.admissionMode"
    if not scope.admission_mode:
        return f"{path}: Required value"
    known = f'"{BY_USAGE}", "{NOT_BY_USAGE}"'
    return f'{path}: Unsupported value: "{scope.admission_mode}": supported values: {known}'


def current_version(tree: Tree) -> Tree:
    """An object as v1beta2 with the defaults that the API server fills in."""
    spec = dict(tree.get("spec") or {})
    kind = tree["kind"]
    if kind == "ClusterQueue":
        spec = _cluster_queue(spec)
    elif kind == "Cohort" and "parent" in spec:
        spec["parentName"] = spec.pop("parent")
    found = {**tree, "spec": spec}
    if kind in _NAMESPACED:
        meta = tree.get("metadata") or {}
        found["metadata"] = {**meta, "namespace": meta.get("namespace") or "default"}
    if kind == "Workload":
        found["status"] = _workload_status(tree.get("status") or {})
    return found


def _cluster_queue(spec: Tree) -> Tree:
    if "cohort" in spec:
        spec["cohortName"] = spec.pop("cohort")
    preemption = spec.get("preemption")
    if isinstance(preemption, dict):
        never = {"withinClusterQueue": NEVER, "reclaimWithinCohort": NEVER}
        spec["preemption"] = {**never, **preemption}
    fungibility = spec.get("flavorFungibility")
    if isinstance(fungibility, dict):
        spec["flavorFungibility"] = {
            key: _OLD_CHOICES.get(value, value) for key, value in fungibility.items()
        }
    checks = spec.pop("admissionChecks", None)
    if checks:
        spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": one} for one in checks]}
    return spec


def _workload_status(status: Tree) -> Tree:
    """The status with places in columns, as v1beta2 has them."""
    admission = status.get("admission")
    if not isinstance(admission, dict):
        return status
    assigned = []
    for one in admission.get("podSetAssignments") or ():
        places = one.get("topologyAssignment") or {}
        if "domains" in places:
            slices = [
                {
                    "domainCount": 1,
                    "podCounts": {"universal": domain["count"]},
                    "valuesPerLevel": [{"universal": value} for value in domain["values"]],
                }
                for domain in places["domains"]
            ]
            levels = places.get("levels") or []
            one = {**one, "topologyAssignment": {"levels": levels, "slices": slices}}
        assigned.append(one)
    return {**status, "admission": {**admission, "podSetAssignments": assigned}}
