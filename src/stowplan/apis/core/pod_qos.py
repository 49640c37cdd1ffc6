"""QoS classes of pods.

Source: kubernetes v1.36, pkg/apis/core/helper/qos.
"""

from __future__ import annotations

from typing import Any

from stowplan.apis.machinery.stored_form import encode
from stowplan.apis.schema import canonical_quantity
from stowplan.objects.encoding.tree import Tree

_CACHED_MAX, _CACHED_BYTES_MAX = 2_000, 16 << 10
_SUPPORTED_BY_QOS = ("cpu", "memory")
_QOS_CACHE: dict[bytes, str] = {}


def cached_qos_class(spec: Tree) -> str:
    """`qos_class` of a spec, cached by its encoded resources."""
    containers = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    key = encode([spec.get("resources"), *(one.get("resources") for one in containers)])
    if len(key) > _CACHED_BYTES_MAX:
        return qos_class(spec)
    found = _QOS_CACHE.get(key)
    if found is None:
        if len(_QOS_CACHE) >= _CACHED_MAX:
            _QOS_CACHE.clear()
        found = _QOS_CACHE[key] = qos_class(spec)
    return found


def qos_class(spec: Tree) -> str:
    """Guaranteed, Burstable or BestEffort, from requests and limits of the containers."""
    if spec.get("resources", {}).get("requests") or spec.get("resources", {}).get("limits"):
        parts = [spec["resources"]]
    else:
        both = (*(spec["containers"] or ()), *spec.get("initContainers", ()))
        parts = [one["resources"] for one in both]
    requests: dict[str, Any] = {}
    limits: dict[str, Any] = {}
    guaranteed = True
    for part in parts:
        _add(requests, part.get("requests", {}))
        found = _add(limits, part.get("limits", {}))
        guaranteed = guaranteed and found == set(_SUPPORTED_BY_QOS)
    if not requests and not limits:
        return "BestEffort"
    if guaranteed and set(requests) == set(limits):
        same = all(not (requests[n] > limits[n] or limits[n] > requests[n]) for n in limits)
        if same:
            return "Guaranteed"
    return "Burstable"


def _add(total: dict[str, Any], amounts: dict[str, str]) -> set[str]:
    """Add the amounts that count for the QoS class to `total`; returns their names."""
    found: set[str] = set()
    for name, text in amounts.items():
        if name in _SUPPORTED_BY_QOS:
            amount = canonical_quantity.amount(text)
            if amount.unscaled > 0:
                found.add(name)
                total[name] = total[name] + amount if name in total else amount
    return found
