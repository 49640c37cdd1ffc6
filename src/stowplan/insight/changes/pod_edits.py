"""Edits of a pod: requests, tolerations and topology spread constraints."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import msgspec
from msgspec.structs import replace

from stowplan.cycle.change import Operation
from stowplan.insight.changes import edits
from stowplan.insight.changes.edits import PodEdit, pointer
from stowplan.objects.node import Taint
from stowplan.objects.pod import Container, Pod, PodSpec, ResourceRequirements, Toleration
from stowplan.objects.pod_requests import fit_requests, is_extended
from stowplan.objects.quantity import amount, format_quantity

ANYWAY = "ScheduleAnyway"
_FIELDS = {"containers": "containers", "init_containers": "initContainers"}


# Requests.


def lower_request(pod: Pod, resource: str, free: int) -> PodEdit | None:
    """The cheapest lowering of one container's request with which the pod requests at most `free`.

    free: base units. None when no single container is enough, or the pod-level request counts.
    """
    level = pod.spec.resources
    if level is not None and resource in level.requests:
        return _lower_pod_level(pod, resource, level, max(free, 0))
    found: list[tuple[int, str, int, int]] = []
    for field in _FIELDS:
        for index, container in enumerate(getattr(pod.spec, field)):
            value = _largest_fitting(pod, field, index, resource, max(free, 0))
            if value is not None:
                asked = amount(resource, container.resources.requests[resource])
                found.append((_points(asked, value), field, index, value))
    if not found:
        return None
    _, field, index, value = min(found, key=lambda one: one[0])
    return _container_edit(pod.spec, field, index, resource, value)


def container_requests(spec: PodSpec) -> list[tuple[str, int, str]]:
    """(field of the spec, index, resource) of each request of a container that is not zero."""
    return [
        (field, index, resource)
        for field in _FIELDS
        for index, container in enumerate(getattr(spec, field))
        for resource, quantity in container.resources.requests.items()
        if amount(resource, quantity) > 0
    ]


def lower_by_percent(
    spec: PodSpec, field: str, index: int, resource: str, percent: int
) -> PodEdit | None:
    """One of `container_requests` lowered by so much, rounded down; None where that is nothing."""
    container = getattr(spec, field)[index]
    asked = amount(resource, container.resources.requests[resource])
    value = asked - asked * percent // edits.REQUEST_MAX
    return None if value == asked else _container_edit(spec, field, index, resource, value)


def _container_edit(spec: PodSpec, field: str, index: int, resource: str, value: int) -> PodEdit:
    container = getattr(spec, field)[index]
    asked = container.resources.requests[resource]
    text = _request_text(resource, f"container {container.name}", str(asked), value)
    return PodEdit(
        "request",
        _points(amount(resource, asked), value),
        text,
        partial(_set_container_request, field, index, resource, value),
    )


def _points(asked: int, value: int) -> int:
    """Percentage of the request that is given up, rounded up."""
    return -(-edits.REQUEST_MAX * (asked - value) // asked)


def _request_text(resource: str, whose: str, asked: str, value: int) -> str:
    if value == 0:
        return f"drop the {resource} request of {whose} ({asked})"
    lowered = format_quantity(resource, value)
    return f"lower the {resource} request of {whose} from {asked} to {lowered}"


def _largest_fitting(pod: Pod, field: str, index: int, resource: str, free: int) -> int | None:
    """The largest amount below the present one with which the pod fits; None if none does."""
    container = getattr(pod.spec, field)[index]
    quantity = container.resources.requests.get(resource)
    asked = 0 if quantity is None else amount(resource, quantity)
    if asked <= 0:
        return None

    def total(value: int) -> int:
        spec = _with_container_request(pod.spec, field, index, resource, value)
        return fit_requests(replace(pod, spec=spec)).get(resource, 0)

    excess = fit_requests(pod).get(resource, 0) - free
    if excess <= 0:
        return None
    # Exact for regular containers of a pod without start-up phase; the search, which takes up to 60
    # totals, finds the others.
    low, high = max(asked - excess, 0), asked
    if total(low) > free:
        low = 0
        if total(low) > free:
            return None
    elif total(low + 1) > free:
        return low
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if total(middle) <= free else (low, middle)
    return low


def _with_container_request(
    spec: PodSpec, field: str, index: int, resource: str, value: int
) -> PodSpec:
    containers: list[Container] = list(getattr(spec, field))
    container = containers[index]
    resources = _lowered(container.resources, resource, value)
    containers[index] = replace(container, resources=resources)
    return replace(spec, **{field: tuple(containers)})


def _lowered(resources: ResourceRequirements, resource: str, value: int) -> ResourceRequirements:
    """The resources with another request. Zero stays in the object: a request that is not named is
    the limit. Of extended resources and huge pages the limit must be the same."""
    quantity = format_quantity(resource, value)
    limits = resources.limits
    if resource in limits and (is_extended(resource) or resource.startswith("hugepages-")):
        limits = {**limits, resource: quantity}
    return replace(resources, requests={**resources.requests, resource: quantity}, limits=limits)


def _set_container_request(
    field: str, index: int, resource: str, value: int, spec: PodSpec
) -> tuple[PodSpec, list[Operation]]:
    changed = _with_container_request(spec, field, index, resource, value)
    before = getattr(spec, field)[index].resources
    resources = getattr(changed, field)[index].resources
    at = (_FIELDS[field], index, "resources")
    return changed, [_resources_operation(at, before, resources, resource)]


def _resources_operation(
    at: tuple[object, ...],
    before: ResourceRequirements,
    after: ResourceRequirements,
    resource: str,
) -> Operation:
    """Replaces the whole member where requests may be defaults that are not in the manifest."""
    if before.limits or resource not in before.requests:
        return {"op": "add", "path": pointer(*at), "value": msgspec.to_builtins(after)}
    path = pointer(*at, "requests", resource)
    return {"op": "replace", "path": path, "value": after.requests[resource]}


def _lower_pod_level(
    pod: Pod, resource: str, level: ResourceRequirements, free: int
) -> PodEdit | None:
    """The pod-level request lowered to what is free without the overhead; not below the sum of the
    containers' requests, which the API refuses."""
    asked = amount(resource, level.requests[resource])
    value = asked - (fit_requests(pod).get(resource, 0) - free)
    bare = replace(pod.spec, resources=None, overhead={})
    if not fit_requests(replace(pod, spec=bare)).get(resource, 0) <= value < asked or value < 0:
        return None
    text = _request_text(resource, "the pod", str(level.requests[resource]), value)
    return PodEdit("request", _points(asked, value), text, partial(_set_pod_level, resource, value))


def _set_pod_level(resource: str, value: int, spec: PodSpec) -> tuple[PodSpec, list[Operation]]:
    before = spec.resources or ResourceRequirements()
    after = _lowered(before, resource, value)
    operation = _resources_operation(("resources",), before, after, resource)
    return replace(spec, resources=after), [operation]


# Tolerations.


def taint_text(taint: Taint) -> str:
    """A taint as kubectl writes it."""
    return f"{taint.key}{'=' + taint.value if taint.value else ''}:{taint.effect}"


def add_toleration(taint: Taint) -> PodEdit:
    """A toleration of exactly this taint."""
    text = f"add a toleration for taint {taint_text(taint)}"
    return PodEdit("toleration", edits.TOLERATION, text, partial(_tolerate, taint))


def _tolerate(taint: Taint, spec: PodSpec) -> tuple[PodSpec, list[Operation]]:
    operator = "Equal" if taint.value else "Exists"
    added = Toleration(taint.key, operator, taint.value, taint.effect)
    value = msgspec.to_builtins(added)
    operation = {"op": "add", "path": "/tolerations/-", "value": value}
    if not spec.tolerations:
        operation = {"op": "add", "path": "/tolerations", "value": [value]}
    return replace(spec, tolerations=(*spec.tolerations, added)), [operation]


# Topology spread constraints.


def raise_max_skew(spec: PodSpec, index: int, skew: int) -> PodEdit:
    """The constraint with a higher `maxSkew`."""
    constraint = spec.topology_spread_constraints[index]
    text = (
        f"raise maxSkew of the spread constraint on {constraint.topology_key} "
        f"from {constraint.max_skew} to {skew}"
    )
    cost = edits.SKEW * (skew - constraint.max_skew)
    change = partial(_set_constraint, index, "maxSkew", {"max_skew": skew}, skew)
    return PodEdit("spread", cost, text, change)


def schedule_anyway(spec: PodSpec, index: int) -> PodEdit:
    """The constraint as a preference."""
    key = spec.topology_spread_constraints[index].topology_key
    text = f"set whenUnsatisfiable of the spread constraint on {key} to {ANYWAY}"
    return PodEdit("spread", edits.ANYWAY, text, partial(_set_anyway, index))


def _set_anyway(index: int, spec: PodSpec) -> tuple[PodSpec, list[Operation]]:
    """The preference without `minDomains`, which the API allows for hard constraints only."""
    field = {"when_unsatisfiable": ANYWAY}
    changed, operations = _set_constraint(index, "whenUnsatisfiable", field, ANYWAY, spec)
    constraints = list(changed.topology_spread_constraints)
    if constraints[index].min_domains is None:
        return changed, operations
    constraints[index] = replace(constraints[index], min_domains=None)
    path = pointer("topologySpreadConstraints", index, "minDomains")
    changed = replace(changed, topology_spread_constraints=tuple(constraints))
    return changed, [*operations, {"op": "remove", "path": path}]


def _set_constraint(
    index: int, name: str, field: Mapping[str, object], value: object, spec: PodSpec
) -> tuple[PodSpec, list[Operation]]:
    constraints = list(spec.topology_spread_constraints)
    constraints[index] = replace(constraints[index], **field)
    path = pointer("topologySpreadConstraints", index, name)
    changed = replace(spec, topology_spread_constraints=tuple(constraints))
    return changed, [{"op": "add", "path": path, "value": value}]
