"""Resource requests of pods: containers, sidecars, init containers, overhead and resize.

A pod must fit in each phase of its life. Init containers run one after the other, each beside the
sidecars started before it; then the regular containers run beside all sidecars. The request of the
pod is, per resource, the maximum over the phases, replaced by the pod-level request where there is
one, plus the overhead of its sandbox.

While a container is resized in place, the maximum of its request, the allocated and the running
amounts counts; if the resize is infeasible, its request does not count.

The scheduler's plugins count differently, on purpose or by accident; each way of counting has a
function here. All amounts are in base units: milli-CPU for `cpu`, bytes or counts for others.

Source: kube-scheduler v1.36: component-helpers resource/helpers.go, framework/types.go
(CalculateResource), plugins/noderesources, apis/core/v1/helper (names of resources).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from msgspec.structs import replace

from stowplan.objects.pod import Container, ContainerStatus, Pod, PodStatus
from stowplan.objects.quantity import (
    INT64_MAX,
    NANOS_PER_MILLI,
    NANOS_PER_UNIT,
    Exact,
    OutOfRangeError,
    Quantity,
    exact,
    nanos,
)
from stowplan.objects.selectors import label_key_errors

NONZERO_CPU_MILLI = 100
NONZERO_MEMORY_BYTES = 200 * 1024 * 1024
_NONZERO_NANOS: Mapping[str, int] = {
    "cpu": NONZERO_CPU_MILLI * NANOS_PER_MILLI,
    "memory": NONZERO_MEMORY_BYTES * NANOS_PER_UNIT,
}

_NO_DEFAULTS: Mapping[str, int] = {}

_KEPT, _KEPT_WITH_DEFAULTS = "requests", "requests with defaults"

_NAMES_MAX = 1 << 15
"""Names of resources that are remembered."""

_NATIVE = frozenset({"cpu", "memory", "ephemeral-storage"})

# Type of amounts: billionths as plain integers, or `Exact` for negative amounts and amounts beyond
# int64. The computation is the same.
_N = TypeVar("_N", int, Exact)
_Read = Callable[[Quantity], _N]


def pod_requests(
    pod: Pod, *, use_status: bool, pod_level: bool = True, defaults: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Requests of the pod by resource name; raises QuantityError.

    use_status: include amounts reported by the kubelet (in-place resize). pod_level: include
    `spec.resources` of the pod. defaults: request of a container that does not name the resource;
    an explicit zero names it.
    """
    in_nanos = {name: n * _nanos_per(name) for name, n in (defaults or {}).items()}
    return _amounts(pod, use_status, pod_level, in_nanos)


def fit_requests(pod: Pod) -> dict[str, int]:
    """Requests that NodeResourcesFit's Filter checks: known resources, without negative amounts.

    A resource with a request of zero is included.
    """
    amounts = pod_requests(pod, use_status=False)
    return {name: max(n, 0) for name, n in amounts.items() if is_tracked(name)}


def requested(pod: Pod) -> dict[str, int]:
    """Requests that a node counts for a pod on it, with resize."""
    amounts = _amounts(pod, True, True, _NO_DEFAULTS)
    if all(map(is_tracked, amounts)):
        return amounts
    return {name: n for name, n in amounts.items() if is_tracked(name)}


def plain_requests(pod: Pod) -> dict[str, int] | None:
    """Requests of the pod by resource name, the sum of its regular containers; None where anything
    else counts, or an amount is out of range. Raises QuantityError."""
    if not _is_plain(pod, True):
        return None
    try:
        return _plain_amounts(pod, _NO_DEFAULTS)
    except OutOfRangeError:
        return None


def nonzero_requested(pod: Pod) -> tuple[int, int]:
    """Milli-CPU and memory bytes that a node counts for the pod when nodes are scored.

    A container without a request counts 100m or 200Mi; with pod-level requests only if the pod has
    no request either.
    """
    return _nonzero(pod, plain_requests(pod))


def counted_requests(pod: Pod) -> tuple[dict[str, int], tuple[int, int], bool]:
    """`requested`, `nonzero_requested`, and whether the former are `plain_requests`."""
    plain = plain_requests(pod)
    if plain is None:
        return requested(pod), _nonzero(pod, plain), False
    # A loop, because this is called for every template.
    for name in plain:
        if not is_tracked(name):
            return requested(pod), _nonzero(pod, plain), False
    return plain, _nonzero(pod, plain), True


def _nonzero(pod: Pod, plain: Mapping[str, int] | None) -> tuple[int, int]:
    """`nonzero_requested`. plain: see `plain_requests`."""
    if plain is not None:
        cpu, memory = plain.get("cpu", 0), plain.get("memory", 0)
        for container in pod.spec.containers:
            requests = container.resources.requests
            if "cpu" not in requests:
                cpu += NONZERO_CPU_MILLI
            if "memory" not in requests:
                memory += NONZERO_MEMORY_BYTES
        if max(cpu, memory) <= INT64_MAX:
            return cpu, memory
    defaults = _NONZERO_NANOS
    if _has_pod_level_requests(pod):
        named = pod_requests(pod, use_status=True)
        defaults = {name: n for name, n in defaults.items() if name not in named}
    amounts = _amounts(pod, True, True, defaults)
    return amounts.get("cpu", 0), amounts.get("memory", 0)


def fit_score_requests(pod: Pod) -> dict[str, int]:
    """Requests that NodeResourcesFit's Score adds for the pod: with defaults, without pod-level
    requests.

    Leaving out the pod level is an oversight of the original that its results depend on.
    """
    return _amounts(pod, False, False, _NONZERO_NANOS)


def balanced_requests(pod: Pod, resources: Sequence[str] = ("cpu", "memory")) -> dict[str, int]:
    """Requests that NodeResourcesBalancedAllocation adds for the pod: no defaults, with resize.

    resources: those that are scored, in the order of the configuration. The order matters for a
    pod-level amount in the decimal form (`1.5Gi` is one) that has overhead: each time the original
    adds the two up it changes the pod itself. It does so in the PreFilter of NodeResourcesFit and
    of DynamicResources, then here once for each resource up to this one (unless the pod level is
    being resized: then what is added up here is a copy). Differs: in the original the amount of a
    pod with pod-level requests and overhead grows with every attempt; here it is that of the first
    attempt, and a node's sums do not grow.
    """
    amounts = pod_requests(pod, use_status=True)
    if pod.spec.resources is not None and pod.spec.overhead:
        for i, name in enumerate(resources):
            if _keeps_overhead(pod, name):
                times = 2 + i if pod.status.resources is None else 2
                changed = _with_overhead_in_pod_level(pod, name, times)
                amounts[name] = pod_requests(changed, use_status=True)[name]
    return amounts


@lru_cache(maxsize=_NAMES_MAX)
def is_tracked(resource: str) -> bool:
    """True for resources that the scheduler counts; other requests are ignored."""
    return resource in _NATIVE or is_scalar(resource)


@lru_cache(maxsize=_NAMES_MAX)
def is_scalar(resource: str) -> bool:
    """True for resources counted by name: extended, huge pages, `*kubernetes.io/*`, volumes."""
    return (
        resource.startswith(("hugepages-", "attachable-volumes-"))
        or "kubernetes.io/" in resource
        or is_extended(resource)
    )


@lru_cache(maxsize=_NAMES_MAX)
def is_extended(resource: str) -> bool:
    """True for a resource of a vendor's domain, such as `example.com/gpu`.

    It must be a qualified name also with quota's prefix `requests.`, and not start with it.
    """
    if "/" not in resource or "kubernetes.io/" in resource or resource.startswith("requests."):
        return False
    return not label_key_errors(f"requests.{resource}")


def _amounts(
    pod: Pod, use_status: bool, pod_level: bool, defaults: Mapping[str, int]
) -> dict[str, int]:
    """`pod_requests`, with the defaults in billionths; read-only, as it may be cached."""
    try:
        if _is_plain(pod, use_status):
            return _plain_amounts(pod, defaults)
        return _rounded(_totals(pod, nanos, defaults, use_status, pod_level))
    except OutOfRangeError:
        in_form = {
            name: Exact(n // _nanos_per(name), -3 if name == "cpu" else 0, False)
            for name, n in defaults.items()
        }
        totals = _totals(pod, exact, in_form, use_status, pod_level)
        return {
            name: total.milli_value() if name == "cpu" else total.value()
            for name, total in totals.items()
        }


def _is_plain(pod: Pod, use_status: bool) -> bool:
    """True when only the regular containers count, as for most pending pods."""
    spec, status = pod.spec, pod.status
    if spec.init_containers or spec.overhead or spec.resources:
        return False
    return not use_status or not (status.container_statuses or status.init_container_statuses)


def _plain_amounts(pod: Pod, defaults: Mapping[str, int]) -> dict[str, int]:
    """Amounts of a plain pod; computed once per spec and defaults."""
    kept: dict[Any, dict[str, int]] = pod.spec.__dict__
    key: object = _KEPT
    if defaults:
        kept = pod.spec.__dict__.setdefault(_KEPT_WITH_DEFAULTS, {})
        key = tuple(defaults.items())
    amounts = kept.get(key)
    if amounts is None:
        if defaults and _all_name(pod, defaults):
            # The defaults add nothing.
            amounts = kept[key] = _plain_amounts(pod, _NO_DEFAULTS)
        else:
            amounts = kept[key] = _rounded(_plain_totals(pod, defaults))
    return amounts


def _all_name(pod: Pod, resources: Iterable[str]) -> bool:
    """True where every regular container of a pod with any requests each of these."""
    for container in pod.spec.containers:
        requests = container.resources.requests
        for name in resources:
            if name not in requests:
                return False
    return bool(pod.spec.containers)


def _plain_totals(pod: Pod, defaults: Mapping[str, int]) -> dict[str, int]:
    """`_totals` for a plain pod, in billionths."""
    containers = pod.spec.containers
    if len(containers) == 1 and not defaults:
        return {name: nanos(q) for name, q in containers[0].resources.requests.items()}
    totals: dict[str, int] = {}
    for container in containers:
        requests = container.resources.requests
        for name, q in requests.items():
            totals[name] = totals.get(name, 0) + nanos(q)
        for name, least in defaults.items():
            if name not in requests:
                totals[name] = totals.get(name, 0) + least
    return totals


def _totals(
    pod: Pod, read: _Read[_N], defaults: Mapping[str, _N], use_status: bool, pod_level: bool
) -> dict[str, _N]:
    """Amounts of the pod, not rounded."""
    spec = pod.spec
    reported = _reported(pod.status) if use_status else {}
    totals: dict[str, _N] = {}
    for container in spec.containers:
        _add(totals, _asked(pod.status, container, reported, read, defaults))
    if spec.init_containers:
        _add_start_up(totals, pod, reported, read, defaults)
    if pod_level and spec.resources is not None:
        _replace_by_pod_level(totals, pod, read, use_status)
    if spec.overhead:
        _add(totals, _parsed(spec.overhead, read))
    return totals


def _add_start_up(
    totals: dict[str, _N],
    pod: Pod,
    reported: Mapping[str, ContainerStatus],
    read: _Read[_N],
    defaults: Mapping[str, _N],
) -> None:
    """Add the sidecars to the sum of the regular containers, then take the maximum with the init
    phase.

    Of init containers only sidecars can be resized.
    """
    sidecars: dict[str, _N] = {}
    peak: dict[str, _N] = {}
    for container in pod.spec.init_containers:
        if container.is_sidecar:
            asked = _asked(pod.status, container, reported, read, defaults)
            _add(totals, asked)
            _add(sidecars, asked)
            _raise_to(peak, sidecars)
        else:
            running = _asked(pod.status, container, {}, read, defaults)
            _add(running, sidecars)
            _raise_to(peak, running)
    _raise_to(totals, peak)


def _asked(
    status: PodStatus,
    container: Container,
    reported: Mapping[str, ContainerStatus],
    read: _Read[_N],
    defaults: Mapping[str, _N],
) -> dict[str, _N]:
    """Amounts of one container, in a new dict."""
    asked = _parsed(container.resources.requests, read)
    if container.name in reported:
        report = reported[container.name]
        if report.resources is not None:
            running = report.resources.requests
            asked = _while_resized(status, asked, running, report.allocated_resources, read)
    for name, least in defaults.items():
        asked.setdefault(name, least)
    return asked


def _while_resized(
    status: PodStatus,
    asked: Mapping[str, _N],
    running: Mapping[str, Quantity],
    allocated: Mapping[str, Quantity],
    read: _Read[_N],
) -> dict[str, _N]:
    """The maximum of the requested, running and allocated amounts."""
    effective: dict[str, _N] = {} if _is_resize_infeasible(status) else dict(asked)
    _raise_to(effective, _parsed(running, read))
    _raise_to(effective, _parsed(allocated, read))
    return effective


def _replace_by_pod_level(
    totals: dict[str, _N], pod: Pod, read: _Read[_N], use_status: bool
) -> None:
    """Replace the sums by pod-level requests, for the resources that may have them."""
    resources, status = pod.spec.resources, pod.status
    amounts = _parsed(resources.requests, read) if resources is not None else {}
    names = [name for name in amounts if _may_be_pod_level(name)]
    if names and use_status and status.resources is not None:
        running = status.resources.requests
        amounts = _while_resized(status, amounts, running, status.allocated_resources, read)
    for name in names:
        # An infeasible resize without reported amounts leaves nothing.
        totals[name] = amounts[name] if name in amounts else read("0")


def _keeps_overhead(pod: Pod, resource: str) -> bool:
    """True when adding the overhead changes the pod-level request for `resource`."""
    requests = pod.spec.resources.requests if pod.spec.resources is not None else {}
    named = resource in requests and resource in pod.spec.overhead and _may_be_pod_level(resource)
    return named and exact(requests[resource]).is_decimal


def _with_overhead_in_pod_level(pod: Pod, resource: str, times: int) -> Pod:
    """The pod with its overhead added `times` times to its pod-level request for `resource`."""
    resources, overhead = pod.spec.resources, exact(pod.spec.overhead[resource])
    if resources is None:
        return pod
    raised = exact(resources.requests[resource])
    for _ in range(times):
        raised += overhead
    requests = {**resources.requests, resource: f"{raised.unscaled}e{raised.exponent}"}
    spec = replace(pod.spec, resources=replace(resources, requests=requests))
    return replace(pod, spec=spec)


def _reported(status: PodStatus) -> Mapping[str, ContainerStatus]:
    """Container statuses by name; the last of one name counts."""
    return {s.name: s for s in (*status.container_statuses, *status.init_container_statuses)}


def _is_resize_infeasible(status: PodStatus) -> bool:
    """True when the first PodResizePending condition has the reason Infeasible."""
    reasons = (c.reason for c in status.conditions if c.type == "PodResizePending")
    return next(reasons, "") == "Infeasible"


def _has_pod_level_requests(pod: Pod) -> bool:
    resources = pod.spec.resources
    return resources is not None and any(map(_may_be_pod_level, resources.requests))


def _may_be_pod_level(resource: str) -> bool:
    return resource in ("cpu", "memory") or resource.startswith("hugepages-")


def _parsed(amounts: Mapping[str, Quantity], read: _Read[_N]) -> dict[str, _N]:
    return {name: read(q) for name, q in amounts.items()}


def _add(totals: dict[str, _N], amounts: Mapping[str, _N]) -> None:
    for name, n in amounts.items():
        totals[name] = totals[name] + n if name in totals else n


def _raise_to(totals: dict[str, _N], amounts: Mapping[str, _N]) -> None:
    for name, n in amounts.items():
        if name not in totals or n > totals[name]:
            totals[name] = n


def _rounded(totals: Mapping[str, int]) -> dict[str, int]:
    """Billionths to base units, rounded up; raises OutOfRangeError beyond int64."""
    amounts = {
        name: -(-n // (NANOS_PER_MILLI if name == "cpu" else NANOS_PER_UNIT))
        for name, n in totals.items()
    }
    if max(amounts.values(), default=0) > INT64_MAX:
        raise OutOfRangeError
    return amounts


def _nanos_per(resource: str) -> int:
    return NANOS_PER_MILLI if resource == "cpu" else NANOS_PER_UNIT
