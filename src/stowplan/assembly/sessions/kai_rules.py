"""Which nodes a pod of a KAI-Scheduler session may go to apart from amounts: node selector and
affinity, and taints.

Differs: required pod affinity and anti-affinity are not looked at yet.
"""

from __future__ import annotations

from stowplan.batch.queue_models.kai.state.kai_node import KaiNode
from stowplan.batch.queue_models.kai.state.kai_task import KaiTask
from stowplan.objects.taints import is_untolerated
from stowplan.plugins.node_affinity.node_selector import matches_node_selector_and_affinity

FORBIDDING = frozenset({"NoSchedule", "NoExecute"})


def fits_rules(task: KaiTask, node: KaiNode) -> bool:
    """Whether a pod may go to a node."""
    if not matches_node_selector_and_affinity(task.pod, node.node.labels, node.name):
        return False
    return not any(
        is_untolerated(taint, task.pod.tolerations, FORBIDDING) for taint in node.node.taints
    )
