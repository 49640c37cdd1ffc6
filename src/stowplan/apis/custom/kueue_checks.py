"""What Kueue's definitions and webhooks refuse in its objects, beside wrong types.

Differs: the words of rules that Kueue has as CEL are ours.

Source: sigs.k8s.io/kueue of 2026-08-22, apis/kueue/v1beta1 and v1beta2, pkg/webhooks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from stowplan.apis.core.pod_scheduling import taints, tolerations
from stowplan.apis.machinery.errors import (
    Cause,
    duplicate,
    forbidden_field,
    invalid,
    required,
    too_many,
)
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.quantity import Exact, QuantityError, exact

GROUPS_MAX, LEVELS_MAX, POD_SETS_MAX, LABELS_MAX, TAINTS_MAX = 16, 16, 8, 8, 8
STOP_POLICIES = ("None", "Hold", "HoldAndDrain")
HOSTNAME = "kubernetes.io/hostname"
_LEVELS_FIXED = (
    f"levels are mutable only when {HOSTNAME} is the lowest level both before and after the change"
)
_NEVER = "Never"
_WORDS: Mapping[str, Sequence[str]] = {
    "queueingStrategy": ("StrictFIFO", "BestEffortFIFO"),
    "stopPolicy": STOP_POLICIES,
    "flavorFungibility.whenCanBorrow": ("MayStopSearch", "TryNextFlavor", "Borrow"),
    "flavorFungibility.whenCanPreempt": ("MayStopSearch", "TryNextFlavor", "Preempt"),
    "flavorFungibility.preference": ("BorrowingOverPreemption", "PreemptionOverBorrowing"),
    "preemption.reclaimWithinCohort": (_NEVER, "LowerPriority", "Any"),
    "preemption.withinClusterQueue": (_NEVER, "LowerPriority", "LowerOrNewerEqualPriority"),
    "preemption.borrowWithinCohort.policy": (_NEVER, "LowerPriority"),
}
"""Field of a ClusterQueue -> its values in either version."""
MODES = ("UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing")


def cluster_queue_causes(queue: Tree) -> Iterator[Cause]:
    """Causes of a ClusterQueue."""
    spec = queue.get("spec") or {}
    for path, known in _WORDS.items():
        given = field_checks.get(spec, *path.split("."))
        if given:
            yield from field_checks.one_of(given, known, f"spec.{path}")
    scope = spec.get("admissionScope")
    if scope is not None:
        path = "spec.admissionScope.admissionMode"
        yield from field_checks.supported_value(scope.get("admissionMode") or "", MODES, path)
    yield from field_checks.selector(spec.get("namespaceSelector"), "spec.namespaceSelector")
    cohort = spec.get("cohortName") or spec.get("cohort") or ""
    yield from _resource_groups(spec, has_cohort=bool(cohort))
    yield from _weight(spec)
    preemption = spec.get("preemption") or {}
    borrowing = (preemption.get("borrowWithinCohort") or {}).get("policy") or _NEVER
    if borrowing != _NEVER and (preemption.get("reclaimWithinCohort") or _NEVER) == _NEVER:
        path = "spec.preemption.borrowWithinCohort.policy"
        yield invalid(path, borrowing, "must be Never where reclaimWithinCohort is Never")


def cohort_causes(cohort: Tree) -> Iterator[Cause]:
    """Causes of a Cohort."""
    spec = cohort.get("spec") or {}
    parent = spec.get("parentName")
    if parent and parent == (cohort.get("metadata") or {}).get("name"):
        yield invalid("spec.parentName", parent, "a cohort is not its own parent")
    yield from _resource_groups(spec, has_cohort=True)
    yield from _weight(spec)


def local_queue_causes(queue: Tree) -> Iterator[Cause]:
    """Causes of a LocalQueue."""
    spec = queue.get("spec") or {}
    if spec.get("stopPolicy"):
        yield from field_checks.one_of(spec["stopPolicy"], STOP_POLICIES, "spec.stopPolicy")
    name = spec.get("clusterQueue")
    if name:
        yield from field_checks.dns_subdomain(name, "spec.clusterQueue")
    yield from _weight(spec)


def _resource_groups(spec: Tree, *, has_cohort: bool) -> Iterator[Cause]:
    groups = _items(spec, "resourceGroups")
    if len(groups) > GROUPS_MAX:
        yield too_many("spec.resourceGroups", len(groups), GROUPS_MAX)
    resources: set[str] = set()
    flavors: set[str] = set()
    for i, group in enumerate(groups):
        path = f"spec.resourceGroups[{i}]"
        covered = group.get("coveredResources") or []
        if not covered:
            yield required(f"{path}.coveredResources")
        for j, name in enumerate(covered):
            yield from field_checks.unique(name, resources, f"{path}.coveredResources[{j}]")
        if not group.get("flavors"):
            yield required(f"{path}.flavors")
        for j, flavor in enumerate(_items(group, "flavors")):
            below = f"{path}.flavors[{j}]"
            if not flavor.get("name"):
                yield required(f"{below}.name")
            else:
                yield from field_checks.unique(flavor["name"], flavors, f"{below}.name")
            yield from _quotas(_items(flavor, "resources"), covered, below, has_cohort)


def _quotas(quotas: list[Tree], covered: list[str], path: str, has_cohort: bool) -> Iterator[Cause]:
    """Quotas of a flavor: one for each resource that its group covers, in that order."""
    names = [one.get("name") or "" for one in quotas]
    if names != covered:
        text = f"must have the coveredResources of the group, in their order: {', '.join(covered)}"
        yield invalid(f"{path}.resources", names, text)
    for i, quota in enumerate(quotas):
        below = f"{path}.resources[{i}]"
        if quota.get("nominalQuota") is None:
            yield required(f"{below}.nominalQuota")
        for name in ("nominalQuota", "borrowingLimit", "lendingLimit"):
            yield from _not_negative(quota.get(name), f"{below}.{name}")
            if name != "nominalQuota" and quota.get(name) is not None and not has_cohort:
                yield forbidden_field(f"{below}.{name}", "only a queue in a cohort has one")
        lending, own = _exact(quota.get("lendingLimit")), _exact(quota.get("nominalQuota"))
        if has_cohort and lending is not None and own is not None and lending > own:
            text = "must be less than or equal to the nominalQuota"
            yield invalid(f"{below}.lendingLimit", str(quota["lendingLimit"]), text)


def _weight(spec: Tree) -> Iterator[Cause]:
    weight = (spec.get("fairSharing") or {}).get("weight")
    yield from _not_negative(weight, "spec.fairSharing.weight")


def _not_negative(q: Any, path: str) -> Iterator[Cause]:
    held = _exact(q)
    if held is not None and held.unscaled < 0:
        yield invalid(path, str(q), field_checks.NOT_NEGATIVE)


def _exact(q: Any) -> Exact | None:
    """A quantity; None for none, and for what is none: types are judged before."""
    try:
        return None if q is None else exact(q)
    except QuantityError:
        return None


def flavor_causes(flavor: Tree) -> Iterator[Cause]:
    """Causes of a ResourceFlavor."""
    spec = flavor.get("spec") or {}
    labels, marks = spec.get("nodeLabels") or {}, _items(spec, "nodeTaints")
    if len(labels) > LABELS_MAX:
        yield too_many("spec.nodeLabels", len(labels), LABELS_MAX)
    yield from field_checks.labels(labels, "spec.nodeLabels")
    if len(marks) > TAINTS_MAX:
        yield too_many("spec.nodeTaints", len(marks), TAINTS_MAX)
    yield from taints(marks, "spec.nodeTaints")
    yield from tolerations(_items(spec, "tolerations"), "spec.tolerations")
    if spec.get("topologyName") and not labels:
        yield required("spec.nodeLabels", "a flavor with a topology has at least one label")


def topology_causes(topology: Tree) -> Iterator[Cause]:
    """Causes of a Topology."""
    levels = _items(topology.get("spec") or {}, "levels")
    if not levels:
        yield required("spec.levels")
    if len(levels) > LEVELS_MAX:
        yield too_many("spec.levels", len(levels), LEVELS_MAX)
    labels = [one.get("nodeLabel") or "" for one in levels]
    for i, label in enumerate(labels):
        path = f"spec.levels[{i}].nodeLabel"
        if not label:
            yield required(path)
            continue
        if label in labels[:i]:
            yield duplicate(path, label)
        yield from field_checks.label_name(label, path)
        if label == HOSTNAME and i < len(labels) - 1:
            yield invalid(path, label, "must be the lowest level")


def check_causes(check: Tree) -> Iterator[Cause]:
    """Causes of an AdmissionCheck."""
    spec = check.get("spec") or {}
    if not spec.get("controllerName"):
        yield required("spec.controllerName")
    given = spec.get("parameters")
    if given is not None:
        missing = (name for name in ("apiGroup", "kind", "name") if not given.get(name))
        yield from (required(f"spec.parameters.{name}") for name in missing)


def priority_class_causes(one: Tree) -> Iterator[Cause]:
    """Causes of a WorkloadPriorityClass."""
    if one.get("value") is None:
        yield required("value")


def workload_causes(workload: Tree) -> Iterator[Cause]:
    """Causes of a Workload."""
    spec = workload.get("spec") or {}
    pod_sets = _items(spec, "podSets")
    if len(pod_sets) > POD_SETS_MAX:
        yield too_many("spec.podSets", len(pod_sets), POD_SETS_MAX)
    names: set[str] = set()
    n_elastic = 0
    for i, one in enumerate(pod_sets):
        path = f"spec.podSets[{i}]"
        yield from field_checks.unique(one.get("name") or "main", names, f"{path}.name")
        yield from field_checks.not_negative(one.get("count"), f"{path}.count")
        least = one.get("minCount")
        if least is not None:
            n_elastic += 1
            yield from field_checks.positive(least, f"{path}.minCount")
            if least > (one.get("count") or 0):
                yield invalid(f"{path}.minCount", least, "should be positive and <= count")
    if n_elastic > 1:
        text = "at most one podSet can use minCount"
        yield invalid("spec.podSets", n_elastic, text)
    seconds = spec.get("maximumExecutionTimeSeconds")
    if seconds is not None:
        yield from field_checks.positive(seconds, "spec.maximumExecutionTimeSeconds")


def _items(tree: Tree, name: str) -> list[Tree]:
    return [one or {} for one in tree.get(name) or ()]


CHECKS: Mapping[str, Callable[[Tree], Iterator[Cause]]] = {
    "ClusterQueue": cluster_queue_causes,
    "Cohort": cohort_causes,
    "LocalQueue": local_queue_causes,
    "ResourceFlavor": flavor_causes,
    "Topology": topology_causes,
    "AdmissionCheck": check_causes,
    "WorkloadPriorityClass": priority_class_causes,
    "Workload": workload_causes,
}
"""Kind -> what is invalid in its objects."""


# Updates: fields that Kueue's definitions and webhooks hold fixed.


def cluster_queue_changes(queue: Tree, old: Tree) -> Iterator[Cause]:
    """Causes of an update of a ClusterQueue."""
    name = "concurrentAdmissionPolicy"
    new, before = ((one.get("spec") or {}).get(name) for one in (queue, old))
    yield from field_checks.immutable(new, before, f"spec.{name}")


def local_queue_changes(queue: Tree, old: Tree) -> Iterator[Cause]:
    """Causes of an update of a LocalQueue."""
    yield from _fixed(queue, old, "clusterQueue")


def check_changes(check: Tree, old: Tree) -> Iterator[Cause]:
    """Causes of an update of an AdmissionCheck."""
    yield from _fixed(check, old, "controllerName")


def flavor_changes(flavor: Tree, old: Tree) -> Iterator[Cause]:
    """Causes of an update of a ResourceFlavor. One without `spec` is not compared."""
    spec, before = flavor.get("spec"), (old.get("spec") or {}).get("topologyName")
    if spec is not None and before is not None and spec.get("topologyName") != before:
        text = "topologyName is immutable when topologyName is set"
        yield invalid("spec", spec.get("topologyName") or "", text)


def topology_changes(topology: Tree, old: Tree) -> Iterator[Cause]:
    """Causes of an update of a Topology; v1beta1 lets no level change."""
    new, before = (_items(one.get("spec") or {}, "levels") for one in (topology, old))
    if new == before or not new or not before:
        return
    if topology.get("apiVersion") == "kueue.x-k8s.io/v1beta1":
        yield invalid("spec.levels", _labels(new), field_checks.IMMUTABLE)
    elif any(held[-1].get("nodeLabel") != HOSTNAME for held in (new, before)):
        yield invalid("spec.levels", _labels(new), _LEVELS_FIXED)


def _labels(levels: list[Tree]) -> str:
    return ",".join(str(one.get("nodeLabel") or "") for one in levels)


def _fixed(tree: Tree, old: Tree, name: str) -> Iterator[Cause]:
    """A field that does not change once it is set, as `self == oldSelf` has it."""
    new, before = ((one.get("spec") or {}).get(name) for one in (tree, old))
    if new is not None and before is not None:
        yield from field_checks.immutable(new, before, f"spec.{name}")


CHANGES: Mapping[str, Callable[[Tree, Tree], Iterator[Cause]]] = {
    "ClusterQueue": cluster_queue_changes,
    "LocalQueue": local_queue_changes,
    "ResourceFlavor": flavor_changes,
    "Topology": topology_changes,
    "AdmissionCheck": check_changes,
}
"""Kind -> causes of an update, of the new and the old object."""
