"""Whether tolerations tolerate taints.

Source: Kubernetes v1.36, api core/v1 toleration and component-helpers scheduling/corev1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from stowplan.objects.node import Taint
from stowplan.objects.pod import Toleration
from stowplan.objects.quantity import INT64_MAX, INT64_MIN

HARD_EFFECTS = frozenset({"NoSchedule", "NoExecute"})
"""Effects that keep pods off; evicting other pods does not help."""

SOFT_EFFECTS = frozenset({"PreferNoSchedule"})
"""Effects that make a node less preferred."""

UNSCHEDULABLE_TAINT = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
"""The taint of a cordoned node, counted whether it is present or not."""

# Canonical integers only: no plus sign, no leading zero, no minus zero. 19 digits hold any int64.
_DECIMAL = re.compile(r"-?[1-9][0-9]{0,18}|0")


def tolerates(toleration: Toleration, taint: Taint, comparison_operators: bool = False) -> bool:
    """True when `toleration` tolerates `taint`; an empty effect or key tolerates every one.

    An empty key with the operator Equal still compares the value. comparison_operators: whether Lt
    and Gt are enabled (a feature gate); if not, they tolerate nothing.
    """
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    if toleration.operator == "Exists":
        return True
    return comparison_operators and _compares(toleration, taint)


def is_tolerated(
    taint: Taint, tolerations: Iterable[Toleration], comparison_operators: bool = False
) -> bool:
    """True when any of `tolerations` tolerates `taint`."""
    return any(tolerates(one, taint, comparison_operators) for one in tolerations)


def is_untolerated(
    taint: Taint,
    tolerations: Iterable[Toleration],
    effects: frozenset[str],
    comparison_operators: bool = False,
) -> bool:
    """True when `taint` has one of `effects` and none of `tolerations` covers it."""
    return taint.effect in effects and not is_tolerated(taint, tolerations, comparison_operators)


def _compares(toleration: Toleration, taint: Taint) -> bool:
    bound, have = _int64(toleration.value), _int64(taint.value)
    if bound is None or have is None:
        return False
    return (
        have < bound
        if toleration.operator == "Lt"
        else (toleration.operator == "Gt" and have > bound)
    )


def _int64(text: str) -> int | None:
    """`text` as an int64 written canonically, or None."""
    number = int(text) if _DECIMAL.fullmatch(text) else None
    return number if number is not None and INT64_MIN <= number <= INT64_MAX else None
