"""How many pods each PodDisruptionBudget lets be evicted, from the pods of a cluster.

Source: Kubernetes v1.36, controllers/disruption.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stowplan.objects.pod import Pod
from stowplan.objects.workload import PodDisruptionBudget
from stowplan.plugins.preemption.disruption_budgets import pdb_selects


class Budgets:
    """The budgets of a cluster and what they allow at the beginning.

    A moved pod is healthy again before the next one is evicted, so what is allowed does not shrink
    from move to move.

    Differs: the pods that exist count as expected, not the scale of their controllers; a pod with a
    node is healthy unless its condition Ready is False.
    """

    def __init__(self, budgets: Iterable[PodDisruptionBudget], pods: Sequence[Pod]) -> None:
        self.budgets = list(budgets)
        self.allowed = {one.key: allowed_disruptions(one, pods) for one in self.budgets}

    def covering(self, pod: Pod) -> list[str]:
        """Keys of the budgets of a pod."""
        return [one.key for one in self.budgets if pdb_selects(one, pod)]

    def blocking(self, pod: Pod) -> str:
        """Why the API server would refuse the pod's eviction however long one waits, "" if not."""
        names = self.covering(pod)
        if len(names) > 1:
            return f"pod {pod.key} has more than one PodDisruptionBudget: {', '.join(names)}"
        if names and self.allowed[names[0]] < 1:
            return f"PodDisruptionBudget {names[0]} allows no disruption of pod {pod.key}"
        return ""


def allowed_disruptions(budget: PodDisruptionBudget, pods: Sequence[Pod]) -> int:
    """How many of the pods may be evicted at once; of a budget without minAvailable and
    maxUnavailable what its status says."""
    spec = budget.spec
    if spec.min_available is None and spec.max_unavailable is None:
        return budget.status.disruptions_allowed
    selected = [pod for pod in pods if not pod.is_finished and pdb_selects(budget, pod)]
    healthy = sum(1 for pod in selected if _is_healthy(pod))
    if spec.max_unavailable is not None:
        wanted = max(len(selected) - _scaled(spec.max_unavailable, len(selected)), 0)
    else:
        assert spec.min_available is not None
        wanted = _scaled(spec.min_available, len(selected))
    return max(healthy - wanted, 0)


def _scaled(value: int | str, total: int) -> int:
    """A number, or a percentage of `total` rounded up."""
    if isinstance(value, int):
        return value
    text = value.removesuffix("%")
    return -(-int(text) * total // 100) if text.isdecimal() else 0


def _is_healthy(pod: Pod) -> bool:
    if not pod.node_name or pod.metadata.deletion_timestamp is not None:
        return False
    return not any(c.type == "Ready" and c.status == "False" for c in pod.status.conditions)
