"""Rules of a LimitRange: defaults of containers, and limits of containers, pods and claims.

Source: Kubernetes v1.36, plugin/pkg/admission/limitranger/admission.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from stowplan.apis.limits.resource_amounts import (
    Amounts,
    amount_above,
    format_quantity,
    limits_of,
    ratio_above,
    requests_of,
)
from stowplan.objects.limits import LimitRange, LimitRangeItem
from stowplan.objects.pod import Pod


def violations(pod: Pod, limit_range: LimitRange) -> Iterator[str]:
    """Why a pod is refused, an error per container and limit; nothing if it is admitted."""
    for item in limit_range.spec.limits:
        if item.type == "Container":
            for one in (*pod.spec.containers, *pod.spec.init_containers):
                yield from _bounds(item, one.resources.requests, one.resources.limits)
        elif item.type == "Pod":
            yield from _bounds(item, requests_of(pod), limits_of(pod))


def claim_violations(requests: Amounts, limit_range: LimitRange) -> Iterator[str]:
    """Why a PersistentVolumeClaim with these requests is refused; nothing if it is admitted."""
    for item in limit_range.spec.limits:
        if item.type != "PersistentVolumeClaim":
            continue
        yield from _below(item, requests, {})
        for name, most in sorted(item.max.items()):
            text = f"maximum {name} usage per {item.type} is {format_quantity(most)}"
            if name not in requests:
                yield f"{text}.  No request is specified"
            elif amount_above(requests[name], most):
                yield f"{text}, but request is {format_quantity(requests[name])}"


def container_defaults(limit_range: LimitRange) -> tuple[Amounts, Amounts]:
    """Default requests and limits of containers."""
    requests: Amounts = {}
    limits: Amounts = {}
    for item in limit_range.spec.limits:
        if item.type == "Container":
            limits |= item.default
            requests |= item.default_request
    return requests, limits


def aggregate_text(texts: Iterable[str]) -> str:
    """Several errors as one text; equal ones appear once, as in the original's aggregate."""
    found = list(dict.fromkeys(texts))
    return found[0] if len(found) == 1 else f"[{', '.join(found)}]" if found else ""


def _below(item: LimitRangeItem, requests: Amounts, limits: Amounts) -> Iterator[str]:
    for name, least in sorted(item.min.items()):
        text = f"minimum {name} usage per {item.type} is {format_quantity(least)}"
        if name not in requests:
            yield f"{text}.  No request is specified"
        elif amount_above(least, requests[name]):
            yield f"{text}, but request is {format_quantity(requests[name])}"
        elif name in limits and amount_above(least, limits[name]):
            yield f"{text}, but limit is {format_quantity(limits[name])}"


def _bounds(item: LimitRangeItem, requests: Amounts, limits: Amounts) -> Iterator[str]:
    yield from _below(item, requests, limits)
    for name, most in sorted(item.max.items()):
        text = f"maximum {name} usage per {item.type} is {format_quantity(most)}"
        if name not in limits:
            yield f"{text}.  No limit is specified"
        elif amount_above(limits[name], most):
            yield f"{text}, but limit is {format_quantity(limits[name])}"
        elif name in requests and amount_above(requests[name], most):
            yield f"{text}, but request is {format_quantity(requests[name])}"
    for name, most in sorted(item.max_limit_request_ratio.items()):
        text = f"{name} max limit to request ratio per {item.type} is {format_quantity(most)}, but"
        if name not in requests or not amount_above(requests[name], 0):
            yield f"{text} no request is specified or request is 0"
        elif name not in limits or not amount_above(limits[name], 0):
            yield f"{text} no limit is specified or limit is 0"
        else:
            ratio = ratio_above(limits[name], requests[name], most)
            if ratio:
                yield f"{text} provided ratio is {ratio}"
