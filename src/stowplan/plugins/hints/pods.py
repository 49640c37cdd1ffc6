"""What several hints ask of a changed pod, and the hint of SchedulingGates.

Source: kube-scheduler v1.36, plugins/schedulinggates.
"""

from __future__ import annotations

from stowplan.framework.clusterevents import (
    POD,
    QUEUE_POD,
    SKIP_POD,
    Action,
    EventWithHint,
    QueueingHint,
    on,
)
from stowplan.objects.pod import Pod


def queue_if(worth: bool) -> QueueingHint:
    """QUEUE for True, SKIP for False."""
    return QUEUE_POD if worth else SKIP_POD


def has_a_node(pod: Pod) -> bool:
    """True for a pod that is bound or nominated: only then it takes room from others."""
    return bool(pod.node_name or pod.status.nominated_node_name)


def own_update(pod: Pod, old: Pod, new: Pod) -> QueueingHint:
    """QUEUE when it is the refused pod itself that has changed."""
    return queue_if(new.uid == pod.uid)


def scheduling_gates_events() -> tuple[EventWithHint, ...]:
    """SchedulingGates: the last gate of the pod itself has gone."""
    return (on(POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED, own_update),)
