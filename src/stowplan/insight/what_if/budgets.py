"""Disruption budgets: how many pods of each may be evicted, also where no controller has counted.

Source: kube-controller-manager v1.36, pkg/controller/disruption/disruption.go.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from stowplan.objects.meta import Object
from stowplan.objects.pod import Pod
from stowplan.objects.selectors import SelectorError, label_selector_matches
from stowplan.objects.workload import PodDisruptionBudget, PodDisruptionBudgetStatus


class BudgetIndex:
    """The disruption budgets of a cluster by the pods that they select."""

    def __init__(self, objects: Iterable[Object]) -> None:
        self._by_namespace: dict[str, list[PodDisruptionBudget]] = {}
        self._known: dict[tuple[str, frozenset[tuple[str, str]]], list[PodDisruptionBudget]] = {}
        for one in objects:
            if isinstance(one, PodDisruptionBudget):
                self._by_namespace.setdefault(one.namespace, []).append(one)

    def __len__(self) -> int:
        return sum(len(budgets) for budgets in self._by_namespace.values())

    def of(self, pod: Pod) -> list[PodDisruptionBudget]:
        """The budgets that select a pod."""
        budgets = self._by_namespace.get(pod.namespace)
        if budgets is None:
            return []
        key = pod.namespace, frozenset(pod.labels.items())
        if key not in self._known:
            self._known[key] = [one for one in budgets if _selects(one, pod)]
        return self._known[key]


def counted_budgets(objects: Sequence[Object], pods: Iterable[Pod]) -> list[Object]:
    """The objects, where budgets without a status have the one that the controller would write.

    Differs: the expected number of pods is that of the selected pods, not the controllers' scale.
    """
    uncounted = [
        one
        for one in objects
        if isinstance(one, PodDisruptionBudget)
        and not one.status.observed_generation
        and not one.status.disruptions_allowed
    ]
    if not uncounted:
        return list(objects)
    active = [pod for pod in pods if not pod.is_finished]
    counted = {id(one): _counted(one, active) for one in uncounted}
    return [counted.get(id(one), one) for one in objects]


def _selects(budget: PodDisruptionBudget, pod: Pod) -> bool:
    if budget.namespace != pod.namespace:
        return False
    try:
        return label_selector_matches(budget.spec.selector, pod.labels)
    except SelectorError:
        # As for the disruption controller, an invalid selector selects nothing.
        return False


def _counted(budget: PodDisruptionBudget, active: list[Pod]) -> PodDisruptionBudget:
    mine = [pod for pod in active if _selects(budget, pod)]
    expected = len(mine)
    healthy = sum(
        bool(pod.node_name) and pod.metadata.deletion_timestamp is None and _is_ready(pod)
        for pod in mine
    )
    spec = budget.spec
    desired = 0
    if spec.max_unavailable is not None:
        desired = max(0, expected - _of(spec.max_unavailable, expected))
    elif spec.min_available is not None:
        desired = _of(spec.min_available, expected)
    allowed = max(0, healthy - desired) if expected else 0
    return replace(budget, status=PodDisruptionBudgetStatus(allowed, observed_generation=1))


def _is_ready(pod: Pod) -> bool:
    """True unless the pod says that it is not ready: manifests have no conditions."""
    return not any(c.type == "Ready" and c.status == "False" for c in pod.status.conditions)


def _of(number: int | str, total: int) -> int:
    """A number, or a percentage of the total, rounded up."""
    if isinstance(number, str):
        text = number.strip().removesuffix("%")
        return math.ceil(int(text) * total / 100) if text.isdecimal() else 0
    return number
