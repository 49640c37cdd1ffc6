"""Requests that no queue takes: beyond the pod's own limits, or outside a LimitRange.

Source: Kueue, pkg/workload/resources.go, pkg/util/limitrange.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from stowplan.batch.queue_models.kueue.kueue_objects import KueueLimitRange, KueueLimits, PodSet
from stowplan.batch.queue_models.kueue.quota.quota_amounts import request_amount
from stowplan.objects.pod import Pod, PodSpec, ResourceRequirements
from stowplan.objects.pod_requests import pod_requests
from stowplan.objects.quantity import Quantity


def is_well_formed(pod_sets: Iterable[PodSet], limits: Sequence[KueueLimitRange]) -> bool:
    """Whether the requests of all pod sets are within limits. limits: of the namespace."""
    items = [item for one in limits for item in one.spec.limits]
    for pod_set in pod_sets:
        spec = pod_set.template.spec
        held = [one.resources for one in (*spec.init_containers, *spec.containers)]
        if spec.resources is not None:
            held.append(spec.resources)
        if any(_exceeds(one.requests, one.limits) for one in held):
            return False
        if not all(_is_within(item, spec, held) for item in items):
            return False
    return True


def _amounts(quantities: Mapping[str, Quantity]) -> dict[str, int]:
    return {name: request_amount(name, q) for name, q in quantities.items()}


def _exceeds(requests: Mapping[str, Quantity], most: Mapping[str, Quantity]) -> bool:
    have, limit = _amounts(requests), _amounts(most)
    return any(name in limit and n > limit[name] for name, n in have.items())


def _is_within(item: KueueLimits, spec: PodSpec, held: Iterable[ResourceRequirements]) -> bool:
    if item.type == "Container":
        return not any(
            _exceeds(one.requests, item.max) or _exceeds(one.limits, item.max)
            or _exceeds(item.min, one.requests)
            for one in held
        )  # fmt: skip
    if item.type != "Pod":
        return True
    total = pod_requests(Pod(spec=spec), use_status=False)
    most, least = _amounts(item.max), _amounts(item.min)
    return not any(n > most.get(name, n) or n < least.get(name, n) for name, n in total.items())
