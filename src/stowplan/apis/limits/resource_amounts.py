"""Resource amounts as admission compares and prints them."""

from __future__ import annotations

from fractions import Fraction

from msgspec.structs import replace

from stowplan.apis.schema import canonical_quantity
from stowplan.objects.pod import Container, Pod
from stowplan.objects.pod_requests import pod_requests
from stowplan.objects.quantity import Quantity, exact

Amounts = dict[str, Quantity]


def requests_of(pod: Pod) -> Amounts:
    """Requests of a pod: containers and overhead."""
    counted = pod_requests(pod, use_status=False)
    return {name: quantity_of(name, amount) for name, amount in counted.items()}


def limits_of(pod: Pod) -> Amounts:
    """Limits of a pod, summed like requests; overhead counts for limited resources."""
    spec = pod.spec
    containers = (*spec.containers, *spec.init_containers)
    named = {name for one in containers for name in one.resources.limits}
    level = spec.resources
    if level is not None:
        named |= set(level.limits)
    turned = replace(
        spec,
        containers=tuple(map(_limits_as_requests, spec.containers)),
        init_containers=tuple(map(_limits_as_requests, spec.init_containers)),
        resources=None if level is None else replace(level, requests=level.limits),
        overhead={name: q for name, q in spec.overhead.items() if name in named},
    )
    return requests_of(Pod(metadata=pod.metadata, spec=turned))


def _limits_as_requests(container: Container) -> Container:
    resources = container.resources
    return replace(container, resources=replace(resources, requests=resources.limits))


def quantity_of(name: str, amount: int) -> str:
    """An amount in base units (milli-CPU, bytes, counts) as a quantity; bytes in Ki where whole."""
    if name == "cpu":
        return canonical_quantity.canonical_quantity(f"{amount}m")
    is_bytes = name.endswith(("memory", "storage")) or "hugepages-" in name
    if is_bytes and amount and amount % 1024 == 0:
        return canonical_quantity.canonical_quantity(f"{amount // 1024}Ki")
    return canonical_quantity.canonical_quantity(str(amount))


def format_quantity(amount: Quantity) -> str:
    """A quantity as the API server prints it."""
    return canonical_quantity.canonical_quantity(amount, True)


def to_billionths(q: Quantity) -> int:
    """A quantity in billionths of a unit, of any size; rounded up."""
    held = exact(q)
    shift = held.exponent + 9
    scale: int = 10 ** abs(shift)
    return held.unscaled * scale if shift >= 0 else -(-held.unscaled // scale)


def format_billionths(amount: int, like: Quantity) -> str:
    """An amount in billionths as a quantity, with binary suffixes where `like` has them."""
    whole, rest = divmod(amount, 10**9)
    if rest:
        return canonical_quantity.canonical_quantity(f"{amount}n", True)
    if str(like).endswith("i") and whole and whole % 1024 == 0:
        return canonical_quantity.canonical_quantity(f"{whole // 1024}Ki")
    return canonical_quantity.canonical_quantity(str(whole))


def amount_above(one: Quantity, other: Quantity) -> bool:
    """True when the first amount is greater."""
    return to_billionths(one) > to_billionths(other)


def ratio_above(limit: Quantity, request: Quantity, most: Quantity) -> str:
    """Ratio of limit to request with six decimals when above `most`, else ""."""
    ratio = Fraction(to_billionths(limit), to_billionths(request))
    return f"{float(ratio):.6f}" if ratio > Fraction(to_billionths(most), 10**9) else ""
