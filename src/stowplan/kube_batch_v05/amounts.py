"""Resource arithmetic of kube-batch v0.5.

Differences below 10m CPU, 10 MiB and 10 thousandths of any other resource do not count, and an
amount that never named another resource ("scalar") is not comparable with one that does.

Source: kube-batch v0.5, api/resource_info.go, api/pod_info.go.
"""

from __future__ import annotations

import msgspec

from stowplan.framework.deciders.resource_vector import ResourceVector, parse_resources
from stowplan.objects.pod import Pod

MILLI_MIN = 10.0
MEMORY_MIN = 10.0 * 1024 * 1024

_KEPT = "kube-batch v0.5 request"


class KubeBatchPanic(Exception):
    """Raised where the original panics, which ends its process."""


class KubeBatchRequest(msgspec.Struct, frozen=True):
    """Requests of a pod. running: the sum over its containers, used for all accounting. launching:
    the same, raised to each of its init containers, used to find a node."""

    running: ResourceVector
    launching: ResourceVector


def request_of(pod: Pod) -> KubeBatchRequest:
    """Requests of a pod, cached per spec; raises QuantityError.

    Sidecars, overhead, pod-level requests and local storage do not count.
    """
    kept: KubeBatchRequest | None = pod.spec.__dict__.get(_KEPT)
    if kept is None:
        running = ResourceVector()
        for container in pod.spec.containers:
            running.add(parse_resources(container.resources.requests))
        launching = running.copy()
        for container in pod.spec.init_containers:
            launching.raise_to(parse_resources(container.resources.requests))
        kept = pod.spec.__dict__[_KEPT] = KubeBatchRequest(running, launching)
    return kept


def is_empty(amount: ResourceVector) -> bool:
    """True if every resource is below its minimum."""
    if amount.cpu >= MILLI_MIN or amount.memory >= MEMORY_MIN:
        return False
    return all(n < MILLI_MIN for n in (amount.scalars or {}).values())


def less(a: ResourceVector, b: ResourceVector) -> bool:
    """True if `a` is below `b` in cpu, memory and every scalar that it names.

    Two amounts without scalars are never less.
    """
    if a.cpu >= b.cpu or a.memory >= b.memory:
        return False
    if a.scalars is None:
        return b.scalars is not None
    return b.scalars is not None and all(n < b.get(name) for name, n in a.scalars.items())


def less_equal(a: ResourceVector, b: ResourceVector) -> bool:
    """True if `a` is within `b`, up to the minima, in cpu, memory and the scalars that it names.

    A scalar in `a`, even of 0, is never within an amount without scalars.
    """
    if a.cpu - b.cpu >= MILLI_MIN or a.memory - b.memory >= MEMORY_MIN:
        return False
    if not a.scalars:
        return True
    return b.scalars is not None and all(n - b.get(k) < MILLI_MIN for k, n in a.scalars.items())


def subtract(a: ResourceVector, b: ResourceVector) -> ResourceVector:
    """Subtract `b` from `a` in place; raises KubeBatchPanic if `b` is not within `a`.

    Scalars are not subtracted from an amount without scalars.
    """
    if not less_equal(b, a):
        raise KubeBatchPanic(f"Resource is not sufficient to do operation: <{a}> sub <{b}>")
    return a.take(b, keyless=True)


def shortage(have: ResourceVector, request: ResourceVector) -> ResourceVector:
    """`have` minus the request and the minima; negative where it is insufficient."""
    left = have.copy()
    if request.cpu > 0:
        left.cpu -= request.cpu + MILLI_MIN
    if request.memory > 0:
        left.memory -= request.memory + MEMORY_MIN
    if request.scalars:
        scalars = left.scalars = {} if left.scalars is None else left.scalars
        for name, amount in request.scalars.items():
            if amount > 0:
                scalars[name] = scalars.get(name, 0.0) - (amount + MILLI_MIN)
    return left
