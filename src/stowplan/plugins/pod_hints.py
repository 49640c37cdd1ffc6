"""What the queueing hints of several plugins share."""

from __future__ import annotations

from stowplan.framework.clusterevents import QUEUE_POD, QUEUE_SKIP, QueueingHint
from stowplan.objects.pod import Pod


def queueing_hint(is_helpful: bool) -> QueueingHint:
    """QUEUE for True, SKIP for False."""
    return QUEUE_POD if is_helpful else QUEUE_SKIP


def is_assigned_or_nominated(pod: Pod) -> bool:
    """True for a pod that is bound or nominated: only then it uses resources."""
    return bool(pod.node_name or pod.status.nominated_node_name)


def after_own_update(pod: Pod, old: Pod, new: Pod) -> QueueingHint:
    """QUEUE when the changed pod is the refused pod itself."""
    return queueing_hint(new.uid == pod.uid)
