"""pdb: pods that PodDisruptionBudgets protect are not evicted.

Source: volcano master of 2026-08-20, pkg/scheduler/plugins/pdb/pdb.go.
"""

from __future__ import annotations

from collections.abc import Iterable

from stowplan.batch.queue_models.volcano.volcano_hooks import VolcanoPlugin
from stowplan.batch.queue_models.volcano.volcano_session import VolcanoSession
from stowplan.batch.queue_models.volcano.volcano_task import VolcanoTask
from stowplan.objects.selectors import label_selector_matches


class PdbVictims(VolcanoPlugin):
    """Counts disruptions against the budgets."""

    name = "pdb"

    def open(self, session: VolcanoSession) -> None:
        """Keep the budgets."""
        self._budgets = session.cluster.budgets

    def victim_tasks(self, others: Iterable[VolcanoTask]) -> list[VolcanoTask]:
        """Tasks whose eviction violates no budget, in the order given."""
        left = [budget.status.disruptions_allowed for budget in self._budgets]
        victims = []
        for task in others:
            pod = task.pod
            if not pod.labels:
                continue
            is_violated = False
            for i, budget in enumerate(self._budgets):
                selector = budget.spec.selector
                if budget.namespace != pod.namespace or selector is None:
                    continue
                is_empty = not selector.match_labels and not selector.match_expressions
                if is_empty or not label_selector_matches(selector, pod.labels):
                    continue
                if pod.name in budget.status.disrupted_pods:
                    continue
                left[i] -= 1
                is_violated = is_violated or left[i] < 0
            if not is_violated:
                victims.append(task)
        return victims

    def preemptable(self, task: VolcanoTask, others: list[VolcanoTask]) -> list[VolcanoTask]:
        """Tasks whose eviction violates no budget."""
        return self.victim_tasks(others)

    reclaimable = preemptable
