"""Admission of pods that no API server has stored: LimitRange, then ResourceQuota.

Pods of the input that have a uid were admitted earlier; they count in the quotas. Rejected pods are
not created.

Differs: several LimitRanges or quotas of a namespace are applied by name, in the original in cache
order. Quotas are charged with the pods of the input, not with `status.used`. PersistentVolumeClaims
and other objects are not checked.

Source: Kubernetes v1.36, plugin/pkg/admission/limitranger and plugin/pkg/admission/resourcequota.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from stowplan.apis.core.limit_range import set_limit_range_item_defaults
from stowplan.apis.limits.limit_range_rules import (
    aggregate_text,
    container_defaults,
    violations,
)
from stowplan.apis.limits.resource_amounts import Amounts, amount_above, format_quantity
from stowplan.inputs.admission.admission_result import AdmissionResult
from stowplan.inputs.admission.resource_quotas import NamespaceQuotas, unenforced_limits
from stowplan.inputs.counts import count_of
from stowplan.inputs.importers.imported_objects import list_names
from stowplan.inputs.manifests import ManifestInventory
from stowplan.objects.encoding.json_codec import convert
from stowplan.objects.limits import LimitRange, LimitRangeItem, ResourceQuota
from stowplan.objects.pod import Container, Pod, PodSpec


def admit(pods: list[Pod], inventory: ManifestInventory) -> AdmissionResult:
    """Admit pods, with the defaults of their namespaces' LimitRanges."""
    ranges = _by_namespace(map(_complete, inventory.all(LimitRange)))
    of_namespace = _by_namespace(inventory.all(ResourceQuota))
    quotas = {namespace: NamespaceQuotas(found) for namespace, found in of_namespace.items()}
    for pod in pods:
        if pod.metadata.uid and pod.namespace in quotas:
            quotas[pod.namespace].charge(pod)
    found = AdmissionResult([], {}, _notes(ranges, quotas))
    specs: dict[tuple[str, int], PodSpec] = {}
    for pod in pods:
        if pod.metadata.uid or pod.is_finished:
            found.pods.append(pod)
            continue
        given = pod
        pod = _defaulted(pod, ranges.get(pod.namespace, ()), specs)
        invalid = "" if pod is given else _invalid(pod)
        why = invalid or _refusal(pod, ranges.get(pod.namespace, ()), quotas.get(pod.namespace))
        if why:
            error = f'Pod "{pod.name}" is invalid' if invalid else f'pods "{pod.name}" is forbidden'
            found.refused[pod.key] = f"{error}: {why}"
        else:
            if pod is not given:
                found.as_read[pod.key] = given
            found.pods.append(pod)
    if found.as_read:
        found.notes.append(f"{count_of(len(found.as_read), 'pod')} with defaults of LimitRanges")
    if found.refused:
        what = f"{count_of(len(found.refused), 'pod')} not created"
        found.notes.append(f"{what}: {list_names(found.refused.values())}")
    return found


def _notes(ranges: dict[str, list[LimitRange]], quotas: dict[str, NamespaceQuotas]) -> list[str]:
    names = sorted({name for one in quotas.values() for name in unenforced_limits(one)})
    found = [f"ResourceQuota: not enforced: {', '.join(names)}"] if names else []
    items = (item for some in ranges.values() for one in some for item in one.spec.limits)
    others = sorted({item.type for item in items} - {"Container", "Pod"})
    return found + ([f"LimitRange: not enforced: {', '.join(others)}"] if others else [])


T = TypeVar("T", LimitRange, ResourceQuota)


def _by_namespace(found: Iterable[T]) -> dict[str, list[T]]:
    sorted_by: dict[str, list[T]] = {}
    for one in sorted(found, key=lambda each: each.key):
        sorted_by.setdefault(one.namespace, []).append(one)
    return sorted_by


def _refusal(pod: Pod, ranges: Iterable[LimitRange], quotas: NamespaceQuotas | None) -> str:
    """Why a pod is rejected; "" when admitted, and then charged to the quotas."""
    for one in ranges:
        text = aggregate_text(violations(pod, one))
        if text:
            return text
    return quotas.admit(pod) if quotas is not None else ""


# LimitRange.


def _complete(found: LimitRange) -> LimitRange:
    """The LimitRange with API defaults, as stored."""
    trees = [{"type": item.type, **msgspec.to_builtins(item)} for item in found.spec.limits]
    for tree in trees:
        set_limit_range_item_defaults(tree)
    items = tuple(convert(tree, LimitRangeItem) for tree in trees)
    return replace(found, spec=replace(found.spec, limits=items))


def _defaulted(
    pod: Pod, ranges: Iterable[LimitRange], specs: dict[tuple[str, int], PodSpec]
) -> Pod:
    """The pod with the defaults of its namespace; shared specs stay shared."""
    if not ranges:
        return pod
    key = pod.namespace, id(pod.spec)
    spec = specs.get(key)
    if spec is None:
        spec = pod.spec
        for one in ranges:
            spec = _with_defaults(spec, one)
        specs[key] = spec
    return pod if spec is pod.spec else replace(pod, spec=spec)


def _with_defaults(spec: PodSpec, limit_range: LimitRange) -> PodSpec:
    requests, limits = container_defaults(limit_range)
    changed = {
        field: tuple(_filled(one, requests, limits) for one in containers)
        for field, containers in _containers(spec).items()
    }
    same = all(
        one is other
        for field, containers in _containers(spec).items()
        for one, other in zip(containers, changed[field], strict=True)
    )
    return spec if same else replace(spec, **changed)


def _invalid(pod: Pod) -> str:
    """Why a pod with defaults is invalid: requests above limits."""
    for field, containers in _containers(pod.spec).items():
        name = {"containers": "containers", "init_containers": "initContainers"}[field]
        for index, one in enumerate(containers):
            asked, limits = one.resources.requests, one.resources.limits
            for resource in sorted(asked.keys() & limits.keys()):
                if amount_above(asked[resource], limits[resource]):
                    return (
                        f"spec.{name}[{index}].resources.requests: Invalid value:"
                        f' "{format_quantity(asked[resource])}": must be less than or equal to'
                        f" {resource} limit of {format_quantity(limits[resource])}"
                    )
    return ""


def _containers(spec: PodSpec) -> dict[str, tuple[Container, ...]]:
    return {"containers": spec.containers, "init_containers": spec.init_containers}


def _filled(container: Container, requests: Amounts, limits: Amounts) -> Container:
    given = container.resources
    more_limits = {name: q for name, q in limits.items() if name not in given.limits}
    more_requests = {name: q for name, q in requests.items() if name not in given.requests}
    if not more_limits and not more_requests:
        return container
    filled = replace(
        given, limits={**given.limits, **more_limits}, requests={**given.requests, **more_requests}
    )
    return replace(container, resources=filled)
