"""Workload and PodGroup of scheduling.k8s.io/v1alpha2, served with its feature gate.

They are as with the gates GenericWorkload, GangScheduling, TopologyAwareWorkloadScheduling,
WorkloadAwarePreemption and DRAWorkloadResourceClaims on.

Source: kubernetes v1.36, pkg/registry/scheduling, pkg/apis/scheduling/validation and the rules in
staging/src/k8s.io/api/scheduling/v1alpha2/types.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from stowplan.apis.kind.conditions import validate_conditions
from stowplan.apis.kind.printing import NAME_AND_AGE, NONE, PrintedTable
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import METADATA_RESET_FIELDS, BuiltinStrategy, StatusStrategy
from stowplan.apis.machinery.errors import (
    Cause,
    duplicate,
    invalid,
    not_supported,
    required,
    too_many,
)
from stowplan.apis.scheduling.priority_class import USER_PRIORITY_MAX
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

TYPES = """
DisruptionMode = string

Workload -- the groups of pods that belong together.
  +PartialObjectMetadata
  spec WorkloadSpec! -- the groups of the workload.

WorkloadSpec
  controllerRef TypedLocalObjectReference? -- the Job or the like that it belongs to.
  podGroupTemplates [PodGroupTemplate]! ~merge:name -- templates of PodGroups.

TypedLocalObjectReference
  apiGroup string -- API group; empty for core.
  kind string! -- kind of the object.
  name string! -- name of the object.

PodGroupTemplate
  name string! -- unique in the workload.
  schedulingPolicy PodGroupSchedulingPolicy! -- together, or one by one.
  schedulingConstraints PodGroupSchedulingConstraints?! -- topology of the group.
  resourceClaims [PodGroupResourceClaim] ~merge:name -- claims that its pods share.
  disruptionMode DisruptionMode? -- Pod or PodGroup.
  priorityClassName string -- PriorityClass of the group.
  priority int32? -- priority of the group.

PodGroupSchedulingPolicy
  basic BasicSchedulingPolicy? -- pods are scheduled one by one.
  gang GangSchedulingPolicy? -- pods are scheduled together.

BasicSchedulingPolicy

GangSchedulingPolicy
  minCount int32! -- pods that must fit at the same time.

PodGroupSchedulingConstraints
  topology [TopologyConstraint] ~atomic -- all pods in one domain.

TopologyConstraint
  key string! -- node label whose values are the domains.

PodGroupResourceClaim
  name string! -- name by which pods refer to it.
  resourceClaimName string? -- a claim that exists in the namespace.
  resourceClaimTemplateName string? -- a claim is made from it for the group.

PodGroup -- pods that are scheduled together.
  kind string -- kind of the object.
  apiVersion string -- group and version of the kind.
  metadata ObjectMeta -- name, labels, annotations and more.
  spec PodGroupSpec! -- desired state.
  status PodGroupStatus -- last observed state.

PodGroupSpec
  podGroupTemplateRef PodGroupTemplateReference?! -- template that it was made from.
  schedulingPolicy PodGroupSchedulingPolicy! -- together, or one by one.
  schedulingConstraints PodGroupSchedulingConstraints? -- topology of the group.
  resourceClaims [PodGroupResourceClaim] ~merge:name -- claims that its pods share.
  disruptionMode DisruptionMode? =Pod -- Pod or PodGroup: what preemption takes at once.
  priorityClassName string -- PriorityClass of the group.
  priority int32? -- priority of the group.

PodGroupTemplateReference
  workload WorkloadPodGroupTemplateReference?! -- template in a Workload.

WorkloadPodGroupTemplateReference
  workloadName string! -- name of the Workload.
  podGroupTemplateName string! -- name of the template in it.

PodGroupStatus
  conditions [Condition] ~merge:type -- whether the group was scheduled, and why not.
  resourceClaimStatuses [PodGroupResourceClaimStatus] ~merge:name -- claims that were made for it.

PodGroupResourceClaimStatus
  name string!
  resourceClaimName string?
"""
WORKLOAD_PATH = "scheduling.k8s.io/workloads"
POD_GROUP_PATH = "scheduling.k8s.io/podgroups"
POD_GROUP_PROTECTION = "scheduling.k8s.io/podgroup-protection"
"""Finalizer of groups, which a controller removes when no pod needs them any more."""
_TEMPLATES_MAX, _CLAIMS_MAX, _TOPOLOGY_MAX = 8, 4, 1
_MODES = ("Pod", "PodGroup")
_TEMPLATE_FIELDS = (
    "name", "schedulingPolicy", "schedulingConstraints", "resourceClaims", "disruptionMode",
    "priorityClassName", "priority",
)  # fmt: skip

FieldValidation = Callable[[Any, str], Iterator[Cause]]


def _union(value: Tree, members: tuple[str, ...], path: str) -> Iterator[Cause]:
    """Exactly one of the members is set."""
    given = [name for name in members if value.get(name) is not None]
    if len(given) == 1:
        return
    names = ", ".join(f"`{name}`" for name in members)
    exactly = "exactly " if given else ""
    printed = f"{{{', '.join(given)}}}" if given else ""
    yield invalid(path, printed, f"must specify {exactly}one of: {names}")


def _policy(policy: Tree, path: str) -> Iterator[Cause]:
    yield from _union(policy, ("basic", "gang"), path)
    gang = policy.get("gang")
    if gang is not None:
        count, here = gang["minCount"], f"{path}.gang.minCount"
        if not count:
            yield required(here)
        elif count < 1:
            yield invalid(here, count, "must be greater than or equal to 1")


def _constraints(constraints: Tree | None, path: str) -> Iterator[Cause]:
    topology = (constraints or {}).get("topology", [])
    if len(topology) > _TOPOLOGY_MAX:
        yield too_many(f"{path}.topology", len(topology), _TOPOLOGY_MAX)
        return
    for at, one in enumerate(topology):
        check = field_checks.label_name
        yield from field_checks.needed(one["key"], check, f"{path}.topology[{at}].key")


def _claims(claims: list[Tree], path: str) -> Iterator[Cause]:
    if len(claims) > _CLAIMS_MAX:
        yield too_many(path, len(claims), _CLAIMS_MAX)
        return
    seen: set[str] = set()
    for at, one in enumerate(claims):
        if one["name"] in seen:
            yield duplicate(f"{path}[{at}]", one)
        seen.add(one["name"])
    for at, one in enumerate(claims):
        here = f"{path}[{at}]"
        yield from _union(one, ("resourceClaimName", "resourceClaimTemplateName"), here)
        yield from field_checks.needed(one["name"], field_checks.dns_label, f"{here}.name")
        for name in ("resourceClaimName", "resourceClaimTemplateName"):
            if name in one:
                yield from field_checks.dns_subdomain(one[name], f"{here}.{name}")


def _mode(mode: str | None, path: str) -> Iterator[Cause]:
    if mode is not None and mode not in _MODES:
        yield not_supported(path, mode, _MODES)


def _class_name(name: str, path: str) -> Iterator[Cause]:
    if name:
        yield from field_checks.dns_subdomain(name, path)


def _priority(priority: int | None, path: str) -> Iterator[Cause]:
    if priority is not None and priority > USER_PRIORITY_MAX:
        yield invalid(path, priority, f"must be less than or equal to {USER_PRIORITY_MAX}")


_GROUP_CHECKS: tuple[tuple[str, Any, FieldValidation], ...] = (
    ("schedulingPolicy", {}, _policy),
    ("schedulingConstraints", None, _constraints),
    ("resourceClaims", [], _claims),
    ("disruptionMode", None, _mode),
    ("priorityClassName", "", _class_name),
    ("priority", None, _priority),
)
"""Fields of a group or a template of one, what stands for a missing one, and their checks."""


def _template_reference(reference: Tree | None, path: str) -> Iterator[Cause]:
    if reference is None:
        return
    yield from _union(reference, ("workload",), path)
    workload = reference.get("workload")
    if workload is not None:
        for name, check in (
            ("workloadName", field_checks.dns_subdomain),
            ("podGroupTemplateName", field_checks.dns_label),
        ):
            yield from field_checks.needed(workload[name], check, f"{path}.workload.{name}")


def _controller(reference: Tree | None, path: str) -> Iterator[Cause]:
    if reference is None:
        return
    if reference.get("apiGroup"):
        yield from field_checks.dns_subdomain(reference["apiGroup"], f"{path}.apiGroup")
    for name in ("kind", "name"):
        check = field_checks.path_segment
        yield from field_checks.needed(reference[name], check, f"{path}.{name}")


def _templates(templates: list[Tree] | None, path: str) -> Iterator[Cause]:
    given = templates or []
    if not given:
        yield required(path)
        return
    if len(given) > _TEMPLATES_MAX:
        yield too_many(path, len(given), _TEMPLATES_MAX)
        return
    seen: set[str] = set()
    for at, one in enumerate(given):
        if one["name"] in seen:
            printed = {name: one[name] for name in _TEMPLATE_FIELDS if name in one}
            yield duplicate(f"{path}[{at}]", printed)
        seen.add(one["name"])
    for at, one in enumerate(given):
        here = f"{path}[{at}]"
        yield from field_checks.needed(one["name"], field_checks.dns_label, f"{here}.name")
        for name, missing, check in _GROUP_CHECKS:
            yield from check(one.get(name, missing), f"{here}.{name}")


_WORKLOAD_CHECKS: tuple[tuple[str, Any, FieldValidation], ...] = (
    ("controllerRef", None, _controller),
    ("podGroupTemplates", None, _templates),
)
_POD_GROUP_CHECKS = (("podGroupTemplateRef", None, _template_reference), *_GROUP_CHECKS)


def _validation(
    checks: tuple[tuple[str, Any, FieldValidation], ...],
) -> Callable[[Tree], Iterator[Cause]]:
    def validate(obj: Tree) -> Iterator[Cause]:
        for name, missing, check in checks:
            yield from check(obj["spec"].get(name, missing), f"spec.{name}")

    return validate


def _immutability(
    checks: tuple[tuple[str, Any, FieldValidation], ...],
) -> Callable[[Tree, Tree], Iterator[Cause]]:
    """All fields stay; what stays is not checked again. Causes print no objects."""

    def validate_update(new: Tree, old: Tree) -> Iterator[Cause]:
        for name, missing, _ in checks:
            value, before = (one["spec"].get(name, missing) for one in (new, old))
            if value != before:
                printed = None if isinstance(value, (dict, list)) else value
                yield invalid(f"spec.{name}", printed, field_checks.IMMUTABLE)

    return validate_update


def _validate_status(new: Tree, old: Tree) -> Iterator[Cause]:
    yield from validate_conditions(new["status"].get("conditions", []), "status.conditions")
    path = "status.resourceClaimStatuses"
    statuses = new["status"].get("resourceClaimStatuses", [])
    known = {one["name"] for one in new["spec"].get("resourceClaims", ())}
    for at, one in enumerate(statuses):
        if one["name"] not in known:
            text = "must match the name of an entry in `spec.resourceClaims`"
            yield invalid(f"{path}[{at}].name", one["name"], text)
    if len(statuses) > _CLAIMS_MAX:
        yield too_many(path, len(statuses), _CLAIMS_MAX)
        return
    for at, one in enumerate(statuses):
        if "resourceClaimName" in one:
            here = f"{path}[{at}].resourceClaimName"
            yield from field_checks.dns_subdomain(one["resourceClaimName"], here)


def _cells(obj: Tree, now: float) -> list[Any]:
    spec = obj["spec"]
    conditions = {one["type"]: one for one in obj["status"].get("conditions", ())}
    status = "Pending"
    scheduled = conditions.get("PodGroupScheduled")
    if scheduled is not None:
        status = "Scheduled" if scheduled["status"] == "True" else "Unschedulable"
    if "DisruptionTarget" in conditions:
        status = conditions["DisruptionTarget"]["reason"]
    reference = (spec.get("podGroupTemplateRef") or {}).get("workload") or {}
    policy = "Gang" if "gang" in spec["schedulingPolicy"] else "Basic"
    return [policy, reference.get("workloadName", NONE), status]


KIND = KindRegistration(
    group="scheduling.k8s.io",
    version="v1alpha2",
    kind="Workload",
    types=TYPES,
    strategy=BuiltinStrategy(_validation(_WORKLOAD_CHECKS), _immutability(_WORKLOAD_CHECKS)),
    table=NAME_AND_AGE,
)
POD_GROUP_KIND = KindRegistration(
    group="scheduling.k8s.io",
    version="v1alpha2",
    kind="PodGroup",
    strategy=BuiltinStrategy(
        _validation(_POD_GROUP_CHECKS),
        _immutability(_POD_GROUP_CHECKS),
        status={},
        returns_deleted=True,
    ),
    status=StatusStrategy(_validate_status, meta=METADATA_RESET_FIELDS),
    table=PrintedTable("Name, Policy, Workload, Status, Age", _cells),
)
